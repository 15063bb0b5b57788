//! Finds the largest keys: tables of the current period, one for each group of threads, and summaries of earlier
//! periods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::budget::MemoryBudget;
use crate::distinct_sketch::DistinctSketch;
use crate::names::{KeyNames, KeyWithName};
use crate::seen_request::SeenRequest;
use crate::shard::{Padded, thread_number};
use crate::summary::KeySummary;
use crate::table::{KeyEvent, KeyTable, TableCopy, WorthKeeping};
use crate::top::{KeySort, KeyWindow, TopKey, TopKeys};
use crate::windows::KeyWindows;

/// The tables of some threads.
#[derive(Debug)]
struct ShardTables {
    denied: KeyTable,
    used: KeyTable,
}

impl ShardTables {
    fn new() -> Self {
        Self {
            denied: KeyTable::counting_distinct(),
            used: KeyTable::default(),
        }
    }

    #[inline]
    fn of(&mut self, sort: KeySort) -> &mut KeyTable {
        match sort {
            KeySort::Denied => &mut self.denied,
            KeySort::Used => &mut self.used,
        }
    }
}

#[derive(Debug, Default)]
struct BothWindows {
    denied: KeyWindows,
    used: KeyWindows,
}

impl BothWindows {
    fn of(&self, sort: KeySort) -> &KeyWindows {
        match sort {
            KeySort::Denied => &self.denied,
            KeySort::Used => &self.used,
        }
    }
}

const SORTS: [KeySort; 2] = [KeySort::Denied, KeySort::Used];

/// Finds the largest keys of a rule, or of several.
#[derive(Debug)]
pub(crate) struct KeyTracker {
    shards: Box<[Padded<Mutex<ShardTables>>]>,
    names: Mutex<KeyNames>,
    has_free_names: AtomicBool,
    /// Locked before shards and names.
    windows: Mutex<BothWindows>,
    budget: Arc<MemoryBudget>,
}

/// A key to be counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedKey {
    pub(crate) sort: KeySort,
    pub(crate) hash: u64,
    pub(crate) weight: u64,
    pub(crate) at: u32,
}

impl KeyTracker {
    /// A tracker with `shards` groups of threads, or `None` if the budget is exhausted.
    pub(crate) fn new(shards: usize, budget: &Arc<MemoryBudget>) -> Option<Self> {
        budget.take(Self::bytes(shards)).then(|| Self {
            shards: (0..shards)
                .map(|_| Padded(Mutex::new(ShardTables::new())))
                .collect(),
            names: Mutex::default(),
            has_free_names: AtomicBool::new(true),
            windows: Mutex::default(),
            budget: Arc::clone(budget),
        })
    }

    /// The memory of an empty tracker.
    pub(crate) fn bytes(shards: usize) -> usize {
        // The rings of the windows have 5 and 12 summaries, and room for 8 and 16.
        let rings = 2 * 24 * size_of::<(u64, KeySummary)>();
        size_of::<Self>() + shards * size_of::<Padded<Mutex<ShardTables>>>() + rings
    }

    /// Counts a key. Returns what of the request is worth keeping.
    #[inline]
    pub(crate) fn add(&self, key: &CountedKey) -> WorthKeeping {
        let Some(shard) = self.shards.get(thread_number() % self.shards.len().max(1)) else {
            return WorthKeeping::default();
        };
        let event = KeyEvent {
            hash: key.hash,
            weight: key.weight,
            at: key.at,
            has_free_names: self.has_free_names.load(Ordering::Relaxed),
        };
        shard.lock().of(key.sort).add(&event, &self.budget)
    }

    /// Whether a key has a name.
    pub(crate) fn has_name(&self, hash: u64) -> bool {
        self.names.lock().get(hash).is_some()
    }

    /// Keeps a request as the last one of its key, and the name of the key if it has none.
    pub(crate) fn keep(
        &self,
        hash: u64,
        request: &Arc<SeenRequest>,
        named: impl FnOnce() -> KeyWithName,
    ) {
        let mut known = self.names.lock();
        known.note_request(hash, &self.budget, request);
        known.store(hash, &self.budget, named);
        self.has_free_names
            .store(known.has_free(), Ordering::Relaxed);
    }

