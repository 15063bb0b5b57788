//! What is counted of one rule.

use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::budget::MemoryBudget;
use crate::evidence::{
    CLIENT_EACH_SECOND, DeniedSamples, RENEWALS_EACH_SECOND, SAMPLES_EACH_SECOND,
};
use crate::names::KeyWithName;
use crate::seeded_hasher::SeededHasher;
use crate::seen_request::{SeenClient, SeenRequest};
use crate::series::Series;
use crate::table::WorthKeeping;
use crate::top::{KeySort, KeyWindow, TopKeys};
use crate::tracker::{AskedKeys, CountedKey, KeyTracker};

/// State that all rules share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) hasher: SeededHasher,
    /// The current time in Unix seconds.
    pub(crate) now: AtomicU32,
    /// How many samples of denied requests may be taken in the current second.
    pub(crate) samples_left: AtomicU32,
    /// How many last requests of known clients may be renewed in the current second.
    pub(crate) renewals_left: AtomicU32,
    /// For rules without room of their own.
    pub(crate) keys: Option<KeyTracker>,
    pub(crate) budget: Arc<MemoryBudget>,
    /// How many groups of threads have tables of their own.
    pub(crate) shards: usize,
}

/// The activity of one rule. Each decision updates it.
#[derive(Debug)]
pub struct RuleActivity {
    id: Arc<str>,
    common: Arc<Common>,
    /// When it began, or last gained or lost room, in Unix seconds.
    since: AtomicU32,
    /// Whether it has a tracker of its own to use.
    has_room: AtomicBool,
    own: OnceLock<Box<KeyTracker>>,
    pub(crate) series: Mutex<Series>,
    samples: Mutex<DeniedSamples>,
    /// The last second in which samples of requests without a key were taken, and how many.
    keyless: AtomicU64,
}

impl Common {
    /// Sets the current time. Each second has its own samples and renewals.
    pub(crate) fn set_time(&self, now: u32) {
        if self.now.swap(now, Ordering::Relaxed) != now {
            self.samples_left
                .store(SAMPLES_EACH_SECOND, Ordering::Relaxed);
            self.renewals_left
                .store(RENEWALS_EACH_SECOND, Ordering::Relaxed);
        }
    }
}

/// Takes one of what is left, if any is.
fn take_one(left: &AtomicU32) -> bool {
    let relaxed = Ordering::Relaxed;
    let taken = left.fetch_update(relaxed, relaxed, |left| left.checked_sub(1));
    taken.is_ok()
}

impl RuleActivity {
    /// The memory of a rule without room of its own, with its entry in the table of rules.
    pub(crate) fn bytes(id: &str) -> usize {
        size_of::<Self>() + 16 + 4 * size_of::<(Arc<str>, Arc<Self>)>() + id.len()
    }

    pub(crate) fn new(id: Arc<str>, common: &Arc<Common>) -> Self {
        Self {
            id,
            since: AtomicU32::new(common.now.load(Ordering::Relaxed)),
            common: Arc::clone(common),
            has_room: AtomicBool::new(false),
            own: OnceLock::new(),
            series: Mutex::default(),
            samples: Mutex::default(),
            keyless: AtomicU64::new(0),
        }
    }

    /// The id of the rule.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Counts the cost that was admitted for a key.
    #[inline]
    pub fn used(&self, key: &str, cost: u64, client: &impl SeenClient) {
        if cost > 0 {
            self.add(KeySort::Used, key, cost, client);
        }
    }

    /// Counts a denial of a key.
    #[inline]
    pub fn denied(&self, key: &str, client: &impl SeenClient) {
        self.add(KeySort::Denied, key, 1, client);
    }

    /// A request was denied that has no key.
    pub fn denied_without_key(&self, client: &impl SeenClient) {
        let now = u64::from(self.common.now.load(Ordering::Relaxed));
        let relaxed = Ordering::Relaxed;
        let taken = self.keyless.fetch_update(relaxed, relaxed, |last| {
            // The second, and how many samples were taken in it.
            let count = if last >> 8 == now { last & 0xff } else { 0 };
            (count < u64::from(CLIENT_EACH_SECOND)).then_some(now << 8 | (count + 1))
        });
        if taken.is_ok() && !client.is_shadow() && take_one(&self.common.samples_left) {
            let request = Arc::new(client.request());
            self.samples.lock().add(0, &request, &self.common.budget);
        }
    }

