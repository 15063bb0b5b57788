//! `retry_after` is the wait after which the same request is allowed, if no other comes.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::{
    Algorithm, Charge, Limit, ManualClock, MemoryStore, Micros, Rate, Retry, Scope,
};
use tidegate_simulation::{BEGIN, GateAnswer, InstanceSettings, Question, SeededRandom, World};

/// How often each cost is tried again.
const TRIES: usize = 12;
/// How far a wait may be off, in microseconds: messages are under way, and instances run once in a millisecond.
const TOLERANCE: u64 = 5_000;

/// The algorithms that can be leased, as they are written.
const LEASED: [(&str, Algorithm); 5] = [
    ("token_bucket", Algorithm::TOKEN_BUCKET),
    (
        "leaky_bucket, shape: false",
        Algorithm::LeakyBucket { shape: false },
    ),
    ("fixed_window", Algorithm::FIXED_WINDOW),
    ("sliding_window_counter", Algorithm::SlidingWindowCounter),
    (
        "sliding_window_slots, slots: 10",
        Algorithm::SlidingWindowSlots {
            slots: Some(10),
            strict: false,
        },
    ),
];

/// Instances of one leased limit of 40 a second, and a store that is charged what they admit.
struct Client {
    world: World,
    clock: ManualClock,
    reference: MemoryStore,
    limit: Limit,
    name: String,
}

impl Client {
    fn new((name, algorithm): (&str, Algorithm), instances: usize) -> Self {
        let mut world = World::new(7);
        let rule = format!(
            "rules:\n- {{id: r, per: [user_id], limit: 40/second, sync: leased, algorithm: {name}}}\n"
        );
        for _ in 0..instances {
            world.add(InstanceSettings::new(rule.as_str()));
        }
        // Connected, and the instances know of each other.
        world.run_for(Duration::from_secs(3));
        let clock = ManualClock::default();
        Self {
            world,
            reference: MemoryStore::builder().clock(clock.clone()).build(),
            clock,
            limit: Limit::new(Rate::per_second(40), algorithm).unwrap(),
            name: format!("{name}, {instances} instances"),
        }
    }

    fn ask(&mut self, instance: usize, cost: u64) -> GateAnswer {
        let question = Question::new("user_id", "u").with_cost(cost);
        self.world.ask(instance, question);
        loop {
            self.world.run_for(Duration::from_micros(200));
            if let Some(answer) = self.world.take_answers().pop() {
                return answer;
            }
        }
    }

    /// How long the reference lets a request wait, in microseconds. Charges it if it was admitted.
    fn expected(&self, answer: &GateAnswer) -> u64 {
        self.clock.set(BEGIN + Micros::new(answer.answered_at));
        let (scope, limit) = (Scope::new("reference"), &self.limit);
        let charge = Charge {
            scope: &scope,
            limit,
            key: "u",
            cost: answer.question.cost,
        };
        let request = tidegate_core::Request::new(std::slice::from_ref(&charge));
        let outcome = if answer.is_allowed {
            self.reference.settle(&request)[0]
        } else {
            self.reference.peek(&request)[0]
        };
        match outcome.retry {
            Retry::After(wait) => wait.get(),
            Retry::Now | Retry::Never => 0,
        }
    }

    /// Asks until a request is denied. Returns its answer, which says the shortest wait if there is one instance.
    fn denied(&mut self, cost: u64) -> GateAnswer {
        loop {
            let answer = self.ask(0, cost);
            let expected = self.expected(&answer);
            if !answer.is_allowed {
                let wait = answer.retry_after.unwrap();
                let case = format!(
                    "{}, cost {cost}: {wait} instead of {expected} µs",
                    self.name
                );
                assert!(wait <= expected + TOLERANCE, "{case}");
                assert!(wait + TOLERANCE >= expected, "{case}");
                return answer;
            }
        }
    }

    /// Asks again when the wait of a denied request is over, as no other comes. Whether it is allowed.
    fn retry(&mut self, denied: &GateAnswer) -> bool {
        let wait = denied.retry_after.unwrap();
        self.world.run_until(denied.answered_at + wait);
        let again = self.ask(denied.instance, denied.question.cost);
        self.expected(&again);
        again.is_allowed
    }
}

#[test]
fn a_denied_request_of_any_cost_is_allowed_after_its_retry_after() {
    for algorithm in LEASED {
        for cost in [1, 5, 10, 20] {
            let mut client = Client::new(algorithm, 1);
            let tries = (0..TRIES).filter(|_| {
                let denied = client.denied(cost);
                client.retry(&denied)
            });
            let allowed = tries.count();
            assert_eq!(allowed, TRIES, "{}, cost {cost}", client.name);
        }
    }
}

#[test]
fn denials_of_other_costs_before_it_do_not_matter() {
    for algorithm in LEASED {
        let mut client = Client::new(algorithm, 1);
        let mut random = SeededRandom::new(3);
        for _ in 0..15 {
            let mut denied = client.denied(random.between(1, 30));
            for _ in 0..random.below(4) {
                let answer = client.ask(0, random.between(1, 40));
                client.expected(&answer);
                if !answer.is_allowed {
                    denied = answer;
                }
            }
            // An admitted request after it is another request.
            let cost = denied.question.cost;
            let denied = client.denied(cost);
            assert!(client.retry(&denied), "{}, cost {cost}", client.name);
        }
    }
}

#[test]
fn with_units_on_lease_elsewhere_it_is_allowed_after_its_retry_after_too() {
    for algorithm in LEASED {
        for cost in [1, 5, 20] {
            let mut client = Client::new(algorithm, 2);
            for _ in 0..2 {
                for _ in 0..5 {
                    client.ask(1, 1);
                }
                let denied = loop {
                    let answer = client.ask(0, cost);
                    if !answer.is_allowed {
                        break answer;
                    }
                };
                assert!(client.retry(&denied), "{}, cost {cost}", client.name);
            }
        }
    }
}

/// Many clients are denied and the waits of some are longer, but the last of them is allowed after it. Redis is asked for
/// few of them.
#[test]
fn the_last_request_of_a_flood_is_allowed_after_its_retry_after() {
    for algorithm in LEASED {
        for cost in [1, 20] {
            let mut client = Client::new(algorithm, 1);
            let calls = |client: &Client| {
                let gate = client.world.gate(0).unwrap();
                gate.store().stats().calls.load(Ordering::Relaxed)
            };
            let before = calls(&client);
            for _ in 0..200 {
                for cost in [1, 3, 20, cost] {
                    let question = Question::new("user_id", "u").with_cost(cost);
                    client.world.ask(0, question);
                }
                client.world.run_for(Duration::from_millis(1));
            }
            client.world.run_for(Duration::from_millis(3));
            let calls = calls(&client) - before;
            assert!(calls <= 40, "{}, cost {cost}: {calls} calls", client.name);
            let answers = client.world.take_answers();
            let last = answers
                .iter()
                .max_by_key(|answer| answer.answered_at)
                .unwrap();
            let of_cost = answers
                .iter()
                .rev()
                .find(|answer| answer.question.cost == cost);
            let Some(denied) = of_cost.filter(|denied| {
                !denied.is_allowed && denied.answered_at + 1_000 >= last.answered_at
            }) else {
                continue;
            };
            assert!(
                client.retry(denied),
                "{}, cost {cost}: {denied:?}",
                client.name
            );
        }
    }
}
