//! `tidegate simulate` as people run it: on a terminal, interrupted, and next to a server.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Child;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::PATIENCE;

use super::terminal::{TestTerminal, end_of};
use crate::server::ProgramFolder;

const RULES: &str = "rules:
  - {id: per-ip, per: [ip], limit: 4/hour, algorithm: fixed_window}
";
/// What removes a line that was drawn.
const REMOVED: &str = "\r\u{1b}[2K";

fn lines(clients: u64, each: u64) -> String {
    let line = |number: u64| {
        let (client, second) = (number % clients, number / clients);
        let time = 1_794_770_000 + second;
        format!("{{\"time\": {time}, \"ip\": \"10.0.0.{client}\", \"path\": \"/v1/items\"}}\n")
    };
    (0..clients * each).map(line).collect()
}

/// Puts a log into a pipe, once the program has read most of it, and keeps the pipe open.
fn pipe(folder: &ProgramFolder, text: &str) -> impl FnOnce() -> std::fs::File + use<> {
    let path = folder.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let text = text.to_owned();
    move || {
        let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
        pipe.write_all(text.as_bytes()).unwrap();
        pipe
    }
}

/// Waits until a program handles an interrupt itself.
fn wait_for_handler(child: &Child) {
    let file = format!("/proc/{}/status", child.id());
    wait_until("a handler of interrupts", PATIENCE, || {
        let status = std::fs::read_to_string(&file).unwrap();
        let mut lines = status.lines();
        let caught = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        (caught >> 1 & 1 == 1).then_some(())
    });
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how often it is drawn depends on how long it took"
)]
fn a_terminal_shows_progress_and_then_the_report() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    folder.write("access.log", &lines(200, 300));
    let mut terminal = TestTerminal::open();
    let began = Instant::now();
    let child = folder.spawn_on(
        &terminal.end,
        &["simulate", "--rules", "rules.yaml", "access.log"],
    );
    terminal.wait_for("requests denied");
    terminal.wait_for("worst clients");
    assert_eq!(end_of(child), Some(0));
    let drawn: Vec<&str> = terminal.text.split(REMOVED).collect();
    let (after, drawn) = drawn.split_last().unwrap();
    assert!(after.contains("60,000 requests"), "removed first: {after}");
    let drawn: Vec<&&str> = drawn.iter().filter(|line| !line.is_empty()).collect();
    assert!(!drawn.is_empty(), "{:?}", terminal.text);
    let most = began.elapsed().as_millis() / 100 + 1;
    assert!(drawn.len() as u128 <= most, "{} in {most}", drawn.len());
    let words: Vec<&str> = drawn.last().unwrap().split_whitespace().collect();
    let is_time = |text: &str| text.split(':').all(|part| part.parse::<u64>().is_ok());
    match words[..] {
        ["simulating", share, "%", rate, "lines/s", time, "left"] => {
            assert!(share.parse::<u64>().unwrap() <= 100);
            assert!(rate.replace(',', "").parse::<u64>().is_ok(), "{rate}");
            assert!(is_time(time), "{time}");
        }
        // Before anything was read there is no rate to go by.
        ref other => assert_eq!(other[..3], ["simulating", "0", "%"], "{drawn:?}"),
    }
}

