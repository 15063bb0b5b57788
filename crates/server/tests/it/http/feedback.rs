//! `POST /v1/feedback`: what callers over HTTP report moves the limits that follow the load.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;

use crate::Server;
use crate::redis::shared;
use tidegate_testkit_server::{PATIENCE, TestFolder};

const RULES: &str = "rules:
  - {id: rate, match: {path: /rate}, per: [], limit: 500/s, adaptive: {min: 5/s, max: 1000/s burst 40, target: 100ms}}
  - {id: places, match: {path: /jobs}, per: [], algorithm: concurrency, adaptive: {min: 5, max: 50, target: 100ms}}
  - {id: slow, match: {path: /slow}, per: [], adaptive: {min: 1/h, max: 2/h burst 3}}
  - {id: fixed, match: {path: /fixed}, per: [], limit: 1/s}
";

/// Asks for the whole capacity.
const ALL: &str = r#"{"attributes": {"path": "/rate"}, "cost": 40}"#;

/// The limit that a rule has now.
fn limit(server: &Server, rule: &str) -> u64 {
    let metrics = server.ask("GET /metrics", "").body;
    let name = format!("tidegate_adaptive_limit{{rule=\"{rule}\"}} ");
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(&name));
    lines.next().unwrap().parse().unwrap()
}

fn report(server: &Server, body: &Value) -> u16 {
    server.ask("POST /v1/feedback", &body.to_string()).status
}

/// Ten requests that ended in the same way, reported until the limit of the rule is as it should be.
fn report_until(server: &Server, report_of: &Value, is_reached: impl Fn(u64) -> bool) -> u64 {
    let reports = json!({ "feedback": vec![report_of; 10] });
    let rule = report_of["rule"].as_str().unwrap();
    wait_until(&format!("{report_of}"), PATIENCE, || {
        assert_eq!(report(server, &reports), 204);
        let limit = limit(server, rule);
        is_reached(limit).then_some(limit)
    })
}

/// What holds with every store.
fn check(server: &Server) {
    assert_eq!(limit(server, "rate"), 500, "where it begins");
    // Slow requests lower a rate to a part of their throughput, which is as high as the machine is fast.
    let dropped = |rule: &str| json!({"rule": rule, "dropped": true});
    let lowered = report_until(server, &dropped("rate"), |limit| limit <= 10);
    report_until(server, &dropped("places"), |limit| limit < 20);
    // The capacity does not move, and what was used stays used: what comes back in 80 ms at 500/s takes at least 4 s.
    let taken = server.ask("POST /v1/check", ALL).with_status(200).json();
    assert_eq!(
        (&taken["limit"], &taken["remaining"]),
        (&json!(40), &json!(0))
    );
    let wait = taken["limits"][0]["reset_time"].as_f64().unwrap();
    let denied = server.ask("POST /v1/check", ALL).with_status(429).json();
    assert!(denied["retry_after"].as_f64().unwrap() <= 8.0);
    assert!(denied["limits"][0]["reset_time"].as_f64().unwrap() <= wait + 0.001);
    // A rate that held requests back is raised when they are answered fast.
    let fast = json!({"rule": "rate", "latency": 0.01});
    let mut client = server.client();
    wait_until("a raised rate", PATIENCE, || {
        client.ask("POST /v1/check", ALL);
        assert_eq!(report(server, &json!({ "feedback": vec![&fast; 10] })), 204);
        (limit(server, "rate") > lowered).then_some(())
    });
}

#[test]
fn reports_move_the_limits_of_a_server_in_memory() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    check(&folder.serve(&["--rules", "rules.yaml"]));
}

#[test]
fn reports_move_the_limits_of_the_instance_that_gets_them_with_redis() {
    let redis = RedisServer::start();
    let (one, two) = (TestFolder::new(), TestFolder::new());
    let [server, other] = [&one, &two].map(|folder| {
        folder.write("rules.yaml", RULES);
        shared::serve(folder, &redis, &["--rules", "rules.yaml"])
    });
    check(&server);
    assert_eq!(limit(&other, "rate"), 500, "it has estimated nothing");
    let slow = r#"{"attributes": {"path": "/slow"}}"#;
    for (server, status) in [(&server, 200), (&other, 200), (&server, 200), (&other, 429)] {
        server.ask("POST /v1/check", slow).with_status(status);
    }
}

#[test]
fn one_bad_report_and_nothing_counts() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let good = json!({"rule": "rate", "dropped": true});
    #[rustfmt::skip]
    let table = [
        (json!({"rule": "none", "latency": 1}),                400 + 4, "feedback[20]: there is no rule `none`"),
        (json!({"rule": "fixed", "latency": 1}),               422,     "feedback[20]: the rule `fixed` does not follow the load"),
        (json!({"rule": "rate", "latency": 3600.5}),           400,     "feedback[20]: `latency` must be seconds from 0 to 3600"),
        (json!({"rule": "rate", "latency": -1}),               400,     "feedback[20]"),
        (json!({"rule": "rate"}),                              400,     "feedback[20]: `latency` is missing"),
        (json!({"rule": "rate", "latency": 1, "cost": 2}),     400,     "`cost`"),
        (json!(["rate", 1]),                                   400,     "feedback[20] must be a JSON object"),
    ];
    for _ in 0..3 {
        for (bad, status, detail) in &table {
            let mut reports = vec![good.clone(); 20];
            reports.push(bad.clone());
            let body = json!({ "feedback": reports }).to_string();
            let reply = server.ask("POST /v1/feedback", &body).with_status(*status);
            assert!(reply.detail().contains(detail), "{}", reply.detail());
        }
    }
    assert_eq!(
        report(&server, &json!({"feedback": vec![&good; 1_001]})),
        400
    );
    assert_eq!(
        report(&server, &json!({"rule": "fixed", "latency": 1})),
        422
    );
    assert_eq!(
        report(&server, &json!({"rule": "none", "dropped": true})),
        404
    );
    assert_eq!(limit(&server, "rate"), 500);
    let metrics = server.ask("GET /metrics", "").body;
    assert!(
        !metrics.contains("tidegate_adaptive_latency_seconds{"),
        "{metrics}"
    );
    assert_eq!(
        report(&server, &json!({"feedback": vec![&good; 1_000]})),
        204
    );
    assert_eq!(report(&server, &json!({"feedback": []})), 204);
}

#[test]
fn forward_auth_measures_nothing() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", &RULES.replace("match: {path: /jobs}, ", ""));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let mut client = server.client();
    for _ in 0..20 {
        client.ask("GET /v1/authorize", "").with_status(200);
    }
    assert_eq!(
        limit(&server, "places"),
        20,
        "all are in use, and none has ended"
    );
    let metrics = server.ask("GET /metrics", "").body;
    assert!(
        !metrics.contains("tidegate_adaptive_latency_seconds{"),
        "{metrics}"
    );
}
