//! Estimates the requests per window that an upstream can handle, from how requests end.
//!
//! Pure whole-number arithmetic: the same samples at the same times give the same rate. A rate does not bound the queue
//! in front of an upstream, as a number of concurrent requests does: any excess accumulates. So this estimates two
//! things, for each *stretch* of at least 100 ms and 10 requests: the throughput of the upstream (from how many
//! requests end) and the length of its queue (from their latency). The rate is the throughput, and
//!
//! - less while the median latency is above the target, the less the longer the queue, so that it drains;
//! - more while it is below and the rate is really used, the more the shorter the queue;
//! - a tenth less where many are dropped.
//!
//! Not all requests may be reported, and other instances may have a part of the rate. So the estimate learns which part
//! of the rate is reported here while the upstream keeps up.

use tidegate_core::{Micros, Timestamp};

use super::baseline::{RateBaseline, tolerated};
use super::estimator::{KEPT_WHEN_DROPPED, PARTS, PROBE, scaled, within};
use super::window::{SampleWindow, Summary};
use super::{Adaptive, Ended};

/// A stretch has at least this many requests and lasts at least this long,
const ENOUGH: usize = 10;
const SHORTEST: Micros = Micros::from_millis(100);
/// or, where there are few, these.
const FEW: usize = 3;
const LONG: Micros = Micros::from_millis(250);
/// After this long without requests, earlier samples are discarded.
const GAP: Micros = Micros::from_seconds(10);
/// The most that the rate may exceed the throughput, in thousandths, and the least while it is raised.
const MOST_ABOVE: u64 = 250;
const LEAST_ABOVE: u64 = 20;
/// The most that it may be below while the queue drains, in thousandths.
const MOST_BELOW: u64 = 800;
/// How often the increase of the rate may double while the latency is below half of the target.
const DOUBLINGS: u32 = 5;
/// How far the count of a stretch may be off by chance, in thousandths of it.
const CHANCE: u64 = 1_100;
/// The most that the latency is expected to grow, as a factor.
const FARTHEST: u64 = 4;
/// Each stretch forgets this fraction of the granted and reported requests.
const FORGETTING: u64 = 64;
/// Prior weight of the reporting ratio.
const PRIOR: u64 = 5 * PARTS;

/// An estimate of the rate that an upstream can handle.
#[derive(Debug)]
pub(super) struct Pace {
    settings: Adaptive,
    /// The window of the limit.
    window: Micros,
    /// Both in parts of a request per window.
    rate: u64,
    done: u64,
    stretch: Stretch,
    reported: Reported,
    baseline: RateBaseline,
    latency: Option<Micros>,
    /// How many stretches in a row were far below the target.
    calm: u32,
}

impl Pace {
    pub(super) fn new(settings: Adaptive, window: Micros, start: u64) -> Self {
        let start = within(&settings, start.saturating_mul(PARTS));
        Self {
            settings,
            window: window.max(Micros::new(1)),
            rate: start,
            done: start,
            stretch: Stretch::default(),
            reported: Reported::default(),
            baseline: RateBaseline::new(),
            latency: None,
            calm: 0,
        }
    }

    /// The rate in force, within its bounds.
    pub(super) fn limit(&self) -> u64 {
        let rate = if self.baseline.is_probing() {
            within(&self.settings, self.rate / PROBE)
        } else {
            self.rate
        };
        rate / PARTS
    }

    /// The median latency of the last stretch.
    pub(super) fn latency(&self) -> Option<Micros> {
        self.latency
    }

    /// Adds requests that were reported at the same time. Whether a stretch can be closed.
    pub(super) fn add(&mut self, ended: &[Ended], now: Timestamp) -> bool {
        self.stretch.add(ended, now)
    }

    /// Moves the rate by the stretch that is over. `is_used`: whether the rate held anything back.
    pub(super) fn close(&mut self, is_used: bool) {
        let (summary, lasted, now) = self.stretch.close();
        let before = self.latency;
        self.latency = summary.latency.or(before);
        if summary.is_dropping {
            self.calm = 0;
            self.rate = within(&self.settings, scaled(self.rate, KEPT_WHEN_DROPPED, 1_000));
            self.done = self.done.min(self.rate);
            return;
        }
        let Some(latency) = summary.latency else {
            return;
        };
        let target = match self.settings.target {
            Some(target) => target,
            None => match self.baseline.compare(latency, is_used, now) {
                Some(unqueued) => tolerated(unqueued),
                None => return,
            },
        };
        let seen = PaceSample {
            latency,
            target,
            lasted,
            is_used,
        };
        if is_used
            && latency.get() <= target.get().saturating_mul(2)
            && let Some(before) = before
        {
            let granted = scaled(self.rate, seen.begun_within(before), self.window.get());
            self.reported.learn(summary.count, granted);
        }
        let done = self.seen_done(&summary, lasted);
        self.follow(&seen, done);
    }

