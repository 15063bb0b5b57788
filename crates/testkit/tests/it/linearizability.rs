//! The checker of histories: it accepts what a correct store can answer, of every algorithm and of several limits
//! at a time, and rejects what stores with planted bugs answer.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "what fails here has failed the test, and a longer run is asked for by a variable"
)]

use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Anchor, Limit, Micros, Outcome, PermitId, Rate, Retry, Timestamp};
use tidegate_testkit::ModelState;
use tidegate_testkit::linearizability::{HistoryCall, HistoryCharge, NotLinearizable, check};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlantedBug {
    None,
    /// A charge is decided on the state before the last one, whose effect is then lost.
    LostUpdate,
    /// One more than the limit is admitted.
    OneTooMany,
    /// A denied charge is taken.
    ChargedDenial,
    /// A charge is taken twice, as by a repeated call.
    TakenTwice,
    /// `retry_after` is a microsecond short.
    ShortRetry,
    /// A denial is answered from memory after it has ended.
    LateDenial,
    /// An answer is older than the call.
    StaleAnswer,
    /// Where one of several limits denies, the others are charged.
    HalfCharged,
}

const BUGS: [PlantedBug; 8] = [
    PlantedBug::LostUpdate,
    PlantedBug::OneTooMany,
    PlantedBug::ChargedDenial,
    PlantedBug::TakenTwice,
    PlantedBug::ShortRetry,
    PlantedBug::LateDenial,
    PlantedBug::StaleAnswer,
    PlantedBug::HalfCharged,
];

/// Every algorithm, with windows that pass within a history, and pairs of limits.
fn limits() -> Vec<Vec<Limit>> {
    let rate = |count, millis| Rate::new(count, Micros::from_millis(millis));
    let windowed = [
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SlidingWindowSlots {
            slots: Some(10),
            strict: false,
        },
        Algorithm::SlidingWindowSlots {
            slots: Some(10),
            strict: true,
        },
        Algorithm::TokenBucket {
            max_delay: Micros::from_millis(100),
        },
        Algorithm::LEAKY_BUCKET,
        Algorithm::LeakyBucket { shape: false },
    ];
    let mut limits: Vec<Limit> = windowed
        .iter()
        .map(|algorithm| Limit::new(rate(12, 500), *algorithm).unwrap())
        .collect();
    for text in ["20/second burst 10", "15/minute burst 15", "5/second"] {
        limits.push(text.parse().unwrap());
    }
    let lease_ttl = Micros::from_millis(300);
    let holders = Rate::concurrent(9);
    limits.push(Limit::new(holders, Algorithm::Concurrency { lease_ttl }).unwrap());
    let pairs = [(0, 9), (2, 4), (12, 3), (1, 11)];
    let pairs = pairs.map(|(one, two)| vec![limits[one].clone(), limits[two].clone()]);
    let singles = limits.into_iter().map(|limit| vec![limit]);
    singles.chain(pairs).collect()
}

/// A store that decides one call after the other, with or without a bug.
struct PlantedStore<'l> {
    forms: Vec<&'l Form>,
    bug: PlantedBug,
    states: Vec<ModelState>,
    before: Vec<ModelState>,
    last_denial: Option<(Vec<HistoryCharge>, Vec<Outcome>)>,
    permits: u128,
}

impl<'l> PlantedStore<'l> {
    fn new(limits: &'l [Limit], bug: PlantedBug) -> Self {
        let forms: Vec<&Form> = limits.iter().map(Limit::form).collect();
        let fresh = forms.iter().map(|form| ModelState::fresh(form));
        let states: Vec<_> = fresh.collect();
        Self {
            forms,
            bug,
            before: states.clone(),
            states,
            last_denial: None,
            permits: 0,
        }
    }

