//! A server that is killed while it writes rules comes back with the rules that it acknowledged last, or
//! with those of the write that was under way: never with a mix, never with older ones.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::random::Random;
use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::HttpClient;

/// How many writes are acknowledged in all.
const WRITES: u64 = 1_000;

/// A version of the rules: its number and what it says.
type Version = (u64, Vec<Value>);

/// The state that the server must have, as far as the writer knows.
struct Model {
    /// Every version that was acknowledged or found, by its number.
    versions: BTreeMap<u64, Vec<Value>>,
    /// The version that the write under way creates.
    under_way: Option<Version>,
    /// How many writes there were, which distinguishes versions.
    serial: u64,
    random: Random,
}

/// One write, and the rules after it.
struct Write {
    call: String,
    body: String,
    rules: Vec<Value>,
}

#[test]
fn a_server_that_is_killed_while_it_writes_comes_back_with_one_whole_version() {
    let folder = ProgramFolder::new();
    let mut model = Model {
        versions: BTreeMap::from([(0, Vec::new())]),
        under_way: None,
        serial: 0,
        random: Random::new(),
    };
    let mut acknowledged = 0;
    while acknowledged < WRITES {
        let server = folder.serve_with(&[], &[("TIDEGATE_LOG_LEVEL", "warn")]);
        model.compare(&mut server.client());
        let log = std::sync::Arc::clone(&server.log);
        acknowledged += write_until_killed(server, &mut model);
        // An empty set is worth one, and nothing else is.
        let log = log.text();
        let mut lines = log.lines();
        assert!(
            lines.all(|line| line.contains("there are no rules")),
            "{log}"
        );
    }
    model.compare(&mut folder.serve(&[]).client());
}

/// Writes until the server does not answer any more. The server is killed at some moment in or between writes.
fn write_until_killed(server: Server, model: &mut Model) -> u64 {
    let first = 10 + model.random.below(70);
    let pause = Duration::from_micros(model.random.below(8_000));
    let (begin, beginning) = channel();
    let pid = server.pid();
    let killer = thread::spawn(move || {
        beginning.recv().unwrap();
        // Not for a result: to be at a random moment.
        thread::sleep(pause);
        kill_process(pid, Signal::KILL).unwrap();
    });
    let mut client = server.client();
    let mut acknowledged = 0;
    while model.write(&mut client) {
        acknowledged += 1;
        if acknowledged == first {
            begin.send(()).unwrap();
        }
    }
    killer.join().unwrap();
    server.kill();
    acknowledged
}

impl Model {
    fn current(&self) -> Version {
        let (version, rules) = self.versions.last_key_value().unwrap();
        (*version, rules.clone())
    }

    /// One write. False if it was not acknowledged because the server is gone.
    fn write(&mut self, client: &mut HttpClient) -> bool {
        let Write { call, body, rules } = self.next();
        let (version, before) = self.current();
        // Going back is a change of its own, also to what is there.
        let after = if rules == before && !call.contains("rollback") {
            version
        } else {
            version + 1
        };
        self.under_way = Some((after, rules.clone()));
        let Ok(reply) = client.try_ask(&call, &[], &body) else {
            return false;
        };
        assert!(
            matches!(reply.status, 200 | 201 | 204),
            "{call} {body}: {reply:?}"
        );
        self.under_way = None;
        self.versions.insert(after, rules);
        true
    }

    fn next(&mut self) -> Write {
        self.serial += 1;
        let (_, mut rules) = self.current();
        let rule = |id: String| {
            let serial = self.serial;
            json!({"id": id, "description": format!("write {serial}"), "match": {"path": format!("/{id}")}, "per": ["ip"], "limit": format!("{serial}/minute")})
        };
        match self.random.below(8) {
            // The same ids again, so that a mix of two versions would be seen.
            0..=2 => {
                let count = 1 + self.random.below(12);
                let rules: Vec<Value> = (0..count).map(|index| rule(format!("r{index}"))).collect();
                Write {
                    call: "PUT /v1/rules".to_owned(),
                    body: json!({ "rules": rules }).to_string(),
                    rules,
                }
            }
            3..=4 => {
                let rule = rule(format!("p{}", self.serial));
                rules.push(rule.clone());
                Write {
                    call: "POST /v1/rules".to_owned(),
                    body: rule.to_string(),
                    rules,
                }
            }
            5..=6 if !rules.is_empty() => {
                let folder = self.random.below(rules.len() as u64);
                let removed = rules.remove(usize::try_from(folder).unwrap());
                Write {
                    call: format!("DELETE /v1/rules/{}", removed["id"].as_str().unwrap()),
                    body: String::new(),
                    rules,
                }
            }
            _ => {
                // The newest hundred are kept. There is no version 0 to go back to.
                let kept: Vec<u64> = self.versions.keys().rev().take(99).copied().collect();
                let kept: Vec<u64> = kept.into_iter().filter(|version| *version > 0).collect();
                if kept.is_empty() {
                    return self.next();
                }
                let folder = usize::try_from(self.random.below(kept.len() as u64)).unwrap();
                let version = kept[folder];
                Write {
                    call: "POST /v1/rules/rollback".to_owned(),
                    body: json!({ "version": version }).to_string(),
                    rules: self.versions[&version].clone(),
                }
            }
        }
    }

    /// What the server has after a start against what it may have.
    fn compare(&mut self, client: &mut HttpClient) {
        let body = client.ask("GET /v1/rules", "").written();
        let rules = body["rules"].as_array().unwrap().clone();
        let found = (body["version"].as_u64().unwrap(), rules);
        let acknowledged = self.current();
        let under_way = self.under_way.take();
        assert!(
            found == acknowledged || Some(&found) == under_way.as_ref(),
            "found {found:?}\nacknowledged {acknowledged:?}\nunder way {under_way:?}"
        );
        let history = client.ask("GET /v1/rules/history", "").json();
        let newest = &history["history"][0]["version"];
        if found.0 > 0 {
            assert_eq!(newest, found.0, "{history}");
        }
        self.versions.insert(found.0, found.1);
    }
}
