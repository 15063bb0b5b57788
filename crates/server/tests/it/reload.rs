//! The file of the rules changes while requests come: none fails, and what was used stays used.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Server;
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::TestFolder;

const CLIENTS: usize = 8;
const CHANGES: usize = 30;
const PERIOD: Duration = Duration::from_millis(100);
const LIMITS: [u64; 2] = [1_000_000, 2_000_000];

/// The window begins with the first request, so that no midnight falls into the test.
fn rules(limit: u64) -> String {
    format!(
        "rules:\n  - {{id: per-user, per: [user_id], missing: deny, limit: {limit}/week, algorithm: fixed_window, anchor: first_request}}\n"
    )
}

fn check(user: &str) -> String {
    json!({"attributes": {"user_id": user}}).to_string()
}

#[test]
fn a_reload_every_tenth_of_a_second_fails_no_request_and_forgets_nothing() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", &rules(LIMITS[0]));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let is_over = AtomicBool::new(false);
    let seen = LIMITS.map(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn({
                let (address, is_over, seen) = (server.address, &is_over, &seen);
                move || ask_on(address, &format!("user-{number}"), is_over, seen)
            });
        }
        let _end = OnDrop(&is_over);
        for change in 1..=CHANGES {
            change_file(&folder, change);
            server.reload();
            // Not for a result: this is the rhythm of the test.
            thread::sleep(PERIOD);
        }
    });
    for (limit, seen) in LIMITS.iter().zip(&seen) {
        assert!(
            seen.load(Ordering::Relaxed) > 0,
            "no answer has the limit {limit}"
        );
    }
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    let version = ready["rules"]["version"].as_u64().unwrap();
    assert!(version > 5, "{ready}");
    assert_eq!(ready["rules"]["problem"], Value::Null);
}

/// Asks for one user on one connection, and knows what must be left after each request.
fn ask_on(address: SocketAddr, user: &str, is_over: &AtomicBool, seen: &[AtomicU64; 2]) {
    let mut client = HttpClient::to(address);
    let body = check(user);
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let reply = client.ask("POST /v1/check", &body).with_status(200);
        count += 1;
        let answer = reply.json();
        let limit = answer["limit"].as_u64().unwrap();
        let folder = LIMITS.iter().position(|known| *known == limit).unwrap();
        seen[folder].fetch_add(1, Ordering::Relaxed);
        assert_eq!(answer["remaining"], limit - count, "{answer}");
        assert_eq!(answer["allowed"], true, "{answer}");
        assert_eq!(answer["limits"].as_array().unwrap().len(), 1, "{answer}");
    }
    assert!(count > 0);
}

/// Makes the clients end, also when this thread fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// By turns as editors do it, with a new file that replaces the old one, and as Kubernetes does it, with a symbolic
/// link to another one.
fn change_file(folder: &TestFolder, change: usize) {
    let text = rules(LIMITS[change % 2]);
    if change.is_multiple_of(3) {
        let target = format!("rules-{change}.yaml");
        folder.write(&target, &text);
        symlink(&target, folder.path("link")).unwrap();
        std::fs::rename(folder.path("link"), folder.path("rules.yaml")).unwrap();
    } else {
        folder.write("rules.yaml", &text);
    }
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", &rules(10));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    server.ask("POST /v1/check", &check("u")).with_status(200);
    folder.write("rules.yaml", &rules(20));
    server.log.wait_for("the rules were reloaded");
    let answer = server.ask("POST /v1/check", &check("u")).json();
    assert_eq!(
        (&answer["limit"], &answer["remaining"]),
        (&json!(20), &json!(18))
    );

    let rows = server.ask("GET /v1/rules/history", "").json();
    let rows = rows["history"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[0]["by"], "file");
    assert_eq!(rows[0]["changes"], json!(["changed per-user"]));
}

#[test]
fn a_bad_file_leaves_the_last_good_rules_in_force_until_it_is_repaired() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", &rules(10));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    server.ask("POST /v1/check", &check("u")).with_status(200);

    folder.write("rules.yaml", &rules(20).replace("limit:", "limt:"));
    server.log.wait_for("the rules stay as they were");
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    let problem = ready["rules"]["problem"].as_str().unwrap();
    assert!(
        problem.contains("rules.yaml` cannot be used, see 2:"),
        "{problem}"
    );
    assert_eq!(metric(&server, "tidegate_rule_reload_failures_total"), 1);
    assert_eq!(metric(&server, "tidegate_rules_stale"), 1);
    let answer = server.ask("POST /v1/check", &check("u")).json();
    assert_eq!(
        (&answer["limit"], &answer["remaining"]),
        (&json!(10), &json!(8))
    );

    std::fs::remove_file(folder.path("rules.yaml")).unwrap();
    server.log.wait_for("cannot read the rules in `");
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    let problem = ready["rules"]["problem"].as_str().unwrap();
    assert!(problem.contains("cannot read"), "{problem}");

    folder.write("rules.yaml", &rules(30));
    server.log.wait_for("the rules were reloaded");
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    assert_eq!(ready["rules"]["problem"], Value::Null);
    assert_eq!(metric(&server, "tidegate_rules_stale"), 0);
    let answer = server.ask("POST /v1/check", &check("u")).json();
    assert_eq!(
        (&answer["limit"], &answer["remaining"]),
        (&json!(30), &json!(27))
    );
}

#[test]
fn a_file_that_is_repaired_to_what_it_was_is_reported_as_valid_again() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", &rules(10));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    folder.write("rules.yaml", "rules: 7\n");
    server.log.wait_for("the rules stay as they were");
    folder.write("rules.yaml", &rules(10));
    server.log.wait_for("the rule file is valid again");
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    assert_eq!(ready["rules"]["problem"], Value::Null);
    assert_eq!(ready["rules"]["version"], 1);
    assert_eq!(metric(&server, "tidegate_rules_stale"), 0);
}

/// The value of a metric without labels.
fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.ask("GET /metrics", "").body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value
        .unwrap_or_else(|| panic!("{metrics}"))
        .trim()
        .parse()
        .unwrap()
}
