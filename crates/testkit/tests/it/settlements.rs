//! The checker of histories with reservations that are settled: it accepts those of a correct store, and rejects those of
//! stores with a planted bug.

#![expect(clippy::unwrap_used, reason = "a test may")]

use tidegate_core::{
    Adjusted, Algorithm, Anchor, Limit, Micros, Outcome, PermitId, Rate, Timestamp,
};
use tidegate_testkit::ModelState;
use tidegate_testkit::linearizability::{
    HistoryCall, HistoryCharge, HistorySettlement, NotLinearizable, check,
};

/// What is wrong with the settlements of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettlementBug {
    None,
    /// A repeated call gives back once more.
    GivenBackTwice,
    /// The answer is right, and nothing is given back.
    Ignored,
    /// One more is given back than was left over.
    OneTooMuch,
    /// It takes effect after its answer.
    TooLate,
}

/// Limits in which only the order of settlements matters.
fn limits() -> Vec<Limit> {
    let algorithms = [
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
    ];
    let limit = |algorithm| Limit::new(Rate::new(40, Micros::DAY), algorithm).unwrap();
    algorithms.map(limit).to_vec()
}

fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |end| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % end
    }
}

/// The calls of a few clients on one limit. Every fifth settlement has the bug.
fn history(limit: &Limit, bug: SettlementBug, seed: u64) -> Vec<HistoryCall> {
    let form = limit.form();
    let (mut state, mut below) = (ModelState::fresh(form), numbers(seed));
    let mut now = 1_794_770_000_000_000;
    let mut calls: Vec<HistoryCall> = Vec::new();
    let (mut open, mut late): (Vec<usize>, Option<(u64, Timestamp)>) = (Vec::new(), None);
    for turn in 0..160_u64 {
        now += 1 + below(2_000);
        let at = Timestamp::from_micros(now);
        let (began, ended) = (
            at - Micros::new(below(4_000)),
            at + Micros::new(below(4_000)),
        );
        let is_due = turn % 5 == 3;
        if !open.is_empty() && below(2) == 0 {
            let chosen = usize::try_from(below(open.len() as u64)).unwrap();
            let call = &mut calls[open.swap_remove(chosen)];
            let (of, outcomes) = call.answer.clone().unwrap();
            let charged: Outcome = outcomes[0];
            let cost = call.charges[0].cost;
            let actual = below(cost);
            let less = cost - actual;
            let mut adjusted = Adjusted {
                given_back: state.given_back(form, less, charged.at, at),
                ..Adjusted::default()
            };
            let before = state.clone();
            state.give_back(form, less, charged.at, at);
            adjusted.remaining = state.ask(form, 0, at).remaining;
            match bug {
                SettlementBug::GivenBackTwice if is_due => {
                    state.give_back(form, less.min(actual), charged.at, at);
                }
                SettlementBug::Ignored if is_due => state = before,
                SettlementBug::OneTooMuch if is_due && actual > 0 => {
                    state.give_back(form, 1, charged.at, at);
                }
                SettlementBug::TooLate if is_due && late.is_none() => {
                    state = before;
                    late = Some((less, charged.at));
                }
                _ => {}
            }
            call.settlement = Some(HistorySettlement {
                began: began.max(of),
                ended: ended.max(of),
                actual,
                adjusted: vec![adjusted],
            });
            now = now.max(of.as_micros());
            continue;
        }
        let cost = 1 + below(9);
        let outcome = state.charge(form, cost, at, PermitId::from_u128(turn.into()));
        if outcome.allowed {
            open.push(calls.len());
        }
        calls.push(HistoryCall {
            began,
            answer: Some((ended, vec![outcome])),
            charges: vec![HistoryCharge { limit: 0, cost }],
            settlement: None,
        });
        if let Some((less, charged_at)) = late.take() {
            state.give_back(form, less, charged_at, at);
        }
    }
    calls
}

fn rejected(bug: SettlementBug, histories: u64) -> usize {
    let mut rejected = 0;
    for (limit, seed) in limits().iter().cycle().zip(1..=histories) {
        let history = history(limit, bug, seed);
        let checked = check(std::slice::from_ref(limit), &history);
        if bug == SettlementBug::None {
            assert_eq!(checked, Ok(()), "{limit:?}, seed {seed}");
        }
        assert_ne!(checked, Err(NotLinearizable::Undecided), "seed {seed}");
        rejected += usize::from(checked.is_err());
    }
    rejected
}

#[test]
fn settlements_of_a_correct_store_are_accepted() {
    assert_eq!(rejected(SettlementBug::None, 80), 0);
}

#[test]
fn settlements_with_a_planted_bug_are_rejected() {
    for bug in [
        SettlementBug::GivenBackTwice,
        SettlementBug::Ignored,
        SettlementBug::OneTooMuch,
        SettlementBug::TooLate,
    ] {
        let rejected = rejected(bug, 40);
        println!("planted {bug:?}: {rejected} of 40 histories are rejected");
        assert!(rejected >= 20, "{bug:?}: only {rejected} of 40");
    }
}
