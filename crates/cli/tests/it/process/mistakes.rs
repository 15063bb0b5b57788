//! The mistakes that a new user is likely to make. Each gets one clear message, and all of them can be
//! read in one snapshot.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::server::ProgramFolder;
use crate::server_process::{ProgramRun, without_times};

const GOOD: &str = "rules:\n  - {id: a, per: [ip], limit: 5/minute}\n";

/// What is done wrong, how, and the words that must be in what is said about it.
type Mistake = (&'static str, fn() -> String, &'static str);

const MISTAKES: [Mistake; 12] = [
    ("a wrong indent", wrong_indent, "look at the indentation"),
    ("an unknown key", unknown_key, "did you mean `algorithm`?"),
    (
        "a unit that is none",
        fortnight,
        "`fortnight` is not a unit; use ",
    ),
    (
        "a port that is in use",
        port_in_use,
        "the port is in use; stop ",
    ),
    (
        "a rules file that is not there",
        missing_file,
        "give the path of a YAML or JSON file",
    ),
    ("no rules at all", no_rules, "every request is allowed"),
    ("a bad token", bad_token, "unknown token"),
    ("a wrong method", wrong_method, "use POST"),
    ("malformed JSON", malformed_json, "not valid JSON"),
    (
        "an unknown attribute",
        unknown_attribute,
        "did you mean `user_id`?",
    ),
    (
        "a data directory that is none",
        data_directory,
        "is not a directory; move it away",
    ),
    (
        "two rules with one id",
        two_ids,
        "two rules have the id `a`, first in line 2",
    ),
];

#[test]
fn each_likely_mistake_of_a_new_user_gets_one_clear_message() {
    let mut page = String::new();
    for (name, make, words) in MISTAKES {
        let said = make();
        assert!(said.contains(words), "{name}:\n{said}");
        let _ = writeln!(page, "## {name}\n{said}");
    }
    insta::assert_snapshot!(page);
}

#[test]
fn a_data_directory_that_may_not_be_read_has_a_message_of_its_own() {
    if rustix::process::geteuid().is_root() {
        // For whom nothing is forbidden.
        return;
    }
    let folder = ProgramFolder::new();
    std::fs::create_dir(folder.path("data")).unwrap();
    let locked = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(folder.path("data"), locked).unwrap();
    let said = refused(&folder.fail_to_serve(&[]), "tidegate serve");
    assert!(said.contains("no permission to"), "{said}");
    assert!(said.contains("or give another --data-dir"), "{said}");
}

#[test]
fn what_the_system_says_of_a_data_directory_is_repeated() {
    let folder = ProgramFolder::new();
    let run = folder.fail_to_serve(&["--data-dir", "/proc/tidegate-data"]);
    assert_eq!(run.code, Some(2));
    let said = "cannot create `/proc/tidegate-data`: No such file or directory (os error 2)";
    assert!(run.stderr.contains(said), "{}", run.stderr);
}

#[test]
fn a_log_level_that_is_none_is_an_error() {
    let folder = ProgramFolder::new();
    for level in [
        "loud",
        "info,loud",
        "tidegate_server=loud",
        "tidegate_server",
    ] {
        let run = folder.fail_to_serve(&["--log-level", level]);
        assert_eq!(run.code, Some(2));
        let said =
            "is not a log level; write one of `error`, `warn`, `info`, `debug`, `trace` and `off`";
        assert!(run.stderr.contains(said), "{level}: {}", run.stderr);
    }
    folder.serve(&["--log-level", "WARN,tidegate_server=debug"]);
}

/// What was typed and what came of it, which must be a failure.
fn refused(run: &ProgramRun, typed: &str) -> String {
    assert!(run.code.is_some_and(|code| code != 0), "{}", run.whole());
    shown(run, typed)
}

fn shown(run: &ProgramRun, typed: &str) -> String {
    format!("$ {typed}\n{}", run.whole())
}

