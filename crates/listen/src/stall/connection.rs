//! The timeouts of a connection, as a state machine without a clock: the caller reports the end of its one timer and
//! the time, and gets the next action and the next duration of the timer.
//!
//! The timer is not reset at each request, which would cost too much. Instead the time since which a connection is
//! idle is recorded; when the timer ends, it is set to the rest of the idle timeout.

use std::time::Duration;

use crate::ListenSettings;
use crate::clock::Instant;

/// The shortest timer: without a wait, the task would never yield.
const SHORTEST: Duration = Duration::from_millis(1);

/// The phase of a connection, with the number of requests begun so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// The very first byte.
    Fresh,
    /// The rest of a head that has begun to arrive.
    Head(u64),
    /// An answer that is being made or sent.
    Busy(u64),
    /// The next request.
    Idle(u64),
}

/// The purpose of the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The head of the request of this number.
    Head(u64),
    /// To check again.
    Look,
    /// To check again a connection that rests, or has rested.
    Rested,
    /// The end of the last call.
    LastCall,
    /// The connection was asked to end.
    Left,
}

/// The action for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutAction {
    /// Continue, and set the timer to this.
    Wait(Duration),
    /// Free the memory that an idle connection does not need, and set the timer to this.
    Rest(Duration),
    /// Ask it to end after its answers, and set the timer to this.
    Leave(Duration),
    /// Drop the connection.
    Cut,
}

/// The timeouts of one connection.
#[derive(Debug)]
pub struct ConnectionTimeouts {
    head: Duration,
    idle: Duration,
    last_call: Duration,
    /// How long it is idle before it rests, if it does.
    rest: Option<Duration>,
    purpose: Purpose,
    /// The number of requests begun when it became idle, and when that was.
    quiet: Option<(u64, Instant)>,
}

impl ConnectionTimeouts {
    /// The timeouts of a connection whose timer is set to the head timeout.
    pub fn new(settings: &ListenSettings) -> Self {
        Self {
            head: settings.head_timeout,
            idle: settings.idle_timeout.max(SHORTEST),
            last_call: settings.last_call,
            rest: None,
            purpose: Purpose::Head(0),
            quiet: None,
        }
    }

    /// Lets the connection rest after it was idle for this long.
    #[must_use]
    pub fn resting_after(self, rest: Duration) -> Self {
        Self {
            rest: Some(rest.max(SHORTEST)),
            ..self
        }
    }

    /// How long an unused connection is left alone before it is looked at.
    fn until_look(&self) -> Duration {
        self.rest.map_or(self.idle, |rest| rest.min(self.idle))
    }

    /// The connection is pending. Returns the new duration of the timer, if a head has begun to arrive. The time is
    /// read only when the connection has become idle.
    pub fn paused(
        &mut self,
        phase: ConnectionPhase,
        now: impl FnOnce() -> Instant,
    ) -> Option<Duration> {
        match phase {
            ConnectionPhase::Head(number) if self.purpose != Purpose::Head(number) => {
                self.purpose = Purpose::Head(number);
                Some(self.head)
            }
            ConnectionPhase::Idle(number)
                if self.quiet.is_none_or(|(noted, _)| noted != number) =>
            {
                self.quiet = Some((number, now()));
                // The timer for a head may be set for later than the end of an idle connection.
                let until_look = self.until_look();
                let is_late = match self.purpose {
                    Purpose::Head(_) => self.head > until_look,
                    // After a rest the timer is set for the end of the idle time.
                    Purpose::Rested => true,
                    _ => false,
                };
                is_late.then(|| {
                    self.purpose = Purpose::Look;
                    until_look
                })
            }
            _ => None,
        }
    }

    /// The drain has begun.
    pub fn drained(&mut self, phase: ConnectionPhase) -> TimeoutAction {
        match phase {
            // The request is served, and its answer will have `Connection: close`.
            ConnectionPhase::Head(number) => {
                self.purpose = Purpose::Head(number);
                TimeoutAction::Wait(self.head)
            }
            _ if self.last_call.is_zero() => self.leave(),
            _ => {
                self.purpose = Purpose::LastCall;
                TimeoutAction::Wait(self.last_call)
            }
        }
    }

    /// Asks the connection to end.
    pub fn leave(&mut self) -> TimeoutAction {
        self.purpose = Purpose::Left;
        TimeoutAction::Leave(self.idle)
    }

