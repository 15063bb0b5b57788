//! A share of the clients: all requests of each, the same ones after a restart and on another server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_testkit_server::TestFolder;

use super::{lines_of, serve};

const CLIENTS: u32 = 2_000;
const SETTINGS: &str =
    "record: {file: FOLDER/r, sample: 10%, sample_by: [ip]}\nkey_secret_file: FOLDER/secret";

/// How many requests of each address are recorded of a server that is asked twice about each client.
fn recorded(folder: &TestFolder, secret: &str) -> BTreeMap<String, usize> {
    folder.write("rules.yaml", "rules: [{id: a, per: [ip], limit: 100/hour}]");
    folder.write("secret", secret);
    let before = lines_of(folder, "r").len();
    let server = serve(folder, SETTINGS, &["--rules", "rules.yaml"]);
    for _ in 0..2 {
        let ip = |number| format!("10.0.{}.{}", number / 256, number % 256);
        let checks = (0..CLIENTS).map(|number| json!({"attributes": {"ip": ip(number)}}));
        let checks: Vec<Value> = checks.collect();
        for checks in checks.chunks(1_000) {
            let batch = json!({ "checks": checks }).to_string();
            server.ask("POST /v1/check/batch", &batch).with_status(200);
        }
        // Without the attribute that distinguishes clients.
        let unknown = json!({"attributes": {"user_id": "u"}}).to_string();
        server.ask("POST /v1/check", &unknown).with_status(200);
    }
    server.stop();
    let lines = lines_of(folder, "r");
    assert_eq!(lines[0]["sample"], 0.1);
    assert_eq!(lines[0]["sample_by"], json!(["ip"]));
    let mut counts = BTreeMap::new();
    for line in lines[before..]
        .iter()
        .filter(|line| line.get("t").is_some())
    {
        let ip = line["attributes"]["ip"].as_str().unwrap().to_owned();
        *counts.entry(ip).or_default() += 1;
    }
    counts
}

#[test]
fn a_tenth_of_the_clients_is_recorded_whole_and_stays_the_same() {
    let (folder, other) = (TestFolder::new(), TestFolder::new());
    let first = recorded(&folder, "s3cret");
    let share = CLIENTS as usize / 10;
    assert!(
        (share - 50..=share + 50).contains(&first.len()),
        "{}",
        first.len()
    );
    assert!(first.values().all(|requests| *requests == 2));
    assert_eq!(recorded(&folder, "s3cret"), first, "after a restart");
    assert_eq!(recorded(&other, "s3cret"), first, "on another server");
    assert_ne!(recorded(&TestFolder::new(), "another"), first);
}
