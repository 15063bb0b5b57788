//! Metrics are an interface: their names and labels are held fast, and no client can add to them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;
use tidegate_testkit::HttpServer;
use tidegate_testkit::redis::RedisServer;

use crate::Server;
use crate::resp;
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::TestFolder;

/// A value that must turn up nowhere.
const CLIENT: &str = "client-7f3a";

/// A server on which everything has happened once that is counted.
fn serve_and_ask(folder: &TestFolder) -> Server {
    ask(folder.serve(&[]))
}

fn ask(server: Server) -> Server {
    let mut client = server.client();
    let rules = json!({"rules": [
        {"id": "per-user", "per": ["user_id"], "limit": "2/hour", "match": {"path": "/v1/**"}},
        {"id": "tried", "per": ["user_id"], "limit": "1/hour", "mode": "shadow", "match": {"path": "/v1/**"}},
        {"id": "bytes", "per": ["user_id"], "limit": "9/hour", "cost": {"attribute": "bytes"}, "match": {"path": "/v1/**"}},
        {"id": "eu", "per": [], "limit": "9/hour", "match": {"when": "attributes[\"none\"] == \"eu\""}},
        {"id": "upstream", "per": [], "algorithm": "concurrency", "adaptive": {"min": 1, "max": 9}, "match": {"path": "/jobs"}},
        {"id": "jobs", "per": ["user_id"], "limit": 5, "algorithm": "concurrency", "match": {"path": "/jobs"}},
    ]});
    client
        .ask("PUT /v1/rules", &rules.to_string())
        .with_status(200);
    for path in ["/v1/a", "/v1/a", "/v1/a", "/jobs", "/none"] {
        let path = format!("{path}?{CLIENT}");
        let attributes = json!({"user_id": CLIENT, "path": path, "bytes": CLIENT, "host": CLIENT, CLIENT: CLIENT});
        client.ask(
            "POST /v1/check",
            &json!({ "attributes": attributes }).to_string(),
        );
    }
    client.ask(&format!("GET /{CLIENT}"), "").with_status(404);
    server
}

#[test]
fn names_and_labels_of_metrics_are_an_interface() {
    let folder = TestFolder::new();
    insta::assert_snapshot!(names(&serve_and_ask(&folder)));
}

#[test]
fn with_redis_there_are_metrics_of_redis() {
    let redis = RedisServer::start();
    let folder = TestFolder::new();
    let deadline = [("TIDEGATE_REDIS_DEADLINE", "5s")];
    let server = ask(folder.serve_with(&["--redis", &redis.url()], &deadline));
    insta::assert_snapshot!(names(&server));
    let metrics = server.ask("GET /metrics", "").body;
    let has = |line: &str| metrics.lines().any(|known| known == line);
    assert!(has("tidegate_redis_up 1"), "{metrics}");
    assert!(has("tidegate_redis_failures_total 0"), "{metrics}");
    assert!(!has("tidegate_redis_calls_total 0"), "{metrics}");
    assert!(
        has("tidegate_rules_version 1") && has("tidegate_rules_stale 0"),
        "{metrics}"
    );
}

/// The names and labels of all metrics, without their values.
fn names(server: &Server) -> String {
    let reply = server.ask("GET /metrics", "").with_status(200);
    assert!(!reply.body.contains(CLIENT), "{}", reply.body);
    // Within a metric the order of the lines does not matter.
    let mut lines = BTreeSet::new();
    let mut page = String::new();
    for line in reply.body.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            page.extend(std::mem::take(&mut lines));
            let _ = writeln!(page, "{kind}");
        } else if !line.starts_with('#') {
            lines.insert(format!("  {}\n", without_value(line)));
        }
    }
    page.extend(std::mem::take(&mut lines));
    page
}

/// A line without its value, and without the bounds of a histogram.
fn without_value(line: &str) -> String {
    let (name, _) = line.rsplit_once(' ').unwrap();
    match name.split_once("{le=\"") {
        Some((name, _)) => format!("{name}{{le=\"…\"}}"),
        None => name.replace(env!("CARGO_PKG_VERSION"), "…"),
    }
}

