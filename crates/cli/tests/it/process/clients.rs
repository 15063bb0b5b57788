//! An operator at a terminal: finds a client with a secret key, explains it and resets it by its digest alone.

use std::io::{BufRead as _, BufReader};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tidegate_testkit_server::PATIENCE;

use crate::server::{ProgramFolder, ProgramRun, Server};

const KEY: &str = "sk_live_0123456789abcdef";
const RULES: &str = "rules:
  - {id: per-key, per: [api_key], limit: 2/hour, tiers: {pro: 3/hour}}
  - {id: per-user, per: [user_id], limit: 100/hour, tiers: {pro: 1000/hour}}
";

fn start(folder: &ProgramFolder) -> Server {
    folder.write("rules.yaml", RULES);
    folder.write(
        "clients.yaml",
        "clients:\n  k-7Hq2xv9: {user_id: alice, tier: pro}\n",
    );
    folder.write(
        "c.yaml",
        "identify: {api_key: {header: x-api-key}, user_id: {client: user_id}, tier: {client: tier}}\nclients_file: clients.yaml\n",
    );
    folder.serve(&["--rules", "rules.yaml", "--config", "c.yaml"])
}

/// Runs a command, which never shows the secret.
fn run(folder: &ProgramFolder, server: &Server, words: &[&str]) -> ProgramRun {
    let url = format!("http://{}", server.address);
    let done = folder.run(&[words, &["--server", &url]].concat());
    assert!(!done.whole().contains(KEY), "{}", done.whole());
    done
}

fn deny(server: &Server, path: &str) {
    let attributes = json!({"api_key": KEY, "user_id": "carl", "tier": "pro", "method": "GET", "path": path, "ip": "203.0.113.7"});
    server.ask(
        "POST /v1/check",
        &json!({ "attributes": attributes }).to_string(),
    );
}

#[test]
fn a_client_with_a_secret_key_is_worked_on_by_its_digest() {
    let folder = ProgramFolder::new();
    let server = start(&folder);
    for _ in 0..5 {
        deny(&server, "/v1/orders");
    }
    let denied = run(&folder, &server, &["denied", "--rule", "per-key"]);
    assert_eq!(denied.code, Some(0), "{}", denied.whole());
    let rows: Vec<&str> = denied.stdout.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{}", denied.stdout);
    assert!(
        rows[0].contains("  over_limit  ") && rows[0].contains("  GET /v1/orders  203.0.113.7  ")
    );
    let digest = rows[0].split("api_key=").nth(1).unwrap();
    let digest = digest.split(' ').next().unwrap();
    assert!(digest.starts_with("sk_l…"), "{digest}");

    let explained = run(&folder, &server, &["explain", digest]);
    assert_eq!(explained.code, Some(1), "{}", explained.whole());
    let first = explained.stdout.lines().next().unwrap();
    assert!(first.starts_with("last seen "), "{first}");
    assert!(
        first.ends_with("GET /v1/orders from 203.0.113.7, tier pro"),
        "{first}"
    );
    let text = &explained.stdout;
    assert!(text.contains("\ndenied by rule per-key\n"), "{text}");
    assert!(text.contains("3/hour, from the tier pro"), "{text}");
    // With the key alone the tier is not known.
    let bare = run(
        &folder,
        &server,
        &["explain", "-a", &format!("api_key={digest}")],
    );
    let text = &bare.stdout;
    assert!(
        text.contains(
            "not known: the rule has the tiers pro (3/hour); to explain one, give `-a tier=pro`"
        ),
        "{text}"
    );

    let reset = run(&folder, &server, &["reset", digest, "--rule", "per-key"]);
    let expected = format!(
        "RULE     LIMIT  KEY                        USED\nper-key  3      api_key={digest}  3\n"
    );
    assert_eq!(
        (reset.code, reset.stdout.as_str()),
        (Some(0), expected.as_str())
    );
    assert_eq!(run(&folder, &server, &["explain", digest]).code, Some(0));
    for words in [["explain", "0123456789ab"], ["reset", "0123456789ab"]] {
        let unknown = run(&folder, &server, &words);
        assert_eq!(unknown.code, Some(2), "{}", unknown.whole());
        assert!(
            unknown
                .stderr
                .contains("is not a key that was seen; give the key itself")
        );
    }
    // An attribute without its flag.
    for command in ["explain", "reset"] {
        let refused = run(&folder, &server, &[command, "user_id=u1"]);
        assert_eq!(refused.code, Some(2), "{}", refused.whole());
        let tip = "; an attribute is written `-a user_id=u1`";
        assert!(refused.stderr.contains(tip), "{}", refused.stderr);
    }
    let blocked = ["override", "per-key", digest, "blocked", "--for", "1h"];
    assert_eq!(run(&folder, &server, &blocked).code, Some(0));
    let reset = run(&folder, &server, &["reset", digest, "--rule", "per-key"]);
    assert!(
        reset.stdout.contains("\nper-key  blocked  "),
        "{}",
        reset.stdout
    );
}

