//! A data directory that cannot be used as before: what a server does without.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::server::ProgramFolder;

const RULES: &str = r#"{"rules": [{"id": "a", "per": ["user_id"], "limit": "2/hour"}]}"#;
const CHECK: (&str, &str) = ("POST /v1/check", r#"{"attributes": {"user_id": "u"}}"#);

/// Takes the right to write, or gives it back.
fn set_writable(folder: &ProgramFolder, paths: &[&str], is_writable: bool) {
    let mode = if is_writable { 0o700 } else { 0o500 };
    for path in paths {
        fs::set_permissions(folder.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn a_data_directory_that_is_not_writable_any_more_serves_its_rules_and_refuses_writes() {
    for closed in [&["data", "data/rules"][..], &["data"], &["data/rules"]] {
        let folder = ProgramFolder::new();
        let server = folder.serve_unprivileged(&[]);
        server.ask("PUT /v1/rules", RULES).with_status(200);
        server.kill();
        set_writable(&folder, closed, false);

        let server = folder.serve_unprivileged(&[]);
        let log = server.log.wait_for("the rules can be read but not changed");
        assert!(log.contains("no permission to write"), "{log}");
        for status in [200, 200, 429] {
            server.ask(CHECK.0, CHECK.1).with_status(status);
        }
        let rules = server.ask("GET /v1/rules", "").with_status(200).json();
        assert_eq!(rules["rules"][0]["id"], "a");
        server.ask("GET /readyz", "").with_status(200);
        let refused = server.ask("PUT /v1/rules", r#"{"rules": []}"#);
        let detail = refused.with_status(503).detail();
        assert!(detail.contains("no permission to write"), "{detail}");
        server.ask(CHECK.0, CHECK.1).with_status(429);
        set_writable(&folder, closed, true);
    }
}

#[test]
fn a_data_directory_without_rules_in_which_nothing_can_be_written_is_an_error() {
    let folder = ProgramFolder::new();
    fs::create_dir_all(folder.path("data/rules")).unwrap();
    set_writable(&folder, &["data", "data/rules"], false);
    let run = folder.fail_to_serve_unprivileged(&[]);
    assert_eq!(run.code, Some(2));
    let said = run.stderr;
    assert!(said.contains("no permission to"), "{said}");
    set_writable(&folder, &["data", "data/rules"], true);
}

#[test]
fn with_a_rule_file_a_data_directory_that_cannot_be_used_is_a_warning() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let rules = ["--rules", "rules.yaml"];
    let first = folder.serve(&rules);
    let log = first.log.wait_for("the rules are in force");
    assert!(!log.contains("nothing is kept across restarts"), "{log}");

    // Locked by the first server, a file in the way, no permission.
    fs::write(folder.path("taken"), "").unwrap();
    fs::create_dir(folder.path("closed")).unwrap();
    set_writable(&folder, &["closed"], false);
    for (directory, why) in [
        ("data", "is in use by another Tidegate server"),
        ("taken", "is not a directory"),
        ("closed", "no permission to"),
        ("closed/below", "no permission to create"),
    ] {
        let arguments = [&rules[..], &["--data-dir", directory]].concat();
        let server = folder.serve_unprivileged(&arguments);
        let log = server.log.wait_for("nothing is kept across restarts");
        assert!(log.contains(why), "{directory}: {log}");
        for status in [200, 200, 429] {
            server.ask(CHECK.0, CHECK.1).with_status(status);
        }
    }
    set_writable(&folder, &["closed"], true);
}
