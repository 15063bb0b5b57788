//! Counters by the path of a limit: those that the rules name, and a bounded number that values of requests name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use tidegate::rules::{RuleSet, StatPath};

use super::hits::{LIMIT_STATS, LimitCounts};

type ByPath<T> = HashMap<Box<str>, Arc<T>, RandomState>;

/// How many names the keys of limits that come with calls may make. Keys are written in the configuration of a proxy.
const MOST_KEYS: usize = 1_000;

/// The counters of one limit, in the order of [`LIMIT_STATS`].
#[derive(Debug, Default)]
struct LimitCounters([AtomicU64; LIMIT_STATS.len()]);

/// All counters that are named by paths.
pub(super) struct NamedCounters {
    /// Those of the rules in force, and of limits that are gone, up to `room` of these.
    of_rules: ArcSwap<ByPath<LimitCounters>>,
    of_values: RwLock<ByPath<LimitCounters>>,
    /// Limits of calls without their values, once there is no room for these.
    of_keys: RwLock<ByPath<LimitCounters>>,
    /// Descriptors of each domain that no rule has.
    unknown_domains: RwLock<ByPath<AtomicU64>>,
    /// The same of domains without room for their names.
    other_domains: AtomicU64,
    /// How many names values of requests may make.
    room: usize,
    taken: AtomicUsize,
    is_full: AtomicBool,
}

impl LimitCounters {
    #[inline]
    fn add(&self, counts: &LimitCounts) {
        for (counter, count) in self.0.iter().zip(counts) {
            // Most counts are zero.
            if *count > 0 {
                counter.fetch_add(*count, Ordering::Relaxed);
            }
        }
    }

    fn read(&self) -> LimitCounts {
        let mut counts = LimitCounts::default();
        for (count, counter) in counts.iter_mut().zip(&self.0) {
            *count = counter.load(Ordering::Relaxed);
        }
        counts
    }
}

impl NamedCounters {
    pub(super) fn new(room: usize) -> Self {
        Self {
            of_rules: ArcSwap::default(),
            of_values: RwLock::default(),
            of_keys: RwLock::default(),
            unknown_domains: RwLock::default(),
            other_domains: AtomicU64::new(0),
            room,
            taken: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    /// Takes the names of new rules. A limit that stays continues its counters.
    pub(super) fn rules_changed(&self, rules: &RuleSet) {
        let earlier = self.of_rules.load();
        let mut next = ByPath::with_capacity_and_hasher(rules.len(), RandomState::default());
        for path in rules.iter().filter_map(|rule| rule.stat()) {
            let known = earlier.get(path).map(Arc::clone);
            next.insert(path.into(), known.unwrap_or_default());
        }
        // What was counted of limits that are gone may not have been sent yet.
        let gone = earlier.iter().filter(|(path, _)| !next.contains_key(*path));
        let used = gone.filter(|(_, counters)| counters.read() != LimitCounts::default());
        let used = used.map(|(path, counters)| (path.clone(), Arc::clone(counters)));
        let kept: Vec<_> = used.take(self.room).collect();
        next.extend(kept);
        self.of_rules.store(Arc::new(next));
    }

    /// Counts what a call does to a limit. Whether its name is the first without room.
    #[inline]
    pub(super) fn add(&self, path: &StatPath<'_>, counts: &LimitCounts) -> bool {
        match path {
            StatPath::Fixed(path) => {
                if let Some(counters) = self.of_rules.load().get(*path) {
                    counters.add(counts);
                }
                false
            }
            StatPath::Named {
                path,
                without_values,
            } => self.add_named(path, without_values, counts),
        }
    }

    fn add_named(&self, path: &str, without_values: &str, counts: &LimitCounts) -> bool {
        if with(&self.of_values, path, |counters| counters.add(counts)) {
            return false;
        }
        if self.insert(&self.of_values, path, |counters| counters.add(counts)) {
            return false;
        }
        if let Some(counters) = self.of_rules.load().get(without_values) {
            counters.add(counts);
        } else if !with(&self.of_keys, without_values, |it| it.add(counts)) {
            let mut of_keys = self.of_keys.write();
            if of_keys.len() < MOST_KEYS {
                of_keys
                    .entry(without_values.into())
                    .or_default()
                    .add(counts);
            }
        }
        self.became_full()
    }

    /// Counts a descriptor of a domain that no rule has. Whether its name is the first without room.
    pub(super) fn add_unknown_domain(&self, domain: &str) -> bool {
        let add = |count: &AtomicU64| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        if with(&self.unknown_domains, domain, add)
            || self.insert(&self.unknown_domains, domain, add)
        {
            return false;
        }
        add(&self.other_domains);
        self.became_full()
    }

    /// Makes a counter, or finds the one that another thread made, and uses it. Whether there was room.
    fn insert<T: Default>(
        &self,
        counters: &RwLock<ByPath<T>>,
        name: &str,
        add: impl FnOnce(&T),
    ) -> bool {
        if self.taken.load(Ordering::Relaxed) >= self.room {
            return false;
        }
        let mut counters = counters.write();
        if !counters.contains_key(name) {
            let take = |taken: usize| (taken < self.room).then_some(taken + 1);
            let order = Ordering::Relaxed;
            if self.taken.fetch_update(order, order, take).is_err() {
                return false;
            }
        }
        add(counters.entry(name.into()).or_default());
        true
    }

    fn became_full(&self) -> bool {
        !self.is_full.swap(true, Ordering::Relaxed)
    }

    /// Whether there was no room for a name.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The counts of each path.
    pub(super) fn limits(&self) -> BTreeMap<Box<str>, LimitCounts> {
        let mut limits = BTreeMap::<Box<str>, LimitCounts>::new();
        let mut add = |counters: &ByPath<LimitCounters>| {
            for (path, counters) in counters {
                let sums = limits.entry(path.clone()).or_default();
                for (sum, count) in sums.iter_mut().zip(counters.read()) {
                    *sum += count;
                }
            }
        };
        add(&self.of_rules.load());
        add(&self.of_values.read());
        add(&self.of_keys.read());
        limits
    }

    /// The count of each domain that no rule has, and that of all others.
    pub(super) fn unknown_domains(&self) -> (Vec<(Box<str>, u64)>, u64) {
        let domains = self.unknown_domains.read();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counted = domains.iter().map(|(name, it)| (name.clone(), count(it)));
        (counted.collect(), count(&self.other_domains))
    }
}

/// Uses a counter, if it is there.
fn with<T>(counters: &RwLock<ByPath<T>>, name: &str, add: impl FnOnce(&T)) -> bool {
    let counters = counters.read();
    let found = counters.get(name);
    found.map(|counter| add(counter)).is_some()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use tidegate::rules::{RuleSettings, Source};

    use super::*;

    const ONE: LimitCounts = [0, 0, 0, 0, 1, 1];

    fn rules(keys: &[&str]) -> RuleSet {
        let limit = |key: &&str| {
            format!("  - {{key: {key}, rate_limit: {{unit: hour, requests_per_unit: 9}}}}\n")
        };
        let limits: String = keys.iter().map(limit).collect();
        let text = format!("domain: web\ndescriptors:\n{limits}");
        RuleSet::read(&Source::new("rules", text), &RuleSettings::default()).unwrap()
    }

    fn named<'p>(path: &str, without_values: &'p str) -> StatPath<'p> {
        StatPath::Named {
            path: path.to_owned(),
            without_values: Cow::Borrowed(without_values),
        }
    }

