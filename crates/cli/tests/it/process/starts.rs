//! The first decisions of servers that have just started, and decisions of a server that was stopped: a
//! server that is late itself does not blame Redis for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;

use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::{HttpClient, PATIENCE};

/// A rule of each kind, and how many requests each admits.
const RULES: &str = "rules:
  - {id: places, match: {path: /places}, per: [], limit: 2, algorithm: concurrency}
  - {id: bucket, match: {path: /bucket}, per: [], limit: 2/day burst 2}
  - {id: leaky, match: {path: /leaky}, per: [], limit: 2/day burst 2, algorithm: leaky_bucket}
  - {id: fixed, match: {path: /fixed}, per: [], limit: 2/day, algorithm: fixed_window}
  - {id: log, match: {path: /log}, per: [], limit: 2/day, algorithm: sliding_window_log}
  - {id: counter, match: {path: /counter}, per: [], limit: 2/day, algorithm: sliding_window_counter}
  - {id: slots, match: {path: /slots}, per: [], limit: 2/day, algorithm: sliding_window_slots}
  - {id: secret, match: {path: /secret}, per: [api_key], missing: share, limit: 2/hour}
  - {id: condition, match: {path: /condition, when: 'attributes[\"path\"].matches(\"^/c\") && cost > 0'}, per: [], limit: 2/hour}
  - {id: leased-bucket, match: {path: /leased-bucket}, per: [], limit: 2/day burst 2, sync: leased}
  - {id: leased-fixed, match: {path: /leased-fixed}, per: [], limit: 2/day, algorithm: fixed_window, sync: leased}
  - {id: leased-slots, match: {path: /leased-slots}, per: [], limit: 2/day, algorithm: sliding_window_slots, sync: leased}
";

/// Concurrency first: it is the one that the very first decision was wrong for.
const PATHS: [&str; 12] = [
    "/places",
    "/bucket",
    "/leaky",
    "/fixed",
    "/log",
    "/counter",
    "/slots",
    "/secret",
    "/condition",
    "/leased-bucket",
    "/leased-fixed",
    "/leased-slots",
];

/// Keeps both cores busy for a while, which ends when it is dropped and after a minute at the latest.
struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let burn = || {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let start = tidegate_testkit::now();
                while !is_over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_mins(1) {
                    std::hint::black_box((0..10_000_u64).fold(0, u64::wrapping_add));
                }
            })
        };
        let threads = (0..2).map(|_| burn()).collect();
        Self { is_over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn body(path: &str) -> String {
    json!({"attributes": {"path": path, "api_key": "key"}}).to_string()
}

/// What two fresh servers admit of four requests of each kind, and how many answers are degraded.
fn start_twice(environment: &[(&str, &str)]) -> (Vec<(&'static str, u32)>, Vec<Value>) {
    let redis = RedisServer::start();
    let url = redis.url();
    let folders = [ProgramFolder::new(), ProgramFolder::new()];
    let servers = folders.each_ref().map(|folder| {
        folder.write("rules.yaml", RULES);
        folder.serve_with(&["--redis", &url, "--rules", "rules.yaml"], environment)
    });
    let mut degraded = Vec::new();
    let mut admitted = Vec::new();
    for path in PATHS {
        let mut count = 0;
        for turn in 0..4 {
            let reply = servers[turn % 2].ask("POST /v1/check", &body(path));
            count += u32::from(reply.status == 200);
            if reply.json()["degraded"] != false {
                degraded.push(reply.json());
            }
        }
        admitted.push((path, count));
    }
    for server in &servers {
        assert_eq!(degraded_of(server), 0, "{}", server.log.text());
    }
    (admitted, degraded)
}

/// What the server itself counts as decided without Redis.
fn degraded_of(server: &Server) -> u64 {
    let metrics = server.ask("GET /metrics", "").body;
    let degraded = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("tidegate_degraded_total{"));
    let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    degraded.filter_map(count).sum()
}

#[test]
fn the_first_decision_of_every_kind_is_exact() {
    for _ in 0..3 {
        let (admitted, degraded) = start_twice(&[("TIDEGATE_REDIS_DEADLINE", "2s")]);
        assert_eq!(admitted, PATHS.map(|path| (path, 2)));
        assert!(degraded.is_empty(), "{degraded:?}");
    }
}

/// What `scripts/long starts` says otherwise.
#[expect(
    clippy::disallowed_methods,
    reason = "a script that runs these tests more strictly says so by a variable"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// `scripts/long starts` runs it with 200.
#[test]
fn servers_that_start_on_a_busy_machine_decide_exactly() {
    let starts = setting("TIDEGATE_STARTS").map_or(10, |starts| starts.parse().unwrap());
    // Two servers each.
    for start in 0..starts / 2 {
        let _load = Load::begin();
        let (admitted, degraded) = start_twice(&[("TIDEGATE_REDIS_DEADLINE", "2s")]);
        assert_eq!(admitted, PATHS.map(|path| (path, 2)), "start {start}");
        assert!(degraded.is_empty(), "start {start}: {degraded:?}");
    }
}

/// A stop is longer than the deadline. Here that is long enough for a busy machine; `scripts/long starts` runs
/// it with the default of 15 ms.
#[test]
fn a_server_that_was_stopped_for_a_second_blames_no_one_else() {
    let redis = RedisServer::start();
    let url = redis.url();
    let folder = ProgramFolder::new();
    let rules = "rules:
  - {id: exact, match: {path: /exact}, per: [], limit: 1000000/23h}
  - {id: leased, match: {path: /leased}, per: [], limit: 1000000/23h, sync: leased}
  - {id: places, match: {path: /places}, per: [], limit: 1000000, algorithm: concurrency}
";
    folder.write("rules.yaml", rules);
    let deadline = setting("TIDEGATE_STOPPED_DEADLINE").unwrap_or_else(|| "800ms".to_owned());
    let environment = [("TIDEGATE_REDIS_DEADLINE", deadline.as_str())];
    let server = folder.serve_with(&["--redis", &url, "--rules", "rules.yaml"], &environment);
    let is_over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU32::new(0));
    let clients: Vec<JoinHandle<()>> = (0..12)
        .map(|client| {
            let path = ["/exact", "/leased", "/places"][client % 3];
            let (is_over, address) = (Arc::clone(&is_over), server.address);
            let answered = Arc::clone(&answered);
            thread::spawn(move || {
                let mut client = HttpClient::to(address);
                while !is_over.load(Ordering::Relaxed) {
                    client.ask("POST /v1/check", &body(path)).with_status(200);
                    answered.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                }
            })
        })
        .collect();
    let wait_for_answers = || {
        let before = answered.load(Ordering::Relaxed);
        wait_until("clients are answered", PATIENCE, || {
            (answered.load(Ordering::Relaxed) > before + 200).then_some(())
        });
    };
    wait_for_answers();
    let before = degraded_of(&server);
    assert_eq!(before, 0, "before any stop: {}", server.log.text());
    for _ in 0..3 {
        server.signal(Signal::STOP);
        // Not for a result: so long the server is stopped.
        thread::sleep(Duration::from_secs(1));
        server.signal(Signal::CONT);
        wait_for_answers();
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let answered = answered.load(Ordering::Relaxed);
    let log = server.log.text();
    assert_eq!(degraded_of(&server), 0, "of {answered}: {log}");
}
