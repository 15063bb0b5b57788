//! The world: instances, the server, and the network between them, in the order of true time.

mod delivery;
mod faults;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::RuleSet;
use tidegate_core::{PermitId, Timestamp};
use tidegate_redis::KnownInstances;

use crate::clocks::{Drift, TrueTime, WallClock};
use crate::instance::{InstanceSettings, SimulatedGate, SimulatedProcess};
use crate::network::InstanceNetwork;
use crate::question::{AnswerLog, GateAnswer, Question};
use crate::random::SeededRandom;
use crate::redis::{ScriptChange, SimulatedRedis};
use crate::trace::TraceHash;
use delivery::NetworkPath;

/// For how many ticks an instance may run while nothing can reach it. Its wall clock shows the first of them.
const MOST_AHEAD: u64 = 50;

/// Instances of Tidegate that share one Redis.
pub struct World {
    time: TrueTime,
    events: BinaryHeap<Reverse<ScheduledEvent>>,
    /// How many events were scheduled: those of one microsecond happen in that order.
    scheduled: u64,
    random: SeededRandom,
    instances: Vec<InstanceSlot>,
    server: ServerSlot,
    paths: BTreeMap<u64, NetworkPath>,
    /// How many connections were dialed.
    dialed: u64,
    answers: AnswerLog,
    trace: TraceHash,
}

/// An instance, whether it runs or not.
struct InstanceSlot {
    settings: InstanceSettings,
    network: Arc<InstanceNetwork>,
    process: Option<SimulatedProcess>,
    /// How often it was started.
    lives: u64,
    wall: WallClock,
    /// Until when it does not run, though its clocks do.
    paused_until: u64,
    /// Until when nothing passes between it and the server.
    held_until: u64,
    /// When the last bytes that are on their way from or to it arrive.
    last_arrival: u64,
    /// What it will be asked, in order of the true time.
    questions: VecDeque<(u64, Question)>,
    /// What it keeps over a restart.
    known: KnownInstances,
}

/// The server, its clock and its condition.
struct ServerSlot {
    redis: SimulatedRedis,
    wall: WallClock,
    /// Until when it does not run.
    busy_until: u64,
    /// Until when it refuses connections.
    down_until: u64,
}

/// Something that happens at a true time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScheduledEvent {
    at: u64,
    order: u64,
    event: WorldEvent,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorldEvent {
    /// An instance runs, in the life that it had when this was scheduled.
    Tick { instance: usize, life: u64 },
    /// A dial reaches the server.
    Dialed { connection: u64 },
    /// Its answer reaches the instance.
    DialAnswered { connection: u64, is_accepted: bool },
    /// Bytes reach the server.
    Request { connection: u64, bytes: Vec<u8> },
    /// The server runs what it has received.
    Serve { connection: u64 },
    /// Bytes reach the instance.
    Reply { connection: u64, bytes: Vec<u8> },
    /// The end of the connection reaches the server.
    Closed { connection: u64 },
}

impl World {
    /// A world with a server and no instances yet.
    pub fn new(seed: u64) -> Self {
        Self::with_changes(seed, Vec::new())
    }

    /// The same, with changes to the text of the server's scripts, to plant bugs.
    pub fn with_changes(seed: u64, changes: Vec<ScriptChange>) -> Self {
        let wall = WallClock {
            drift: Drift::NONE,
            ahead: 0,
        };
        Self {
            time: TrueTime::default(),
            events: BinaryHeap::new(),
            scheduled: 0,
            random: SeededRandom::new(seed),
            instances: Vec::new(),
            server: ServerSlot {
                redis: SimulatedRedis::new(changes),
                wall,
                busy_until: 0,
                down_until: 0,
            },
            paths: BTreeMap::new(),
            dialed: 0,
            answers: AnswerLog::default(),
            trace: TraceHash::new(),
        }
    }

