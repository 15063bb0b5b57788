//! How long to wait before the next attempt.

use std::time::Duration;

/// The longest pause before a response is refused again that was refused already.
const LONGEST_REFUSAL: Duration = Duration::from_secs(10);

/// The first pause and the longest, and whether parts of them are random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryTimes {
    /// The first pause.
    pub initial: Duration,
    /// The longest.
    pub max: Duration,
    /// Whether each is between half and all of its time, so that many clients do not return together.
    pub is_jittered: bool,
}

impl Default for RetryTimes {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_mins(1),
            is_jittered: true,
        }
    }
}

/// Pauses that double.
#[derive(Debug)]
pub(crate) struct RetryPause {
    times: RetryTimes,
    next: Duration,
}

impl RetryPause {
    pub(crate) fn new(times: RetryTimes) -> Self {
        Self {
            times,
            next: times.initial.min(times.max),
        }
    }

    /// Those between refusals of one response.
    pub(crate) fn of_refusals(times: RetryTimes) -> Self {
        Self::new(RetryTimes {
            max: times.max.min(LONGEST_REFUSAL),
            ..times
        })
    }

    /// Begins again with the first.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.times);
    }

    pub(crate) fn next(&mut self) -> Duration {
        let chance = if self.times.is_jittered {
            chance()
        } else {
            1.0
        };
        self.next_by(chance)
    }

    /// Like `next`, with the random number from 0 to 1 given by the caller.
    fn next_by(&mut self, chance: f64) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.times.max);
        let half = whole / 2;
        half + half.mul_f64(chance)
    }
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness, wait the longest.
    if getrandom::fill(&mut bytes).is_err() {
        return 1.0;
    }
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_at_least_half() {
        let times = RetryTimes {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(5),
            is_jittered: true,
        };
        let seconds = |chance: f64| {
            let mut pause = RetryPause::new(times);
            let pauses: Vec<f64> = (0..5)
                .map(|_| pause.next_by(chance).as_secs_f64())
                .collect();
            pause.reset();
            assert!((pause.next_by(1.0).as_secs_f64() - 1.0).abs() < 1e-9);
            pauses
        };
        assert_eq!(seconds(1.0), [1.0, 2.0, 4.0, 5.0, 5.0]);
        assert_eq!(seconds(0.0), [0.5, 1.0, 2.0, 2.5, 2.5]);
    }

    #[test]
    fn without_jitter_each_pause_is_whole() {
        let mut pause = RetryPause::new(RetryTimes {
            is_jittered: false,
            ..RetryTimes::default()
        });
        let pauses = [pause.next(), pause.next(), pause.next()];
        assert_eq!(pauses, [1, 2, 4].map(Duration::from_secs));
    }

    #[test]
    fn a_first_pause_beyond_the_longest_is_the_longest() {
        let mut pause = RetryPause::new(RetryTimes {
            initial: Duration::from_mins(2),
            max: Duration::from_mins(1),
            is_jittered: true,
        });
        assert_eq!(pause.next_by(1.0), Duration::from_mins(1));
        assert_eq!(pause.next_by(1.0), Duration::from_mins(1));
    }
}
