//! What goes wrong in a seed, and when.

use std::time::Duration;

use super::demand::SeedDemand;
use super::rule::SeedRule;
use crate::network::{Latency, Loss};
use crate::random::SeededRandom;

/// One thing that goes wrong, or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeedFault {
    Pause {
        instance: usize,
        time: Duration,
    },
    Crash {
        instance: usize,
        down: Duration,
    },
    Leave {
        instance: usize,
        down: Duration,
    },
    Hold {
        instance: usize,
        time: Duration,
    },
    Lose {
        instance: usize,
        loss: Loss,
    },
    Reset {
        instance: usize,
    },
    Slow {
        instance: usize,
        latency: Latency,
    },
    PauseServer {
        time: Duration,
    },
    RestartServer {
        down: Duration,
        is_empty: bool,
    },
    /// All keys are gone, and the connections stay.
    Flush,
    StepServerClock {
        by: i64,
    },
    StepClock {
        instance: usize,
        by: i64,
    },
    /// Another count for the limit, which reaches one instance after the other.
    ChangeRule {
        count: u64,
    },
}

/// What faults are drawn for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultRange {
    pub(crate) instances: usize,
    pub(crate) count: u64,
    /// In milliseconds.
    pub(crate) window: u64,
}

impl FaultRange {
    fn instance(self, random: &mut SeededRandom) -> usize {
        usize::try_from(random.below(self.instances as u64)).unwrap_or(0)
    }
}

impl SeedFault {
    /// One of the faults that let leases end unnoticed.
    pub(crate) fn hold_or_pause(random: &mut SeededRandom, range: FaultRange) -> Self {
        let instance = range.instance(random);
        let time = Duration::from_millis(random.between(5, 700));
        if random.happens(500) {
            Self::Hold { instance, time }
        } else {
            Self::Pause { instance, time }
        }
    }

    pub(crate) fn draw(random: &mut SeededRandom, range: FaultRange) -> Self {
        let millis = |random: &mut SeededRandom, least, most| {
            Duration::from_millis(random.between(least, most))
        };
        let instance = range.instance(random);
        // Less than any limit remembers: what is further in the future is rebased, and the time between
        // is lived twice.
        let back = i64::try_from(range.window * 200).unwrap_or(i64::MAX);
        match random.below(16) {
            0 | 1 | 15 => Self::Pause {
                instance,
                time: millis(random, 5, 1_500),
            },
            2 | 3 => Self::Crash {
                instance,
                down: millis(random, 20, 1_200),
            },
            4 => Self::Leave {
                instance,
                down: millis(random, 100, 800),
            },
            5 | 6 => Self::Hold {
                instance,
                time: millis(random, 3, 700),
            },
            7 => Self::Lose {
                instance,
                loss: random.choose(&[Loss::Requests, Loss::Replies, Loss::All]),
            },
            8 => Self::Reset { instance },
            9 => Self::Slow {
                instance,
                latency: Latency {
                    least: 100,
                    most: random.between(1_000, 9_000),
                    spikes: random.between(0, 100),
                    spike: 60_000,
                },
            },
            10 => Self::PauseServer {
                time: millis(random, 3, 400),
            },
            11 => Self::RestartServer {
                down: millis(random, 5, 900),
                is_empty: random.happens(500),
            },
            12 => match random.below(3) {
                0 => Self::Flush,
                1 => Self::StepServerClock {
                    by: signed(random, 2_000_000),
                },
                _ => Self::StepServerClock {
                    by: -signed(random, back),
                },
            },
            13 => Self::StepClock {
                instance,
                by: if random.happens(500) {
                    signed(random, 2_000_000)
                } else {
                    -signed(random, back)
                },
            },
            _ => Self::ChangeRule {
                count: random.between((range.count / 2).max(2), range.count * 2),
            },
        }
    }
}

impl SeedFault {
    /// The same fault when it does the most harm, if that is known: what an instance holds or gives back arrives
    /// late where demand waits for it.
    pub(crate) fn aligned(
        self,
        random: &mut SeededRandom,
        at: u64,
        (demand, rule): (&SeedDemand, &SeedRule),
    ) -> (u64, Self) {
        let window = rule.window.get() / 1_000;
        let millis = Duration::from_millis;
        match self {
            Self::Pause { instance, .. } => {
                let pause = demand.pause(random, at);
                pause.map_or((at, self), |(at, time)| {
                    let time = millis(time);
                    (at, Self::Pause { instance, time })
                })
            }
            Self::Hold { instance, .. } => {
                let hold = demand.hold(random, at).or_else(|| {
                    // Over the end of a window: what goes back arrives in the next.
                    let at = (at / window + 1) * window - random.between(10, 140);
                    let over_end = (at, random.between(60, 250));
                    (!rule.algorithm.is_bucket()).then_some(over_end)
                });
                hold.map_or((at, self), |(at, time)| {
                    let time = millis(time);
                    (at, Self::Hold { instance, time })
                })
            }
            _ => (at, self),
        }
    }
}

/// A number from 1 to `most`.
fn signed(random: &mut SeededRandom, most: i64) -> i64 {
    1 + i64::try_from(random.below(most.unsigned_abs())).unwrap_or(0)
}
