//! What is logged: readable by machines, and never who asked.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::ProgramFolder;

const DENIALS: u32 = 1_000;
const SECRETS: [&str; 2] = ["user-7f3a", "203.0.113.7"];

#[test]
fn a_burst_of_denials_is_a_few_lines_of_json_without_a_key() {
    let folder = ProgramFolder::new();
    let rules = "rules:\n  - {id: closed, per: [user_id, ip], missing: deny, limit: 1/hour}\n";
    folder.write("rules.yaml", rules);
    let arguments = [
        "--rules",
        "rules.yaml",
        "--log-format",
        "json",
        "--log-level",
        "debug",
    ];
    let server = folder.serve(&arguments);
    let mut client = server.client();
    let [user, ip] = SECRETS;
    let body = json!({"attributes": {"user_id": user, "ip": ip}}).to_string();
    client.ask("POST /v1/check", &body).with_status(200);
    for _ in 0..DENIALS {
        client.ask("POST /v1/check", &body).with_status(429);
    }
    server.signal(Signal::TERM);
    let (_, log) = server.ended();

    for secret in SECRETS {
        assert!(!log.contains(secret), "{log}");
    }
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
    }
    let denied: Vec<&Value> = lines
        .iter()
        .filter(|line| line["message"] == "denied")
        .collect();
    assert!((20..200).contains(&denied.len()), "{} lines", denied.len());
    for line in &denied {
        assert_eq!(
            (&line["rule"], &line["level"]),
            (&json!("closed"), &json!("INFO")),
            "{line}"
        );
        assert_eq!(line["reason"], "over_limit", "{line}");
        assert!(line.get("missing").is_none(), "{line}");
        let key = line["key"].as_str().unwrap();
        assert_eq!(
            (key.len(), &line["key"]),
            (25, &denied[0]["key"]),
            "a digest of each value, the same for one client"
        );
    }
    let others = lines.len() - denied.len();
    assert!(others < 20, "{log}");
}

#[test]
fn other_clients_have_other_hashes_in_the_log() {
    let folder = ProgramFolder::new();
    let rules = "rules:\n  - {id: closed, per: [user_id], missing: deny, limit: blocked}\n";
    folder.write("rules.yaml", rules);
    let server = folder.serve(&["--rules", "rules.yaml", "--log-format", "json"]);
    for user in ["a", "b"] {
        let body = json!({"attributes": {"user_id": user}}).to_string();
        server.ask("POST /v1/check", &body).with_status(429);
    }
    let log = server.log.wait_for_times("denied", 2);
    let mut keys: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["message"] == "denied")
        .inspect(|line| assert_eq!(line["retry_after"], "never"))
        .map(|line| line["key"].clone())
        .collect();
    keys.dedup();
    assert_eq!(keys.len(), 2, "{log}");
}
