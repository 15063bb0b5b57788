//! Counters without Redis over the end of a server: what is kept, what a crash forgets, and what happens
//! to a file that cannot be written or read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{now, wait_until};

use super::random::Random;
use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::PATIENCE;

/// A rule of each algorithm, each for five.
const RULES: &str = "rules:
  - {id: bucket, match: {path: /bucket}, per: [user_id], limit: 5/day burst 5}
  - {id: leaky, match: {path: /leaky}, per: [user_id], limit: 5/day burst 5, algorithm: leaky_bucket, shape: false}
  - {id: fixed, match: {path: /fixed}, per: [user_id], limit: 5/day, algorithm: fixed_window, anchor: first_request}
  - {id: month, match: {path: /month}, per: [user_id], limit: 5/month}
  - {id: log, match: {path: /log}, per: [user_id], limit: 5/day, algorithm: sliding_window_log}
  - {id: counter, match: {path: /counter}, per: [user_id], limit: 5/day, algorithm: sliding_window_counter}
  - {id: slots, match: {path: /slots}, per: [user_id], limit: 5/day, algorithm: sliding_window_slots}
  - {id: places, match: {path: /places}, per: [user_id], limit: 5, algorithm: concurrency, lease_ttl: 1h}
  - {id: secret, match: {path: /secret}, per: [api_key], missing: share, limit: 5/day burst 5}
";

const PATHS: [&str; 9] = [
    "/bucket", "/leaky", "/fixed", "/month", "/log", "/counter", "/slots", "/places", "/secret",
];

/// For servers that a test does not want to wait long for.
const OFTEN: [(&str, &str); 1] = [("TIDEGATE_SNAPSHOT", "1s")];

fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    folder
}

fn serve(folder: &ProgramFolder) -> Server {
    folder.serve(&["--rules", "rules.yaml"])
}

fn body(path: &str, cost: u64) -> String {
    json!({"attributes": {"path": path, "user_id": "u-client"}, "cost": cost}).to_string()
}

fn check(server: &Server, path: &str, cost: u64) -> Value {
    server.ask("POST /v1/check", &body(path, cost)).json()
}

fn remaining(server: &Server, path: &str) -> u64 {
    check(server, path, 0)["remaining"].as_u64().unwrap()
}

fn end(server: Server) -> String {
    server.signal(Signal::TERM);
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    log
}

fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.ask("GET /metrics", "").body;
    let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.lines().find_map(of).unwrap_or_default()
}

/// Whether there is a line such as `tidegate_keys 20`.
fn has_metric(server: &Server, line: &str) -> bool {
    let metrics = server.ask("GET /metrics", "").body;
    metrics.lines().any(|known| known == line)
}

fn wait_for_metric(server: &Server, name: &str, least: f64) {
    wait_until(name, PATIENCE, || {
        (metric(server, name) >= least).then_some(())
    });
}

