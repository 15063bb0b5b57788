//! A seed as it runs: calls and faults, step by step. What must hold afterwards: `check.rs`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::gate::ReservationError;
use tidegate::rules::FrontEnd;
use tidegate::{Attributes, Costs};

use super::ReservationReport;
use super::books::{AskedSettlement, MadeOrNot, SeedReservation, SettledOrNot};
use crate::clocks::BEGIN;
use crate::instance::InstanceSettings;
use crate::network::{Latency, Loss};
use crate::random::SeededRandom;
use crate::redis::ScriptChange;
use crate::world::World;

/// What the rule grants. Its window, or the time in which it flows back, is much longer than a run.
pub(super) const LIMIT: u64 = 300;
/// The longest estimate, and by how much more a cost may be.
const MOST: u64 = 60;
const EXCESS: u64 = 20;
/// How many steps there are, and how long one lasts, in microseconds.
const STEPS: u64 = 200;
const STEP: (u64, u64) = (1_000, 20_000);
/// How long a reservation lasts, in milliseconds.
const TTL: (u64, u64) = (200, 1_500);
/// When instances have connected and counted each other.
const SETTLED: Duration = Duration::from_secs(1);
/// Until all leases have ended, and all calls.
const QUIET: Duration = Duration::from_secs(3);
/// How long a call is repeated in the end.
pub(super) const PATIENCE: usize = 40;

type Books = Arc<Mutex<Vec<SeedReservation>>>;

/// What a seed decides before it runs.
#[derive(Debug)]
pub(super) struct ReservationPlan {
    pub(super) algorithm: &'static str,
    pub(super) is_leased: bool,
    pub(super) gives_back: bool,
    instances: usize,
    /// How many of a thousand steps have a fault.
    faults: u64,
}

impl ReservationPlan {
    fn draw(random: &mut SeededRandom) -> Self {
        let algorithm = random.choose(&[
            "fixed_window",
            "token_bucket",
            "sliding_window_log",
            "sliding_window_counter",
            "sliding_window_slots",
        ]);
        let is_leased = random.happens(300) && algorithm != "sliding_window_log";
        Self {
            algorithm,
            is_leased,
            gives_back: !is_leased && random.happens(600),
            instances: usize::try_from(random.between(2, 3)).unwrap_or(2),
            faults: random.choose(&[0, 40, 120]),
        }
    }

    fn yaml(&self) -> String {
        let mut yaml = format!(
            "rules:\n  - id: seed\n    per: [user_id]\n    unit: tokens\n    limit: {LIMIT}/day\n    algorithm: {}\n    on_store_failure: deny\n",
            self.algorithm
        );
        if self.is_leased {
            yaml.push_str("    sync: leased\n");
        }
        if self.gives_back {
            yaml.push_str("    unsettled: give_back\n");
        }
        yaml
    }
}

/// A seed, and what is recorded of its run.
pub(super) struct ReservationRun {
    pub(super) plan: ReservationPlan,
    pub(super) world: World,
    random: SeededRandom,
    pub(super) books: Books,
    /// Instances that start again, and when.
    starts: Vec<(u64, usize)>,
    /// Whether units on lease may be lost until the end of the window.
    pub(super) has_lost_leases: bool,
    pub(super) broken: Vec<String>,
}

impl ReservationRun {
    pub(super) fn new(seed: u64, changes: &[ScriptChange]) -> Self {
        let mut random = SeededRandom::new(seed);
        let plan = ReservationPlan::draw(&mut random);
        let mut world = World::with_changes(random.next(), changes.to_vec());
        for instance in 0..plan.instances {
            let mut settings = InstanceSettings::new(plan.yaml());
            settings.start_after = 100 * instance as u64;
            world.add(settings);
        }
        Self {
            plan,
            world,
            random,
            books: Books::default(),
            starts: Vec::new(),
            has_lost_leases: false,
            broken: Vec::new(),
        }
    }

    pub(super) fn play(&mut self) {
        self.world.run_for(SETTLED);
        assert!(
            self.world.redis().has_changed(),
            "a planted bug changes nothing: its text is not in the script"
        );
        for _ in 0..STEPS {
            if self.random.happens(self.plan.faults) {
                self.fault();
            }
            self.call();
            let (least, most) = STEP;
            let time = self.random.between(least, most);
            self.world.run_for(Duration::from_micros(time));
            self.start_due();
        }
        self.check_never_over();
        self.recover();
        self.check_in_the_end();
    }

