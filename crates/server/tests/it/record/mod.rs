//! Recordings: what a server writes of its decisions, through every front end, and what it never writes.

mod bounds;
mod replayed;
mod sample;
mod secrets;

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, PATIENCE, RecordingUpstream, TestFolder};

use crate::Server;
use crate::grpc::allows;
use crate::redis::shared;
use crate::resp::Client;

const RULES: &str = "rules:
- {id: few, match: {path: /few}, per: [ip], limit: 3/hour}
- {id: all, per: [], limit: 1000/hour, mode: shadow}
";

/// A server that records to `r` in the folder, with these settings and flags.
fn serve(folder: &TestFolder, settings: &str, arguments: &[&str]) -> Server {
    folder.write("c.yaml", &settings.replace("FOLDER/", &folder.file("")));
    let arguments = [&["--config", "c.yaml"], arguments].concat();
    folder.serve(&arguments)
}

/// The lines of a file so far: its header, then the others.
fn lines_of(folder: &TestFolder, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path(name)).unwrap_or_default();
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The lines of the recording, once there are so many.
fn wait_for_lines(folder: &TestFolder, count: usize) -> Vec<Value> {
    wait_until(&format!("{count} lines"), PATIENCE, || {
        let lines = lines_of(folder, "r");
        (lines.len() >= count).then_some(lines)
    })
}

fn check(server: &Server, body: &Value) -> Value {
    server.ask("POST /v1/check", &body.to_string()).json()
}

/// The entries of `limits` in an answer, as a recording has them.
fn recorded_limits(answer: &Value) -> Value {
    let limits = answer["limits"].as_array().unwrap().iter().map(|limit| {
        let mut kept = json!({"rule": limit["rule"], "allowed": limit["allowed"]});
        if limit["shadow"] == true {
            kept["shadow"] = json!(true);
        }
        kept
    });
    limits.collect()
}

/// Asks without taking anything, and brings a limit of its own.
fn only_ask(server: &Server, few: &Value) {
    let mut peek = few.clone();
    peek["cost"] = json!(0);
    check(server, &peek);
    let explained = server.ask("POST /v1/explain", &few.to_string());
    explained.with_status(200);
    let mut resp = Client::to(server);
    resp.ask("CL.THROTTLE k 5 5 60");
    resp.ask("TG.CHECK ip 192.0.2.1 path /few COST 0");
}

#[test]
fn every_front_end_is_recorded_and_what_only_asks_is_not() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    folder.write("rules.yaml", RULES);
    let settings = "record: FOLDER/r\ntrusted_proxies: [127.0.0.1]\n";
    let to = format!("http://{}", upstream.address);
    #[rustfmt::skip]
    let arguments = [
        "--rules", "rules.yaml", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0",
        "--gateway", "127.0.0.1:0", "--upstream", &to,
    ];
    let server = serve(&folder, settings, &arguments);
    let few = json!({"attributes": {"ip": "192.0.2.1", "path": "/few?x=1", "user_id": "u"}});
    let mut answers = vec![check(&server, &few)];
    let batch = json!({"checks": [few, {"attributes": {}, "cost": 5}]}).to_string();
    let batch = server.ask("POST /v1/check/batch", &batch).json();
    answers.extend(batch["decisions"].as_array().unwrap().iter().cloned());
    answers.push(server.ask("POST /v1/reserve", &few.to_string()).json());
    answers.push(check(&server, &few));
    assert_eq!(answers[4]["allowed"], false);
    only_ask(&server, &few);
    let mut resp = Client::to(&server);
    // The others.
    let headers = [
        ("x-forwarded-for", "192.0.2.2"),
        ("x-forwarded-uri", "/few?token=hidden"),
    ];
    server
        .ask_with("GET /v1/authorize", &headers, "")
        .with_status(200);
    let mut gateway = HttpClient::to(server.gateway.unwrap());
    gateway
        .ask("GET /few/../few?token=hidden", "")
        .with_status(200);
    assert!(allows(&server, &["ip=192.0.2.3 path=/few user=hidden"]));
    assert!(allows(&server, &["ip=192.0.2.3 path=/few", "ip=192.0.2.4"]));
    resp.ask("TG.CHECK ip 192.0.2.5 path /few COST 2");
    resp.ask("TG.RESERVE ip 192.0.2.5 path /few COST 2");
    server.stop();

    let lines = lines_of(&folder, "r");
    let version = env!("CARGO_PKG_VERSION");
    let header = json!({
        "tidegate_record": 1, "version": version, "rules_version": 1, "attributes": ["ip", "path"],
        "secret": ["api_key"], "sample": 1, "sample_by": null,
    });
    assert_eq!(lines[0], header);
    assert!(!format!("{lines:?}").contains("hidden"));
    let of = |ip: &str| json!({"ip": ip, "path": "/few"});
    #[rustfmt::skip]
    let table = [
        ("http",        of("192.0.2.1"),    1, true),
        ("http",        of("192.0.2.1"),    1, true),
        ("http",        json!({}),          5, true),
        ("http",        of("192.0.2.1"),    1, true),
        ("http",        of("192.0.2.1"),    1, false),
        ("authorize",   of("192.0.2.2"),    1, true),
        ("gateway",     of("127.0.0.1"),    1, true),
        ("grpc",        of("192.0.2.3"),    1, true),
        ("grpc",        Value::Null,        0, true),
        ("resp",        of("192.0.2.5"),    2, true),
        ("resp",        of("192.0.2.5"),    2, false),
    ];
    assert_eq!(lines.len(), 1 + table.len(), "{lines:#?}");
    let mut latest = 0.0;
    for (line, (front_end, attributes, cost, allowed)) in lines[1..].iter().zip(table) {
        assert_eq!(line["front_end"], front_end, "{line}");
        if attributes.is_null() {
            let parts = json!([
                {"attributes": {"ip": "192.0.2.3", "path": "/few"}, "cost": 1},
                {"attributes": {"ip": "192.0.2.4"}, "cost": 1},
            ]);
            assert_eq!((&line["parts"], line.get("attributes")), (&parts, None));
            assert_eq!(line["limits"].as_array().unwrap().len(), 3);
        } else {
            assert_eq!(
                (&line["attributes"], &line["cost"]),
                (&attributes, &json!(cost))
            );
        }
        assert_eq!(line["allowed"], allowed, "{line}");
        let reason = if allowed {
            Value::Null
        } else {
            json!("over_limit")
        };
        assert_eq!(line["reason"], reason, "{line}");
        let at = line["t"].as_f64().unwrap();
        assert!(at >= latest && at > 1.7e9, "{line}");
        latest = at;
    }
    for (line, answer) in lines[1..].iter().zip(&answers) {
        assert_eq!(
            (&line["allowed"], &line["rule"]),
            (&answer["allowed"], &answer["rule"])
        );
        assert_eq!(line["limits"], recorded_limits(answer));
    }
}