#[test]
fn a_raw_request_is_explained_as_the_gateway_reads_it() {
    let folder = ProgramFolder::new();
    let server = start(&folder);
    let words = [
        "explain",
        "--url",
        "https://api.example.com/v1/orders",
        "-H",
        "X-Api-Key: k-7Hq2xv9",
        "--address",
        "203.0.113.7",
    ];
    let explained = run(&folder, &server, &words);
    assert_eq!(explained.code, Some(0), "{}", explained.whole());
    let text = &explained.stdout;
    for part in [
        "user_id=alice",
        "tier=pro",
        "ip=203.0.113.7",
        "1000/hour, from the tier pro",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("k-7Hq2xv9"), "{text}");
    let twice = [
        "explain",
        "--url",
        "/x",
        "-H",
        "X-Api-Key: a",
        "-H",
        "x-api-key: b",
    ];
    let refused = run(&folder, &server, &twice);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("`api_key` is given twice"),
        "{}",
        refused.stderr
    );
}

#[test]
fn denied_requests_are_followed_each_once_and_the_newest_last() {
    let folder = ProgramFolder::new();
    let server = start(&folder);
    for path in ["/1", "/2", "/3", "/4", "/5"] {
        deny(&server, path);
    }
    let url = format!("http://{}", server.address);
    let mut child = folder.spawn(&[
        "denied", "--follow", "--json", "--limit", "1", "--rule", "per-key", "--server", &url,
    ]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["path"], "/5", "the newest of those that were there");
    for path in ["/6", "/7"] {
        deny(&server, path);
        assert_eq!(next()["path"], path);
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = tidegate_testkit::wait_until("it ends", PATIENCE, || child.try_wait().unwrap());
    assert!(!ended.success());
    assert!(lines.next().is_none(), "nothing was printed twice");
}

#[test]
fn a_client_of_a_descriptor_limit_gets_another_limit_for_a_while() {
    let folder = ProgramFolder::new();
    folder.write(
        "rules.yaml",
        "domain: web\ndescriptors:\n- key: path\n  descriptors: [{key: api_key, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let body = json!({"attributes": {"domain": "web", "path": "/v1", "api_key": KEY}}).to_string();
    let check = || server.ask("POST /v1/check", &body).status;
    assert_eq!((check(), check()), (200, 429));
    let denied = run(&folder, &server, &["denied"]);
    let digest = denied.stdout.split("api_key=").nth(1).unwrap();
    let digest = digest.split_whitespace().next().unwrap();
    let key = format!("%2Fv1/{digest}");
    let (rule, kept) = (
        "web.path.api_key",
        format!("%2Fv1/{}", &digest["sk_l…".len()..]),
    );
    let given = run(
        &folder,
        &server,
        &["override", rule, &key, "3/day", "--for", "1h"],
    );
    assert_eq!(given.code, Some(0), "{}", given.whole());
    let said = format!("{kept} gets 3/day under {rule} until ");
    assert!(given.stdout.starts_with(&said), "{}", given.stdout);
    assert_eq!((check(), check(), check()), (200, 200, 429));
    let listed = run(&folder, &server, &["override", rule]);
    assert!(listed.stdout.contains(&kept), "{}", listed.stdout);
    let explained = run(&folder, &server, &["explain", digest, "--rule", rule]);
    assert!(
        explained
            .stdout
            .contains("3/day, from a temporary override"),
        "{}",
        explained.whole()
    );
    let removed = run(&folder, &server, &["override", rule, &key, "--remove"]);
    assert_eq!(removed.code, Some(0), "{}", removed.whole());
    assert_eq!(check(), 429);
    let refused = run(
        &folder,
        &server,
        &["override", rule, digest, "3/day", "--for", "1h"],
    );
    assert_eq!(refused.code, Some(2), "{}", refused.whole());
    assert!(
        refused.stderr.contains("`PATH/API_KEY`"),
        "{}",
        refused.stderr
    );
}
