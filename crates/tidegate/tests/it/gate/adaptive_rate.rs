//! Rates that follow the load, over an upstream with workers and a queue, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{FailingGate, NOW, gate, rules};
use tidegate::gate::{Decision, Feedback, FeedbackError};
use tidegate::{Attributes, Ended, Gate, ManualClock, MemoryStore, Micros};
use tidegate_testkit::FailingStore;
use tidegate_testkit::block_on;

const SECOND: u64 = 1_000_000;

/// What the upstream is: so many workers, and what each takes for a request.
#[derive(Clone, Copy)]
struct Upstream {
    workers: usize,
    micros: u64,
    /// Whether a request takes between half and one and a half of it, and one in fifty ten times as long.
    is_noisy: bool,
    /// How many may wait; others are dropped.
    queue: usize,
}

/// One worker, and a queue that takes all.
fn serial(per_second: u64) -> Upstream {
    Upstream {
        workers: 1,
        micros: SECOND / per_second,
        is_noisy: false,
        queue: usize::MAX,
    }
}

/// Workers that take 100 ms for a request.
fn workers(workers: usize) -> Upstream {
    Upstream {
        workers,
        micros: 100_000,
        ..serial(1)
    }
}

/// How the gate gets to know how requests ended.
#[derive(Clone, Copy)]
enum Reports {
    Observed,
    /// One in so many is reported, in batches every so many microseconds.
    Feedback {
        one_in: u64,
        every: u64,
    },
}

/// What one second was like.
#[derive(Default, Clone)]
struct Second {
    admitted: u64,
    latencies: Vec<u64>,
}

impl Second {
    fn median(&mut self) -> u64 {
        let middle = self.latencies.len() / 2;
        if self.latencies.is_empty() {
            return 0;
        }
        *self.latencies.select_nth_unstable(middle).1
    }
}

struct World {
    gates: Vec<FailingGate>,
    clock: ManualClock,
    bounds: (u64, u64),
    reports: Reports,
    /// Requests that clients make in a second, evenly.
    demand: u64,
    upstream: Upstream,
    free_at: Vec<u64>,
    in_flight: BinaryHeap<Reverse<(u64, u64)>>,
    /// By the number of the request: where it was decided, when, and whether it is dropped.
    requests: Vec<(usize, u64, bool, Decision)>,
    waiting: Vec<Vec<Ended>>,
    now: u64,
    next_request: u64,
    next_report: u64,
    random: u64,
}

impl World {
    fn new(rule: &str, upstream: Upstream) -> Self {
        Self::of(1, rule, upstream)
    }