#[test]
fn costs_by_unit_are_recorded_and_the_time_is_that_of_the_decision() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules: [{id: a, per: [], unit: tokens, limit: 100/hour}]",
    );
    let arguments = ["--rules", "rules.yaml", "--trust-timestamps"];
    let server = serve(&folder, "record: {file: FOLDER/r}", &arguments);
    let at = 1_794_770_000.000_05;
    let costs = json!({"tokens": 60, "input_tokens": 20});
    let reserve = json!({"attributes": {}, "costs": costs, "timestamp": at});
    server
        .ask("POST /v1/reserve", &reserve.to_string())
        .with_status(200);
    check(
        &server,
        &json!({"attributes": {}, "costs": {"tokens": 50}, "timestamp": at + 1.0}),
    );
    check(&server, &json!({"attributes": {}, "timestamp": at + 2.0}));
    server.stop();
    let text = std::fs::read_to_string(folder.path("r")).unwrap();
    let times: Vec<&str> = text.lines().skip(1).map(|line| &line[..22]).collect();
    assert_eq!(
        times,
        [
            r#"{"t":1794770000.000050"#,
            r#"{"t":1794770001.000050"#,
            r#"{"t":1794770002.000050"#
        ]
    );
    let lines = lines_of(&folder, "r");
    assert_eq!((&lines[1]["costs"], lines[1].get("cost")), (&costs, None));
    assert_eq!(
        (&lines[2]["costs"], &lines[2]["allowed"]),
        (&json!({"tokens": 50}), &json!(false))
    );
    assert_eq!(
        (&lines[3]["cost"], lines[3].get("costs")),
        (&json!(1), None)
    );
}

#[test]
fn a_change_of_the_rules_is_marked_and_what_they_read_is_recorded() {
    let folder = TestFolder::new();
    let server = serve(&folder, "record: FOLDER/r", &[]);
    let put = |rules: &Value| {
        let rules = json!({ "rules": rules }).to_string();
        server.ask("PUT /v1/rules", &rules).with_status(200);
    };
    let asked = json!({"attributes": {"user_id": "u", "plan": "p"}});
    // Before the first line the header has the rules in force.
    put(&json!([{"id": "a", "per": ["user_id"], "limit": "5/hour"}]));
    check(&server, &asked);
    put(&json!([{"id": "a", "per": ["plan"], "limit": "5/hour"}]));
    check(&server, &asked);
    let override_ = json!({"key": "p", "limit": "9/hour", "ttl": "1h"}).to_string();
    server.ask("POST /v1/rules/a/overrides", &override_);
    check(&server, &asked);
    server.stop();
    let lines = lines_of(&folder, "r");
    assert_eq!(lines[0]["rules_version"], 1);
    assert_eq!(lines[0]["attributes"], json!(["user_id"]));
    assert_eq!(lines[1]["attributes"], json!({"user_id": "u"}));
    assert_eq!(lines[2], json!({"rules_version": 2}));
    assert_eq!(lines[3]["attributes"], json!({"plan": "p"}));
    assert_eq!(
        lines[4]["attributes"],
        json!({"plan": "p"}),
        "no mark for temporary overrides"
    );
}

#[test]
fn decisions_over_redis_are_recorded_with_its_time() {
    let (folder, redis) = (TestFolder::new(), RedisServer::start());
    folder.write("c.yaml", &format!("record: {}", folder.file("r")));
    let server = shared::serve(&folder, &redis, &["--config", "c.yaml"]);
    let rules = json!({"rules": [{"id": "a", "per": ["user_id"], "limit": "1/hour"}]});
    server
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    let answers = [0, 1].map(|_| check(&server, &json!({"attributes": {"user_id": "u"}})));
    server.stop();
    let lines = lines_of(&folder, "r");
    assert_eq!(lines[0]["attributes"], json!(["user_id"]));
    for (line, answer) in lines[1..].iter().zip(answers) {
        assert_eq!(line["limits"], recorded_limits(&answer));
        assert_eq!(line["allowed"], answer["allowed"]);
    }
    assert_eq!(lines.len(), 3);
    assert!(lines[1]["t"].as_f64() < lines[2]["t"].as_f64());
}
