//! The program of the suite: its page follows from its results, and it refuses what it does not know.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-faults"));
    command.args(arguments).output().unwrap()
}

#[test]
fn the_page_follows_from_the_results() {
    let output = run(&["report", "--check"]);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}");
}

#[test]
fn unknown_rows_and_flags_are_refused() {
    let program = env!("CARGO_BIN_EXE_tidegate-faults");
    for arguments in [
        ["--program", program, "no-such-row"],
        ["--program", program, "--fast"],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn every_row_is_listed() {
    let output = run(&["list"]);
    let list = String::from_utf8_lossy(&output.stdout);
    assert!(list.lines().count() > 40, "{list}");
    assert!(list.contains("redis-killed-empty"), "{list}");
}