    pub(super) fn report(self) -> ReservationReport {
        let books = self.books.lock();
        let count = |is: &dyn Fn(&SeedReservation) -> bool| {
            books.iter().filter(|booked| is(booked)).count() as u64
        };
        let unanswered = |booked: &SeedReservation| {
            let calls = booked.settlements.iter();
            let calls = calls.filter(|asked| asked.answer == SettledOrNot::Unknown);
            calls.count() as u64 + u64::from(booked.made == MadeOrNot::Unknown)
        };
        ReservationReport {
            trace: self.world.trace(),
            asked: books.len() as u64,
            made: count(&|booked| booked.id().is_some()),
            settled: count(&|booked| booked.settled().is_some()),
            unanswered: books.iter().map(unanswered).sum(),
            broken: self.broken,
            plan: format!("{:?}", self.plan),
        }
    }

    /// An instance that runs, if there is any.
    fn instance(&mut self) -> Option<usize> {
        let all = 0..self.plan.instances;
        let running: Vec<usize> = all.filter(|at| self.world.gate(*at).is_some()).collect();
        (!running.is_empty()).then(|| self.random.choose(&running))
    }

    fn call(&mut self) {
        let Some(instance) = self.instance() else {
            return;
        };
        let known: Vec<usize> = {
            let books = self.books.lock();
            let numbers = books.iter().enumerate();
            let made = numbers.filter(|(_, booked)| booked.id().is_some());
            made.map(|(number, _)| number).collect()
        };
        // One of the last, of which some have ended.
        let recent = &known[known.len().saturating_sub(8)..];
        let chosen = (!recent.is_empty()).then(|| self.random.choose(recent));
        match (chosen, self.random.below(10)) {
            (Some(number), 0..=3) => {
                let cost = self.cost_of(number);
                self.settle(instance, number, cost);
            }
            (Some(number), 4) => self.settle(instance, number, 0),
            (Some(number), 5) => self.extend(instance, number),
            _ => self.reserve(instance),
        }
    }

    /// What a reservation is settled with: mostly as before, if it was, or less than the estimate.
    fn cost_of(&mut self, number: usize) -> u64 {
        let (estimate, before) = {
            let books = self.books.lock();
            let booked = &books[number];
            (
                booked.estimate,
                booked.settlements.last().map(|asked| asked.cost),
            )
        };
        match before {
            Some(cost) if self.random.happens(800) => cost,
            _ if self.random.happens(150) => estimate + self.random.between(1, EXCESS),
            _ => self.random.below(estimate + 1),
        }
    }

    fn reserve(&mut self, instance: usize) {
        let Some(gate) = self.world.gate(instance).cloned() else {
            return;
        };
        let (estimate, ttl) = (
            self.random.between(1, MOST),
            Duration::from_millis(self.random.between(TTL.0, TTL.1)),
        );
        let (books, time) = (Arc::clone(&self.books), self.world.time());
        let number = {
            let mut books = books.lock();
            books.push(SeedReservation::new(estimate));
            books.len() - 1
        };
        self.world.spawn(instance, async move {
            let mut attributes = Attributes::new().with_cost(estimate);
            #[expect(clippy::expect_used, reason = "attributes are part of a test")]
            attributes
                .insert("user_id", "u1")
                .expect("attributes are valid");
            let rules = gate.rules();
            let reserving = gate.reserve_stored(&rules, FrontEnd::Library, &attributes, ttl);
            let Ok(reserved) = reserving.await else {
                return;
            };
            let mut books = books.lock();
            let booked = &mut books[number];
            if let Some(made) = reserved.made {
                booked.made = MadeOrNot::Made {
                    id: made.id,
                    answered_at: time.now(),
                };
                booked.earliest_end = since_begin(made.expires_at.as_micros());
            } else if !reserved.decision.is_degraded() {
                booked.made = MadeOrNot::Denied;
            }
        });
    }

    fn settle(&mut self, instance: usize, number: usize, cost: u64) {
        let Some(gate) = self.world.gate(instance).cloned() else {
            return;
        };
        let (books, asked_at) = (Arc::clone(&self.books), self.world.now());
        let call = {
            let mut books = books.lock();
            let Some(booked) = books.get_mut(number) else {
                return;
            };
            booked.settlements.push(AskedSettlement {
                cost,
                asked_at,
                answer: SettledOrNot::Unknown,
            });
            let Some(id) = booked.id() else {
                return;
            };
            (id, booked.settlements.len() - 1)
        };
        self.world.spawn(instance, async move {
            let (id, call) = call;
            let actual = Costs::from(cost);
            let settled = gate.settle_reservation(id, Some(&actual), None).await;
            let answer = match settled {
                Ok(record) => {
                    let limits = record.settlement.limits().iter();
                    SettledOrNot::Settled {
                        uncharged: limits.map(|limit| limit.uncharged).sum(),
                    }
                }
                Err(ReservationError::Unknown) => SettledOrNot::Ended,
                Err(ReservationError::OtherCost) => SettledOrNot::OtherCost,
                Err(_) => return,
            };
            books.lock()[number].settlements[call].answer = answer;
        });
    }