    fn totals(counters: &NamedCounters) -> Vec<(String, u64)> {
        let limits = counters.limits().into_iter();
        limits
            .map(|(path, counts)| (path.into_string(), counts[4]))
            .collect()
    }

    #[test]
    fn beyond_the_room_values_are_left_out_of_names() {
        let counters = NamedCounters::new(2);
        counters.rules_changed(&rules(&["a"]));
        for (value, is_first_without_room) in [
            ("x", false),
            ("y", false),
            ("x", false),
            ("z", true),
            ("w", false),
        ] {
            let path = named(&format!("web.a_{value}"), "web.a");
            assert_eq!(counters.add(&path, &ONE), is_first_without_room, "{value}");
        }
        // The keys of a limit of a call are no rule.
        let _ = counters.add(&named("web.b_x", "web.b"), &ONE);
        assert!(!counters.add_unknown_domain("other"));
        assert!(counters.is_full());
        let expected = [("web.a", 2), ("web.a_x", 2), ("web.a_y", 1), ("web.b", 1)];
        let expected = expected.map(|(path, count)| (path.to_owned(), count));
        assert_eq!(totals(&counters), expected);
        assert_eq!(counters.unknown_domains(), (Vec::new(), 1));
    }

    #[test]
    fn unknown_domains_take_room_too() {
        let counters = NamedCounters::new(1);
        assert!(!counters.add_unknown_domain("a"));
        assert!(!counters.add_unknown_domain("a"));
        assert!(counters.add_unknown_domain("b"));
        assert_eq!(counters.unknown_domains(), (vec![("a".into(), 2)], 1));
    }

    #[test]
    fn a_limit_that_stays_goes_on_counting_and_one_that_is_gone_is_kept_if_it_was_used() {
        let counters = NamedCounters::new(10);
        counters.rules_changed(&rules(&["a", "b", "c"]));
        let _ = counters.add(&StatPath::Fixed("web.a"), &ONE);
        let _ = counters.add(&StatPath::Fixed("web.b"), &ONE);
        counters.rules_changed(&rules(&["a"]));
        let _ = counters.add(&StatPath::Fixed("web.a"), &ONE);
        let expected = [("web.a", 2), ("web.b", 1)];
        let expected = expected.map(|(path, count)| (path.to_owned(), count));
        assert_eq!(totals(&counters), expected);
    }

    #[test]
    fn threads_share_counters_and_the_room() {
        let counters = NamedCounters::new(50);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for index in 0..1_000 {
                        let path = named(&format!("web.a_{}", index % 100), "web.a");
                        let _ = counters.add(&path, &ONE);
                    }
                });
            }
        });
        let limits = counters.limits();
        assert_eq!(limits.len(), 51);
        assert_eq!(limits.values().map(|counts| counts[4]).sum::<u64>(), 4_000);
    }
}
