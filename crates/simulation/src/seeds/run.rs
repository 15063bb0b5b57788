//! A seed as it runs: demand and faults, millisecond by millisecond.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::{Limit, RemoteStore as _};

use super::fault::SeedFault;
use super::plan::{SETTLED, SeedPlan};
use super::timeline::ClockTimeline;
use crate::network::Latency;
use crate::question::{GateAnswer, Question};
use crate::random::SeededRandom;
use crate::redis::ScriptChange;
use crate::world::World;

/// How long an instance that leaves has for it, in milliseconds.
const LEAVING: u64 = 60;
/// How long units may be on lease beyond the window, in microseconds.
pub(super) const LEASE: u64 = 1_000_000;
/// An instance asks for so many units at a time that they last no longer, in microseconds, unless that is less than
/// one. It then reports what it used.
const REPORTED: u64 = 200_000;
/// In how many parts the whole limit is asked for in the end, each 10 ms after the other.
const PARTS: u64 = 10;

/// What requests cost that are tried again when they were denied.
const RETRIED: [u64; 2] = [1, 4];
/// How long a message is under way in the end at most, in microseconds, and the instance takes to run.
const ON_ITS_WAY: u64 = 1_500;

/// How the whole limit was asked for in the end.
pub(super) struct LastQuestions {
    pub(super) limit: Limit,
    /// The true time from which on nothing went wrong.
    pub(super) since: u64,
    /// The true time from which on the whole limit was asked for.
    pub(super) asked_at: u64,
    /// How many units may have been used before that without a report to Redis: they count as on lease.
    pub(super) unreported: u64,
}

/// A seed, and what is recorded of its run.
pub(super) struct SeedRun {
    pub(super) plan: SeedPlan,
    pub(super) world: World,
    random: SeededRandom,
    pub(super) answers: Vec<GateAnswer>,
    /// The wall clock of the server.
    pub(super) server: ClockTimeline,
    /// Those of the instances.
    pub(super) clocks: Vec<ClockTimeline>,
    /// The true times at which state was lost.
    pub(super) losses: Vec<u64>,
    /// Each count that the rule has had, and the true time from which instances had it.
    pub(super) counts: Vec<(u64, u64)>,
    /// When an instance last changed to another count.
    pub(super) changed_at: Arc<Mutex<u64>>,
    /// What is due at a millisecond: instances that end, and those that start.
    ends: Vec<(u64, usize)>,
    starts: Vec<(u64, usize)>,
    is_leaving: Vec<bool>,
    /// The longest that a pause or a hold lasts, in milliseconds.
    disturbed_until: u64,
    /// The whole limit, which is asked for in the end.
    pub(super) last: Option<LastQuestions>,
    pub(super) broken: Vec<String>,
}

impl SeedRun {
    pub(super) fn new(seed: u64, changes: &[ScriptChange]) -> Self {
        let mut random = SeededRandom::new(seed);
        let plan = SeedPlan::draw(&mut random);
        let mut world = World::with_changes(random.next(), changes.to_vec());
        world.set_server_drift(plan.server_drift);
        for settings in &plan.instances {
            world.add(settings.clone());
        }
        let clocks = plan.instances.iter();
        let clocks = clocks.map(|settings| ClockTimeline::new(settings.drift, settings.ahead));
        Self {
            server: ClockTimeline::new(plan.server_drift, 0),
            clocks: clocks.collect(),
            is_leaving: vec![false; plan.instances.len()],
            counts: vec![(0, plan.rule.count)],
            plan,
            world,
            random,
            answers: Vec::new(),
            losses: Vec::new(),
            changed_at: Arc::default(),
            ends: Vec::new(),
            starts: Vec::new(),
            disturbed_until: 0,
            last: None,
            broken: Vec::new(),
        }
    }

    /// Runs it to its end.
    pub(super) fn play(&mut self) {
        self.world.run_until(SETTLED * 1_000);
        assert!(
            self.world.redis().has_changed(),
            "a planted bug changes nothing: its text is not in the script"
        );
        self.check_counted();
        let faults = self.plan.faults.clone();
        let mut faults = faults.iter().peekable();
        let mut millisecond = SETTLED;
        while millisecond < self.plan.end {
            while let Some((_, fault)) = faults.next_if(|(at, _)| *at <= millisecond) {
                self.apply(millisecond, *fault);
            }
            self.end_and_start(millisecond);
            let next = faults.peek().map_or(self.plan.end, |(at, _)| *at);
            let due = self.ends.iter().chain(&self.starts).map(|(at, _)| *at);
            let next = due.fold(next.min(self.plan.end), u64::min);
            for millisecond in millisecond..next {
                self.ask(millisecond);
            }
            self.world.run_until(next * 1_000);
            millisecond = next;
        }
        self.answers.extend(self.world.take_answers());
        if !self.plan.is_calm {
            self.recover();
        }
    }

