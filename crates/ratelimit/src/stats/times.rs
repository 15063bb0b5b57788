//! The times that calls of one method take: their number and sum, a histogram or quantiles for Prometheus, and each of
//! them for statsd. In microseconds.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::recent::RecentTimes;

/// How many times wait to be sent: lines of about 4 MiB.
const MOST_WAITING: usize = 1 << 16;

/// How times are summarised.
#[derive(Debug, Clone, PartialEq)]
pub enum ObserverForm {
    /// By counts up to each of these bounds, ascending.
    Histogram(Vec<f64>),
    /// By these quantiles of the last ten minutes.
    Summary(Vec<f64>),
}

/// The times of one method.
#[derive(Debug)]
pub(super) struct CallTimes {
    count: AtomicU64,
    micros: AtomicU64,
    observed: Option<ObservedTimes>,
    /// Those that are to be sent, if they are.
    waiting: Option<Mutex<Vec<u32>>>,
}

#[derive(Debug)]
enum ObservedTimes {
    Histogram(Vec<TimeBucket>),
    Summary(Vec<f64>, Mutex<RecentTimes>),
}

#[derive(Debug)]
struct TimeBucket {
    bound: f64,
    /// The longest time in it.
    micros: u64,
    count: AtomicU64,
}

/// What is shown of the times of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// How many there were.
    pub count: u64,
    /// Their sum in microseconds.
    pub micros: u64,
    /// What is shown of their distribution.
    pub shape: ObservationShape,
}

/// A distribution of times.
#[derive(Debug, Clone, PartialEq)]
pub enum ObservationShape {
    /// How many were at most as long as each bound, which includes those below the bounds before it.
    Histogram(Vec<(f64, u64)>),
    /// The time at each quantile, in microseconds; not a number if there were none lately.
    Summary(Vec<(f64, f64)>),
}

impl CallTimes {
    /// Times that are shown in this form, each of its numbers being so many microseconds; and sent, or not.
    pub(super) fn new(form: Option<(ObserverForm, f64)>, are_sent: bool) -> Self {
        let observed = form.map(|(form, unit)| match form {
            ObserverForm::Histogram(bounds) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the cast saturates, and rounds down as is wanted"
                )]
                let bucket = |bound: f64| TimeBucket {
                    bound,
                    // A little more, because a bound of 0.005 s is less than 5,000 of a millionth.
                    micros: (bound * unit * (1.0 + 1e-9)) as u64,
                    count: AtomicU64::new(0),
                };
                ObservedTimes::Histogram(bounds.into_iter().map(bucket).collect())
            }
            ObserverForm::Summary(quantiles) => {
                ObservedTimes::Summary(quantiles, Mutex::new(RecentTimes::new()))
            }
        });
        Self {
            count: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            observed,
            waiting: are_sent.then(Mutex::default),
        }
    }

    /// Notes a time, so many `seconds` after the start of the server.
    pub(super) fn note(&self, micros: u64, seconds: impl FnOnce() -> u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        match &self.observed {
            Some(ObservedTimes::Histogram(buckets)) => {
                let bucket = buckets.iter().find(|bucket| micros <= bucket.micros);
                if let Some(bucket) = bucket {
                    bucket.count.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(ObservedTimes::Summary(_, recent)) => recent.lock().note(micros, seconds()),
            None => {}
        }
        if let Some(waiting) = &self.waiting {
            let mut waiting = waiting.lock();
            if waiting.len() < MOST_WAITING {
                waiting.push(u32::try_from(micros).unwrap_or(u32::MAX));
            }
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }

    /// What is shown, `seconds` after the start of the server.
    pub(super) fn observation(&self, seconds: u64) -> Option<Observation> {
        let shape = match self.observed.as_ref()? {
            ObservedTimes::Histogram(buckets) => {
                let mut sum = 0;
                let up_to = buckets.iter().map(|bucket| {
                    sum += bucket.count.load(Ordering::Relaxed);
                    (bucket.bound, sum)
                });
                ObservationShape::Histogram(up_to.collect())
            }
            ObservedTimes::Summary(quantiles, recent) => {
                let mut recent = recent.lock();
                let at = |quantile: &f64| (*quantile, recent.quantile(*quantile, seconds));
                ObservationShape::Summary(quantiles.iter().map(at).collect())
            }
        };
        Some(Observation {
            // Read last: no bucket has more than all.
            count: self.count(),
            micros: self.micros(),
            shape,
        })
    }

    /// The times that wait to be sent.
    pub(super) fn take_waiting(&self) -> Vec<u32> {
        let waiting = self.waiting.as_ref();
        waiting.map_or_else(Vec::new, |waiting| std::mem::take(&mut waiting.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: f64 = 1e6;

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let form = ObserverForm::Histogram(vec![0.005, 0.01, 1.0]);
        let times = CallTimes::new(Some((form, SECOND)), false);
        for micros in [0, 4_999, 5_000, 5_001, 10_000, 1_000_000, 1_000_001] {
            times.note(micros, || 0);
        }
        let expected = Observation {
            count: 7,
            micros: 2_025_001,
            shape: ObservationShape::Histogram(vec![(0.005, 3), (0.01, 5), (1.0, 6)]),
        };
        assert_eq!(times.observation(0), Some(expected));
        assert_eq!(times.take_waiting(), Vec::<u32>::new());
    }

    #[test]
    fn a_summary_has_quantiles() {
        let form = ObserverForm::Summary(vec![0.5, 0.99]);
        let times = CallTimes::new(Some((form, SECOND)), false);
        for micros in 1..=1_000 {
            times.note(micros, || 0);
        }
        let observation = times.observation(0).unwrap();
        let ObservationShape::Summary(quantiles) = observation.shape else {
            panic!("it is a summary");
        };
        for (quantile, found) in quantiles {
            let expected = 1_000.0 * quantile;
            assert!((found / expected - 1.0).abs() < 0.02, "{quantile}: {found}");
        }
    }

    #[test]
    fn times_wait_to_be_sent_up_to_a_bound() {
        let times = CallTimes::new(None, true);
        for _ in 0..=MOST_WAITING {
            times.note(7, || 0);
        }
        times.note(u64::MAX, || 0);
        let waiting = times.take_waiting();
        assert_eq!((waiting.len(), waiting[0]), (MOST_WAITING, 7));
        times.note(u64::MAX, || 0);
        assert_eq!(times.take_waiting(), [u32::MAX]);
        assert_eq!(times.observation(0), None);
    }
}