#[test]
fn what_happened_is_counted() {
    let folder = TestFolder::new();
    let metrics = serve_and_ask(&folder).ask("GET /metrics", "").body;
    for line in [
        r#"tidegate_decisions_total{rule="per-user",front_end="http",verdict="allowed"} 2"#,
        r#"tidegate_decisions_total{rule="per-user",front_end="http",verdict="denied"} 1"#,
        r#"tidegate_decisions_total{rule="tried",front_end="http",verdict="shadow_allowed"} 1"#,
        r#"tidegate_decisions_total{rule="tried",front_end="http",verdict="shadow_denied"} 2"#,
        r#"tidegate_denied_total{rule="per-user",reason="over_limit"} 1"#,
        "tidegate_unmatched_total 1",
        "tidegate_rules 6",
        "tidegate_rules_version 1",
        "tidegate_leases 1",
        "tidegate_decision_seconds_count 5",
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is not in\n{metrics}"
        );
    }
}

/// Every front end is timed: there is one place where that happens.
#[test]
fn decisions_of_every_front_end_are_timed() {
    let folder = TestFolder::new();
    let behind = folder.serve(&[]);
    let url = behind.url();
    let arguments = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let others = ["--resp", "127.0.0.1:0", "--data-dir", "other"];
    let server = folder.serve(&[arguments, others].concat());
    let timed = |expected: u64, what: &str| {
        let metrics = server.ask("GET /metrics", "").body;
        let line = format!("tidegate_decision_seconds_count {expected}");
        assert!(
            metrics.lines().any(|known| known == line),
            "{what}: {metrics}"
        );
    };
    server
        .ask("POST /v1/check", r#"{"attributes": {}}"#)
        .with_status(200);
    timed(1, "the HTTP API");
    server.ask("GET /v1/authorize", "").with_status(200);
    timed(2, "forward-auth");
    HttpClient::to(server.gateway.unwrap())
        .ask("GET /healthz", "")
        .with_status(200);
    timed(3, "the gateway");
    let mut redis = resp::Client::to(&server);
    redis.ask("CL.THROTTLE key 1 1 60");
    timed(4, "CL.THROTTLE");
    redis.ask("TG.CHECK path /v1/a");
    timed(5, "TG.CHECK");
}

/// An alert on `increase()` does not see a counter that appears with its first event.
#[test]
fn counters_of_rules_exist_at_zero_from_the_start() {
    let folder = TestFolder::new();
    let rules = "rules:
- {id: plain, per: [user_id], missing: deny, limit: 5/minute, on_store_failure: deny, overrides: {x: blocked}}
- {id: tried, per: [], limit: 5/minute, mode: shadow}
";
    folder.write("rules.yaml", rules);
    let server = folder.serve(&["--rules", "rules.yaml", "--resp", "127.0.0.1:0"]);
    let metrics = server.ask("GET /metrics", "").body;
    let mut expected = vec![
        r#"tidegate_degraded_total{rule="plain",mode="deny"} 0"#.to_owned(),
        r#"tidegate_degraded_total{rule="tried",mode="local"} 0"#.to_owned(),
        r#"tidegate_throttles_total{verdict="denied"} 0"#.to_owned(),
        r#"tidegate_token_refused_total{front_end="http",reason="unknown"} 0"#.to_owned(),
    ];
    for rule in ["plain", "tried"] {
        for name in ["condition_failures", "unread_costs"] {
            expected.push(format!(r#"tidegate_{name}_total{{rule="{rule}"}} 0"#));
        }
    }
    for reason in [
        "over_limit",
        "blocked",
        "missing_attribute",
        "too_expensive",
        "store_unavailable",
    ] {
        expected.push(format!(
            r#"tidegate_denied_total{{rule="plain",reason="{reason}"}} 0"#
        ));
    }
    for front_end in ["http", "authorize", "resp"] {
        for (rule, verdict) in [
            ("plain", "allowed"),
            ("plain", "denied"),
            ("tried", "shadow_allowed"),
            ("tried", "shadow_denied"),
        ] {
            expected.push(format!(
                r#"tidegate_decisions_total{{rule="{rule}",front_end="{front_end}",verdict="{verdict}"}} 0"#
            ));
        }
    }
    for line in expected {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is not in\n{metrics}"
        );
    }
    // What cannot happen is not there.
    for impossible in [
        r#"front_end="gateway""#,
        r#"front_end="library""#,
        r#"tidegate_decisions_total{rule="plain",front_end="http",verdict="shadow_denied"}"#,
        r#"tidegate_denied_total{rule="tried""#,
    ] {
        assert!(
            !metrics.contains(impossible),
            "{impossible} is in\n{metrics}"
        );
    }
}

/// The page lists every counter, and its labels are those of the rows.
#[test]
fn every_counter_with_labels_exists_from_the_start() {
    let folder = TestFolder::new();
    let issuer = HttpServer::start();
    let config = format!(
        "identify: {{user_id: {{jwt: sub}}}}\njwt: {{jwks_url: \"http://{}/keys\"}}\n",
        issuer.address()
    );
    folder.write("tidegate.yaml", &config);
    folder.write(
        "rules.yaml",
        "rules: [{id: r, per: [user_id], unit: tokens, limit: 5/minute, candidate: 3/minute, warn_at: 80}]",
    );
    let files = ["--config", "tidegate.yaml", "--rules", "rules.yaml"];
    let gateway = [
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:9",
    ];
    let resp = ["--resp", "127.0.0.1:0"];
    let server = folder.serve(&[&files[..], &gateway, &resp].concat());
    let metrics = server.ask("GET /metrics", "").body;
    let has = |start: &str| metrics.lines().any(|line| line.starts_with(start));

    let page = include_str!("../../../../../docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, "counter", labels, meaning, _] = cells[..] else {
            return None;
        };
        (!labels.is_empty()).then_some((name.trim_matches('`'), meaning))
    });
    let rows: Vec<(&str, &str)> = rows.collect();
    assert!(rows.len() > 10, "{rows:?}");
    // That of a management server is there only with one.
    let is_here = |name: &str| !name.starts_with("tidegate_xds_");
    for (name, _) in rows.iter().filter(|(name, _)| is_here(name)) {
        assert!(has(&format!("{name}{{")), "{name} is not in\n{metrics}");
    }
    let (_, meaning) = rows
        .iter()
        .find(|(name, _)| *name == "tidegate_jwt_refused_total")
        .unwrap();
    let reasons: Vec<&str> = meaning.split('`').skip(1).step_by(2).collect();
    assert_eq!(reasons.len(), 10);
    for reason in reasons {
        let line = format!("tidegate_jwt_refused_total{{reason=\"{reason}\"}} 0");
        assert!(has(&line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn above_a_thousand_rules_a_series_begins_with_its_first_event() {
    let folder = TestFolder::new();
    let rule = |index: u32| json!({"id": format!("r{index}"), "per": [], "limit": "5/minute", "match": {"path": format!("/{index}")}});
    let rules = |count: u32| json!({"rules": (0..count).map(rule).collect::<Vec<_>>()}).to_string();
    let server = folder.serve(&[]);
    let mut client = server.client();
    let decisions = |client: &mut tidegate_testkit_server::HttpClient| {
        let metrics = client.ask("GET /metrics", "").body;
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("tidegate_decisions_total{"));
        lines.count()
    };
    client.ask("PUT /v1/rules", &rules(1_000)).with_status(200);
    assert!(decisions(&mut client) >= 4_000);
    client.ask("PUT /v1/rules", &rules(1_001)).with_status(200);
    assert_eq!(decisions(&mut client), 0);
    client
        .ask("POST /v1/check", r#"{"attributes": {"path": "/7"}}"#)
        .with_status(200);
    assert_eq!(decisions(&mut client), 1);
}

#[test]
fn metrics_come_in_the_form_that_is_asked_for() {
    let folder = TestFolder::new();
    let server = serve_and_ask(&folder);
    let plain = server.ask("GET /metrics", "").with_status(200);
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(plain.header("content-type"), Some(media_type));
    let line = "# TYPE tidegate_decisions_total counter\n";
    assert!(plain.body.contains(line), "{}", plain.body);

    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let open = server.ask_with("GET /metrics", &[("accept", prometheus)], "");
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(media_type));
    let line = "# TYPE tidegate_decisions counter\n";
    assert!(open.body.contains(line), "{}", open.body);
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
}

#[test]
fn promtool_finds_nothing_wrong() {
    let checking = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut checking) = checking else {
        println!("promtool is not installed: it is in the Debian package `prometheus`");
        return;
    };
    let folder = TestFolder::new();
    let metrics = serve_and_ask(&folder).ask("GET /metrics", "").body;
    let mut stdin = checking.stdin.take().unwrap();
    stdin.write_all(metrics.as_bytes()).unwrap();
    drop(stdin);
    let output = checking.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        output.status.success() && said.is_empty(),
        "{said}\n{metrics}"
    );
}
