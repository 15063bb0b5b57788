//! How long a connection is waited for, as a machine without a clock: it is told when its one alarm
//! rings, and says what to do and when to ring next.
//!
//! The alarm is not moved at each request: that would put a timer's cost on every one of them. An
//! idle connection is seen at a few rings in a row; only a head that arrives in pieces sets it anew.

use std::time::Duration;

use super::ListenSettings;
use super::activity::Phase;

/// How many quiet rings make an idle connection: it is closed at most a part of this many late.
const RINGS: u32 = 4;
const MIN_RING: Duration = Duration::from_millis(1);

/// What the alarm was set for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alarm {
    /// The head of the request of this number.
    Head(u64),
    /// Nothing but to look again: a request was under way.
    Look,
    /// So many rings without a request since this many were begun.
    Quiet { requests: u64, rings: u32 },
    /// The end of the last call.
    LastCall,
    /// The connection was asked to end.
    Left,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Go on, and ring after this.
    Wait(Duration),
    /// Ask it to end when it has answered, and ring after this.
    Leave(Duration),
    /// Drop it.
    Cut,
}

/// The state of one connection's waiting.
#[derive(Debug)]
pub(super) struct Patience {
    head: Duration,
    idle: Duration,
    last_call: Duration,
    alarm: Alarm,
}

impl Patience {
    /// For a connection whose alarm is already set to the head timeout.
    pub(super) fn new(settings: &ListenSettings) -> Self {
        Self {
            head: settings.head_timeout,
            // A ring without a wait before it would never let go of the task.
            idle: settings.idle_timeout.max(MIN_RING * RINGS),
            last_call: settings.last_call,
            alarm: Alarm::Head(0),
        }
    }

    /// The connection cannot go on for now. When a head has begun to arrive, sets the alarm anew.
    pub(super) fn paused(&mut self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Head(number) if self.alarm != Alarm::Head(number) => {
                self.alarm = Alarm::Head(number);
                Some(self.head)
            }
            _ => None,
        }
    }

    /// The drain has begun.
    pub(super) fn drained(&mut self, phase: Phase) -> Verdict {
        match phase {
            // It is waited for in any case, and its answer will say that it was the last.
            Phase::Head(number) => {
                self.alarm = Alarm::Head(number);
                Verdict::Wait(self.head)
            }
            _ if self.last_call.is_zero() => self.leave(),
            _ => {
                self.alarm = Alarm::LastCall;
                Verdict::Wait(self.last_call)
            }
        }
    }

    /// Asks the connection to end.
    pub(super) fn leave(&mut self) -> Verdict {
        self.alarm = Alarm::Left;
        Verdict::Leave(self.idle)
    }

    /// The alarm rings.
    pub(super) fn rang(&mut self, phase: Phase) -> Verdict {
        let look_after = self.idle / RINGS;
        match (self.alarm, phase) {
            (Alarm::Head(waited), Phase::Head(number)) if waited == number => Verdict::Cut,
            (_, Phase::Head(number)) => {
                self.alarm = Alarm::Head(number);
                Verdict::Wait(self.head)
            }
            (Alarm::LastCall, _) => self.leave(),
            (Alarm::Left, Phase::Busy(_)) => Verdict::Wait(self.idle),
            (Alarm::Head(0), Phase::Fresh) | (Alarm::Left, _) => Verdict::Cut,
            (Alarm::Quiet { requests, rings }, Phase::Idle(number)) if requests == number => {
                if rings + 1 >= RINGS {
                    return self.leave();
                }
                let rings = rings + 1;
                self.alarm = Alarm::Quiet { requests, rings };
                Verdict::Wait(look_after)
            }
            (_, Phase::Idle(requests)) => {
                self.alarm = Alarm::Quiet { requests, rings: 0 };
                Verdict::Wait(look_after)
            }
            (_, Phase::Busy(_) | Phase::Fresh) => {
                self.alarm = Alarm::Look;
                Verdict::Wait(look_after)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const LOOK: Duration = Duration::from_secs(20);
    const IDLE: Duration = Duration::from_secs(80);
    const LAST_CALL: Duration = Duration::from_millis(100);

    fn patience() -> Patience {
        Patience::new(&ListenSettings {
            head_timeout: HEAD,
            idle_timeout: IDLE,
            last_call: LAST_CALL,
            ..ListenSettings::default()
        })
    }

    #[test]
    fn a_head_that_does_not_end_is_cut_and_one_that_came_since_is_waited_for() {
        assert_eq!(patience().rang(Phase::Fresh), Verdict::Cut);
        assert_eq!(patience().rang(Phase::Head(0)), Verdict::Cut);
        assert_eq!(patience().rang(Phase::Head(3)), Verdict::Wait(HEAD));

        let mut patience = patience();
        assert_eq!(patience.paused(Phase::Head(0)), None, "set when it stood");
        assert_eq!(patience.paused(Phase::Idle(1)), None);
        assert_eq!(patience.paused(Phase::Head(1)), Some(HEAD));
        assert_eq!(
            patience.paused(Phase::Head(1)),
            None,
            "a drip gains nothing"
        );
        assert_eq!(patience.rang(Phase::Head(1)), Verdict::Cut);
    }

    #[test]
    fn an_idle_connection_leaves_after_four_quiet_rings_in_a_row() {
        let mut patience = patience();
        for idle in [
            Phase::Busy(7),
            Phase::Idle(7),
            Phase::Idle(7),
            Phase::Idle(8),
        ] {
            assert_eq!(patience.rang(idle), Verdict::Wait(LOOK));
        }
        for _ in 1..RINGS {
            assert_eq!(patience.rang(Phase::Idle(8)), Verdict::Wait(LOOK));
        }
        assert_eq!(patience.rang(Phase::Idle(8)), Verdict::Leave(IDLE));
        assert_eq!(patience.rang(Phase::Busy(9)), Verdict::Wait(IDLE));
        assert_eq!(patience.rang(Phase::Idle(9)), Verdict::Cut);
    }

    #[test]
    fn a_drain_gives_a_last_call_and_waits_for_a_head_that_has_begun() {
        for phase in [Phase::Fresh, Phase::Busy(1), Phase::Idle(1)] {
            let mut patience = patience();
            assert_eq!(patience.drained(phase), Verdict::Wait(LAST_CALL));
            assert_eq!(patience.rang(phase), Verdict::Leave(IDLE));
        }
        let mut patience = patience();
        assert_eq!(patience.paused(Phase::Head(1)), Some(HEAD));
        assert_eq!(patience.drained(Phase::Head(1)), Verdict::Wait(HEAD));
        assert_eq!(patience.rang(Phase::Head(1)), Verdict::Cut);
    }
}
