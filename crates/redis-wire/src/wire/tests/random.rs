//! Random steps, several charges each and several in one call: the same answers as from memory.

use tidegate_core::{Algorithm, Anchor, MemoryStore, Outcome, Rate, Retry, Window};
use tidegate_testkit::conformance::limits_of;
use tidegate_testkit::timeline::START;

use super::*;

/// xorshift64*: the same numbers for the same seed.
pub(super) struct RandomSteps(pub(super) u64);

impl RandomSteps {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(super) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}

/// Limits that share states, with windows from a second to years.
fn all_limits() -> Vec<Limit> {
    let mut limits = [limits_of(3), limits_of(20), limits_of(10_000_000)].concat();
    let windows = [
        Window::Month,
        Window::Year,
        Micros::WEEK.into(),
        Micros::SECOND.into(),
        Micros::DAY.times(366).into(),
    ];
    for window in windows {
        let rate = Rate::new(7, window);
        let algorithms = [
            Algorithm::FIXED_WINDOW,
            Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            },
            Algorithm::SlidingWindowLog,
            Algorithm::SlidingWindowCounter,
            Algorithm::SlidingWindowSlots {
                slots: Some(5),
                strict: true,
            },
            Algorithm::TokenBucket {
                max_delay: Micros::from_seconds(2),
            },
        ];
        limits.extend(
            algorithms
                .iter()
                .filter_map(|algorithm| Limit::new(rate, *algorithm).ok()),
        );
    }
    limits
}

/// What one step of the timeline is, on both sides.
struct Turn {
    step: LuaStep,
    wanted: Option<Outcomes>,
    case: String,
}

/// A request that was charged, to be given back or released.
struct RandomSlotCharges {
    charges: Vec<(usize, usize, u64)>,
    lease: PermitId,
    outcomes: Vec<Outcome>,
}

struct Timeline {
    random: RandomSteps,
    memory: MemoryStore,
    scopes: [Scope; 2],
    limits: Vec<Limit>,
    now: Timestamp,
    charged: Vec<RandomSlotCharges>,
}

const NAMES: [&str; 3] = ["one", "two", ""];

impl Timeline {
    fn time(&mut self) -> Timestamp {
        let random = &mut self.random;
        self.now = match random.below(40) {
            0..4 => self.now - Micros::new(random.below(90_000_000)),
            4..16 => self.now,
            16..34 => self.now + Micros::new(random.below(500_000_000)),
            34..38 => self.now + Micros::new(random.below(5_000_000_000)),
            38 => self.now - Micros::DAY.times(random.below(40)),
            _ => self.now + Micros::DAY.times(random.below(40)),
        };
        self.now
    }

    fn turn(&mut self) -> Turn {
        let now = self.time();
        if self.random.below(8) == 0
            && let Some(charged) = self.charged.pop()
        {
            return self.turn_back(&charged, now);
        }
        let chosen: Vec<_> = (0..=self.random.below(3))
            .map(|_| {
                let limit = usize::try_from(self.random.below(self.limits.len() as u64)).unwrap();
                let name = usize::try_from(self.random.below(3)).unwrap();
                (limit, name, self.random.below(6))
            })
            .collect();
        let charges = self.charges(&chosen);
        let lease = PermitId::from_u128(u128::from(self.random.0) << 64 | 1);
        let with_lease = !self.random.0.is_multiple_of(8);
        let mut request = Request::new(&charges).at(now);
        if with_lease {
            request = request.under(lease);
        }
        let op = self.random.0 % 11;
        let (step, outcomes) = match op {
            0 => (LuaStep::peek(&plan(&request)), self.memory.peek(&request)),
            1 => (
                LuaStep::preview(&plan(&request)),
                self.memory.preview(&request),
            ),
            2 => (
                LuaStep::settle(&plan(&request)),
                self.memory.settle(&request),
            ),
            _ => (
                LuaStep::charge(&keys(), &plan(&request)),
                self.memory.charge(&request),
            ),
        };
        let case = format!("{step:?}");
        if op > 2 && with_lease {
            self.charged.push(RandomSlotCharges {
                charges: chosen,
                lease,
                outcomes: outcomes.to_vec(),
            });
        }
        Turn {
            step,
            wanted: Some(outcomes),
            case,
        }
    }

    /// Gives back what was charged.
    fn turn_back(&mut self, taken: &RandomSlotCharges, now: Timestamp) -> Turn {
        let charges = self.charges(&taken.charges);
        let request = Request::new(&charges).at(now).under(taken.lease);
        self.memory.give_back(&request, &taken.outcomes);
        let step = LuaStep::give_back(&keys(), &plan(&request), &taken.outcomes)
            .unwrap_or_else(|| LuaStep::peek(&plan(&Request::new(&[]))));
        let case = format!("{step:?}");
        let wanted = None;
        Turn { step, wanted, case }
    }

    fn charges<'a>(&'a self, chosen: &[(usize, usize, u64)]) -> Vec<Charge<'a>> {
        let charge = |(limit, name, cost): &(usize, usize, u64)| {
            let limit = &self.limits[*limit];
            charging(&self.scopes[*name % 2], limit, NAMES[*name], *cost)
        };
        chosen.iter().map(charge).collect()
    }
}

#[test]
fn random_steps_are_answered_as_from_memory() {
    let mut server = ScriptServer::start();
    let mut timeline = Timeline {
        random: RandomSteps(0x7469_6465_6761_7465),
        memory: MemoryStore::new(),
        scopes: [Scope::new("one"), Scope::new("{two}").with_secret_keys()],
        limits: all_limits(),
        now: START,
        charged: Vec::new(),
    };
    let (mut steps, mut kinds) = (0, [0_u32; 4]);
    while steps < 25_000 {
        let turns: Vec<_> = (0..=timeline.random.below(8))
            .map(|_| timeline.turn())
            .collect();
        let sent: Vec<_> = turns.iter().map(|turn| &turn.step).collect();
        for (turn, answer) in turns.iter().zip(server.run(&sent)) {
            if let Some(wanted) = &turn.wanted {
                let answer = outcomes(answer);
                assert_eq!(&answer, wanted, "step {steps}: {}", turn.case);
                for outcome in &answer {
                    kinds[match outcome.retry {
                        Retry::Now if outcome.delay.is_zero() => 0,
                        Retry::Now => 1,
                        Retry::After(_) => 2,
                        Retry::Never => 3,
                    }] += 1;
                }
            } else {
                answer.unwrap();
            }
            steps += 1;
        }
        release_some(&mut server, &mut timeline);
    }
    assert!(kinds.iter().all(|count| *count > 300), "{kinds:?}");
}

/// Releases or renews a lease, as of the last change: both sides get times.
fn release_some(server: &mut ScriptServer, timeline: &mut Timeline) {
    if timeline.charged.len() < 4 {
        return;
    }
    let charged = timeline.charged.remove(0);
    let holds = charged
        .charges
        .iter()
        .filter(|(limit, _, _)| timeline.limits[*limit].window().is_none());
    if timeline.random.below(2) == 0 && holds.count() < 2 {
        let renewed = was_live(server.ask(&LuaStep::renew(&keys(), charged.lease)));
        assert_eq!(renewed, timeline.memory.renew(charged.lease));
    }
    let released = was_live(server.ask(&LuaStep::release(&keys(), charged.lease)));
    assert_eq!(released, timeline.memory.release(charged.lease));
}
