//! How long to wait before the next attempt.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(250);

/// Waits that double from one attempt to the next, up to a quarter of a second, with jitter so that many
/// instances do not reconnect at the same time.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The wait before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        self.next_by(chance())
    }

    /// Like `next`, with the random number from 0 to 1 given by the caller.
    pub(crate) fn next_by(&mut self, chance: f64) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        let half = whole / 2;
        half + half.mul_f64(chance)
    }
}

/// A random number from 0 to 1.
pub(crate) fn chance() -> f64 {
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
    fn waits_grow_and_stay_below_a_quarter_of_a_second() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..12).map(|_| backoff.next()).collect();
        assert!(waits[0] <= FIRST);
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits[11] >= LONGEST / 2);
    }
}