    /// How many times an instance left.
    pub(super) fn leaves(&self) -> u64 {
        let faults = self.plan.faults.iter();
        let leaves = faults.filter(|(_, fault)| matches!(fault, SeedFault::Leave { .. }));
        leaves.count() as u64
    }

    /// Every instance knows how many there are.
    fn check_counted(&mut self) {
        let count = self.plan.instances.len() as u64;
        for instance in 0..self.plan.instances.len() {
            let gate = self.world.gate(instance);
            let known = gate.and_then(|gate| gate.store().instances());
            if known != Some(count) {
                self.broken
                    .push(format!("instance {instance} counts {known:?} of {count}"));
            }
        }
    }

    fn ask(&mut self, millisecond: u64) {
        for instance in 0..self.plan.instances.len() {
            let demand = &self.plan.demand;
            for cost in demand.costs(&mut self.random, instance, millisecond) {
                let is_running = self.world.gate(instance).is_some();
                if is_running && !self.is_leaving[instance] {
                    let question = Question::new("user_id", "u1").with_cost(cost);
                    self.world.ask_at(instance, millisecond * 1_000, question);
                }
            }
        }
    }

    fn end_and_start(&mut self, millisecond: u64) {
        let due = |list: &mut Vec<(u64, usize)>| {
            let due: Vec<usize> = list
                .iter()
                .filter(|(at, _)| *at <= millisecond)
                .map(|(_, instance)| *instance)
                .collect();
            list.retain(|(at, _)| *at > millisecond);
            due
        };
        for instance in due(&mut self.ends) {
            self.world.crash(instance);
        }
        for instance in due(&mut self.starts) {
            self.is_leaving[instance] = false;
            if self.world.gate(instance).is_none() {
                self.world.start(instance, 0);
            }
        }
    }

    fn disturb(&mut self, millisecond: u64, time: Duration) {
        let until = millisecond + u64::try_from(time.as_millis()).unwrap_or(0);
        self.disturbed_until = self.disturbed_until.max(until);
    }

    fn start_after(&mut self, millisecond: u64, instance: usize, down: Duration) {
        self.disturb(millisecond, down);
        let down = u64::try_from(down.as_millis()).unwrap_or(0);
        self.starts.push((millisecond + down, instance));
    }

    fn apply(&mut self, millisecond: u64, fault: SeedFault) {
        let now = self.world.now();
        match fault {
            SeedFault::Pause { instance, time } => {
                self.disturb(millisecond, time);
                self.world.pause(instance, time);
            }
            SeedFault::Crash { instance, down } => {
                self.world.crash(instance);
                self.start_after(millisecond, instance, down);
            }
            SeedFault::Leave { instance, down } => {
                if let Some(gate) = self.world.gate(instance).cloned() {
                    self.is_leaving[instance] = true;
                    self.ends.push((millisecond + LEAVING, instance));
                    self.start_after(millisecond + LEAVING, instance, down);
                    let leaving = async move {
                        gate.reconcile().await;
                        gate.store().leave().await;
                    };
                    self.world.spawn(instance, leaving);
                }
            }
            SeedFault::Hold { instance, time } => {
                self.disturb(millisecond, time);
                self.world.hold_network(instance, time);
            }
            SeedFault::Lose { instance, loss } => self.world.lose(instance, loss),
            SeedFault::Reset { instance } => self.world.reset_connections(instance),
            SeedFault::Slow { instance, latency } => self.world.set_latency(instance, latency),
            SeedFault::PauseServer { time } => {
                self.disturb(millisecond, time);
                self.world.pause_server(time);
            }
            SeedFault::RestartServer { down, is_empty } => {
                self.disturb(millisecond, down);
                self.world.restart_server(down, is_empty);
                if is_empty {
                    self.losses.push(now);
                }
            }
            SeedFault::Flush => {
                self.world.flush();
                self.losses.push(now);
            }
            SeedFault::StepServerClock { by } => {
                self.world.step_server_clock(by);
                self.server.step(now, by);
                // Leases that are out end later than by the clock of the server.
                if by > 0 {
                    self.losses.push(now);
                }
            }
            SeedFault::StepClock { instance, by } => {
                self.world.step_clock(instance, by);
                self.clocks[instance].step(now, by);
            }
            SeedFault::ChangeRule { count } => self.change_rule(count),
        }
    }

