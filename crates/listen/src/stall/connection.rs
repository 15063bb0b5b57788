//! How long a connection is waited for, as a machine without a clock: the caller says when its one alarm
//! rings and what time it is, and learns what to do and when to ring next.
//!
//! The alarm is not moved at each request: that would put a timer's cost on every one of them. What is
//! noted is since when a connection is idle; when the alarm rings, it is set to the rest of that time.

use std::time::Duration;

use quanta::Instant;

use crate::ListenSettings;
use crate::activity::Phase;

/// The shortest time to the next ring: one without a wait before it would never let go of the task.
const MIN_RING: Duration = Duration::from_millis(1);

/// What the alarm was set for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alarm {
    /// The head of the request of this number.
    Head(u64),
    /// To look again.
    Look,
    /// The end of the last call.
    LastCall,
    /// The connection was asked to end.
    Left,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on, and ring after this.
    Wait(Duration),
    /// Ask it to end when it has answered, and ring after this.
    Leave(Duration),
    /// Drop it.
    Cut,
}

/// The state of one connection's waiting.
#[derive(Debug)]
pub(crate) struct Patience {
    head: Duration,
    idle: Duration,
    last_call: Duration,
    alarm: Alarm,
    /// How many requests it had begun when it became idle, and when that was.
    quiet: Option<(u64, Instant)>,
}

impl Patience {
    /// For a connection whose alarm is already set to the head timeout.
    pub(crate) fn new(settings: &ListenSettings) -> Self {
        Self {
            head: settings.head_timeout,
            idle: settings.idle_timeout.max(MIN_RING),
            last_call: settings.last_call,
            alarm: Alarm::Head(0),
            quiet: None,
        }
    }

    /// The connection cannot go on for now. When a head has begun to arrive, sets the alarm anew. The time is
    /// asked for only when the connection has become idle.
    pub(crate) fn paused(
        &mut self,
        phase: Phase,
        now: impl FnOnce() -> Instant,
    ) -> Option<Duration> {
        match phase {
            Phase::Head(number) if self.alarm != Alarm::Head(number) => {
                self.alarm = Alarm::Head(number);
                Some(self.head)
            }
            Phase::Idle(number) if self.quiet.is_none_or(|(noted, _)| noted != number) => {
                self.quiet = Some((number, now()));
                // The alarm for a head may be set for later than the end of an idle connection.
                let is_late = matches!(self.alarm, Alarm::Head(_)) && self.head > self.idle;
                is_late.then(|| {
                    self.alarm = Alarm::Look;
                    self.idle
                })
            }
            _ => None,
        }
    }