    fn extend(&mut self, instance: usize, number: usize) {
        let ttl = self.random.between(TTL.0, TTL.1);
        let asked_at = self.world.now();
        let id = {
            let mut books = self.books.lock();
            let booked = &mut books[number];
            booked.earliest_end = booked.earliest_end.min(asked_at + ttl * 1_000);
            booked.id()
        };
        if let (Some(id), Some(gate)) = (id, self.world.gate(instance).cloned()) {
            self.world.spawn(instance, async move {
                let ttl = Duration::from_millis(ttl);
                let _ = gate.extend_reservation(id, ttl, None).await;
            });
        }
    }

    fn fault(&mut self) {
        let instance = usize::try_from(self.random.below(self.plan.instances as u64)).unwrap_or(0);
        let time = Duration::from_millis(self.random.between(3, 600));
        match self.random.below(9) {
            0 => self.world.pause(instance, time),
            1 | 2 => {
                self.has_lost_leases = true;
                self.world.crash(instance);
                let down = u64::try_from(time.as_micros()).unwrap_or(0);
                self.starts.push((self.world.now() + down, instance));
            }
            3 => self.world.hold_network(instance, time),
            4 => {
                self.has_lost_leases = true;
                let loss = self
                    .random
                    .choose(&[Loss::Requests, Loss::Replies, Loss::All]);
                self.world.lose(instance, loss);
            }
            5 => {
                self.has_lost_leases = true;
                self.world.reset_connections(instance);
            }
            6 => self.world.pause_server(time),
            7 => {
                self.has_lost_leases = true;
                self.world.restart_server(time, false);
            }
            _ => {
                let latency = Latency {
                    least: 100,
                    most: self.random.between(1_000, 9_000),
                    spikes: 50,
                    spike: 60_000,
                };
                self.world.set_latency(instance, latency);
            }
        }
    }

    fn start_due(&mut self) {
        let now = self.world.now();
        let due: Vec<(u64, usize)> = self.starts.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, instance) in due {
            if self.world.gate(instance).is_none() {
                self.world.start(instance, 0);
            }
        }
    }

    /// Waits until nothing goes wrong, settles again what was not answered, and lets the rest end.
    fn recover(&mut self) {
        for instance in 0..self.plan.instances {
            self.world.set_latency(instance, Latency::LOCAL);
            if self.world.gate(instance).is_none() {
                self.world.start(instance, 0);
            }
        }
        self.starts.clear();
        self.world.run_for(SETTLED);
        let count = self.books.lock().len();
        for number in 0..count {
            let unanswered = {
                let books = self.books.lock();
                let booked = &books[number];
                let mut calls = booked.settlements.iter().rev();
                let unanswered = calls.find(|asked| asked.answer == SettledOrNot::Unknown);
                unanswered
                    .filter(|_| booked.settled().is_none())
                    .map(|asked| asked.cost)
            };
            if let Some(cost) = unanswered {
                self.settle_again(number, cost);
            }
        }
        self.world.run_for(QUIET);
        for instance in 0..self.plan.instances {
            if let Some(gate) = self.world.gate(instance).cloned() {
                self.world
                    .spawn(instance, async move { gate.store().leave().await });
            }
        }
        self.world.run_for(SETTLED);
    }

    /// Repeats a call until it is answered.
    fn settle_again(&mut self, number: usize, cost: u64) {
        for _ in 0..PATIENCE {
            self.settle(0, number, cost);
            self.world.run_for(Duration::from_millis(40));
            let books = self.books.lock();
            let last = books[number].settlements.last();
            if last.is_some_and(|asked| asked.answer != SettledOrNot::Unknown) {
                return;
            }
        }
        self.broken
            .push(format!("settling reservation {number} is never answered"));
    }
}

/// A reading of the server's clock as a true time: it is right in these runs.
fn since_begin(micros: u64) -> u64 {
    micros.saturating_sub(BEGIN.as_micros())
}
