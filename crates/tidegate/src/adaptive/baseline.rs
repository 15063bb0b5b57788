//! The latency of an upstream that is not overloaded, as far as that can be known.
//!
//! It falls immediately and rises slowly, because a latency above the usual is usually a queue. Because under steady
//! overload every latency has the queue in it, there are *probes*: now and then the limit is lowered for two windows,
//! one to drain the queue and one to measure without it. A lowered rate takes longer to drain the queue, so a
//! [`RateBaseline`] waits until the latency no longer falls.

use tidegate_core::{Micros, Timestamp};

/// Used windows before a probe while the baseline is in doubt: the first measurement may have been taken under
/// overload, and one that was just found much too high may still be.
const SOON: u32 = 20;
/// Used windows from one probe to the next.
const PROBE_EVERY: u32 = 250;
/// The fraction of the distance to a lower latency that the baseline moves in a window, and to a higher one.
const FALLS: u64 = 8;
const RISES: u64 = 4_000;

/// The latency without a queue.
#[derive(Debug)]
pub(super) struct Baseline {
    /// In thousandths of a microsecond, so that slow changes are not rounded away; zero if unknown.
    latency: u64,
    until_probe: u32,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Watching,
    Draining,
    Measuring,
}

impl Baseline {
    pub(super) fn new() -> Self {
        Self {
            latency: 0,
            until_probe: SOON,
            phase: Phase::Watching,
        }
    }

    /// Whether the limit has to be lowered to measure a latency without a queue.
    pub(super) fn is_probing(&self) -> bool {
        self.phase != Phase::Watching
    }

    /// Records a window. Returns the baseline divided by `latency`, in thousandths; `None` during a probe, which says
    /// nothing about the limit.
    pub(super) fn compare(&mut self, latency: Micros, is_used: bool) -> Option<u64> {
        let latency = latency.get().max(1).saturating_mul(1_000);
        match self.phase {
            Phase::Draining => {
                self.phase = Phase::Measuring;
                return None;
            }
            Phase::Measuring => {
                self.measured(latency);
                self.phase = Phase::Watching;
                return None;
            }
            Phase::Watching => {}
        }
        if self.watch(latency, is_used) {
            self.phase = Phase::Draining;
        }
        let share = u128::from(self.latency) * 1_000 / u128::from(latency);
        Some(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// A probe has measured it.
    fn measured(&mut self, latency: u64) {
        let was_far_off = latency < self.latency / 5 * 4;
        self.until_probe = if was_far_off { SOON } else { PROBE_EVERY };
        self.latency = latency;
    }

    /// Takes note of a window that is no probe. Whether it is time for one.
    fn watch(&mut self, latency: u64, is_used: bool) -> bool {
        self.follow(latency);
        if is_used {
            self.until_probe = self.until_probe.saturating_sub(1);
        }
        is_used && self.until_probe == 0
    }

    fn follow(&mut self, latency: u64) {
        self.latency = match self.latency {
            0 => latency,
            known if latency < known => known - (known - latency) / FALLS,
            known => known + (latency - known) / RISES,
        };
    }
}

/// After this many windows without a steady latency, the probe of a rate ends with the current one.
const LONGEST_PROBE: u32 = 100;

/// The latency without a queue, of an upstream behind a rate.
#[derive(Debug)]
pub(super) struct RateBaseline {
    baseline: Baseline,
    probe: Option<Probe>,
    /// How many windows in a row were too slow. If a lower rate does not help, the measure is wrong.
    slow: u32,
}

#[derive(Debug)]
struct Probe {
    since: Timestamp,
    windows: u32,
    /// The latency of the window before, in thousandths of a microsecond.
    before: u64,
}

impl RateBaseline {
    pub(super) fn new() -> Self {
        Self {
            baseline: Baseline::new(),
            probe: None,
            slow: 0,
        }
    }

    /// Whether the rate has to be lowered to measure a latency without a queue.
    pub(super) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Records a window that ended at `now`. Returns the latency without a queue; `None` during a probe.
    pub(super) fn compare(
        &mut self,
        latency: Micros,
        is_used: bool,
        now: Timestamp,
    ) -> Option<Micros> {
        let parts = latency.get().max(1).saturating_mul(1_000);
        if let Some(probe) = &mut self.probe {
            probe.windows += 1;
            let began = now - latency;
            let is_falling = parts < probe.before / 10 * 9;
            probe.before = parts;
            if probe.windows < LONGEST_PROBE && (began < probe.since || is_falling) {
                return None;
            }
            self.baseline.measured(parts);
            self.probe = None;
            return None;
        }
        let is_due = self.baseline.watch(parts, is_used);
        let known = Micros::new(self.baseline.latency / 1_000);
        let is_slow = latency > tolerated(known);
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        if is_due || self.slow >= SOON {
            self.slow = 0;
            self.probe = Some(Probe {
                since: now,
                windows: 0,
                before: parts,
            });
        }
        Some(known)
    }
}

/// The latency that counts as no queue: half as much again as without one.
pub(super) fn tolerated(latency: Micros) -> Micros {
    Micros::new(latency.get().saturating_mul(3) / 2).max(Micros::new(1))
}