/// A server is started with these rules.
fn serve(rules: &str) -> String {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", rules);
    let run = folder.fail_to_serve(&["--rules", "rules.yaml"]);
    refused(&run, "tidegate serve --rules rules.yaml")
}

fn wrong_indent() -> String {
    serve("rules:\n  - id: a\n   per: [ip]\n    limit: 5/minute\n")
}

fn unknown_key() -> String {
    serve("rules:\n  - id: a\n    per: [ip]\n    limit: 5/minute\n    algoritm: fixed_window\n")
}

fn fortnight() -> String {
    serve("rules:\n  - id: a\n    per: [ip]\n    limit: 100/fortnight\n")
}

fn two_ids() -> String {
    serve(
        "rules:\n  - id: a\n    per: [ip]\n    limit: 5/minute\n  - id: a\n    per: []\n    limit: 9/minute\n",
    )
}

fn port_in_use() -> String {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", GOOD);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = folder.fail_to_serve(&["--rules", "rules.yaml", "--http", &address]);
    let said = refused(&run, &format!("tidegate serve --http {address}"));
    said.replace(&address, "127.0.0.1:PORT")
}

fn missing_file() -> String {
    let run = ProgramFolder::new().fail_to_serve(&["--rules", "rulse.yaml"]);
    refused(&run, "tidegate serve --rules rulse.yaml")
}

fn no_rules() -> String {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let said = without_times(&server.log.wait_for("the rules are in force"));
    let allowed = server.ask("POST /v1/check", r#"{"attributes": {"ip": "1.2.3.4"}}"#);
    assert_eq!(allowed.json()["allowed"], true);
    let url = server.url();
    let asked = folder.run(&["check", "--attr", "ip=1.2.3.4", "--server", &url]);
    let asked = shown(&asked, "tidegate check --attr ip=1.2.3.4");
    format!("$ tidegate serve\n{said}{asked}")
}

fn bad_token() -> String {
    let folder = ProgramFolder::new();
    let server = folder.serve_with(&[], &[("TIDEGATE_TOKEN", "open-sesame")]);
    let headers = [("authorization", "Bearer open-sesam")];
    let reply = server.ask_with("GET /v1/rules", &headers, "");
    assert_eq!(reply.status, 401);
    let url = server.url();
    let with = folder.run(&["rules", "list", "--token", "open-sesam", "--server", &url]);
    let without = folder.run(&["rules", "list", "--server", &url]);
    format!(
        "> GET /v1/rules\n{}{}{}",
        reply.whole(),
        refused(&with, "tidegate rules list --token open-sesam"),
        refused(&without, "tidegate rules list")
    )
}

fn wrong_method() -> String {
    let reply = ProgramFolder::new().serve(&[]).ask("GET /v1/check", "");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    format!("> GET /v1/check\n{}", reply.whole())
}

fn malformed_json() -> String {
    let body = r#"{"attributes": {"ip": "1.2.3.4"}"#;
    let reply = ProgramFolder::new().serve(&[]).ask("POST /v1/check", body);
    assert_eq!(reply.status, 400);
    format!("> POST /v1/check\n> {body}\n{}", reply.whole())
}

fn unknown_attribute() -> String {
    let folder = ProgramFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - id: a\n    per: [userid]\n    limit: 5/minute\n",
    );
    let validated = folder.run(&["rules", "validate", "rules.yaml"]);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let said = without_times(&server.log.wait_for("the rules are in force"));
    assert!(said.contains("did you mean `user_id`?"), "{said}");
    let url = server.url();
    let asked = folder.run(&["check", "--attr", "user=1", "--server", &url]);
    assert!(asked.stderr.contains("look at: userid"), "{}", asked.stderr);
    format!(
        "{}$ tidegate serve --rules rules.yaml\n{said}{}",
        shown(&validated, "tidegate rules validate rules.yaml"),
        shown(&asked, "tidegate check --attr user=1")
    )
}

fn data_directory() -> String {
    let folder = ProgramFolder::new();
    folder.write("data", "");
    refused(&folder.fail_to_serve(&[]), "tidegate serve --data-dir data")
}