    /// The timer has ended.
    pub fn ended(&mut self, phase: ConnectionPhase, now: Instant) -> TimeoutAction {
        match (self.purpose, phase) {
            (Purpose::Head(waited), ConnectionPhase::Head(number)) if waited == number => {
                TimeoutAction::Cut
            }
            (_, ConnectionPhase::Head(number)) => {
                self.purpose = Purpose::Head(number);
                TimeoutAction::Wait(self.head)
            }
            (Purpose::LastCall, _) => self.leave(),
            (Purpose::Left, ConnectionPhase::Busy(_)) => TimeoutAction::Wait(self.idle),
            (Purpose::Head(0), ConnectionPhase::Fresh) | (Purpose::Left, _) => TimeoutAction::Cut,
            (_, ConnectionPhase::Idle(number)) => {
                let since = match self.quiet {
                    Some((noted, since)) if noted == number => since,
                    _ => now,
                };
                self.quiet = Some((number, since));
                let idle = now.duration_since(since);
                let left = self.idle.saturating_sub(idle);
                if left.is_zero() {
                    return self.leave();
                }
                let left = left.max(SHORTEST);
                match self.rest {
                    Some(rest) if idle < rest => {
                        self.purpose = Purpose::Look;
                        TimeoutAction::Wait(left.min(rest.saturating_sub(idle).max(SHORTEST)))
                    }
                    Some(_) if self.purpose != Purpose::Rested => {
                        self.purpose = Purpose::Rested;
                        TimeoutAction::Rest(left)
                    }
                    _ => TimeoutAction::Wait(left),
                }
            }
            (_, ConnectionPhase::Busy(_) | ConnectionPhase::Fresh) => {
                self.purpose = Purpose::Look;
                TimeoutAction::Wait(self.until_look())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);
    const LAST_CALL: Duration = Duration::from_millis(100);

    fn timeouts() -> ConnectionTimeouts {
        timeouts_with(HEAD)
    }

    fn timeouts_with(head_timeout: Duration) -> ConnectionTimeouts {
        ConnectionTimeouts::new(&ListenSettings {
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
        let now = now();
        assert_eq!(
            timeouts().ended(ConnectionPhase::Fresh, now),
            TimeoutAction::Cut
        );
        assert_eq!(
            timeouts().ended(ConnectionPhase::Head(0), now),
            TimeoutAction::Cut
        );
        assert_eq!(
            timeouts().ended(ConnectionPhase::Head(3), now),
            TimeoutAction::Wait(HEAD)
        );

        let mut timeouts = timeouts();
        let set_before = timeouts.paused(ConnectionPhase::Head(0), never);
        assert_eq!(set_before, None, "set when the connection was accepted");
        assert_eq!(timeouts.paused(ConnectionPhase::Idle(1), || now), None);
        assert_eq!(timeouts.paused(ConnectionPhase::Head(1), never), Some(HEAD));
        let drip = timeouts.paused(ConnectionPhase::Head(1), never);
        assert_eq!(drip, None, "a drip gains nothing");
        assert_eq!(
            timeouts.ended(ConnectionPhase::Head(1), now),
            TimeoutAction::Cut
        );
    }

    #[test]
    fn an_idle_connection_leaves_when_its_time_is_over_and_not_later() {
        let start = now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let seconds = |seconds| TimeoutAction::Wait(Duration::from_secs(seconds));
        let mut timeouts = timeouts();
        // One request, answered immediately.
        assert_eq!(timeouts.paused(ConnectionPhase::Idle(1), || start), None);
        assert_eq!(timeouts.paused(ConnectionPhase::Idle(1), never), None);
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(1), after(10)),
            seconds(65)
        );
        // Another one, after 70 seconds.
        assert_eq!(
            timeouts.paused(ConnectionPhase::Idle(2), || after(70)),
            None
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(2), after(75)),
            seconds(70)
        );
        // And one that takes long.
        assert_eq!(
            timeouts.ended(ConnectionPhase::Busy(3), after(145)),
            seconds(75)
        );
        assert_eq!(
            timeouts.paused(ConnectionPhase::Idle(3), || after(150)),
            None
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(3), after(220)),
            seconds(5)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(3), after(225)),
            TimeoutAction::Leave(IDLE)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Busy(4), after(300)),
            TimeoutAction::Wait(IDLE)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(4), after(375)),
            TimeoutAction::Cut
        );
    }

    #[test]
    fn an_idle_connection_rests_once_and_again_after_its_next_request() {
        let start = now();
        let after = |millis| start + Duration::from_millis(millis);
        let wait = |millis| TimeoutAction::Wait(Duration::from_millis(millis));
        let rest = |millis| TimeoutAction::Rest(Duration::from_millis(millis));
        let second = Duration::from_secs(1);
        let mut timeouts = timeouts().resting_after(second);
        assert_eq!(
            timeouts.paused(ConnectionPhase::Idle(1), || start),
            Some(second)
        );
        // Another request meanwhile does not set the timer.
        assert_eq!(
            timeouts.paused(ConnectionPhase::Idle(2), || after(400)),
            None
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(2), after(1_000)),
            wait(400)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(2), after(1_400)),
            rest(74_000)
        );
        // It rests, and is used again.
        assert_eq!(
            timeouts.paused(ConnectionPhase::Idle(3), || after(5_000)),
            Some(second)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(3), after(6_000)),
            rest(74_000)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(3), after(80_000)),
            TimeoutAction::Leave(IDLE)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Busy(4), after(90_000)),
            TimeoutAction::Wait(IDLE),
            "it was asked to leave"
        );
    }

    #[test]
    fn an_idle_connection_does_not_wait_for_the_time_of_a_longer_head() {
        let mut timeouts = timeouts_with(IDLE * 2);
        let start = now();
        assert_eq!(
            timeouts.paused(ConnectionPhase::Idle(1), || start),
            Some(IDLE)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Idle(1), start + IDLE),
            TimeoutAction::Leave(IDLE)
        );
    }

    #[test]
    fn a_drain_gives_a_last_call_and_waits_for_a_head_that_has_begun() {
        let now = now();
        for phase in [
            ConnectionPhase::Fresh,
            ConnectionPhase::Busy(1),
            ConnectionPhase::Idle(1),
        ] {
            let mut timeouts = timeouts();
            assert_eq!(timeouts.drained(phase), TimeoutAction::Wait(LAST_CALL));
            assert_eq!(timeouts.ended(phase, now), TimeoutAction::Leave(IDLE));
        }
        let mut timeouts = timeouts();
        assert_eq!(timeouts.paused(ConnectionPhase::Head(1), never), Some(HEAD));
        assert_eq!(
            timeouts.drained(ConnectionPhase::Head(1)),
            TimeoutAction::Wait(HEAD)
        );
        assert_eq!(
            timeouts.ended(ConnectionPhase::Head(1), now),
            TimeoutAction::Cut
        );
    }
}