    fn of(instances: usize, rule: &str, upstream: Upstream) -> Self {
        let clock = ManualClock::new(NOW);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let store = Arc::new(store);
        let gate = |_| {
            let store = FailingStore::over(Arc::clone(&store));
            FailingGate::with_clock(store, rules(rule), clock.clone())
        };
        let gates: Vec<_> = (0..instances).map(gate).collect();
        let in_force = gates[0].rules();
        let bounds = in_force.get("up").unwrap().adaptive().unwrap().bounds();
        Self {
            waiting: vec![Vec::new(); instances],
            gates,
            clock,
            bounds: (bounds.min(), bounds.max()),
            reports: Reports::Observed,
            demand: 400,
            upstream,
            free_at: vec![0; upstream.workers],
            in_flight: BinaryHeap::new(),
            requests: Vec::new(),
            now: 0,
            next_request: 0,
            next_report: SECOND,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn set_upstream(&mut self, upstream: Upstream) {
        self.upstream = upstream;
        // The busiest ones stay.
        self.free_at.sort_by_key(|free_at| Reverse(*free_at));
        self.free_at.resize(upstream.workers, self.now);
    }

    fn rate(&self) -> u64 {
        limit(&self.gates[0])
    }

    fn run(&mut self, seconds: u64) -> Vec<Second> {
        let (start, end) = (self.now, self.now + seconds * SECOND);
        let mut shown = vec![Second::default(); usize::try_from(seconds).unwrap()];
        let second = |now: u64| usize::try_from((now - start) / SECOND).unwrap();
        loop {
            let ends = self
                .in_flight
                .peek()
                .map_or(u64::MAX, |Reverse((end, _))| *end);
            let reports = match self.reports {
                Reports::Observed => u64::MAX,
                Reports::Feedback { .. } => self.next_report,
            };
            self.now = ends.min(self.next_request).min(reports);
            if self.now >= end {
                self.now = end;
                return shown;
            }
            self.clock.set(NOW + Micros::new(self.now));
            if self.now == ends {
                let latency = self.end_one();
                shown[second(self.now)].latencies.extend(latency);
            } else if self.now == reports {
                self.report();
            } else {
                let is_admitted = self.ask();
                shown[second(self.now)].admitted += u64::from(is_admitted);
                self.next_request = self.now + SECOND / self.demand;
            }
            for gate in &self.gates {
                let (rate, (min, max)) = (limit(gate), self.bounds);
                assert!((min..=max).contains(&rate), "{rate} is out of bounds");
            }
        }
    }

    /// A client asks, and the upstream gets the request if it is admitted.
    fn ask(&mut self) -> bool {
        let place = usize::try_from(self.random() >> 33).unwrap() % self.gates.len();
        let decision = block_on(self.gates[place].decide(&Attributes::new()));
        if decision.is_denied() {
            return false;
        }
        let is_dropped = self.queued() >= self.upstream.queue;
        let mut ends = self.now + 1_000;
        if !is_dropped {
            let takes = self.takes();
            let worker = self.free_at.iter_mut().min().unwrap();
            ends = self.now.max(*worker) + takes;
            *worker = ends;
        }
        self.in_flight
            .push(Reverse((ends, self.requests.len() as u64)));
        self.requests.push((place, self.now, is_dropped, decision));
        true
    }

    fn queued(&self) -> usize {
        self.in_flight.len().saturating_sub(self.free_at.len())
    }

    fn takes(&mut self) -> u64 {
        let (random, micros) = (self.random() >> 16, self.upstream.micros);
        if !self.upstream.is_noisy {
            micros
        } else if random.is_multiple_of(50) {
            micros * 10
        } else {
            micros / 2 + random / 50 % micros
        }
    }

    /// The latency of the request that ends now, unless it is dropped.
    fn end_one(&mut self) -> Option<u64> {
        let Reverse((_, number)) = self.in_flight.pop().unwrap();
        let random = self.random() >> 16;
        let (place, began, is_dropped, decision) = &self.requests[usize::try_from(number).unwrap()];
        let latency = self.now - began;
        let ended = if *is_dropped {
            Ended::Dropped
        } else {
            Ended::Answered(Micros::new(latency))
        };
        match self.reports {
            Reports::Observed => decision.observe(ended),
            Reports::Feedback { one_in, .. } if random.is_multiple_of(one_in) => {
                self.waiting[*place].push(ended);
            }
            Reports::Feedback { .. } => {}
        }
        (!is_dropped).then_some(latency)
    }

    fn report(&mut self) {
        for (gate, ended) in self.gates.iter().zip(&mut self.waiting) {
            let report = |ended| Feedback { rule: "up", ended };
            let reports: Vec<Feedback<'_>> = ended.drain(..).map(report).collect();
            gate.feedback(&reports).unwrap();
        }
        if let Reports::Feedback { every, .. } = self.reports {
            self.next_report = self.now + every;
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn limit(gate: &Gate) -> u64 {
    gate.rules().get("up").unwrap().adaptive().unwrap().limit()
}

/// What the seconds after the first ten were like: the mean of what was admitted, the worst median.
fn settled(mut seconds: Vec<Second>) -> (u64, u64) {
    let settled = &mut seconds[10..];
    let admitted: u64 = settled.iter().map(|second| second.admitted).sum();
    let mean = admitted / settled.len() as u64;
    (mean, settled.iter_mut().map(Second::median).max().unwrap())
}

fn rule(adaptive: &str) -> String {
    format!("- {{id: up, per: [], limit: 200/s, adaptive: {{{adaptive}}}}}")
}

/// An upstream that does 200 requests in a second, then 50, then 200 again.
fn check(name: &str, world: &mut World, phases: [Upstream; 3], within: u64, longest: u64) {
    for (upstream, capacity) in phases.into_iter().zip([200, 50, 200]) {
        world.set_upstream(upstream);
        let (admitted, median) = settled(world.run(25));
        let least = capacity - capacity * within / 100;
        let most = capacity + capacity * within / 100;
        assert!(
            (least..=most).contains(&admitted),
            "{name}: {admitted} of {capacity} are admitted"
        );
        assert!(median <= longest, "{name}: {median} µs at {capacity}");
    }
}

#[test]
fn admitted_traffic_follows_an_upstream_that_slows_down_and_recovers() {
    let slow_work = |micros| Upstream {
        workers: 10,
        micros,
        ..serial(1)
    };
    #[rustfmt::skip]
    let table = [
        // name                    bounds and target                     target, ms  upstream: 200/s and 50/s
        ("one worker",             "min: 10/s, max: 400/s, target: 100ms",  100,     serial(200), serial(50)),
        ("a wide range",           "min: 1/s, max: 5000/s burst 50, target: 100ms", 100,     serial(200), serial(50)),
        ("a small burst",          "min: 10/s, max: 400/s burst 1, target: 100ms", 100, serial(200), serial(50)),
        ("a short target",         "min: 10/s, max: 400/s, target: 30ms",   30,      serial(200), serial(50)),
        ("a long target",          "min: 10/s, max: 400/s, target: 500ms",  500,     serial(200), serial(50)),
        ("per minute",             "min: 600/m, max: 24000/m burst 400, target: 100ms", 100, serial(200), serial(50)),
        ("fewer workers",          "min: 10/s, max: 400/s, target: 150ms",  150,     workers(20), workers(5)),
        ("hardly above the work",  "min: 10/s, max: 400/s, target: 110ms",  110,     workers(20), workers(5)),
        ("slower work",            "min: 10/s, max: 400/s, target: 300ms",  300,     slow_work(50_000), slow_work(200_000)),
    ];
    for (name, adaptive, target, fast, slow) in table {
        let rule = match name {
            "per minute" => rule(adaptive).replace("200/s", "12000/m"),
            _ => rule(adaptive),
        };
        let mut world = World::new(&rule, fast);
        check(name, &mut world, [fast, slow, fast], 5, 2 * target * 1_000);
    }
}

#[test]
fn a_leaky_bucket_that_shapes_follows_too() {
    let rule = rule("min: 10/s, max: 400/s burst 20, target: 100ms")
        .replace("per: []", "per: [], algorithm: leaky_bucket");
    let (fast, slow) = (serial(200), serial(50));
    let mut world = World::new(&rule, fast);
    check("leaky bucket", &mut world, [fast, slow, fast], 5, 200_000);
}

#[test]
fn without_a_target_the_rate_follows_how_latency_changes() {
    let rule = rule("min: 10/s, max: 400/s burst 40");
    let (fast, slow) = (workers(20), workers(5));
    let mut world = World::new(&rule, fast);
    // Probes cost a part of it.
    check("workers", &mut world, [fast, slow, fast], 20, 400_000);
}

#[test]
fn noisy_work_is_followed_within_its_noise() {
    let noisy = |number| Upstream {
        is_noisy: true,
        ..workers(number)
    };
    let rule = rule("min: 10/s, max: 400/s, target: 200ms");
    let mut world = World::new(&rule, noisy(24));
    // With those that take long, 24 workers do 203 in a second. One second of 6 workers may be anything:
    // the median of all seconds counts.
    for (number, capacity) in [(24, 200), (6, 50), (24, 200)] {
        world.set_upstream(noisy(number));
        let mut all = Second::default();
        for second in world.run(25).drain(10..) {
            all.admitted += second.admitted;
            all.latencies.extend(second.latencies);
        }
        let admitted = all.admitted / 15;
        let near = capacity * 8 / 10..=capacity * 12 / 10;
        assert!(near.contains(&admitted), "{admitted} of {capacity}");
        let median = all.median();
        assert!(median <= 400_000, "{median} µs at {capacity}");
    }
}

#[test]
fn samples_that_are_reported_in_batches_or_in_part_are_enough() {
    let (fast, slow) = (serial(200), serial(50));
    #[rustfmt::skip]
    let table = [
        // one in  every       within, %  longest median
        (1,        100_000,    5,         200_000),
        (1,        SECOND / 2, 10,        300_000),
        (4,        100_000,    25,        400_000),
    ];
    for (one_in, every, within, longest) in table {
        let rule = rule("min: 10/s, max: 400/s, target: 100ms");
        let mut world = World::new(&rule, fast);
        world.reports = Reports::Feedback { one_in, every };
        let name = format!("one in {one_in}, every {every} µs");
        check(&name, &mut world, [fast, slow, fast], within, longest);
    }
}

#[test]
fn instances_that_share_a_bucket_estimate_alone_and_agree_about_the_upstream() {
    let (fast, slow) = (serial(200), serial(50));
    let rule = rule("min: 10/s, max: 400/s, target: 100ms");
    let mut world = World::of(3, &rule, fast);
    check(
        "three instances",
        &mut world,
        [fast, slow, fast],
        10,
        400_000,
    );
}

#[test]
fn traffic_below_the_rate_does_not_raise_it_and_is_held_back_when_the_upstream_slows_down() {
    let rule = rule("min: 10/s, max: 1000/s burst 20, target: 100ms");
    let mut world = World::new(&rule, serial(200));
    world.demand = 100;
    world.run(60);
    assert_eq!(world.rate(), 200, "where it began");
    world.set_upstream(serial(50));
    let (admitted, median) = settled(world.run(25));
    assert!((45..=55).contains(&admitted), "{admitted}");
    assert!(median <= 200_000, "{median}");
}

#[test]
fn an_upstream_that_drops_is_not_asked_for_much_more() {
    let dropping = Upstream {
        queue: 5,
        ..serial(200)
    };
    for adaptive in ["target: 10s", "target: 100ms"] {
        let rule = rule(&format!("min: 10/s, max: 1000/s, {adaptive}"));
        let mut world = World::new(&rule, dropping);
        world.demand = 900;
        let (admitted, _) = settled(world.run(30));
        assert!((150..=250).contains(&admitted), "{adaptive}: {admitted}");
    }
}

#[test]
fn an_upstream_that_is_away_is_asked_at_the_lowest_rate_and_found_when_it_is_back() {
    let away = Upstream {
        queue: 0,
        ..workers(1)
    };
    let rule = rule("min: 2/s, max: 400/s burst 10, target: 100ms");
    let mut world = World::new(&rule, serial(200));
    world.run(20);
    world.set_upstream(away);
    world.run(60);
    assert_eq!(world.rate(), 2);
    world.set_upstream(serial(200));
    world.run(10);
    let (admitted, median) = settled(world.run(25));
    assert!((150..=205).contains(&admitted), "{admitted}");
    assert!(median <= 200_000, "{median}");
}

#[test]
fn the_rate_begins_at_the_limit_or_at_max_with_one_second_of_max_at_once() {
    #[rustfmt::skip]
    let table = [
        // rule                                                          rate   capacity
        ("limit: 20/s, adaptive: {min: 10/s, max: 50/s}",                20,    50),
        ("adaptive: {min: 10/s, max: 50/s}",                             50,    50),
        ("adaptive: {min: 10/s, max: 50/s burst 7}",                     50,    7),
        ("adaptive: {min: 60/m, max: 600/m}",                            600,   10),
        ("adaptive: {min: 1/m, max: 30/m}",                              30,    1),
        ("algorithm: leaky_bucket, adaptive: {min: 1/s, max: 5/s}",      5,     5),
    ];
    for (text, rate, capacity) in table {
        let gate = gate(&format!("- {{id: up, per: [], {text}}}"));
        assert_eq!(limit(&gate), rate, "{text}");
        let ask = || block_on(gate.decide(&Attributes::new().at(NOW)));
        let admitted = (0..100).filter(|_| ask().is_allowed()).count();
        assert_eq!(admitted, capacity, "{text}");
        let answer = ask();
        assert_eq!(answer.headline().unwrap().outcome.limit, capacity as u64);
    }
}

#[test]
fn a_rate_that_moves_keeps_what_was_used() {
    let rule = "- {id: up, per: [], limit: 100/s, adaptive: {min: 10/s, max: 100/s, target: 10ms}}";
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let gate = Gate::with_clock(store, rules(rule), clock.clone());
    let ask = |cost| block_on(gate.decide(&Attributes::new().with_cost(cost)));
    let remaining = || ask(0).headline().unwrap().outcome.remaining;
    let taken = ask(90);
    assert_eq!(remaining(), 10);
    for _ in 0..20 {
        taken.observe(Ended::Dropped);
        clock.advance(Micros::new(1));
    }
    clock.advance(Micros::from_millis(100));
    taken.observe(Ended::Dropped);
    assert_eq!(limit(&gate), 90, "a tenth less");
    assert_eq!(
        remaining(),
        19,
        "100 ms at the rate in force, and the same capacity"
    );
    assert_eq!(ask(0).headline().unwrap().outcome.limit, 100);
}

#[test]
fn what_was_learned_stays_when_rules_are_replaced_and_the_bounds_stay() {
    let text = "- {id: up, per: [], adaptive: {min: 10/s, max: 100/s burst 30}}";
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let gate = Gate::with_clock(store, rules(text), clock.clone());
    let dropped = [Feedback {
        rule: "up",
        ended: Ended::Dropped,
    }; 10];
    gate.feedback(&dropped).unwrap();
    clock.advance(Micros::SECOND);
    gate.feedback(&dropped).unwrap();
    assert_eq!(limit(&gate), 90);
    gate.replace_rules(rules(&text.replace("id: up", "id: up, description: other")));
    assert_eq!(limit(&gate), 90);
    gate.replace_rules(rules(&text.replace("burst 30", "burst 31")));
    assert_eq!(limit(&gate), 100, "another capacity begins anew");
    // A new one goes by the gate's clock too.
    gate.feedback(&dropped).unwrap();
    clock.advance(Micros::SECOND);
    gate.feedback(&dropped).unwrap();
    assert_eq!(limit(&gate), 90);
}

#[test]
fn a_rule_that_only_counts_goes_by_what_it_would_have_admitted() {
    let rule = "- {id: up, mode: shadow, per: [], adaptive: {min: 10/s, max: 100/s burst 1}}";
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let gate = Gate::with_clock(store, rules(rule), clock.clone());
    let ask = || block_on(gate.decide(&Attributes::new()));
    let (admitted, refused) = (ask(), ask());
    assert!(admitted.is_allowed() && refused.is_allowed());
    for decision in [&refused, &admitted] {
        for _ in 0..20 {
            clock.advance(Micros::from_millis(10));
            decision.observe(Ended::Dropped);
        }
        let is_refused = std::ptr::eq(decision, &raw const refused);
        assert_eq!(limit(&gate) == 100, is_refused);
    }
}

#[test]
fn feedback_is_taken_whole_or_not_at_all() {
    let clock = ManualClock::new(NOW);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let list = "- {id: up, per: [], adaptive: {min: 10/s, max: 100/s}}\n- {id: fixed, per: [], limit: 1/s}\n- {id: places, per: [], algorithm: concurrency, limit: 20, adaptive: {min: 5, max: 50}}";
    let gate = Gate::with_clock(store, rules(list), clock.clone());
    let dropped = |rule| Feedback {
        rule,
        ended: Ended::Dropped,
    };
    for (last, error) in [
        (
            "none",
            FeedbackError::NoSuchRule {
                rule: "none".to_owned(),
                index: 10,
            },
        ),
        (
            "fixed",
            FeedbackError::NotAdaptive {
                rule: "fixed".to_owned(),
                index: 10,
            },
        ),
    ] {
        let reports = [&[dropped("up"); 10][..], &[dropped(last)]].concat();
        for _ in 0..3 {
            clock.advance(Micros::SECOND);
            assert_eq!(gate.feedback(&reports), Err(error.clone()));
            assert_eq!(error.index(), 10, "the report that is wrong");
        }
        assert_eq!(limit(&gate), 100);
    }
    assert_eq!(gate.feedback(&[]), Ok(()));
    gate.feedback(&[dropped("places"); 10]).unwrap();
    let places = gate
        .rules()
        .get("places")
        .unwrap()
        .adaptive()
        .unwrap()
        .limit();
    assert_eq!(places, 18, "requests at once follow reports too");
}
