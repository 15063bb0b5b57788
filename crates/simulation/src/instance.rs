//! An instance: a process with a gate, a store and clocks of its own, on a runtime of its own.
//!
//! Its runtime has a paused clock, which is moved a millisecond at a time. A process that is paused, crashes
//! or has a slow clock is a runtime that is run later, dropped, or run less often.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Gate;
use tidegate::rules::RuleSet;
use tidegate_core::{ManualClock, Timestamp};
use tidegate_redis::{KnownInstances, RedisSettings, RedisStore};
use tokio::runtime::Runtime;

use crate::clocks::Drift;
use crate::network::{InstanceNetwork, Latency};

/// How far the clock of an instance moves at a time.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The gate of an instance.
pub type SimulatedGate = Gate<RedisStore>;

/// How an instance is set up.
#[derive(Debug, Clone)]
pub struct InstanceSettings {
    /// Its rules, in YAML.
    pub rules: String,
    /// How long a decision waits for Redis.
    pub deadline: Duration,
    /// How fast its clocks run.
    pub drift: Drift,
    /// How long it starts after it was added, in microseconds: also where its ticks are between those of others.
    pub start_after: u64,
    /// How much its wall clock is ahead of that of the server, in microseconds.
    pub ahead: i64,
    /// The network between it and the server.
    pub latency: Latency,
}

impl InstanceSettings {
    /// An instance with these rules, whose clocks are right.
    pub fn new(rules: impl Into<String>) -> Self {
        Self {
            rules: rules.into(),
            deadline: Duration::from_millis(15),
            drift: Drift::NONE,
            start_after: 0,
            ahead: 0,
            latency: Latency::LOCAL,
        }
    }
}

/// A running instance.
pub(crate) struct SimulatedProcess {
    pub(crate) gate: Arc<SimulatedGate>,
    clock: ManualClock,
    runtime: Runtime,
    /// How many ticks its clock shows.
    pub(crate) ticks: u64,
    /// The true time at which it started.
    pub(crate) started_at: u64,
}

impl SimulatedProcess {
    pub(crate) fn start(
        settings: &InstanceSettings,
        rules: RuleSet,
        network: &Arc<InstanceNetwork>,
        known_instances: KnownInstances,
        (started_at, wall): (u64, Timestamp),
    ) -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build()?;
        let url = "redis://simulated".parse();
        let url = url.map_err(|error| std::io::Error::other(format!("{error}")))?;
        let mut redis = RedisSettings::new(url);
        redis.deadline = settings.deadline;
        redis.known_instances = known_instances;
        redis.network = Some(Arc::clone(network) as Arc<_>);
        let clock = ManualClock::new(wall);
        let gate = {
            let _in_runtime = runtime.enter();
            let store = RedisStore::open(redis);
            Arc::new(Gate::with_clock(store, rules, clock.clone()))
        };
        let maintained = Arc::clone(&gate);
        runtime.spawn(async move { maintained.maintain().await });
        Ok(Self {
            gate,
            clock,
            runtime,
            ticks: 0,
            started_at,
        })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs what is ready at the current tick, and moves the clock to the next. First the clock jumps over the
    /// ticks that were `missed`.
    pub(crate) fn tick(&mut self, wall: Timestamp, missed: u32) {
        self.clock.set(wall);
        if missed > 0 {
            self.runtime.block_on(tokio::time::advance(TICK * missed));
            self.ticks += u64::from(missed);
        }
        self.runtime
            .block_on(async { tokio::time::sleep(TICK).await });
        self.ticks += 1;
    }
}