    /// Adds an instance and starts it. Returns its index.
    ///
    /// # Panics
    ///
    /// If its rules are not valid.
    pub fn add(&mut self, settings: InstanceSettings) -> usize {
        let random = self.random.split();
        let id = PermitId::from_u128(self.instances.len() as u128 + 1);
        let wall = WallClock {
            drift: settings.drift,
            ahead: settings.ahead,
        };
        let index = self.instances.len();
        let start_after = settings.start_after;
        self.instances.push(InstanceSlot {
            settings,
            network: Arc::new(InstanceNetwork::new(random)),
            process: None,
            lives: 0,
            wall,
            paused_until: 0,
            held_until: 0,
            last_arrival: 0,
            questions: VecDeque::new(),
            known: KnownInstances {
                id: Some(id),
                instances: Vec::new(),
            },
        });
        self.start(index, start_after);
        index
    }

    /// Starts an instance that does not run, after so many microseconds, with what it kept of its last life.
    ///
    /// # Panics
    ///
    /// If its rules are not valid.
    pub fn start(&mut self, instance: usize, after: u64) {
        let at = self.now() + after;
        let slot = &mut self.instances[instance];
        #[expect(clippy::expect_used, reason = "rules are part of a test")]
        let rules = RuleSet::from_yaml(&slot.settings.rules).expect("rules are valid");
        slot.lives += 1;
        let known = slot.known.clone();
        let wall = slot.wall.at(at);
        let started =
            SimulatedProcess::start(&slot.settings, rules, &slot.network, known, (at, wall));
        #[expect(clippy::expect_used, reason = "fails only without memory")]
        let process = started.expect("a runtime can be made");
        slot.process = Some(process);
        let life = slot.lives;
        self.schedule(at, WorldEvent::Tick { instance, life });
    }

    /// The true time in microseconds since the begin.
    pub fn now(&self) -> u64 {
        self.time.now()
    }

    /// The true time, for tasks.
    pub fn time(&self) -> TrueTime {
        self.time.clone()
    }

    /// What the server's clock shows.
    pub fn server_time(&self) -> Timestamp {
        self.server.wall.at(self.now())
    }

    /// The server.
    pub fn redis(&self) -> &SimulatedRedis {
        &self.server.redis
    }

    /// The gate of an instance that runs.
    pub fn gate(&self, instance: usize) -> Option<&Arc<SimulatedGate>> {
        let process = self.instances[instance].process.as_ref();
        process.map(|process| &process.gate)
    }

    /// How many times an instance was started.
    pub fn lives(&self, instance: usize) -> u64 {
        self.instances[instance].lives
    }

    /// Asks an instance at its next tick. Without an answer if it does not run, or ends before it has decided.
    pub fn ask(&mut self, instance: usize, question: Question) {
        let (answers, time) = (self.answers.clone(), self.time.clone());
        let slot = &self.instances[instance];
        if let Some(process) = &slot.process {
            let (gate, life) = (Arc::clone(&process.gate), slot.lives);
            process.spawn(answers.ask(gate, (instance, life), question, time));
        }
    }

    /// Asks an instance at its first tick after a true time. To be called in the order of these times.
    pub fn ask_at(&mut self, instance: usize, at: u64, question: Question) {
        self.instances[instance].questions.push_back((at, question));
    }

    /// Runs a task in an instance from its next tick on.
    pub fn spawn(&mut self, instance: usize, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(process) = &self.instances[instance].process {
            process.spawn(task);
        }
    }

    /// Puts other rules in force in an instance, from its next tick on.
    ///
    /// # Panics
    ///
    /// If they are not valid.
    pub fn replace_rules(&mut self, instance: usize, yaml: &str) {
        #[expect(clippy::expect_used, reason = "rules are part of a test")]
        let rules = RuleSet::from_yaml(yaml).expect("rules are valid");
        yaml.clone_into(&mut self.instances[instance].settings.rules);
        if let Some(gate) = self.gate(instance).cloned() {
            self.spawn(instance, async move { gate.replace_rules(rules) });
        }
    }