    #[inline]
    fn add(&self, sort: KeySort, key: &str, weight: u64, client: &impl SeenClient) {
        let mut hasher = self.common.hasher.build();
        let (keys, is_shared) = match self.own_keys() {
            Some(own) => (own, false),
            None => match &self.common.keys {
                Some(shared) => (shared, true),
                None => return,
            },
        };
        if is_shared {
            self.id.hash(&mut hasher);
        }
        hasher.write(key.as_bytes());
        let key = CountedKey {
            sort,
            // Zero is an empty slot.
            hash: hasher.finish().max(1),
            weight,
            at: self.common.now.load(Ordering::Relaxed),
        };
        let worth = keys.add(&key);
        if worth.is_any() {
            self.keep(keys, &key, worth, client);
        }
    }

    /// Keeps what is worth keeping of a request. What is known already is renewed within the bounds of each second.
    #[cold]
    fn keep(
        &self,
        keys: &KeyTracker,
        key: &CountedKey,
        worth: WorthKeeping,
        client: &impl SeenClient,
    ) {
        let common = &*self.common;
        let is_sample = worth.is_sample && !client.is_shadow() && take_one(&common.samples_left);
        let is_new = || worth.is_name && !keys.has_name(key.hash);
        let is_last = (worth.is_name || worth.is_last)
            && (is_sample || is_new() || take_one(&common.renewals_left));
        if !is_last && !is_sample {
            return;
        }
        let request = Arc::new(client.request());
        if is_last {
            let is_shared = self.own_keys().is_none();
            keys.keep(key.hash, &request, || KeyWithName {
                name: client.name(),
                rule: is_shared.then(|| Arc::clone(&self.id)),
                last: Arc::clone(&request),
                seen: key.at,
            });
        }
        if is_sample {
            let mut samples = self.samples.lock();
            samples.add(key.hash, &request, &common.budget);
        }
    }

    /// Samples of its denied requests, the newest first.
    pub fn samples(&self) -> Vec<Arc<SeenRequest>> {
        self.samples.lock().newest().cloned().collect()
    }

    /// Its tracker, if it has room.
    #[inline]
    pub(crate) fn own_keys(&self) -> Option<&KeyTracker> {
        if !self.has_room.load(Ordering::Acquire) {
            return None;
        }
        self.own.get().map(|own| &**own)
    }

    /// The keys with the largest counts, at most `most` of them.
    pub fn top_keys(&self, sort: KeySort, window: KeyWindow, now: u64, most: usize) -> TopKeys {
        let [top] = self.tops([sort], window, now, most);
        top
    }

    /// The keys with the most denials, and those with the highest cost.
    pub(crate) fn top_of_both(&self, window: KeyWindow, now: u64, most: usize) -> [TopKeys; 2] {
        self.tops([KeySort::Denied, KeySort::Used], window, now, most)
    }

    fn tops<const N: usize>(
        &self,
        sorts: [KeySort; N],
        window: KeyWindow,
        now: u64,
        most: usize,
    ) -> [TopKeys; N] {
        let (keys, rule) = match self.own_keys() {
            Some(own) => (Some(own), None),
            None => (self.common.keys.as_ref(), Some(&*self.id)),
        };
        let sums = keys.map(|keys| (keys, keys.sums(window, now)));
        let since = u64::from(self.since.load(Ordering::Relaxed));
        sorts.map(|sort| {
            let asked = AskedKeys {
                rule,
                sort,
                window,
                now,
                most,
                probe: self.common.hasher.probe(),
            };
            let top = sums.as_ref().map(|(keys, sums)| keys.top(sums, &asked));
            let mut top = top.unwrap_or_default();
            top.from = top.from.max(since);
            top
        })
    }

    fn note_room(&self, has_room: bool) {
        if self.has_room.swap(has_room, Ordering::AcqRel) != has_room {
            let now = self.common.now.load(Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
        }
    }

    /// Forgets its keys, whose hashes are not valid any more.
    pub(crate) fn forget_keys(&self) {
        if let Some(own) = self.own.get() {
            own.clear();
        }
        let now = self.common.now.load(Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// Gives it a tracker of its own, if there is memory.
    pub(crate) fn give_room(&self) -> bool {
        if self.own.get().is_none() {
            let common = &self.common;
            let Some(own) = KeyTracker::new(common.shards, &common.budget) else {
                return false;
            };
            if self.own.set(Box::new(own)).is_err() {
                common.budget.give(KeyTracker::bytes(common.shards));
            }
        }
        self.note_room(true);
        true
    }

    /// Takes its room away, with all that is known of its keys and its series.
    pub(crate) fn take_room(&self) {
        self.note_room(false);
        if let Some(own) = self.own.get() {
            own.clear();
        }
        self.series.lock().clear(&self.common.budget);
        self.samples.lock().clear(&self.common.budget);
    }
}

impl Drop for RuleActivity {
    fn drop(&mut self) {
        self.take_room();
        if self.own.get().is_some() {
            self.common
                .budget
                .give(KeyTracker::bytes(self.common.shards));
        }
    }
}
