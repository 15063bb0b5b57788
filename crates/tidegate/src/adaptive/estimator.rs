//! Estimates the number of concurrent requests that an upstream can handle, from how requests end.
//!
//! Pure whole-number arithmetic without a clock: the same samples give the same limit. Requests are looked
//! at in windows of about one round trip, and the limit moves at most once in each:
//!
//! - Where many are dropped, it falls by a tenth.
//! - With a target, it falls in proportion while the median is above, and rises by up to its square root
//!   while it is below.
//! - Without one, it is multiplied by how the latency without a queue compares with the present one, half as
//!   much again being tolerated, and rises by its square root; a fifth of that way at a time.
//!
//! It rises only while it is really used, so that quiet times prove nothing.

use tidegate_core::Micros;

use super::baseline::Baseline;
use super::window::{SampleWindow, Summary};
use super::{Adaptive, Sample};

/// Parts of one permit, so that steps of less than one add up.
pub(super) const PARTS: u64 = 1_000;
/// The least that a limit above the target keeps in one window, in thousandths.
const KEPT_ABOVE_TARGET: u64 = 800;
/// The fraction of the limit that remains when the upstream drops requests, in thousandths.
pub(super) const KEPT_WHEN_DROPPED: u64 = 900;
/// How much longer than without a queue a request may take, in thousandths.
const TOLERANCE: u64 = 1_500;
/// The least that the gradient can be, in thousandths.
const STEEPEST: u64 = 500;
/// One part of the way to where the gradient points is gone in one window.
const SMOOTHING: u64 = 5;
/// A probe divides the limit by this.
pub(super) const PROBE: u64 = 4;

/// An estimate of the concurrent requests that an upstream can handle.
#[derive(Debug)]
pub(super) struct Estimator {
    settings: Adaptive,
    /// In parts of a permit.
    estimate: u64,
    window: SampleWindow,
    baseline: Baseline,
    /// The median latency of the last window.
    pub(crate) latency: Option<Micros>,
    /// Whether the requests of this window began under an earlier limit.
    is_settling: bool,
}

impl Estimator {
    pub(super) fn new(settings: Adaptive, start: u64) -> Self {
        Self {
            settings,
            estimate: within(&settings, start.saturating_mul(PARTS)),
            window: SampleWindow::default(),
            baseline: Baseline::new(),
            latency: None,
            is_settling: false,
        }
    }

    /// The current limit, within its bounds.
    pub(super) fn limit(&self) -> u64 {
        let estimate = if self.baseline.is_probing() {
            within(&self.settings, self.estimate / PROBE)
        } else {
            self.estimate
        };
        estimate / PARTS
    }

    /// Records a request. True if it closed a window, so that the limit may have changed.
    pub(super) fn observe(&mut self, sample: Sample) -> bool {
        let Some(summary) = self.window.add(sample) else {
            return false;
        };
        self.latency = summary.latency.or(self.latency);
        // This window was still shaped by the earlier limit.
        if std::mem::take(&mut self.is_settling) {
            return true;
        }
        let moved = self.moved(&summary);
        let moved = within(&self.settings, moved);
        // Without a target, steps are small enough by themselves.
        let is_step = self.settings.target.is_some() || summary.is_dropping;
        self.is_settling = is_step && moved != self.estimate;
        self.estimate = moved;
        true
    }

    fn moved(&mut self, summary: &Summary) -> u64 {
        let is_used = summary.peak.saturating_mul(2) >= self.limit();
        match (summary.latency, self.settings.target) {
            _ if summary.is_dropping => scaled(self.estimate, KEPT_WHEN_DROPPED, 1_000),
            (None, _) => self.estimate,
            (Some(latency), Some(target)) => self.toward(target, latency, is_used),
            (Some(latency), None) => self.along_gradient(latency, is_used),
        }
    }

    fn toward(&self, target: Micros, latency: Micros, is_used: bool) -> u64 {
        let (target, latency) = (target.get(), latency.get().max(1));
        let fitting = scaled(self.estimate, target, latency);
        if latency > target {
            return fitting.max(scaled(self.estimate, KEPT_ABOVE_TARGET, 1_000));
        }
        if is_used {
            return fitting.min(self.estimate + root(self.estimate));
        }
        self.estimate
    }

    fn along_gradient(&mut self, latency: Micros, is_used: bool) -> u64 {
        let Some(share) = self.baseline.compare(latency, is_used) else {
            return self.estimate;
        };
        if !is_used {
            return self.estimate;
        }
        let gradient = scaled(share, TOLERANCE, 1_000).clamp(STEEPEST, 1_000);
        let wanted = scaled(self.estimate, gradient, 1_000) + root(self.estimate);
        (self.estimate * (SMOOTHING - 1) + wanted) / SMOOTHING
    }
}

pub(super) fn within(settings: &Adaptive, estimate: u64) -> u64 {
    let (min, max) = (settings.min.max(1), settings.max.max(settings.min).max(1));
    estimate.clamp(min.saturating_mul(PARTS), max.saturating_mul(PARTS))
}

/// `value × numerator ÷ denominator`, without overflow on the way.
pub(super) fn scaled(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The square root of an estimate, in parts too.
fn root(estimate: u64) -> u64 {
    estimate.saturating_mul(PARTS).isqrt()
}
