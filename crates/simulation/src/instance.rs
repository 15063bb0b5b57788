//! An instance: a process with a gate, a store and clocks of its own, on a runtime of its own.
//!
//! Its runtime has a paused clock, which is moved a millisecond at a time. A process that is paused, crashes
//! or has a slow clock is a runtime that is run later, dropped, or run less often.

use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate::Gate;
use tidegate::rules::RuleSet;
use tidegate_core::{ManualClock, Timestamp};
use tidegate_redis::{KnownInstances, RedisSettings, RedisStore};
use tokio::runtime::Runtime;
use tokio::time::Instant as TokioInstant;

use crate::clocks::Drift;
use crate::network::{InstanceNetwork, Latency};

/// How far the clock of an instance moves at a time.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The gate of an instance.
pub struct SimulatedGate {
    gate: Gate,
    store: RedisStore,
}

impl SimulatedGate {
    /// The store that it asks.
    pub fn store(&self) -> &RedisStore {
        &self.store
    }
}

impl Deref for SimulatedGate {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        &self.gate
    }
}

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
    network: Arc<InstanceNetwork>,
    /// How many ticks its clock shows.
    pub(crate) ticks: u64,
    /// The true time at which it started.
    pub(crate) started_at: u64,
    /// Held by each task that is not a part of the program under test.
    tasks: Arc<()>,
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
            let gate = Gate::with_clock(store.clone(), rules, clock.clone());
            Arc::new(SimulatedGate { gate, store })
        };
        let maintained = Arc::clone(&gate);
        runtime.spawn(async move { maintained.maintain().await });
        Ok(Self {
            gate,
            clock,
            runtime,
            network: Arc::clone(network),
            ticks: 0,
            started_at,
            tasks: Arc::default(),
        })
    }

    /// Runs a task, which keeps this process from running ahead of the others until it is done.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let counted = Arc::clone(&self.tasks);
        self.runtime.spawn(async move {
            task.await;
            drop(counted);
        });
    }

    /// Whether nothing happens in it but what timers of its own begin.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.tasks) == 1 && self.gate.unreconciled().waiting == 0
    }

    /// The clock jumps over ticks at which this process did not run.
    pub(crate) fn miss(&mut self, wall: Timestamp, ticks: u32) {
        self.clock.set(wall);
        if ticks > 0 {
            self.runtime.block_on(tokio::time::advance(TICK * ticks));
            self.ticks += u64::from(ticks);
        }
    }

    /// Runs up to the first tick at which anything is sent, and for at most so many ticks. Returns that tick.
    pub(crate) fn run(&mut self, wall: Timestamp, most: u32) -> u64 {
        self.clock.set(wall);
        self.network.activity.clear();
        let activity = &self.network.activity;
        let idle = self.runtime.block_on(async {
            #[expect(
                clippy::disallowed_methods,
                reason = "the virtual clock of this process's runtime"
            )]
            let begin = TokioInstant::now();
            let end = tokio::time::sleep(TICK * (most - 1));
            let mut end = std::pin::pin!(end);
            std::future::poll_fn(|context| match activity.poll(context) {
                Poll::Pending if most > 1 => end.as_mut().poll(context),
                Poll::Ready(()) | Poll::Pending => Poll::Ready(()),
            })
            .await;
            begin.elapsed()
        });
        self.ticks += u64::try_from(idle.as_millis()).unwrap_or(0);
        let sent_at = self.ticks;
        // All that is ready at this tick runs, then the clock moves on.
        self.runtime
            .block_on(async { tokio::time::sleep(TICK).await });
        self.ticks += 1;
        sent_at
    }
}
