//! The latency of an upstream that is not overloaded, as far as that can be known.
//!
//! It falls at once and rises slowly, for what is slower than usual is usually a queue. Because under
//! steady overload every latency has the queue in it, there are *probes*: now and then the limit is
//! lowered for two windows, one to drain the queue and one to measure without it.

use tidegate_core::Micros;

/// Used windows before a probe while the measure is in doubt: the first may have been one of an overload, and
/// one that has just been found much too high may be so still.
const SOON: u32 = 20;
/// Used windows from one probe to the next.
const PROBE_EVERY: u32 = 250;
/// What part of the way to a lower latency it goes in a window, and to a higher one.
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

    /// Whether the limit is to be lowered, so that a latency without a queue can be seen.
    pub(super) fn is_probing(&self) -> bool {
        self.phase != Phase::Watching
    }

    /// Takes note of a window, and says how `latency` compares: the thousandths that the latency without a
    /// queue is of it. None while a probe is on, when it tells nothing about the limit.
    pub(super) fn compare(&mut self, latency: Micros, is_used: bool) -> Option<u64> {
        let latency = latency.get().max(1).saturating_mul(1_000);
        match self.phase {
            Phase::Draining => {
                self.phase = Phase::Measuring;
                return None;
            }
            Phase::Measuring => {
                let was_far_off = latency < self.latency / 5 * 4;
                self.until_probe = if was_far_off { SOON } else { PROBE_EVERY };
                self.latency = latency;
                self.phase = Phase::Watching;
                return None;
            }
            Phase::Watching => {}
        }
        self.follow(latency);
        if is_used {
            self.until_probe = self.until_probe.saturating_sub(1);
            if self.until_probe == 0 {
                self.phase = Phase::Draining;
            }
        }
        let share = u128::from(self.latency) * 1_000 / u128::from(latency);
        Some(u64::try_from(share).unwrap_or(u64::MAX))
    }

    fn follow(&mut self, latency: u64) {
        self.latency = match self.latency {
            0 => latency,
            known if latency < known => known - (known - latency) / FALLS,
            known => known + (latency - known) / RISES,
        };
    }
}
