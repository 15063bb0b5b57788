//! The health of a link, from the results of its calls: whether its connection is still used, how much extra time a
//! server gets after a stall of this process, and how many jobs may wait.

use std::ops::ControlFlow;
use std::time::Duration;

use super::BATCH;
use crate::monotonic::PUNCTUAL;

/// How many calls may fail with none that succeeds between them.
const FAILURES: u32 = 5;
/// The most turns of the runtime to read arrived bytes without an answer in time between them. So a server that sends
/// bytes but no answers is noticed, too.
const READING_TURNS: u32 = 1_000;

/// The result of one call, as far as it concerns the server's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BatchResult {
    /// It works.
    Answered { is_late: bool },
    /// There was no answer by the deadline; one may still come.
    Late,
    /// There was no answer for so long that none is expected.
    Silent(Duration),
    /// The server answers, but refuses the call.
    Refused(String),
    /// It works, and no longer takes writes.
    ReadOnly,
    /// The connection has ended.
    Lost(String),
}

/// The health of a link, from the results of its calls.
pub(super) struct LinkHealth {
    deadline: Duration,
    /// Calls that have failed since the last one that was answered in time.
    failures: u32,
    /// The extra time that is left. An answer in time restores it, so that a server that does not answer is noticed on
    /// a busy machine, too.
    after_stalls: Duration,
    reading_turns: u32,
}

impl LinkHealth {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            failures: 0,
            after_stalls: deadline * 3,
            reading_turns: READING_TURNS,
        }
    }

    /// Takes one result in. Breaks with the reason if the connection is no longer to be used.
    pub(super) fn observe(&mut self, result: BatchResult) -> ControlFlow<String> {
        match result {
            BatchResult::Answered { is_late: true } => ControlFlow::Continue(()),
            BatchResult::Answered { is_late: false } => {
                *self = Self::new(self.deadline);
                ControlFlow::Continue(())
            }
            BatchResult::Late => {
                let count = self.failures + 1;
                self.fail(|| format!("{count} calls in a row were not answered in time"))
            }
            BatchResult::Refused(problem) => self.fail(|| problem),
            BatchResult::Silent(time) => ControlFlow::Break(format!("it was silent for {time:?}")),
            BatchResult::ReadOnly => ControlFlow::Break("it has become a replica".to_owned()),
            BatchResult::Lost(problem) => ControlFlow::Break(problem),
        }
    }

    fn fail(&mut self, problem: impl FnOnce() -> String) -> ControlFlow<String> {
        self.failures += 1;
        if self.failures >= FAILURES {
            return ControlFlow::Break(problem());
        }
        ControlFlow::Continue(())
    }

    /// The time to give again after a stall that made this process `late`: as much, and no more than a
    /// deadline. A call may not have been written before the stall, or the server was stalled, too.
    pub(super) fn after_stall(&mut self, late: Duration) -> Option<Duration> {
        let again = late.min(self.deadline);
        (late > PUNCTUAL && spend(&mut self.after_stalls, again)).then_some(again)
    }

    /// Whether another turn may be spent to read arrived bytes. Turns, not time: a timer would fire one to two
    /// milliseconds late.
    pub(super) fn may_read(&mut self) -> bool {
        let left = self.reading_turns.checked_sub(1);
        self.reading_turns = left.unwrap_or(0);
        left.is_some()
    }
}

fn spend(left: &mut Duration, time: Duration) -> bool {
    let rest = left.checked_sub(time);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// How long recent calls took.
#[derive(Default)]
pub(super) struct CallTime {
    average: Duration,
}

impl CallTime {
    pub(super) fn learn(&mut self, took: Duration) {
        self.average = (self.average * 7 + took) / 8;
    }

    /// How long a call will take; never so long that none would be sent and nothing learned.
    pub(super) fn expected(&self, deadline: Duration) -> Duration {
        self.average.min(deadline / 2)
    }

    /// How many steps may wait so that the last one is answered within `deadline`, with `calls` under way.
    pub(super) fn room(&self, deadline: Duration, calls: usize) -> u64 {
        let call = self.average.max(Duration::from_micros(20)).as_micros();
        let rounds = (deadline.as_micros() / call).max(1);
        let steps = rounds.saturating_mul(calls.min(8) as u128 * BATCH as u128);
        u64::try_from(steps).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(15);

    #[test]
    fn what_ends_the_use_of_a_connection() {
        let on_time = || BatchResult::Answered { is_late: false };
        let late_answer = || BatchResult::Answered { is_late: true };
        let refused = || BatchResult::Refused("OOM".to_owned());
        let four = || vec![BatchResult::Late; 4];
        #[rustfmt::skip]
        let table = [
            ("few failures",            four(), vec![], None),
            ("many failures",           four(), vec![BatchResult::Late], Some("5 calls in a row were not answered in time")),
            ("refused and late",        four(), vec![refused()], Some("OOM")),
            ("answered between them",   four(), vec![on_time(), BatchResult::Late], None),
            ("answered late",           four(), vec![late_answer(), BatchResult::Late], Some("5 calls in a row were not answered in time")),
            ("silence",                 vec![], vec![BatchResult::Silent(DEADLINE)], Some("it was silent for 15ms")),
            ("a replica",               vec![], vec![BatchResult::ReadOnly], Some("it has become a replica")),
            ("the end",                 vec![], vec![BatchResult::Lost("broken pipe".to_owned())], Some("broken pipe")),
        ];
        for (name, before, last, expected) in table {
            let mut health = LinkHealth::new(DEADLINE);
            for result in before {
                assert_eq!(health.observe(result), ControlFlow::Continue(()), "{name}");
            }
            let ends = last
                .into_iter()
                .find_map(|result| health.observe(result).break_value());
            assert_eq!(ends.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn time_is_given_again_within_bounds_until_an_answer_comes_in_time() {
        let second = Duration::from_secs(1);
        let mut health = LinkHealth::new(DEADLINE);
        assert_eq!(health.after_stall(PUNCTUAL), None, "no stall");
        let five = Duration::from_millis(5);
        assert_eq!(health.after_stall(five), Some(five), "a short one");
        for _ in 0..2 {
            assert_eq!(health.after_stall(second), Some(DEADLINE));
        }
        assert_eq!(health.after_stall(second), None, "not for ever");
        let turns = std::iter::from_fn(|| health.may_read().then_some(())).count();
        assert_eq!(turns, 1_000);
        let answered = BatchResult::Answered { is_late: false };
        assert_eq!(health.observe(answered), ControlFlow::Continue(()));
        assert_eq!(health.after_stall(second), Some(DEADLINE));
        assert!(health.may_read());
    }

    #[test]
    fn as_many_may_wait_as_can_be_answered_in_time() {
        let mut time = CallTime::default();
        assert_eq!(time.room(DEADLINE, 2), 750 * 128, "of the shortest calls");
        for _ in 0..100 {
            time.learn(Duration::from_millis(30));
        }
        assert_eq!(time.room(DEADLINE, 2), 128, "always some");
        assert_eq!(time.expected(DEADLINE), DEADLINE / 2);
    }
}
