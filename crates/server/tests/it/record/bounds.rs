//! The file of a recording: rotated, opened anew, continued, full; and a queue that is full.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::Command;

use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder};

use super::{check, lines_of, serve, wait_for_lines};
use crate::Server;

const RULES: &str = "rules: [{id: a, per: [user_id], limit: 1000000/hour}]";

fn of(user: &str) -> Value {
    json!({"attributes": {"user_id": user}})
}

fn is_decision(line: &Value) -> bool {
    line.get("t").is_some()
}

/// The value of a metric.
fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.ask("GET /metrics", "").body;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .parse()
        .unwrap()
}

fn warnings(server: &Server) -> String {
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    ready["warnings"].to_string()
}

#[test]
fn a_file_is_rotated_at_its_size_and_so_many_are_kept() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let settings = "record: {file: FOLDER/r, rotate: {size: 2KiB, keep: 2}}";
    let server = serve(&folder, settings, &["--rules", "rules.yaml"]);
    let checks: Vec<Value> = (0..100)
        .map(|number| of(&format!("u{number:02}")))
        .collect();
    server
        .ask(
            "POST /v1/check/batch",
            &json!({ "checks": checks }).to_string(),
        )
        .with_status(200);
    wait_until("all lines", PATIENCE, || {
        (metric(&server, "tidegate_record_lines_total") == 100).then_some(())
    });
    assert_eq!(metric(&server, "tidegate_record_lost_total"), 0);
    server.stop();
    let mut users = Vec::new();
    for name in ["r.2", "r.1", "r"] {
        assert!(
            fs::metadata(folder.path(name)).unwrap().len() <= 2_048,
            "{name}"
        );
        let lines = lines_of(&folder, name);
        assert_eq!(lines[0]["tidegate_record"], 1, "{name}");
        let decisions = lines[1..].iter().filter(|line| is_decision(line));
        users.extend(
            decisions.map(|line| line["attributes"]["user_id"].as_str().unwrap().to_owned()),
        );
    }
    assert!(!folder.path("r.3").exists());
    let last: Vec<String> = (100 - users.len()..100)
        .map(|number| format!("u{number:02}"))
        .collect();
    assert!(users.len() > 10);
    assert_eq!(users, last, "none is missing between them");
}

#[test]
fn a_reload_opens_the_file_anew_and_a_restart_continues_it() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, "record: FOLDER/r", &["--rules", "rules.yaml"]);
    check(&server, &of("one"));
    wait_for_lines(&folder, 2);
    fs::rename(folder.path("r"), folder.path("moved")).unwrap();
    server.reload();
    wait_for_lines(&folder, 1);
    check(&server, &of("two"));
    server.stop();
    assert_eq!(lines_of(&folder, "moved").len(), 2);
    let lines = lines_of(&folder, "r");
    assert_eq!((&lines[0]["tidegate_record"], lines.len()), (&json!(1), 2));

    let server = serve(&folder, "record: FOLDER/r", &["--rules", "rules.yaml"]);
    check(&server, &of("three"));
    server.stop();
    let lines = lines_of(&folder, "r");
    let headers = lines
        .iter()
        .filter(|line| line.get("tidegate_record").is_some());
    assert_eq!(headers.count(), 1);
    let users: Vec<&Value> = lines
        .iter()
        .filter(|line| is_decision(line))
        .map(|line| &line["attributes"]["user_id"])
        .collect();
    assert_eq!(users, ["two", "three"]);
}

#[test]
fn a_file_that_cannot_be_written_is_logged_once_and_decisions_go_on() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(
        &folder,
        "record: FOLDER/later/r",
        &["--rules", "rules.yaml"],
    );
    server.log.wait_for("decisions cannot be recorded");
    for number in 1..=3 {
        check(&server, &of("u"));
        wait_until("another is lost", PATIENCE, || {
            (metric(&server, "tidegate_record_lost_total") == number).then_some(())
        });
    }
    let problem = warnings(&server);
    assert!(
        problem.contains("cannot be recorded to") && problem.contains("later/r"),
        "{problem}"
    );
    fs::create_dir(folder.path("later")).unwrap();
    check(&server, &of("u"));
    server.log.wait_for("decisions are recorded again");
    assert_eq!(warnings(&server), "[]");
    let lines = lines_of(&folder, "later/r");
    assert_eq!(lines[1], json!({"lost": 3}));
    assert_eq!(lines.len(), 3);
    let log = server.stop();
    assert_eq!(log.matches("cannot be recorded").count(), 1, "{log}");
}

#[test]
fn a_full_disk_is_no_reason_to_end() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, "record: /dev/full", &["--rules", "rules.yaml"]);
    server
        .log
        .wait_for("decisions cannot be recorded: No space left on device");
    assert_eq!(check(&server, &of("u"))["allowed"], true);
    let problem = warnings(&server);
    assert!(problem.contains("/dev/full"), "{problem}");
    server.stop();
}

#[test]
fn a_full_queue_loses_lines_that_are_counted_and_no_decision_waits() {
    const CHECKS: usize = 100;
    const BATCHES: usize = 30;
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    // A pipe that is not read takes some lines and then none.
    let made = Command::new("mkfifo").arg(folder.path("r")).status();
    assert!(made.unwrap().success());
    let server = serve(&folder, "record: FOLDER/r", &["--rules", "rules.yaml"]);
    let user = "u".repeat(8_000);
    let batch = json!({"checks": vec![of(&user); CHECKS]}).to_string();
    let mut client = server.client();
    for _ in 0..BATCHES {
        client.ask("POST /v1/check/batch", &batch).with_status(200);
    }
    let lost = metric(&server, "tidegate_record_lost_total");
    assert!(lost > 0 && lost < (CHECKS * BATCHES) as u64, "{lost}");

    let mut pipe = BufReader::new(File::open(folder.path("r")).unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&pipe.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["tidegate_record"], 1);
    let (mut written, mut marked) = (0, 0);
    while written + marked < (CHECKS * BATCHES) as u64 {
        let line = next();
        match line["lost"].as_u64() {
            Some(lost) => marked += lost,
            None => written += u64::from(is_decision(&line)),
        }
    }
    assert_eq!(marked, metric(&server, "tidegate_record_lost_total"));
    // It goes on after the gap.
    check(&server, &of("after"));
    assert_eq!(next()["attributes"]["user_id"], "after");
    wait_until("all are counted", PATIENCE, || {
        (metric(&server, "tidegate_record_lines_total") == written + 1).then_some(())
    });
    server.stop();
}