    /// The answers since this was last called, in the order in which they were given.
    pub fn take_answers(&mut self) -> Vec<GateAnswer> {
        let answers = self.answers.take();
        for answer in &answers {
            let verdict = u64::from(answer.is_allowed) * 2 + u64::from(answer.is_degraded);
            let (asked_at, answered_at) = (answer.asked_at, answer.answered_at);
            let remaining = answer.remaining.unwrap_or(u64::MAX);
            let instance = answer.instance as u64;
            self.trace
                .add(&[instance, asked_at, answered_at, verdict, remaining]);
        }
        answers
    }

    /// A hash of every message and its time, and of every answer that was taken. Two runs with the same seed
    /// and the same calls have the same.
    pub fn trace(&self) -> u64 {
        self.trace.get()
    }

    /// Lets all of it run for a time.
    pub fn run_for(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.run_until(self.now().saturating_add(micros));
    }

    /// Lets all of it run until this true time, in microseconds since the begin.
    pub fn run_until(&mut self, end: u64) {
        while self
            .events
            .peek()
            .is_some_and(|Reverse(next)| next.at < end)
        {
            let Some(Reverse(next)) = self.events.pop() else {
                break;
            };
            self.time.set(next.at);
            self.happen(next.event, end);
        }
        self.time.set(end.max(self.now()));
    }

    fn schedule(&mut self, at: u64, event: WorldEvent) {
        self.scheduled += 1;
        self.events.push(Reverse(ScheduledEvent {
            at,
            order: self.scheduled,
            event,
        }));
    }

    fn happen(&mut self, event: WorldEvent, end: u64) {
        match event {
            WorldEvent::Tick { instance, life } => self.tick(instance, life, end),
            WorldEvent::Dialed { connection } => self.dialed(connection),
            WorldEvent::DialAnswered {
                connection,
                is_accepted,
            } => self.dial_answered(connection, is_accepted),
            WorldEvent::Request { connection, bytes } => self.request(connection, &bytes),
            WorldEvent::Serve { connection } => self.serve(connection),
            WorldEvent::Reply { connection, bytes } => self.reply(connection, &bytes),
            WorldEvent::Closed { connection } => {
                self.paths.remove(&connection);
            }
        }
    }

    /// Runs an instance for one tick, or for more if nothing can reach it before; unless it is paused or has
    /// ended since.
    fn tick(&mut self, instance: usize, life: u64, end: u64) {
        let now = self.now();
        let slot = &mut self.instances[instance];
        let Some(process) = slot.process.as_mut().filter(|_| slot.lives == life) else {
            return;
        };
        let drift = slot.settings.drift;
        let at_tick =
            |process: &SimulatedProcess, tick: u64| process.started_at + drift.passed(tick * 1_000);
        if now < slot.paused_until {
            // The first tick after the pause.
            let passed = slot.paused_until.saturating_sub(process.started_at);
            let tick = drift.shown(passed) / 1_000 + 1;
            let at = at_tick(process, tick).max(now + 1);
            self.schedule(at, WorldEvent::Tick { instance, life });
            return;
        }
        let shown = (drift.shown(now - process.started_at) + 1) / 1_000;
        let missed = u32::try_from(shown.saturating_sub(process.ticks)).unwrap_or(u32::MAX);
        let questions = &mut slot.questions;
        while let Some((_, question)) = questions.pop_front_if(|(at, _)| *at <= now) {
            let (answers, time) = (self.answers.clone(), self.time.clone());
            let gate = Arc::clone(&process.gate);
            process.spawn(answers.ask(gate, (instance, life), question, time));
        }
        // A process that runs again reads what has arrived before its timers fire.
        process.miss(slot.wall.at(now), missed);
        let is_alone = missed == 0 && now > slot.last_arrival && process.is_idle();
        let most = if is_alone {
            let next = questions.front().map_or(end, |(at, _)| end.min(*at));
            (next.saturating_sub(now) / 1_000).clamp(1, MOST_AHEAD)
        } else {
            1
        };
        let most = u32::try_from(most).unwrap_or(1);
        let sent_at = process.run(slot.wall.at(now), most);
        let sent_at = at_tick(process, sent_at).max(now);
        let at = at_tick(process, process.ticks).max(now + 1);
        self.schedule(at, WorldEvent::Tick { instance, life });
        self.collect(instance, sent_at);
    }
}