#[test]
fn a_clean_restart_forgets_nothing() {
    let folder = folder();
    let server = serve(&folder);
    let mut leases = Vec::new();
    for path in PATHS {
        let answer = check(&server, path, 2);
        assert_eq!(answer["allowed"], true, "{answer}");
        leases.extend(answer["lease"].as_str().map(str::to_owned));
    }
    check(&server, "/month", 3);
    end(server);
    let mode = fs::metadata(folder.path("data/counters")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(folder.path("data/counters")).unwrap();
    let key = b"u-client";
    assert!(!bytes.windows(key.len()).any(|part| part == key));

    let server = serve(&folder);
    server.log.wait_for("counters were restored");
    for path in PATHS.into_iter().filter(|path| *path != "/month") {
        let answer = check(&server, path, 1);
        assert_eq!(answer["remaining"], 2, "{path}: {answer}");
    }
    server
        .ask("POST /v1/check", &body("/month", 1))
        .with_status(429);
    // A lease of before the restart is held, renewed and released under its name.
    let call = |method: &str| format!("{method} /v1/leases/{}", leases[0]);
    server.ask(&call("PUT"), "").with_status(204);
    server.ask(&call("DELETE"), "").with_status(204);
    server.ask(&call("DELETE"), "").with_status(404);
    assert_eq!(remaining(&server, "/places"), 4);
    end(server);

    let server = serve(&folder);
    assert_eq!(remaining(&server, "/places"), 4);
    assert_eq!(remaining(&server, "/bucket"), 2);
}

#[test]
fn what_was_reset_stays_reset_and_a_changed_limit_goes_on_from_what_was_used() {
    let folder = folder();
    let server = serve(&folder);
    for path in PATHS {
        check(&server, path, 4);
    }
    end(server);
    folder.write("rules.yaml", &RULES.replace("5/day", "7/day"));
    let server = serve(&folder);
    assert_eq!(remaining(&server, "/log"), 3, "the limit was raised");
    let reset = json!({"attributes": {"user_id": "u-client"}, "rule": "log"});
    server
        .ask("POST /v1/reset", &reset.to_string())
        .with_status(200);
    end(server);
    let server = serve(&folder);
    assert_eq!(remaining(&server, "/log"), 7);
    assert_eq!(remaining(&server, "/counter"), 3);
}

#[test]
fn counters_are_written_at_the_interval_and_only_if_they_have_changed() {
    let folder = folder();
    let server = folder.serve_with(&["--rules", "rules.yaml"], &OFTEN);
    assert!(has_metric(&server, "tidegate_snapshots_total 0"));
    check(&server, "/month", 5);
    wait_for_metric(&server, "tidegate_snapshots_total", 1.0);
    assert!(metric(&server, "tidegate_snapshot_bytes") > 100.0);
    let written = fs::metadata(folder.path("data/counters"))
        .unwrap()
        .modified()
        .unwrap();
    // No request is made, while the file is found to be current again and again.
    for _ in 0..2 {
        wait_until("the age to grow", PATIENCE, || {
            server
                .ask("POST /v1/check", &body("/month", 1))
                .with_status(429);
            (metric(&server, "tidegate_snapshot_age_seconds") > 0.5).then_some(())
        });
        wait_until("another look", PATIENCE, || {
            (metric(&server, "tidegate_snapshot_age_seconds") < 0.5).then_some(())
        });
    }
    assert!(has_metric(&server, "tidegate_snapshots_total 1"));
    server.kill();
    let after = fs::metadata(folder.path("data/counters")).unwrap();
    assert_eq!(after.modified().unwrap(), written);
    let server = serve(&folder);
    assert_eq!(remaining(&server, "/month"), 0);
}

#[test]
fn counters_are_not_kept_if_that_is_off_with_redis_and_with_times_of_requests() {
    let redis = RedisServer::start();
    let folder = folder();
    let rules = ["--rules", "rules.yaml"];
    // One that is there stays as it is, and is not read.
    let server = serve(&folder);
    check(&server, "/month", 5);
    end(server);
    let kept = fs::read(folder.path("data/counters")).unwrap();
    for (arguments, environment) in [
        (&rules[..], &[("TIDEGATE_SNAPSHOT", "off")][..]),
        (&[&rules[..], &["--trust-timestamps"]].concat(), &[]),
        (
            &[&rules[..], &["--redis", &redis.url()]].concat(),
            &[("TIDEGATE_REDIS_DEADLINE", "5s")],
        ),
    ] {
        let server = folder.serve_with(arguments, environment);
        let before = remaining(&server, "/month");
        assert_eq!(before, 5, "{arguments:?}");
        check(&server, "/month", 1);
        let log = end(server);
        assert!(!log.contains("counters were restored"), "{log}");
        assert_eq!(fs::read(folder.path("data/counters")).unwrap(), kept);
    }
    assert_eq!(remaining(&serve(&folder), "/month"), 0);
}

#[test]
fn a_snapshot_that_cannot_be_used_is_set_aside_with_a_warning() {
    let folder = folder();
    let server = serve(&folder);
    check(&server, "/month", 5);
    end(server);
    let file = folder.path("data/counters");
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    let mut newer = whole.clone();
    newer[8] = 99;
    let cut = whole[..whole.len() - 9].to_vec();
    for (bytes, why) in [
        (flipped, "it is damaged"),
        (cut, "it is damaged"),
        (Vec::new(), "it is damaged"),
        (b"not a snapshot at all".to_vec(), "it is damaged"),
        (newer, "it has version 99"),
    ] {
        fs::write(&file, &bytes).unwrap();
        let server = serve(&folder);
        let log = server.log.wait_for("the rules are in force");
        assert!(log.contains("all limits start fresh"), "{log}");
        assert!(log.contains(why), "{why}: {log}");
        assert!(
            log.contains("set aside as `data/counters.corrupt`"),
            "{log}"
        );
        assert_eq!(remaining(&server, "/month"), 5);
        assert!(!file.exists());
        let aside = fs::read(folder.path("data/counters.corrupt")).unwrap();
        assert_eq!(aside, bytes);
        // From here on counters are kept again.
        check(&server, "/month", 2);
        end(server);
        let server = serve(&folder);
        assert_eq!(remaining(&server, "/month"), 3);
    }
}

#[test]
fn something_else_in_the_place_of_the_snapshot_does_not_keep_a_server_from_starting() {
    let folder = folder();
    fs::create_dir_all(folder.path("data/counters")).unwrap();
    let server = serve(&folder);
    server.log.wait_for("cannot be used");
    check(&server, "/month", 2);
    end(server);
    assert_eq!(remaining(&serve(&folder), "/month"), 3);
}

#[test]
fn a_failed_write_keeps_the_last_file_and_is_logged_once_counted_and_shown() {
    let folder = ProgramFolder::new();
    // 32 KiB, in blocks of 512 bytes.
    let server = folder.serve_with_small_files(64, &OFTEN);
    let rules = json!({"rules": [{"id": "a", "per": ["user_id"], "limit": "5/month"}]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    check(&server, "/", 2);
    wait_for_metric(&server, "tidegate_snapshots_total", 1.0);
    let kept = fs::read(folder.path("data/counters")).unwrap();
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    assert_eq!(ready["warnings"], json!([]));

    let user = |number: u32| json!({"attributes": {"user_id": number.to_string()}});
    for half in 0..2 {
        let checks: Vec<Value> = (0..1_000)
            .map(|number| user(half * 1_000 + number))
            .collect();
        server
            .ask(
                "POST /v1/check/batch",
                &json!({"checks": checks}).to_string(),
            )
            .with_status(200);
    }
    wait_for_metric(&server, "tidegate_snapshot_failures_total", 2.0);
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    assert_eq!(ready["status"], "ready");
    let warning = ready["warnings"][0].as_str().unwrap();
    assert!(warning.contains("counters cannot be written"), "{ready}");
    assert!(warning.contains("no room to write"), "{ready}");
    assert_eq!(fs::read(folder.path("data/counters")).unwrap(), kept);
    assert_eq!(check(&server, "/", 0)["remaining"], 3, "checks go on");
    let log = end(server);
    assert_eq!(
        log.matches("counters cannot be written").count(),
        1,
        "{log}"
    );
    let names = fs::read_dir(folder.path("data")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.contains("tmp")).count(), 0);
    assert_eq!(fs::read(folder.path("data/counters")).unwrap(), kept);
    let server = folder.serve(&[]);
    assert_eq!(check(&server, "/", 0)["remaining"], 3);
}

#[test]
fn a_data_directory_that_is_not_writable_any_more_is_read() {
    let folder = ProgramFolder::new();
    let server = folder.serve_unprivileged(&[]);
    let rules = json!({"rules": [{"id": "a", "per": ["user_id"], "limit": "5/month"}]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    check(&server, "/", 2);
    end(server);
    let set_mode = |mode| {
        fs::set_permissions(folder.path("data"), fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o500);
    let server = folder.serve_unprivileged(&[]);
    server.log.wait_for("counters are not kept across restarts");
    assert_eq!(check(&server, "/", 1)["remaining"], 2);
    end(server);
    set_mode(0o700);
    assert_eq!(check(&folder.serve(&[]), "/", 0)["remaining"], 3);
}

#[test]
fn a_snapshot_of_more_keys_than_the_store_may_hold_is_read() {
    let folder = folder();
    let server = serve(&folder);
    let user = |number| json!({"attributes": {"path": "/month", "user_id": format!("{number}")}});
    let checks: Vec<Value> = (0..500).map(user).collect();
    server
        .ask(
            "POST /v1/check/batch",
            &json!({"checks": checks}).to_string(),
        )
        .with_status(200);
    end(server);
    let few = [("TIDEGATE_MAX_KEYS", "20")];
    let server = folder.serve_with(&["--rules", "rules.yaml"], &few);
    let log = server.log.wait_for("more keys than `max_keys`");
    assert!(log.contains("keys=480"), "{log}");
    assert!(has_metric(&server, "tidegate_keys 20"));
}

/// What the counters that are charged grant, and how many others there are.
const MOST: u64 = 100_000_000;
const OTHERS: u32 = 5_000;

/// What was charged until the server was killed.
struct Charged {
    /// How many charges were acknowledged, and when.
    acknowledged: Vec<(Instant, u64)>,
    /// How many snapshots were written when so many charges had been acknowledged.
    snapshots: Vec<(u64, u64)>,
    /// How many charges were begun.
    begun: u64,
    killed_at: Instant,
}

impl Charged {
    /// What a snapshot must have that was begun so long before the end, or later.
    fn least_of_the_last(&self, span: Duration) -> u64 {
        let mut acknowledged = self.acknowledged.iter().rev();
        let before = acknowledged.find(|(at, _)| *at + span <= self.killed_at);
        before.map_or(self.acknowledged[0].1, |(_, count)| *count)
    }

    /// What the last snapshot that was seen must have, however late it was written: it was begun after
    /// the one before it was done.
    fn least_of_the_seen(&self) -> u64 {
        let last = self.snapshots.last().map_or(0, |(number, _)| *number);
        let mut earlier = self.snapshots.iter().rev();
        let before = earlier.find(|(number, _)| number + 2 <= last);
        before.map_or(self.acknowledged[0].1, |(_, count)| *count)
    }
}

/// Charges until the server is killed, which is at a moment that no one chose.
fn charge_until_killed(server: &Server, path: &str, used: u64, after: Duration) -> Charged {
    let pid = server.pid();
    let killer = thread::spawn(move || {
        thread::sleep(after);
        let at = now();
        kill_process(pid, Signal::KILL).unwrap();
        at
    });
    let mut client = server.client();
    let (mut acknowledged, mut begun) = (vec![(now(), used)], used);
    let mut snapshots = Vec::new();
    let body = body(path, 1);
    loop {
        if begun.is_multiple_of(50) {
            let Ok(reply) = client.try_ask("GET /metrics", &[], "") else {
                break;
            };
            let written = |line: &str| line.strip_prefix("tidegate_snapshots_total ")?.parse().ok();
            let written = reply.body.lines().find_map(written);
            snapshots.push((written.unwrap(), begun));
        }
        begun += 1;
        let Ok(reply) = client.try_ask("POST /v1/check", &[], &body) else {
            break;
        };
        reply.with_status(200);
        acknowledged.push((now(), begun));
    }
    Charged {
        acknowledged,
        snapshots,
        begun,
        killed_at: killer.join().unwrap(),
    }
}

/// `scripts/long kills` does it more often, on a machine that has time for nothing else.
#[test]
fn a_killed_server_goes_on_from_a_snapshot_that_is_at_most_an_interval_old() {
    #[expect(clippy::disallowed_methods, reason = "a script asks for more")]
    let number = |name: &str, otherwise: u64| {
        let value = std::env::var(name).ok();
        value
            .and_then(|text| text.parse().ok())
            .unwrap_or(otherwise)
    };
    let kills = number("TIDEGATE_KILLS", 10);
    // How late a busy machine may let the server write.
    let late = Duration::from_millis(number("TIDEGATE_KILLS_LATE_MS", 5_000));
    let folder = ProgramFolder::new();
    let rules = "rules:
  - {id: month, match: {path: /month}, per: [], limit: 100000000/month}
  - {id: log, match: {path: /log}, per: [], limit: 100000000/day, algorithm: sliding_window_log}
  - {id: others, match: {path: /others}, per: [user_id], missing: deny, limit: 5/month}
";
    folder.write("rules.yaml", rules);
    let serve = || {
        let level = [OFTEN[0], ("TIDEGATE_LOG_LEVEL", "warn")];
        folder.serve_with(&["--rules", "rules.yaml"], &level)
    };
    let user =
        |number: u32| json!({"attributes": {"path": "/others", "user_id": number.to_string()}});
    let server = serve();
    for thousand in 0..OTHERS / 1_000 {
        let users = (0..1_000).map(|number| user(thousand * 1_000 + number));
        let checks = json!({"checks": users.collect::<Vec<Value>>()});
        server
            .ask("POST /v1/check/batch", &checks.to_string())
            .with_status(200);
    }
    end(server);

    let mut random = Random::new();
    for kill in 0..kills {
        let path = ["/month", "/log"][usize::from(kill % 2 == 1)];
        let server = serve();
        let count = MOST - remaining(&server, path);
        let after = Duration::from_millis(random.below(3_500));
        let charged = charge_until_killed(&server, path, count, after);
        server.kill();

        let server = serve();
        let count = MOST - remaining(&server, path);
        let least = charged
            .least_of_the_last(Duration::from_secs(1) + late)
            .max(charged.least_of_the_seen());
        assert!(
            (least..=charged.begun).contains(&count),
            "{path} after {after:?}: {count} used of {least} to {}",
            charged.begun
        );
        for _ in 0..10 {
            let other = user(u32::try_from(random.below(u64::from(OTHERS))).unwrap());
            let mut other = other.as_object().unwrap().clone();
            other.insert("cost".to_owned(), json!(0));
            let answer = server.ask("POST /v1/check", &Value::Object(other).to_string());
            assert_eq!(answer.json()["remaining"], 4);
        }
        let log = server.log.text();
        assert!(log.is_empty(), "{log}");
        server.kill();
    }
}