    fn change_rule(&mut self, count: u64) {
        self.counts.push((self.world.now(), count));
        let yaml = self.plan.rule.yaml(count);
        for instance in 0..self.plan.instances.len() {
            self.world.replace_rules(instance, &yaml);
            let (changed_at, time) = (Arc::clone(&self.changed_at), self.world.time());
            self.world.spawn(instance, async move {
                *changed_at.lock() = time.now();
            });
        }
    }

    /// Asks one instance for a third of the limit, evenly, so that the state does not expire: what is lost must come
    /// back by itself. Returns how many units it may have used without a report to Redis.
    fn keep_alive(&mut self, time: Duration) -> u64 {
        let count = self.counts.last().map_or(1, |(_, count)| *count);
        let gap = 3 * self.plan.rule.window.get() / count.max(1);
        let end = self.world.now() + u64::try_from(time.as_micros()).unwrap_or(0);
        while self.world.now() < end {
            self.world.ask(0, Question::new("user_id", "u1"));
            self.world.run_for(Duration::from_micros(gap));
        }
        REPORTED / gap + 1
    }

    /// Waits until all that was lost must be back, and asks one instance for the whole limit.
    fn recover(&mut self) {
        let window = self.plan.rule.window.get();
        for instance in 0..self.plan.instances.len() {
            self.world.set_latency(instance, Latency::LOCAL);
        }
        let quiet = self.disturbed_until.max(self.plan.end) + 1;
        while let Some(next) = self
            .ends
            .iter()
            .chain(&self.starts)
            .map(|(at, _)| *at)
            .min()
        {
            self.world.run_until(next * 1_000);
            self.end_and_start(next);
        }
        self.world.run_until(quiet * 1_000);
        self.answers.extend(self.world.take_answers());
        // Links connect again within a second, leases end, windows pass, and debts flow back.
        let since = self.world.now();
        let time = Duration::from_micros(1_200_000 + LEASE + 3 * window);
        let unreported = if self.plan.rule.algorithm.is_bucket() && self.random.happens(500) {
            self.keep_alive(time)
        } else {
            self.world.run_for(time);
            0
        };
        let shown = self.server.at(self.world.now());
        let to_boundary = window - shown % window;
        self.world
            .run_for(Duration::from_micros(to_boundary + 4_000));
        let count = self.counts.last().map_or(0, |(_, count)| *count);
        let limit = self.plan.rule.limit(count);
        let capacity = limit.capacity();
        let asked_at = self.world.now();
        self.last = Some(LastQuestions {
            limit,
            since,
            asked_at,
            unreported,
        });
        for part in 0..PARTS {
            let end = capacity * (part + 1) / PARTS;
            for _ in capacity * part / PARTS..end {
                self.world.ask(0, Question::new("user_id", "u1"));
            }
            self.world.run_for(Duration::from_millis(10));
        }
        self.world.run_for(Duration::from_millis(60));
        self.answers.extend(self.world.take_answers());
        for cost in RETRIED {
            self.retry(cost.min(capacity));
        }
    }

    /// Asks one instance while no other request comes, and if it denies, again when it said.
    fn retry(&mut self, cost: u64) {
        let question = || Question::new("user_id", "u1").with_cost(cost);
        // These are not among the answers by which all of the limit must be there again.
        let ask = |world: &mut World| {
            world.ask(0, question());
            world.run_for(Duration::from_millis(20));
            world.take_answers().pop()
        };
        let Some(denied) = ask(&mut self.world).filter(|answer| !answer.is_allowed) else {
            return;
        };
        let Some(wait) = denied.retry_after.filter(|_| !denied.is_degraded) else {
            return;
        };
        // An instance that remembers a denial counts from when it asked, a little before Redis decided.
        self.world.run_until(denied.answered_at + wait + ON_ITS_WAY);
        let again = ask(&mut self.world);
        if !again.is_some_and(|again| again.is_allowed) {
            let problem = "denied again after its retry_after, with no other request";
            self.broken.push(format!(
                "a request of cost {cost} was {problem}, of {wait} µs"
            ));
        }
    }
}