    fn charge(&mut self, charges: &[HistoryCharge], at: Timestamp, is_due: bool) -> Vec<Outcome> {
        let bug = if is_due { self.bug } else { PlantedBug::None };
        let before = self.states.clone();
        if bug == PlantedBug::LostUpdate {
            self.states.clone_from(&self.before);
        }
        let untouched = self.states.clone();
        let mut outcomes = self.take(charges, at);
        let is_denied = outcomes.iter().any(|outcome| !outcome.allowed);
        if is_denied && bug != PlantedBug::HalfCharged {
            self.states = untouched;
            for (charge, outcome) in charges.iter().zip(&mut outcomes) {
                let state = &mut self.states[charge.limit];
                if outcome.allowed {
                    let idle = state.ask(self.forms[charge.limit], 0, at);
                    (outcome.remaining, outcome.reset_at) = (idle.remaining, idle.reset_at);
                }
            }
        }
        match bug {
            PlantedBug::OneTooMany => {
                for outcome in outcomes.iter_mut().filter(|outcome| !outcome.allowed) {
                    (outcome.allowed, outcome.retry) = (true, Retry::Now);
                }
            }
            PlantedBug::ChargedDenial if is_denied => {
                let charge = charges[0];
                let form = self.forms[charge.limit];
                self.permits += 1;
                let permit = PermitId::from_u128(self.permits);
                self.states[charge.limit].charge(form, 1, at + Micros::new(1), permit);
            }
            PlantedBug::TakenTwice => {
                self.take(charges, at);
            }
            PlantedBug::ShortRetry => {
                for outcome in &mut outcomes {
                    if let Retry::After(wait) = outcome.retry {
                        outcome.retry = Retry::After(wait - Micros::new(1));
                    }
                }
            }
            _ => {}
        }
        if is_denied {
            self.last_denial = Some((charges.to_vec(), outcomes.clone()));
        }
        self.before = before;
        outcomes
    }

    fn take(&mut self, charges: &[HistoryCharge], at: Timestamp) -> Vec<Outcome> {
        self.permits += 1;
        let permit = PermitId::from_u128(self.permits);
        let outcomes = charges.iter().map(|charge| {
            let form = self.forms[charge.limit];
            self.states[charge.limit].charge(form, charge.cost, at, permit)
        });
        outcomes.collect()
    }
}

/// The calls of a few clients, with some that get no answer.
fn history(limits: &[Limit], bug: PlantedBug, random: &mut Xorshift) -> Vec<HistoryCall> {
    let mut store = PlantedStore::new(limits, bug);
    let mut below = |end: u64| random.below(end);
    let (mut at, mut open) = (1_794_770_000_000_000, 0);
    let mut calls = Vec::new();
    for index in 0..120 {
        // Often the same microsecond.
        at += below(4) * below(4) * below(20_000);
        let time = Timestamp::from_micros(at);
        let began = Timestamp::from_micros(at - below(30_000));
        let ended = time + Micros::new(below(30_000));
        // Where there are two limits: one of them, or both.
        let chosen = if limits.len() > 1 { below(3) } else { 2 };
        let charges: Vec<HistoryCharge> = (0..limits.len())
            .filter(|limit| chosen == 2 || chosen == *limit as u64)
            .map(|limit| HistoryCharge {
                limit,
                cost: 1 + below(3),
            })
            .collect();
        let is_due = index % 10 == 3;
        let mut call = HistoryCall {
            began,
            answer: None,
            charges,
            settlement: None,
        };
        if open < 6 && below(20) == 0 {
            open += 1;
            if below(2) == 0 {
                store.charge(&call.charges, time, false);
            }
            calls.push(call);
            continue;
        }
        let mut outcomes = store.charge(&call.charges, time, is_due);
        let is_allowed = outcomes.iter().all(|outcome| outcome.allowed);
        match (bug, &store.last_denial) {
            (PlantedBug::LateDenial, Some((charges, denial))) if is_due && is_allowed => {
                (call.charges, outcomes) = (charges.clone(), denial.clone());
            }
            (PlantedBug::StaleAnswer, _) if is_due && is_allowed => {
                for outcome in &mut outcomes {
                    outcome.at = Timestamp::from_micros(at - 40_000);
                }
            }
            _ => {}
        }
        call.answer = Some((ended, outcomes));
        calls.push(call);
    }
    calls
}

