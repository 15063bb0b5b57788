//! The demand: for each rule and server one client at a steady rate, all on one thread, and what they saw. The same thread notes
//! when it did not run, so that its own stalls are not taken for those of the servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_testkit::now;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::exchange::{CheckAnswer, KeptConnection, ask, check_request};
use crate::rules::{CountedRule, USER};

/// How many times the limit is asked for.
const DEMAND: u32 = 3;
/// An answer that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(8);
/// A loop that ran this much later than it meant to has stalled. Timers are exact to a millisecond or two.
const STALL: Duration = Duration::from_millis(3);
/// How often a client that follows readiness asks for it.
const READINESS: Duration = Duration::from_millis(200);

/// What is asked of which servers.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub(crate) servers: Vec<SocketAddr>,
    /// Whether clients leave a server whose `/readyz` is not 200, as behind a load balancer.
    pub(crate) follows_readiness: bool,
}

/// One request and its answer. Times are since the start of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenAnswer {
    /// The index of the rule.
    pub(crate) rule: usize,
    pub(crate) server: usize,
    pub(crate) sent: Duration,
    pub(crate) received: Duration,
    /// None if it failed.
    pub(crate) check: Option<CheckAnswer>,
}

/// A time in which the clients did not run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopStall {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// All that the clients saw.
#[derive(Debug, Default)]
pub(crate) struct LoadSeen {
    pub(crate) answers: Vec<SeenAnswer>,
    pub(crate) stalls: Vec<LoopStall>,
    /// Why the first few requests failed.
    pub(crate) failures: Vec<String>,
}

/// Load that is running.
#[derive(Debug)]
pub(crate) struct FleetLoad {
    start: Instant,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<LoadSeen>,
}

/// What one client needs.
#[derive(Debug, Clone)]
struct LoadClient {
    rule: usize,
    server: usize,
    period: Duration,
    request: Vec<u8>,
    demand: Arc<Demand>,
    ready: Arc<Vec<AtomicBool>>,
    start: Instant,
    stop: Arc<AtomicBool>,
}

impl FleetLoad {
    pub(crate) fn start(demand: Demand) -> Self {
        let (start, stop) = (now(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || run(demand, start, &stopped));
        Self {
            start,
            stop,
            thread,
        }
    }

    /// The time since its start.
    pub(crate) fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.start)
    }

    /// The same for an instant.
    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }

    /// Ends it when the requests in flight are answered.
    pub(crate) fn stop(self) -> LoadSeen {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_default()
    }
}

fn run(demand: Demand, start: Instant, stop: &Arc<AtomicBool>) -> LoadSeen {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return LoadSeen::default();
    };
    let servers = demand.servers.len();
    let ready: Arc<Vec<AtomicBool>> =
        Arc::new((0..servers).map(|_| AtomicBool::new(true)).collect());
    let demand = Arc::new(demand);
    if demand.follows_readiness {
        let (demand, ready, stop) = (Arc::clone(&demand), Arc::clone(&ready), Arc::clone(stop));
        std::thread::spawn(move || watch_readiness(&demand.servers, &ready, &stop));
    }
    runtime.block_on(async {
        let mut clients = JoinSet::new();
        for (rule, counted) in CountedRule::all().into_iter().enumerate() {
            let rate = counted.per_second() * DEMAND;
            let count = u32::try_from(servers).unwrap_or(1);
            for server in 0..servers {
                let client = LoadClient {
                    rule,
                    server,
                    period: Duration::from_secs(1) * count / rate,
                    request: check_request(&format!("/{}", counted.id()), USER),
                    demand: Arc::clone(&demand),
                    ready: Arc::clone(&ready),
                    start,
                    stop: Arc::clone(stop),
                };
                clients.spawn(client.run());
            }
        }
        let stalls = tokio::spawn(note_stalls(start, Arc::clone(stop)));
        let mut seen = LoadSeen::default();
        for (answers, failures) in clients.join_all().await {
            seen.answers.extend(answers);
            seen.failures.extend(failures);
        }
        seen.stalls = stalls.await.unwrap_or_default();
        seen.answers.sort_by_key(|answer| answer.received);
        seen.failures.sort_unstable();
        seen.failures.dedup();
        seen.failures.truncate(5);
        seen
    })
}

impl LoadClient {
    async fn run(self) -> (Vec<SeenAnswer>, Option<String>) {
        let (mut answers, mut failure, mut kept) = (Vec::new(), None, None);
        // Clients begin at different moments, so that they do not come in waves.
        let number = self.rule * self.demand.servers.len() + self.server;
        let step = self.period / 36 * u32::try_from(number % 36).unwrap_or(0);
        sleep(step).await;
        let mut ticks = interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.stop.load(Ordering::SeqCst) {
            ticks.tick().await;
            let server = self.choose();
            let connection = kept.take().filter(|(at, _)| *at == server);
            let sent = self.start.elapsed();
            let exchange = self.exchange(server, connection.map(|(_, open)| open));
            let result = timeout(PATIENCE, exchange).await;
            let check = match result {
                Ok(Ok((check, open))) => {
                    kept = open.map(|open| (server, open));
                    Some(check)
                }
                Ok(Err(error)) => {
                    failure.get_or_insert(format!("server {server}: {error:#}"));
                    None
                }
                Err(_) => {
                    failure.get_or_insert(format!("server {server}: no answer in {PATIENCE:?}"));
                    None
                }
            };
            answers.push(SeenAnswer {
                rule: self.rule,
                server,
                sent,
                received: self.start.elapsed(),
                check,
            });
        }
        (answers, failure)
    }

    /// The client's own server, or if that is not ready the next one that is.
    fn choose(&self) -> usize {
        let count = self.ready.len();
        let mut order = (0..count).map(|step| (self.server + step) % count);
        let found = order.find(|server| self.ready[*server].load(Ordering::Relaxed));
        found.unwrap_or(self.server)
    }

    async fn exchange(
        &self,
        server: usize,
        kept: Option<KeptConnection>,
    ) -> anyhow::Result<(CheckAnswer, Option<KeptConnection>)> {
        let mut connection = match kept {
            Some(connection) => connection,
            None => KeptConnection::open(self.demand.servers[server]).await?,
        };
        let (check, is_kept) = connection.check(&self.request).await?;
        Ok((check, is_kept.then_some(connection)))
    }
}

/// Sleeps for a millisecond at a time, and notes when that took much longer.
async fn note_stalls(start: Instant, stop: Arc<AtomicBool>) -> Vec<LoopStall> {
    let mut stalls = Vec::new();
    let pause = Duration::from_millis(1);
    while !stop.load(Ordering::SeqCst) {
        let from = start.elapsed() + pause;
        sleep(pause).await;
        let to = start.elapsed();
        if to > from + STALL {
            stalls.push(LoopStall { from, to });
        }
    }
    stalls
}

fn watch_readiness(servers: &[SocketAddr], ready: &[AtomicBool], stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        for (address, ready) in servers.iter().zip(ready) {
            let answer = ask(*address, "GET /readyz", None, "");
            let is_ready = matches!(answer, Ok((200, _)));
            ready.store(is_ready, Ordering::Relaxed);
        }
        std::thread::sleep(READINESS);
    }
}