    /// Turns the tables of a period that began at `start` into summaries.
    pub(crate) fn close(&self, start: u64, now: u64) {
        let mut windows = self.windows.lock();
        for sort in SORTS {
            let copies = self.shards.iter().map(|shard| {
                let mut tables = shard.lock();
                let table = tables.of(sort);
                let copy = table.copied();
                table.clear(&self.budget);
                copy
            });
            let copies: Vec<TableCopy> = copies.collect();
            let mut names = self.names.lock();
            for slot in copies.iter().flat_map(|copy| &copy.slots) {
                names.note_seen(slot.hash, slot.seen);
            }
            drop(names);
            let parts: Vec<_> = copies.into_iter().map(TableCopy::into_summary).collect();
            let counts_distinct = sort == KeySort::Denied;
            let sum = KeySummary::merged(parts.iter()).cut(counts_distinct);
            let windows = match sort {
                KeySort::Denied => &mut windows.denied,
                KeySort::Used => &mut windows.used,
            };
            windows.expire(now, &self.budget);
            if sum.weight > 0 {
                windows.add(start, sum, counts_distinct, &self.budget);
            }
        }
        let mut names = self.names.lock();
        names.retain(&self.budget, |hash, named| {
            // A key that came meanwhile is in no summary yet.
            u64::from(named.seen) >= start || SORTS.iter().any(|sort| windows.of(*sort).has(hash))
        });
        self.has_free_names
            .store(names.has_free(), Ordering::Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let mut windows = self.windows.lock();
        windows.denied.expire(u64::MAX, &self.budget);
        windows.used.expire(u64::MAX, &self.budget);
        for shard in &self.shards {
            let mut tables = shard.lock();
            for sort in SORTS {
                // The second time it is empty, and gives all of its memory back.
                tables.of(sort).clear(&self.budget);
                tables.of(sort).clear(&self.budget);
            }
        }
        self.names.lock().retain(&self.budget, |_, _| false);
        self.has_free_names.store(true, Ordering::Relaxed);
    }

    /// The sums of both sorts over a window.
    pub(crate) fn sums(&self, window: KeyWindow, now: u64) -> WindowSums {
        let windows = self.windows.lock();
        let mut seen = Vec::new();
        let mut sum_of = |sort| {
            let copies = self
                .shards
                .iter()
                .map(|shard| shard.lock().of(sort).copied());
            let live = copies.map(|copy| {
                seen.extend(copy.slots.iter().map(|slot| (slot.hash, slot.seen)));
                copy.into_summary()
            });
            let live: Vec<KeySummary> = live.collect();
            let over = windows.of(sort).parts(window, now);
            KeySummary::merged(over.chain(live.iter()))
        };
        let (denied, used) = (sum_of(KeySort::Denied), sum_of(KeySort::Used));
        seen.sort_unstable();
        WindowSums { denied, used, seen }
    }

    /// The keys with the largest counts, at most `most` of them; of one rule, where several share the tracker.
    pub(crate) fn top(&self, sums: &WindowSums, asked: &AskedKeys<'_>) -> TopKeys {
        let WindowSums { denied, used, seen } = sums;
        let sorted = match asked.sort {
            KeySort::Denied => denied,
            KeySort::Used => used,
        };
        let mut counts = sorted.keys.to_vec();
        counts.sort_unstable_by_key(|key| std::cmp::Reverse((key.lower, key.upper, key.hash)));
        let names = self.names.lock();
        let is_asked = |named: &&KeyWithName| named.rule.as_deref() == asked.rule;
        let (mut listed, mut rest) = (Vec::new(), sorted.error);
        for count in &counts {
            match names.get(count.hash).filter(is_asked) {
                Some(name) if listed.len() < asked.most => listed.push((count, name)),
                // The smallest that is listed, as it is at least as large.
                Some(_) => {
                    let smallest = listed.last().map_or(count.upper, |(last, _)| last.upper);
                    rest = rest.max(smallest).max(count.upper);
                }
                None => rest = rest.max(count.upper),
            }
        }
        let least = |summary: &KeySummary, hash| summary.get(hash).map_or(0, |key| key.lower);
        let last_seen = |hash, named: &KeyWithName| {
            // The last of those with this hash, if there are any.
            let end = seen.partition_point(|(other, _)| *other <= hash);
            let live = end.checked_sub(1).map(|at| seen[at]);
            let live = live
                .filter(|(other, _)| *other == hash)
                .map_or(0, |(_, at)| at);
            live.max(named.seen)
        };
        let key = |(count, named): (&crate::summary::KeyCount, &KeyWithName)| TopKey {
            name: named.name.clone(),
            last: Some(Arc::clone(&named.last)),
            denied: least(denied, count.hash),
            used: least(used, count.hash),
            lower: count.lower,
            upper: count.upper,
            seen: last_seen(count.hash, named),
        };
        let distinct_denied = if asked.rule.is_none() {
            denied.distinct(asked.probe)
        } else {
            let keys = denied.keys.iter();
            let own = keys.filter(|key| names.get(key.hash).is_some_and(|named| is_asked(&named)));
            DistinctSketch::at_least(own.count() as u64)
        };
        TopKeys {
            keys: listed.into_iter().map(key).collect(),
            distinct_denied,
            weight: sorted.weight,
            error: sorted.error,
            rest,
            from: asked.window.from(asked.now),
            is_shared: asked.rule.is_some(),
        }
    }
}

/// The keys of a window.
#[derive(Debug)]
pub(crate) struct WindowSums {
    denied: KeySummary,
    used: KeySummary,
    /// When keys of the current period were last counted, by their hashes.
    seen: Vec<(u64, u32)>,
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedKeys<'a> {
    /// Where several rules share a tracker.
    pub(crate) rule: Option<&'a str>,
    pub(crate) sort: KeySort,
    pub(crate) window: KeyWindow,
    pub(crate) now: u64,
    pub(crate) most: usize,
    /// Of the hasher of the keys.
    pub(crate) probe: u64,
}
