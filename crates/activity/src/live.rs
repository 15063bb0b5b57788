//! All activity of a server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use crate::budget::MemoryBudget;
use crate::candidate::rule_of_candidate;
use crate::counts::OutcomeCounts;
use crate::coverage::Coverage;
use crate::evidence::{RENEWALS_EACH_SECOND, SAMPLES_EACH_SECOND, ShowRequests};
use crate::part::{ActivityPart, RulePart};
use crate::room::{self, KnownRule};
use crate::rule::{Common, RuleActivity};
use crate::seeded_hasher::SeededHasher;
use crate::series::{SET_BACK, Series, SeriesSpan};
use crate::totals::RequestTotals;
use crate::tracker::KeyTracker;
use crate::windows::{period_at, start_of};

/// The most groups of threads with tables of their own.
const MOST_SHARDS: usize = 4;

/// How activity is kept.
#[derive(Debug, Clone, Copy)]
pub struct ActivitySettings {
    /// The most memory, in bytes, for everything in this crate.
    pub memory: usize,
    /// How many threads decide.
    pub threads: usize,
}

/// All activity of a server.
#[derive(Debug)]
pub struct LiveActivity {
    pub(crate) common: Arc<Common>,
    totals: RequestTotals,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rules: HashMap<Arc<str>, KnownRule>,
    pub(crate) total: Series,
    /// The rules without room of their own, together.
    shared: Series,
    /// When counters were read, also by earlier processes.
    pub(crate) coverage: Coverage,
    /// When the counters were last read.
    read_at: u64,
    /// The period whose keys are in the tables.
    period: u64,
}

/// The counts of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSeries {
    /// The id of the rule.
    pub rule: Arc<str>,
    /// Its counts, step by step.
    pub points: Vec<OutcomeCounts>,
}

/// The counts of a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActivitySeries {
    /// Of all requests.
    pub total: Vec<OutcomeCounts>,
    /// Of each rule with room of its own that was active.
    pub rules: Vec<RuleSeries>,
    /// Of the rules without room of their own, together; empty if they were not active.
    pub shared: Vec<OutcomeCounts>,
    /// How many rules have no room of their own.
    pub without_room: usize,
}

impl LiveActivity {
    /// Activity that begins at `now`, in Unix seconds.
    pub fn new(settings: &ActivitySettings, now: u64) -> Self {
        let budget = Arc::new(MemoryBudget::new(settings.memory));
        let shards = settings.threads.clamp(1, MOST_SHARDS);
        let common = Arc::new(Common {
            hasher: SeededHasher::new(),
            now: AtomicU32::new(seconds(now)),
            samples_left: AtomicU32::new(SAMPLES_EACH_SECOND),
            renewals_left: AtomicU32::new(RENEWALS_EACH_SECOND),
            keys: KeyTracker::new(shards, &budget),
            budget,
            shards,
        });
        Self {
            common,
            totals: RequestTotals::default(),
            state: Mutex::new(State {
                rules: HashMap::new(),
                total: Series::default(),
                shared: Series::default(),
                coverage: Coverage::default(),
                read_at: now,
                period: period_at(now),
            }),
        }
    }

    /// Adds to the counts of all requests.
    #[inline]
    pub fn add_requests(&self, counts: &OutcomeCounts) {
        self.totals.add(counts);
    }

    /// The activity of a rule, from now on if it is new.
    pub fn rule(&self, id: &str) -> Arc<RuleActivity> {
        self.state.lock().learn(id, &self.common)
    }

    /// The activity of a rule that is known.
    pub fn find_rule(&self, id: &str) -> Option<Arc<RuleActivity>> {
        let state = self.state.lock();
        state.rules.get(id).map(|known| Arc::clone(&known.rule))
    }

    /// The activity of all rules that are known, without that of candidates.
    pub fn rules(&self) -> Vec<Arc<RuleActivity>> {
        let state = self.state.lock();
        let rules = state.rules.values().map(|known| &known.rule);
        let rules = rules.filter(|rule| rule_of_candidate(rule.id()).is_none());
        rules.map(Arc::clone).collect()
    }