/// How many of so many histories are rejected.
fn rejected(bug: PlantedBug, histories: usize) -> usize {
    let mut random = Xorshift(0x2545_f491_4f6c_dd1d);
    let mut all = limits();
    if bug == PlantedBug::HalfCharged {
        all.retain(|limits| limits.len() > 1);
    }
    let mut rejected = 0;
    for index in 0..histories {
        let limits = &all[index % all.len()];
        let history = history(limits, bug, &mut random);
        match check(limits, &history) {
            Ok(()) => {}
            Err(NotLinearizable::Undecided) => {
                panic!("history {index} of {bug:?} is undecided ({limits:?})");
            }
            Err(problem) if bug == PlantedBug::None => {
                panic!("history {index}: {problem}\n{limits:#?}\n{history:#?}");
            }
            Err(_) => rejected += 1,
        }
    }
    rejected
}

/// The same numbers in every run.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn a_correct_store_is_accepted_whatever_gets_no_answer() {
    // More to look for orders that the search does not find.
    let histories = std::env::var("TIDEGATE_CHECKED_HISTORIES");
    let histories = histories.map_or(170, |histories| histories.parse().unwrap());
    assert_eq!(rejected(PlantedBug::None, histories), 0);
}

#[test]
fn every_planted_bug_is_found() {
    for bug in BUGS {
        // In some histories the bug has no effect, for example if the lost update was a denial.
        let rejected = rejected(bug, 68);
        println!("planted {bug:?}: {rejected} of 68 histories are rejected");
        assert!(
            rejected >= 34,
            "{bug:?}: only {rejected} of 68 are rejected"
        );
    }
}

#[test]
fn effects_of_calls_without_an_answer_are_found_wherever_they_are() {
    let limits: Vec<Limit> = vec!["3/hour".parse().unwrap()];
    let at = |seconds: u64| Timestamp::from_seconds(1_794_770_000 + seconds);
    let form = limits[0].form();
    let mut state = ModelState::fresh(form);
    let mut charge = |seconds| state.charge(form, 1, at(seconds), PermitId::from_u128(0));
    let first = charge(10);
    let lost = charge(20);
    let second = charge(30);
    assert!(lost.allowed);
    let charges = vec![HistoryCharge { limit: 0, cost: 1 }];
    let answered = |seconds, outcome| HistoryCall {
        began: at(seconds),
        answer: Some((at(seconds + 1), vec![outcome])),
        charges: charges.clone(),
        settlement: None,
    };
    let open = |seconds| HistoryCall {
        began: at(seconds),
        answer: None,
        charges: charges.clone(),
        settlement: None,
    };
    let calls = [answered(10, first), open(15), answered(30, second)];
    assert_eq!(check(&limits, &calls), Ok(()));
    // It began too late to explain the answer.
    let calls = [answered(10, first), open(31), answered(30, second)];
    assert!(check(&limits, &calls).is_err());
    let calls = [answered(10, first), answered(30, second)];
    assert!(check(&limits, &calls).is_err());
}

#[test]
fn a_history_that_is_too_long_is_not_searched() {
    let limits: Vec<Limit> = vec!["3/hour".parse().unwrap()];
    let open = HistoryCall {
        began: Timestamp::from_seconds(1_794_770_000),
        answer: None,
        charges: vec![HistoryCharge { limit: 0, cost: 1 }],
        settlement: None,
    };
    assert_eq!(check(&limits, &vec![open.clone(); 8]), Ok(()));
    let nine = vec![open; 9];
    assert_eq!(check(&limits, &nine), Err(NotLinearizable::Undecided));
}
