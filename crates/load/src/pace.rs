//! When a request may begin: as soon as a lane is free, or when it is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::clock;
use crate::plan::{LoadEnd, LoadPlan};

/// How long the thread that releases due requests sleeps at least.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);

/// When the next request begins, the same for all lanes.
pub(crate) struct LoadPace {
    /// When load begins to count.
    pub(crate) counts_from: Instant,
    end: LoadEnd,
    /// Requests that were begun and count.
    begun: AtomicU64,
    open: Option<Arc<OpenLoop>>,
}

/// Requests that begin at fixed times, whatever happened to those before.
struct OpenLoop {
    start: Instant,
    per_second: f64,
    /// A permit for each request that is due and not begun.
    due: Semaphore,
    next: AtomicU64,
    /// How many requests there are in all.
    total: u64,
}

impl LoadPace {
    /// The pace of a plan that starts now.
    pub(crate) fn start(plan: &LoadPlan) -> Self {
        let start = clock::now();
        let open = plan.rate.map(|per_second| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a plan has far fewer than 2^53 requests"
            )]
            let after = |span: Duration| (span.as_secs_f64() * per_second).round() as u64;
            let total = match plan.end {
                LoadEnd::After(span) => after(plan.warm_up + span),
                LoadEnd::Requests(requests) => after(plan.warm_up).saturating_add(requests),
            };
            let open = Arc::new(OpenLoop {
                start,
                per_second,
                due: Semaphore::new(0),
                next: AtomicU64::new(0),
                total: total.max(1),
            });
            let releasing = Arc::downgrade(&open);
            thread::spawn(move || {
                let mut released = 0;
                while let Some(open) = releasing.upgrade() {
                    let Some(sleep) = open.release(&mut released) else {
                        break;
                    };
                    drop(open);
                    thread::sleep(sleep);
                }
            });
            open
        });
        Self {
            counts_from: start + plan.warm_up,
            end: plan.end,
            begun: AtomicU64::new(0),
            open,
        }
    }

    /// Waits until the next request may begin. The time from which its latency counts; nothing if there is
    /// none.
    pub(crate) async fn next(&self) -> Option<Instant> {
        if let Some(open) = &self.open {
            open.due.acquire().await.ok()?.forget();
            return open.begin(self.counts_from);
        }
        let now = clock::now();
        if now < self.counts_from {
            return Some(now);
        }
        let is_more = match self.end {
            LoadEnd::After(span) => now < self.counts_from + span,
            LoadEnd::Requests(requests) => self.begun.fetch_add(1, Ordering::Relaxed) < requests,
        };
        is_more.then_some(now)
    }

    /// Whether a request that began then counts.
    pub(crate) fn counts(&self, began: Instant) -> bool {
        began >= self.counts_from
    }

    /// How many requests were due and never begun.
    pub(crate) fn unsent(&self) -> u64 {
        let open = self.open.as_ref();
        open.map_or(0, |open| {
            let begun = open.next.load(Ordering::Relaxed);
            open.total.saturating_sub(begun)
        })
    }

    /// Ends the load for lanes that wait.
    pub(crate) fn close(&self) {
        if let Some(open) = &self.open {
            open.due.close();
        }
    }

    /// When the last request is due, if that is known.
    pub(crate) fn last_due(&self) -> Option<Instant> {
        match (&self.open, self.end) {
            (Some(open), _) => Some(open.at(open.total)),
            (None, LoadEnd::After(span)) => Some(self.counts_from + span),
            (None, LoadEnd::Requests(_)) => None,
        }
    }
}

impl OpenLoop {
    /// When a request is due.
    fn at(&self, index: u64) -> Instant {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let seconds = index as f64 / self.per_second;
        self.start + Duration::from_secs_f64(seconds)
    }

    /// The time of the next request. Requests that were due in the warm-up and not sent are skipped: otherwise a target
    /// that cannot keep up would be busy with them during the measurement.
    fn begin(&self, counts_from: Instant) -> Option<Instant> {
        if self.at(self.next.load(Ordering::Relaxed)) < counts_from && clock::now() >= counts_from {
            let warm_up = counts_from.saturating_duration_since(self.start);
            let first = self.index_after(warm_up);
            self.next.fetch_max(first, Ordering::Relaxed);
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.total).then(|| self.at(index))
    }

    /// The first request that is due no earlier than this after the start.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and far below 2^53"
    )]
    fn index_after(&self, span: Duration) -> u64 {
        (span.as_secs_f64() * self.per_second).ceil() as u64
    }

    /// Releases requests that are due. Returns the time until the next one; `None` if there are no more.
    fn release(&self, released: &mut u64) -> Option<Duration> {
        let now = clock::now();
        let elapsed = now.saturating_duration_since(self.start).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and far below 2^53"
        )]
        let due = ((elapsed * self.per_second) as u64 + 1).min(self.total);
        let more = usize::try_from(due.saturating_sub(*released)).unwrap_or(0);
        if more > 0 {
            self.due.add_permits(more);
            *released = due;
        }
        if due >= self.total {
            // A lane that asks for more gets an index past the end.
            self.due.add_permits(Semaphore::MAX_PERMITS / 2);
            return None;
        }
        let next = self.at(due).saturating_duration_since(now);
        Some(next.clamp(SHORTEST_SLEEP, Duration::from_millis(100)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySpread;

    fn plan(rate: Option<f64>, end: LoadEnd) -> LoadPlan {
        LoadPlan {
            rate,
            end,
            warm_up: Duration::ZERO,
            ..LoadPlan::new(KeySpread::uniform(1).unwrap())
        }
    }

    #[tokio::test]
    async fn an_open_loop_has_its_requests_at_fixed_distances() {
        let pace = LoadPace::start(&plan(Some(10_000.0), LoadEnd::Requests(50)));
        let mut times = Vec::new();
        while let Some(at) = pace.next().await {
            assert!(at <= clock::now(), "begun before it is due");
            times.push(at);
        }
        assert_eq!(times.len(), 50);
        for pair in times.windows(2) {
            let distance = pair[1].duration_since(pair[0]);
            assert!(distance.as_nanos().abs_diff(100_000) < 10, "{distance:?}");
        }
        assert_eq!(pace.unsent(), 0);
    }

    #[tokio::test]
    async fn what_the_warm_up_could_not_send_is_left_out() {
        let warm_up = Duration::from_millis(20);
        let pace = LoadPace::start(&LoadPlan {
            warm_up,
            ..plan(Some(10_000.0), LoadEnd::Requests(50))
        });
        tokio::time::sleep(warm_up).await;
        let first = pace.next().await.unwrap();
        assert!(pace.counts(first), "due in the warm-up");
        let mut counted = 1;
        while pace.next().await.is_some() {
            counted += 1;
        }
        assert_eq!(counted, 50);
    }

    #[tokio::test]
    async fn a_closed_loop_ends_after_its_requests() {
        let pace = LoadPace::start(&plan(None, LoadEnd::Requests(3)));
        for _ in 0..3 {
            assert!(pace.next().await.is_some());
        }
        assert!(pace.next().await.is_none());
    }
}
