//! Units taken in advance: however instances take, use, return and lose them, no more is admitted
//! than the limit allows.

use tidegate_core::{Algorithm, Anchor, Rate, Retry, Window};
use tidegate_testkit::timeline::START;

use super::random::RandomSteps;
use super::*;
use crate::wire::Leased;

fn leased(answer: Result<StepOutcome, StepError>) -> Leased {
    match answer.unwrap() {
        StepOutcome::Leased(leased) => leased,
        other => panic!("a lease and not {other:?}"),
    }
}

/// What one instance has in its hands.
#[derive(Clone, Copy)]
struct Hand {
    id: PermitId,
    units: u64,
    used: u64,
    ends_at: Timestamp,
    charged_at: Timestamp,
}

/// What was admitted, as an exact bucket of its own would see it.
struct Judge {
    count: u64,
    window: u64,
    burst: u64,
    /// In parts of a window.
    debt: u128,
    at: Timestamp,
    admitted: u64,
}

impl Judge {
    fn admit(&mut self, cost: u64, now: Timestamp) {
        let repaid = u128::from(now.since(self.at).get()) * u128::from(self.count);
        self.debt = self.debt.saturating_sub(repaid) + u128::from(cost) * u128::from(self.window);
        self.at = now;
        self.admitted += cost;
        let most = u128::from(self.burst) * u128::from(self.window);
        assert!(
            self.debt <= most,
            "more than burst + rate × time at {now:?}"
        );
    }
}

#[test]
fn a_leased_bucket_never_admits_more_than_it_promises() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("leased").leased();
    let mut random = RandomSteps(0x6c65_6173_6573);
    for round in 0..40 {
        let (count, burst) = (1 + random.below(30), 1 + random.below(30));
        let window = *random.one_of(&[
            Micros::SECOND,
            Micros::new(777_777),
            Micros::from_seconds(9),
        ]);
        let algorithm = *random.one_of(&[
            Algorithm::TOKEN_BUCKET,
            Algorithm::LeakyBucket { shape: false },
        ]);
        let limit = Limit::new(Rate::new(count, window).burst(burst), algorithm).unwrap();
        let key = format!("key {round}");
        let mut judge = Judge {
            count,
            window: window.get(),
            burst,
            debt: 0,
            at: START,
            admitted: 0,
        };
        let mut hands: [Option<Hand>; 3] = [None; 3];
        let mut now = START;
        let mut ids = u128::from(random.next()) << 32;
        for _ in 0..250 {
            now = now
                + Micros::new(match random.below(8) {
                    0..3 => 0,
                    3..7 => random.below(200_000),
                    _ => random.below(3_000_000),
                });
            let index = usize::try_from(random.below(3)).unwrap();
            let cost = 1 + random.below(3);
            let charge = charging(&scope, &limit, &key, cost);
            match (random.below(12), hands[index]) {
                // Used here, without asking.
                (0..6, Some(hand)) if hand.units - hand.used >= cost && now < hand.ends_at => {
                    judge.admit(cost, now);
                    hands[index] = Some(Hand {
                        used: hand.used + cost,
                        ..hand
                    });
                }
                (6, Some(hand)) => {
                    let unused = charging(&scope, &limit, &key, hand.units - hand.used);
                    let step = LuaStep::return_lease(&plan_at(&unused, Some(now)), hand.id);
                    assert_eq!(server.ask(&step), Ok(StepOutcome::Done));
                    hands[index] = None;
                }
                // Lost with its instance.
                (7, Some(_)) => hands[index] = None,
                (8 | 9, _) => {
                    let charges = [charge];
                    let request = Request::new(&charges).at(now);
                    let outcome =
                        outcomes(server.ask(&LuaStep::charge(&keys(), &plan(&request))))[0];
                    if outcome.allowed {
                        judge.admit(cost, now);
                    }
                    check_times(&mut server, &charges, now, outcome);
                }
                (_, hand) => {
                    ids += 1;
                    let want = LeaseRequest {
                        id: PermitId::from_u128(ids),
                        units: random.below(12),
                        lasts: Micros::new(1 + random.below(1_000_000)),
                        previous: hand.map(|hand| (hand.id, hand.used)),
                    };
                    let leased =
                        leased(server.ask(&LuaStep::lease(&plan_at(&charge, Some(now)), want)));
                    let mut taken = Hand {
                        id: want.id,
                        units: leased.units,
                        used: 0,
                        ends_at: leased.ends_at,
                        charged_at: leased.outcome.at,
                    };
                    if leased.outcome.allowed {
                        assert!(leased.units >= cost);
                        judge.admit(cost, now);
                        taken.used = cost;
                    }
                    hands[index] = (leased.units > 0).then_some(taken);
                }
            }
        }
        assert!(judge.admitted > 0);
        // When all leases have ended and time has passed, the bucket is whole again.
        let charges = [charging(&scope, &limit, &key, 0)];
        let asked = outcomes(server.ask(&LuaStep::peek(&plan(&Request::new(&charges).at(now)))))[0];
        let whole = Request::new(&charges).at(asked.reset_at);
        assert_eq!(
            outcomes(server.ask(&LuaStep::peek(&plan(&whole))))[0].remaining,
            burst
        );
        assert!(asked.reset_at.since(now) <= limit_to_full(&limit) + Micros::SECOND);
    }
}