    /// The drain has begun.
    pub(crate) fn drained(&mut self, phase: Phase) -> Verdict {
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
    pub(crate) fn leave(&mut self) -> Verdict {
        self.alarm = Alarm::Left;
        Verdict::Leave(self.idle)
    }

    /// The alarm rings.
    pub(crate) fn rang(&mut self, phase: Phase, now: Instant) -> Verdict {
        match (self.alarm, phase) {
            (Alarm::Head(waited), Phase::Head(number)) if waited == number => Verdict::Cut,
            (_, Phase::Head(number)) => {
                self.alarm = Alarm::Head(number);
                Verdict::Wait(self.head)
            }
            (Alarm::LastCall, _) => self.leave(),
            (Alarm::Left, Phase::Busy(_)) => Verdict::Wait(self.idle),
            (Alarm::Head(0), Phase::Fresh) | (Alarm::Left, _) => Verdict::Cut,
            (_, Phase::Idle(number)) => {
                let since = match self.quiet {
                    Some((noted, since)) if noted == number => since,
                    _ => now,
                };
                self.quiet = Some((number, since));
                let left = self.idle.saturating_sub(now.duration_since(since));
                if left.is_zero() {
                    return self.leave();
                }
                self.alarm = Alarm::Look;
                Verdict::Wait(left.max(MIN_RING))
            }
            (_, Phase::Busy(_) | Phase::Fresh) => {
                self.alarm = Alarm::Look;
                Verdict::Wait(self.idle)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);
    const LAST_CALL: Duration = Duration::from_millis(100);

    fn patience() -> Patience {
        patience_with(HEAD)
    }

    fn patience_with(head_timeout: Duration) -> Patience {
        Patience::new(&ListenSettings {
            head_timeout,
            idle_timeout: IDLE,
            last_call: LAST_CALL,
            ..ListenSettings::default()
        })
    }

    fn never() -> Instant {
        panic!("the time is not asked for")
    }

    #[test]
    fn a_head_that_does_not_end_is_cut_and_one_that_came_since_is_waited_for() {
        let now = Instant::now();
        assert_eq!(patience().rang(Phase::Fresh, now), Verdict::Cut);
        assert_eq!(patience().rang(Phase::Head(0), now), Verdict::Cut);
        assert_eq!(patience().rang(Phase::Head(3), now), Verdict::Wait(HEAD));

        let mut patience = patience();
        let set_before = patience.paused(Phase::Head(0), never);
        assert_eq!(set_before, None, "set when the connection was accepted");
        assert_eq!(patience.paused(Phase::Idle(1), || now), None);
        assert_eq!(patience.paused(Phase::Head(1), never), Some(HEAD));
        let drip = patience.paused(Phase::Head(1), never);
        assert_eq!(drip, None, "a drip gains nothing");
        assert_eq!(patience.rang(Phase::Head(1), now), Verdict::Cut);
    }

    #[test]
    fn an_idle_connection_leaves_when_its_time_is_over_and_not_later() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let seconds = |seconds| Verdict::Wait(Duration::from_secs(seconds));
        let mut patience = patience();
        // One request, answered at once.
        assert_eq!(patience.paused(Phase::Idle(1), || start), None);
        assert_eq!(patience.paused(Phase::Idle(1), never), None);
        assert_eq!(patience.rang(Phase::Idle(1), after(10)), seconds(65));
        // Another one, after 70 seconds.
        assert_eq!(patience.paused(Phase::Idle(2), || after(70)), None);
        assert_eq!(patience.rang(Phase::Idle(2), after(75)), seconds(70));
        // And one that takes long.
        assert_eq!(patience.rang(Phase::Busy(3), after(145)), seconds(75));
        assert_eq!(patience.paused(Phase::Idle(3), || after(150)), None);
        assert_eq!(patience.rang(Phase::Idle(3), after(220)), seconds(5));
        assert_eq!(
            patience.rang(Phase::Idle(3), after(225)),
            Verdict::Leave(IDLE)
        );
        assert_eq!(
            patience.rang(Phase::Busy(4), after(300)),
            Verdict::Wait(IDLE)
        );
        assert_eq!(patience.rang(Phase::Idle(4), after(375)), Verdict::Cut);
    }

    #[test]
    fn an_idle_connection_does_not_wait_for_the_time_of_a_longer_head() {
        let mut patience = patience_with(IDLE * 2);
        let start = Instant::now();
        assert_eq!(patience.paused(Phase::Idle(1), || start), Some(IDLE));
        assert_eq!(
            patience.rang(Phase::Idle(1), start + IDLE),
            Verdict::Leave(IDLE)
        );
    }

    #[test]
    fn a_drain_gives_a_last_call_and_waits_for_a_head_that_has_begun() {
        let now = Instant::now();
        for phase in [Phase::Fresh, Phase::Busy(1), Phase::Idle(1)] {
            let mut patience = patience();
            assert_eq!(patience.drained(phase), Verdict::Wait(LAST_CALL));
            assert_eq!(patience.rang(phase, now), Verdict::Leave(IDLE));
        }
        let mut patience = patience();
        assert_eq!(patience.paused(Phase::Head(1), never), Some(HEAD));
        assert_eq!(patience.drained(Phase::Head(1)), Verdict::Wait(HEAD));
        assert_eq!(patience.rang(Phase::Head(1), now), Verdict::Cut);
    }
}