    /// The throughput in a stretch, in parts of a request per window.
    fn seen_done(&self, summary: &Summary, lasted: Micros) -> u64 {
        let count = u64::try_from(summary.count).unwrap_or(u64::MAX);
        let reported = scaled(count.saturating_mul(PARTS), self.window.get(), lasted.get());
        self.reported.all_of(reported)
    }

    fn follow(&mut self, seen: &PaceSample, done: u64) {
        let (target, expected) = (seen.target.get(), self.expected(seen, done));
        let rate = if expected > target {
            self.calm = 0;
            self.done = self.done.midpoint(done);
            let below = seen.part(expected - target).min(MOST_BELOW);
            let rate = scaled(self.done, 1_000 - below, 1_000);
            // A rate that held nothing back was not too low.
            if seen.is_used {
                rate
            } else {
                rate.min(self.rate)
            }
        } else if seen.is_used {
            let kept_up = scaled(done, CHANCE, 1_000).min(self.rate);
            self.done = self.done.max(kept_up);
            let first = seen.part(target).clamp(LEAST_ABOVE, MOST_ABOVE);
            let most = (first << self.calm).min(MOST_ABOVE);
            let is_far_below = expected < target / 2;
            self.calm = if is_far_below {
                (self.calm + 1).min(DOUBLINGS)
            } else {
                0
            };
            let above = scaled(most, target - expected, target).max(LEAST_ABOVE);
            let raised = scaled(self.done, 1_000 + above, 1_000);
            // Limits are whole numbers: with less than one more, a low one would stay where it is.
            raised.max(self.done.saturating_add(PARTS))
        } else {
            self.rate
        };
        self.rate = within(&self.settings, rate);
        self.done = within(&self.settings, self.done);
    }

    /// The expected latency of a request that arrives now, behind a queue that filled at the current rate and drains at
    /// the current throughput.
    fn expected(&self, seen: &PaceSample, done: u64) -> u64 {
        let latency = seen.latency.get();
        if !seen.is_used {
            return latency;
        }
        let pace = scaled(done, CHANCE, 1_000);
        let expected = scaled(latency, self.rate, pace);
        expected.clamp(latency, latency.saturating_mul(FARTHEST))
    }
}

/// The measurements of one stretch.
struct PaceSample {
    latency: Micros,
    target: Micros,
    lasted: Micros,
    is_used: bool,
}

impl PaceSample {
    /// `time` relative to twice the feedback delay (target + stretch), in thousandths.
    fn part(&self, time: u64) -> u64 {
        let shows = self.target.get().saturating_add(self.lasted.get());
        scaled(time, 1_000, shows.saturating_mul(2))
    }

    /// The time span in which the requests of the stretch began: shorter than the stretch if latency grew meanwhile.
    fn begun_within(&self, before: Micros) -> u64 {
        let (lasted, grown) = (self.lasted.get(), self.latency.get());
        let begun = lasted.saturating_add(before.get()).saturating_sub(grown);
        begun.clamp(lasted / 2, lasted.saturating_mul(2))
    }
}

/// The requests granted while the upstream kept up, and how many of them were reported. In parts of a request.
#[derive(Debug, Default)]
struct Reported {
    granted: u64,
    reported: u64,
}

impl Reported {
    fn learn(&mut self, count: usize, granted: u64) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let add = |known: u64, new: u64| (known - known / FORGETTING).saturating_add(new);
        self.granted = add(self.granted, granted);
        self.reported = add(self.reported, count.saturating_mul(PARTS));
    }

    /// Scales `reported` up by the share of granted requests that report.
    fn all_of(&self, reported: u64) -> u64 {
        let known = self.reported.saturating_add(PRIOR);
        let granted = self.granted.saturating_add(PRIOR).max(known);
        scaled(reported, granted, known)
    }
}

/// The requests that ended since the last stretch.
#[derive(Debug, Default)]
struct Stretch {
    window: SampleWindow,
    opened: Option<Timestamp>,
    /// When the last one was reported.
    last: Timestamp,
}

impl Stretch {
    fn add(&mut self, ended: &[Ended], now: Timestamp) -> bool {
        if ended.is_empty() {
            return false;
        }
        let is_far = now.since(self.last) > GAP || self.last.since(now) > GAP;
        if is_far && self.opened.is_some() {
            self.window.close();
            self.opened = None;
        }
        // Threads may see the time out of order.
        let now = if is_far { now } else { now.max(self.last) };
        self.last = now;
        let opened = *self.opened.get_or_insert(now);
        for ended in ended {
            self.window.push(*ended);
        }
        let (count, lasted) = (self.window.count(), now.since(opened));
        (count >= ENOUGH && lasted >= SHORTEST) || (count >= FEW && lasted >= LONG)
    }

    /// Ends the stretch. Returns its summary, its length and its end.
    fn close(&mut self) -> (Summary, Micros, Timestamp) {
        let opened = self.opened.replace(self.last).unwrap_or(self.last);
        let lasted = self.last.since(opened).max(Micros::new(1));
        (self.window.close(), lasted, self.last)
    }
}