fn limit_to_full(limit: &Limit) -> Micros {
    match limit.form() {
        Form::Bucket(bucket) => bucket.to_full(),
        _ => Micros::ZERO,
    }
}

/// `retry` and `reset_at` are exact, with leases out too.
fn check_times(
    server: &mut ScriptServer,
    charges: &[Charge<'_>],
    now: Timestamp,
    outcome: Outcome,
) {
    let mut peek = |at: Timestamp| {
        outcomes(server.ask(&LuaStep::peek(&plan(&Request::new(charges).at(at)))))[0]
    };
    if let Retry::After(wait) = outcome.retry {
        assert!(peek(now + wait).allowed, "after {wait}");
        assert!(
            !peek(now + (wait - Micros::new(1))).allowed,
            "before {wait}"
        );
    }
    if outcome.reset_at > now {
        let whole = outcome.limit;
        assert_eq!(peek(outcome.reset_at).remaining, whole);
        assert!(peek(outcome.reset_at - Micros::new(1)).remaining < whole);
    }
}

#[test]
fn a_leased_window_never_admits_more_than_its_limit() {
    let mut server = ScriptServer::start();
    let scope = Scope::new("leased windows").leased();
    let mut random = RandomSteps(0x7769_6e64_6f77);
    let algorithms = [
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowCounter,
        Algorithm::SlidingWindowSlots {
            slots: Some(10),
            strict: true,
        },
    ];
    for round in 0..24 {
        let algorithm = algorithms[round % 4];
        let count = 1 + random.below(40);
        let limit = Limit::new(Rate::new(count, Micros::SECOND), algorithm).unwrap();
        let key = format!("key {round}");
        let mut hands: [Option<Hand>; 3] = [None; 3];
        let mut admitted: Vec<(Timestamp, Timestamp)> = Vec::new();
        let mut now = START;
        for _ in 0..200 {
            now = now + Micros::new(random.below(60_000));
            let index = usize::try_from(random.below(3)).unwrap();
            let charge = charging(&scope, &limit, &key, 1);
            match (random.below(10), hands[index]) {
                (0..6, Some(hand)) if hand.used < hand.units && now < hand.ends_at => {
                    admitted.push((now, hand.ends_at));
                    hands[index] = Some(Hand {
                        used: hand.used + 1,
                        ..hand
                    });
                }
                (6, Some(hand)) => {
                    let unused = [charging(&scope, &limit, &key, hand.units - hand.used)];
                    let outcome = Outcome {
                        allowed: true,
                        limit: count,
                        remaining: 0,
                        exceeded: 0,
                        retry: Retry::Now,
                        reset_at: now,
                        delay: Micros::ZERO,
                        at: hand.charged_at,
                        is_remembered: false,
                    };
                    let request = Request::new(&unused).at(now);
                    let step = LuaStep::give_back(&keys(), &plan(&request), &[outcome]).unwrap();
                    server.ask(&step).unwrap();
                    hands[index] = None;
                }
                _ => {
                    let want = LeaseRequest {
                        id: PermitId::from_u128(1),
                        units: random.below(10),
                        lasts: Micros::SECOND,
                        previous: None,
                    };
                    let leased =
                        leased(server.ask(&LuaStep::lease(&plan_at(&charge, Some(now)), want)));
                    assert_eq!(leased.outcome.allowed, leased.units >= 1);
                    assert!(leased.ends_at > now);
                    let hand = Hand {
                        id: want.id,
                        units: leased.units,
                        used: u64::from(leased.outcome.allowed),
                        ends_at: leased.ends_at,
                        charged_at: leased.outcome.at,
                    };
                    if leased.outcome.allowed {
                        admitted.push((now, hand.ends_at));
                    }
                    hands[index] = Some(hand);
                }
            }
        }
        check_windows(algorithm, usize::try_from(count).unwrap(), &admitted);
    }
}

/// No window, and of strict slots no interval of a window's length, holds more than `count`.
fn check_windows(algorithm: Algorithm, count: usize, admitted: &[(Timestamp, Timestamp)]) {
    for (index, (start, ends_at)) in admitted.iter().enumerate() {
        let window = match algorithm {
            Algorithm::SlidingWindowSlots { .. } => (*start, *start + Micros::SECOND),
            _ => Window::Span(Micros::SECOND).around(*start),
        };
        let is_from_first = matches!(
            algorithm,
            Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest
            }
        );
        let together = admitted[index..].iter().filter(|(at, lease_ends_at)| {
            if is_from_first {
                lease_ends_at == ends_at
            } else {
                *at < window.1
            }
        });
        let sum = together.count();
        assert!(
            sum <= count,
            "{algorithm:?}: {sum} of {count} from {start:?}"
        );
    }
}