    /// Reads the counters of all rules in force, and sums up the keys of a period that is over. Call it once a second,
    /// and before reading the series. Counts since the last call belong to this call's second.
    pub fn sample<'r>(&self, now: u64, rules: impl Iterator<Item = (&'r str, OutcomeCounts)>) {
        let budget = &self.common.budget;
        let mut state = self.state.lock();
        let state = &mut *state;
        // Two callers may arrive in another order than they read the time.
        let is_set_back = now + SET_BACK < state.read_at;
        let now = if is_set_back {
            now
        } else {
            now.max(state.read_at)
        };
        self.common.set_time(seconds(now));
        let at = std::mem::replace(&mut state.read_at, now).min(now);
        state.coverage.note(at, now);
        let new = state.total.read(&self.totals.sum());
        state.total.add(at, &new, budget);
        for known in state.rules.values_mut() {
            known.is_current = false;
        }
        let mut shared = OutcomeCounts::default();
        for (id, counters) in rules {
            if !counters.is_zero() {
                state.learn(id, &self.common);
            }
            let Some(known) = state.rules.get_mut(id) else {
                continue;
            };
            known.is_current = true;
            let mut series = known.rule.series.lock();
            let new = series.read(&counters);
            if known.rule.own_keys().is_some() {
                series.add(at, &new, budget);
            } else if rule_of_candidate(id).is_none() {
                shared = shared.plus(&new);
            }
            drop(series);
            known.traffic = known.traffic.saturating_add(new.requests());
        }
        state.shared.add(at, &shared, budget);
        let is_over = period_at(now) != state.period;
        if is_over {
            self.close_period(state, now);
        }
        // Also within a period, before memory runs out: then rules would lose keys that have room.
        if is_over || room::is_short(budget) {
            let mut rules: Vec<&mut KnownRule> = state.rules.values_mut().collect();
            room::share_out(&mut rules, budget);
        }
    }

    fn close_period(&self, state: &mut State, now: u64) {
        let start = start_of(std::mem::replace(&mut state.period, period_at(now)));
        if let Some(keys) = &self.common.keys {
            keys.close(start, now);
        }
        for known in state.rules.values_mut() {
            if let Some(keys) = known.rule.own_keys() {
                keys.close(start, now);
            }
            known.age();
        }
        state.rules.retain(|id, known| {
            let is_kept = known.is_current || !known.rule.series.lock().is_idle(now);
            if !is_kept {
                self.common.budget.give(RuleActivity::bytes(id));
            }
            is_kept
        });
    }

    /// The counts of a span of time, of all requests and of each rule.
    pub fn series(&self, span: &SeriesSpan) -> ActivitySeries {
        let state = self.state.lock();
        let is_active = |points: &Vec<OutcomeCounts>| points.iter().any(|point| !point.is_zero());
        let rule = |known: &KnownRule| {
            known.rule.own_keys()?;
            let points = known.rule.series.lock().points(span);
            is_active(&points).then(|| RuleSeries {
                rule: Arc::clone(known.rule.id()),
                points,
            })
        };
        let has_no_room = |known: &&KnownRule| {
            known.rule.own_keys().is_none() && rule_of_candidate(known.rule.id()).is_none()
        };
        ActivitySeries {
            total: state.total.points(span),
            rules: state.rules.values().filter_map(rule).collect(),
            shared: Some(state.shared.points(span))
                .filter(is_active)
                .unwrap_or_default(),
            without_room: state.rules.values().filter(has_no_room).count(),
        }
    }

    /// The activity of this instance for others: of the `rules` with the most traffic, `keys` of each list.
    pub fn part(
        &self,
        now: u64,
        rules: usize,
        keys: usize,
        show: &impl ShowRequests,
    ) -> ActivityPart {
        let state = self.state.lock();
        let mut known: Vec<(u64, Arc<RuleActivity>)> = state
            .rules
            .values()
            .filter(|known| known.traffic > 0)
            .map(|known| (known.traffic, Arc::clone(&known.rule)))
            .collect();
        let (total, coverage) = (state.total.part(), state.coverage.clone());
        drop(state);
        known.sort_by(|(one, first), (other, second)| {
            other.cmp(one).then_with(|| first.id().cmp(second.id()))
        });
        let is_complete = known.len() <= rules;
        known.truncate(rules);
        let part = |(_, rule): &(u64, Arc<RuleActivity>)| {
            let series = rule.series.lock().part();
            let top = |window| rule.top_of_both(window, now, keys);
            let mut part = RulePart::new(Arc::clone(rule.id()), series, top, show);
            part.add_denied(&rule.samples(), show);
            part
        };
        ActivityPart {
            total,
            rules: known.iter().map(part).collect(),
            is_complete,
            coverage,
            probe: self.common.hasher.probe(),
        }
    }

    /// When this was counted, here and by those before it.
    pub fn coverage(&self) -> Coverage {
        self.state.lock().coverage.clone()
    }

    /// The seed of the hashes of keys: a secret that instances share to count distinct keys together.
    pub fn seed(&self) -> u128 {
        self.common.hasher.seed()
    }

    /// Uses another seed from now on, and forgets all keys if it is a new one. A key that is being counted meanwhile may
    /// be counted twice. False if there were too many seeds.
    pub fn adopt_seed(&self, seed: u128) -> bool {
        let state = self.state.lock();
        if seed == self.seed() {
            return true;
        }
        let is_adopted = self.common.hasher.adopt(seed);
        if is_adopted {
            self.common.keys.iter().for_each(KeyTracker::clear);
            for known in state.rules.values() {
                known.rule.forget_keys();
            }
        }
        is_adopted
    }

    /// The memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.common.budget.used()
    }
}

impl State {
    /// A rule by its id. A new one gets room of its own if there is enough.
    pub(crate) fn learn(&mut self, id: &str, common: &Arc<Common>) -> Arc<RuleActivity> {
        if let Some(known) = self.rules.get(id) {
            return Arc::clone(&known.rule);
        }
        let rule = Arc::new(RuleActivity::new(id.into(), common));
        common.budget.take_all(RuleActivity::bytes(id));
        if room::is_free(&common.budget) {
            rule.give_room();
        }
        let known = KnownRule {
            rule: Arc::clone(&rule),
            traffic: 0,
            is_current: true,
        };
        self.rules.insert(Arc::clone(rule.id()), known);
        rule
    }
}

/// Unix seconds as they are kept with each key.
fn seconds(now: u64) -> u32 {
    u32::try_from(now).unwrap_or(u32::MAX)
}