#[test]
fn a_pipe_has_no_share_and_without_a_terminal_nothing_is_drawn() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let fill = pipe(&folder, &lines(50, 50));
    let mut terminal = TestTerminal::open();
    let child = folder.spawn_on(
        &terminal.end,
        &["simulate", "--rules", "rules.yaml", "pipe"],
    );
    let kept = fill();
    terminal.wait_until("progress", |text| {
        let mut drawn = text.split(REMOVED);
        drawn.any(|line| line.starts_with("simulating  ") && line.contains(" lines  "))
    });
    assert!(!terminal.text.contains('%'), "{:?}", terminal.text);
    drop(kept);
    terminal.wait_for("2,500 requests");
    assert_eq!(end_of(child), Some(0));

    folder.write("access.log", &lines(50, 50));
    let quiet = folder.run(&["simulate", "--rules", "rules.yaml", "access.log"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    assert!(!quiet.stdout.contains("simulating"), "{quiet:?}");
}

#[test]
fn an_interrupt_ends_reading_and_the_report_is_about_what_was_read() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    // More than a pipe holds: most of it was read when it is written.
    let fill = pipe(&folder, &lines(200, 100));
    let child = folder.spawn(&["simulate", "--rules", "rules.yaml", "--json", "pipe"]);
    let kept = fill();
    wait_for_handler(&child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    drop(kept);
    assert_eq!(ended.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(report["complete"], false);
    let requests = report["total"]["requests"].as_u64().unwrap();
    assert!((1..=20_000).contains(&requests), "{requests}");
    assert_eq!(report["input"]["lines"], requests);
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(stderr.contains("interrupted"), "{stderr}");
}

#[test]
fn rules_are_compared_with_those_of_a_server() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let before = json!({"rules": [
        {"id": "per-ip", "per": ["ip"], "limit": "6/hour", "algorithm": "fixed_window"},
        {"id": "gone", "per": [], "limit": "1000/hour"},
    ]});
    let put = server.ask("PUT /v1/rules", &before.to_string());
    put.with_status(200);
    folder.write("rules.yaml", RULES);
    folder.write("access.log", &lines(2, 8));
    let url = server.url();
    let simulate = |options: &[&str]| {
        #[rustfmt::skip]
        let begin = ["simulate", "--rules", "rules.yaml", "--against", &url, "--json", "access.log"];
        folder.run(&[&begin[..], options].concat())
    };
    // The token that the server generated, of the data directory; then one that it does not know.
    let compared = simulate(&[]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
    let report: Value = serde_json::from_str(&compared.stdout).unwrap();
    let against = &report["against"];
    assert_eq!(against["source"], url);
    assert_eq!(against["total"], json!({"allowed": 12, "denied": 4}));
    assert_eq!(against["newly_denied"]["requests"], 4);
    assert_eq!(against["newly_denied"]["clients"], 2);
    assert_eq!(against["newly_allowed"]["requests"], 0);
    let changes: Vec<(&Value, &Value)> = against["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (&rule["rule"], &rule["change"]))
        .collect();
    let expected = [
        (json!("per-ip"), json!("changed")),
        (json!("gone"), json!("removed")),
    ];
    assert_eq!(
        changes,
        expected.iter().map(|(id, is)| (id, is)).collect::<Vec<_>>()
    );
    let refused = simulate(&["--token", "unknown-token"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!refused.stderr.contains("unknown-token"), "{refused:?}");
    assert_eq!(simulate(&["--max-newly-denied", "3"]).code, Some(1));
    assert_eq!(simulate(&["--max-newly-denied", "4"]).code, Some(0));
}

#[test]
fn an_interrupt_ends_it_while_a_pipe_has_no_lines() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let fill = pipe(&folder, "");
    let child = folder.spawn(&[
        "simulate",
        "--rules",
        "rules.yaml",
        "pipe",
        "--format",
        "json",
    ]);
    let kept = fill();
    wait_for_handler(&child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end_of(child), Some(2));
    drop(kept);
}

#[test]
fn factors_that_cannot_be_tried_are_refused() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    folder.write("access.log", &lines(1, 1));
    let many: Vec<String> = (1..=33).map(|factor: u32| factor.to_string()).collect();
    let table = [
        ("0.5,x", "`x` is not a factor"),
        ("0", "`0` is not a factor"),
        ("-1", "`-1` is not a factor"),
        (&many.join(","), "33 factors; at most 32"),
    ];
    for (scale, message) in table {
        let scale = format!("--scale={scale}");
        let refused = folder.run(&["simulate", "--rules", "rules.yaml", &scale, "access.log"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
        assert!(refused.stderr.contains(message), "{refused:?}");
    }
}

#[test]
fn an_interrupt_ends_the_search_for_a_format() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let fill = pipe(&folder, &lines(1, 7));
    let child = folder.spawn(&["simulate", "--rules", "rules.yaml", "--json", "pipe"]);
    let kept = fill();
    wait_for_handler(&child);
    // Once the lines were read, the pipe is empty.
    wait_until("an empty pipe", PATIENCE, || {
        (rustix::io::ioctl_fionread(&kept).unwrap() == 0).then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    drop(kept);
    assert_eq!(ended.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(report["complete"], false);
    assert!(report["input"]["lines"].as_u64().unwrap() <= 7);
}
