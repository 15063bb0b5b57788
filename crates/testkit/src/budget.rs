//! Five concurrent callers of one budget, the same case for every front end and store: each estimates 60 of 100 tokens.
//! Never more than 100 are held or used, but by an overrun that is reported.

#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a budget that is overspent has failed the test"
)]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::wait_until;

/// The limit of every rule that a front end is tried with.
pub const BUDGET: u64 = 100;
/// The least that a front end is asked to reserve.
pub const LEAST_ESTIMATE: u64 = 6;
const ESTIMATE: u64 = 60;
const CALLERS: usize = 5;
/// Other instances may remember a denial for a second, and units that one has leased come back later.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where callers reserve an estimate, and settle what their work cost.
pub trait BudgetFrontEnd: Sync {
    /// A reservation that is open.
    type Open: Send;

    /// Reserves as one of the callers, from a budget that this key has for itself. None if it is denied.
    fn reserve(&self, caller: usize, key: &str, estimate: u64) -> Option<Self::Open>;

    /// Settles it. The overrun that is reported.
    fn settle(&self, open: Self::Open, cost: u64) -> u64;
}

/// Plays the case with callers that use what they estimated, less, and more.
pub fn five_callers(front_end: &impl BudgetFrontEnd, name: &str) {
    for cost in [ESTIMATE, 25, 90] {
        let key = format!("{name}-{cost}");
        let mut open = reserve_at_once(front_end, &key);
        assert_eq!(open.len(), 1, "{key}: more than {BUDGET} are held, or none");
        let Some(one) = open.pop() else { continue };
        let overrun = front_end.settle(one, cost);
        assert_eq!(overrun, cost.saturating_sub(ESTIMATE), "{key}");
        let left = BUDGET - cost;
        let more = front_end.reserve(1, &key, left + 1);
        assert!(more.is_none(), "{key}: {left} are left");
        let rest = wait_until(&format!("{key}: {left} are left"), PATIENCE, || {
            front_end.reserve(2, &key, left)
        });
        for caller in 0..CALLERS {
            let more = front_end.reserve(caller, &key, LEAST_ESTIMATE);
            assert!(more.is_none(), "{key}: nothing is left");
        }
        assert_eq!(front_end.settle(rest, left), 0, "{key}");
    }
}

/// What is admitted of five estimates that arrive at the same time.
fn reserve_at_once<F: BudgetFrontEnd>(front_end: &F, key: &str) -> Vec<F::Open> {
    let together = Barrier::new(CALLERS);
    let call = |caller| {
        together.wait();
        front_end.reserve(caller, key, ESTIMATE)
    };
    let call = &call;
    thread::scope(|scope| {
        let callers = (0..CALLERS).map(|caller| scope.spawn(move || call(caller)));
        let callers: Vec<_> = callers.collect();
        let answers = callers.into_iter().map(|caller| {
            let answer = caller.join();
            answer.unwrap_or_else(|_| panic!("{key}: a caller failed"))
        });
        answers.flatten().collect()
    })
}
