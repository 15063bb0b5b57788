//! The checker of histories: it accepts what a correct store can answer, and rejects what stores with planted
//! bugs answer.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here has failed the test"
)]

use tidegate_core::algorithm::Form;
use tidegate_core::{Limit, Micros, Outcome, PermitId, Retry, Timestamp};
use tidegate_testkit::ModelState;
use tidegate_testkit::linearizability::{HistoryCall, NotLinearizable, check};

const LIMITS: [&str; 3] = ["20/second burst 10", "15/minute burst 15", "5/second"];

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
}

/// A store that decides one call after the other, with or without a bug.
struct PlantedStore<'l> {
    form: &'l Form,
    bug: PlantedBug,
    state: ModelState,
    before: ModelState,
    last_denial: Option<Outcome>,
}

impl PlantedStore<'_> {
    fn charge(&mut self, cost: u64, at: Timestamp, is_due: bool) -> Outcome {
        let permit = PermitId::from_u128(0);
        let bug = if is_due { self.bug } else { PlantedBug::None };
        let before = self.state.clone();
        if bug == PlantedBug::LostUpdate {
            self.state = self.before.clone();
        }
        let mut outcome = self.state.charge(self.form, cost, at, permit);
        match bug {
            PlantedBug::OneTooMany if !outcome.allowed => {
                (outcome.allowed, outcome.retry) = (true, Retry::Now);
            }
            PlantedBug::ChargedDenial if !outcome.allowed => {
                self.state.settle(self.form, 1, at + Micros::new(1));
            }
            PlantedBug::TakenTwice => {
                self.state.charge(self.form, cost, at, permit);
            }
            PlantedBug::ShortRetry => {
                if let Retry::After(wait) = outcome.retry {
                    outcome.retry = Retry::After(wait - Micros::new(1));
                }
            }
            _ => {}
        }
        if !outcome.allowed {
            self.last_denial = Some(outcome);
        }
        self.before = before;
        outcome
    }
}

/// The calls of a few clients, with some that get no answer.
fn history(limit: &Limit, bug: PlantedBug, random: &mut Xorshift) -> Vec<HistoryCall> {
    let form = limit.form();
    let mut store = PlantedStore {
        form,
        bug,
        state: ModelState::fresh(form),
        before: ModelState::fresh(form),
        last_denial: None,
    };
    let mut below = |end: u64| random.below(end);
    let (mut at, mut open) = (1_794_770_000_000_000, 0);
    let mut calls = Vec::new();
    for index in 0..120 {
        // Often the same microsecond.
        at += below(4) * below(4) * below(20_000);
        let time = Timestamp::from_micros(at);
        let began = Timestamp::from_micros(at - below(30_000));
        let ended = time + Micros::new(below(30_000));
        let cost = 1 + below(3);
        let is_due = index % 10 == 3;
        if open < 6 && below(20) == 0 {
            open += 1;
            if below(2) == 0 {
                store.charge(cost, time, false);
            }
            calls.push(HistoryCall {
                began,
                answer: None,
                cost,
            });
            continue;
        }
        let mut outcome = store.charge(cost, time, is_due);
        match (bug, store.last_denial) {
            (PlantedBug::LateDenial, Some(denial)) if is_due && outcome.allowed => outcome = denial,
            (PlantedBug::StaleAnswer, _) if is_due && outcome.allowed => {
                outcome.at = Timestamp::from_micros(at - 40_000);
            }
            _ => {}
        }
        calls.push(HistoryCall {
            began,
            answer: Some((ended, outcome)),
            cost,
        });
    }
    calls
}

/// How many of so many histories are rejected.
fn rejected(bug: PlantedBug, histories: usize) -> usize {
    let mut random = Xorshift(0x2545_f491_4f6c_dd1d);
    let mut rejected = 0;
    for index in 0..histories {
        let limit: Limit = LIMITS[index % LIMITS.len()].parse().unwrap();
        let history = history(&limit, bug, &mut random);
        match check(&limit, &history) {
            Ok(()) => {}
            Err(NotLinearizable::Undecided) => panic!("history {index} of {bug:?} is undecided"),
            Err(problem) if bug == PlantedBug::None => panic!("history {index}: {problem}"),
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
    assert_eq!(rejected(PlantedBug::None, 300), 0);
}

#[test]
fn every_planted_bug_is_found() {
    for bug in [
        PlantedBug::LostUpdate,
        PlantedBug::OneTooMany,
        PlantedBug::ChargedDenial,
        PlantedBug::TakenTwice,
        PlantedBug::ShortRetry,
        PlantedBug::LateDenial,
        PlantedBug::StaleAnswer,
    ] {
        // In some histories the bug has no effect, for example if the lost update was a denial.
        let rejected = rejected(bug, 60);
        println!("{bug:?}: {rejected} of 60 are rejected");
        assert!(
            rejected >= 30,
            "{bug:?}: only {rejected} of 60 are rejected"
        );
    }
}

#[test]
fn effects_of_calls_without_an_answer_are_found_wherever_they_are() {
    let limit: Limit = "3/hour".parse().unwrap();
    let at = |seconds: u64| Timestamp::from_seconds(1_794_770_000 + seconds);
    let mut state = ModelState::fresh(limit.form());
    let mut charge = |seconds| state.charge(limit.form(), 1, at(seconds), PermitId::from_u128(0));
    let first = charge(10);
    let lost = charge(20);
    let second = charge(30);
    assert!(lost.allowed);
    let answered = |seconds, outcome| HistoryCall {
        began: at(seconds),
        answer: Some((at(seconds + 1), outcome)),
        cost: 1,
    };
    let open = |seconds| HistoryCall {
        began: at(seconds),
        answer: None,
        cost: 1,
    };
    let calls = [answered(10, first), open(15), answered(30, second)];
    assert_eq!(check(&limit, &calls), Ok(()));
    // It began too late to explain the answer.
    let calls = [answered(10, first), open(31), answered(30, second)];
    assert!(check(&limit, &calls).is_err());
    let calls = [answered(10, first), answered(30, second)];
    assert!(check(&limit, &calls).is_err());
}
