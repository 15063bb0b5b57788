//! Live activity: counts over time, top keys, and the stream of both.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder, request};

use crate::Server;
use crate::redis::shared::check;

const RULES: &str = "
rules:
  - {id: per-user, match: {path: /v1/**}, per: [user_id], limit: 3/hour}
  - {id: per-key, match: {path: /v1/**}, per: [api_key], limit: 1000/23h, mode: shadow}
  - {id: try, match: {path: /v1/**}, per: [user_id], limit: 1/hour, mode: shadow}
  - {id: costly, match: {path: /costly}, per: [user_id, method], limit: 100/23h, overrides: {bad: blocked}}
";

fn serve(folder: &TestFolder) -> Server {
    folder.write("rules.yaml", RULES);
    folder.serve(&["--rules", "rules.yaml", "--resp", "127.0.0.1:0"])
}

fn get(server: &Server, call: &str) -> Value {
    server
        .ask(&format!("GET {call}"), "")
        .with_status(200)
        .json()
}

fn sum(series: &Value) -> u64 {
    let counts = series.as_array().unwrap();
    counts.iter().map(|count| count.as_u64().unwrap()).sum()
}

/// Allowed, denied, shadow-denied, delayed, degraded, cost.
fn sums(series: &Value) -> [u64; 6] {
    let names = [
        "allowed",
        "denied",
        "shadow_denied",
        "delayed",
        "degraded",
        "cost",
    ];
    names.map(|name| sum(&series[name]))
}

fn rule<'v>(activity: &'v Value, id: &str) -> &'v Value {
    let rules = activity["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["rule"] == id).unwrap()
}

#[test]
fn requests_are_counted_in_total_and_by_each_rule() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for _ in 0..5 {
        check(&server, &json!({"path": "/v1/a", "user_id": "u1"}));
    }
    check(&server, &json!({"path": "/other"})).with_status(200);
    let costly =
        json!({"attributes": {"path": "/costly", "method": "GET", "user_id": "u1"}, "cost": 7});
    server
        .ask("POST /v1/check", &costly.to_string())
        .with_status(200);
    let mut resp = TcpStream::connect(server.resp.unwrap()).unwrap();
    for _ in 0..2 {
        resp.write_all(b"CL.THROTTLE k 0 1 86400\r\n").unwrap();
        let mut reply = [0; 4];
        resp.read_exact(&mut reply).unwrap();
    }
    // What is counted of the Redis protocol is added after the reply.
    wait_until("all are counted", PATIENCE, || {
        let denied = sums(&get(&server, "/v1/activity")["total"])[1];
        (denied == 3).then_some(())
    });

    for (call, step, steps) in [
        ("/v1/activity", 1, 300),
        ("/v1/activity?window=1m&scope=instance", 1, 60),
        ("/v1/activity?window=1h&scope=all", 60, 60),
        ("/v1/activity?window=24h", 60, 1_440),
    ] {
        let activity = get(&server, call);
        assert_eq!(activity["step"], step, "{call}");
        assert_eq!(activity["from"].as_u64().unwrap() % step, 0);
        assert_eq!(
            activity["total"]["allowed"].as_array().unwrap().len(),
            steps
        );
        // 3 of 5, the one without a rule, the costly one; one of two of CL.THROTTLE.
        assert_eq!(sums(&activity["total"]), [6, 3, 4, 0, 0, 3 + 1 + 7 + 1]);
        assert_eq!(sums(rule(&activity, "per-user")), [3, 2, 0, 0, 0, 3]);
        assert_eq!(sums(rule(&activity, "try")), [1, 0, 4, 0, 0, 1]);
        assert_eq!(sums(rule(&activity, "costly")), [1, 0, 0, 0, 0, 7]);
        assert_eq!(
            activity["rules"].as_array().unwrap().len(),
            3,
            "per-key was not used"
        );
        assert_eq!(
            activity["rules"][0]["rule"], "try",
            "the most denials first"
        );
        assert_eq!(activity["rules_left_out"], 0);
        assert_eq!(activity["instances"][0]["age"], 0);
        assert_eq!(activity["changes"][0]["version"], 1);
    }
    let one = get(&server, "/v1/activity?limit=1");
    assert_eq!(
        (
            one["rules"].as_array().unwrap().len(),
            &one["rules_left_out"]
        ),
        (1, &json!(2))
    );
}

/// Rules that allow what another one denies would have more than there is in all.
#[test]
fn no_rule_allows_more_than_there_is_in_all() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:
  - {id: global, per: [], limit: 1000/23h}
  - {id: per-user, per: [user_id], limit: 2/hour}
",
    );
    let server = folder.serve(&["--rules", "rules.yaml"]);
    for user in ["u1", "u1", "u1", "u1", "u2"] {
        check(&server, &json!({"path": "/a", "user_id": user}));
    }
    let activity = get(&server, "/v1/activity");
    assert_eq!(sums(&activity["total"]), [3, 2, 0, 0, 0, 3]);
    assert_eq!(sums(rule(&activity, "per-user")), [3, 2, 0, 0, 0, 3]);
    assert_eq!(sums(rule(&activity, "global")), [3, 0, 0, 0, 0, 3]);
    // The metric has what each rule said.
    let metrics = server.ask("GET /metrics", "").body;
    let said = r#"tidegate_decisions_total{rule="global",front_end="http",verdict="allowed"} 5"#;
    assert!(metrics.contains(said), "{metrics}");
}

#[test]
fn the_top_keys_of_a_rule_are_named_by_their_attributes() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for (user, count) in [
        ("u1", 5),
        ("u2", 10),
        ("<img src=x onerror=alert(1)>", 6),
        ("\u{1b}[2J", 4),
    ] {
        for _ in 0..count {
            check(&server, &json!({"path": "/v1/a", "user_id": user}));
        }
    }
    for user in ["bad", "bad", "u1"] {
        check(
            &server,
            &json!({"path": "/costly", "method": "GET", "user_id": user}),
        );
    }
    let keys = get(&server, "/v1/rules/per-user/keys?sort=denied&window=1m");
    let rows: Vec<_> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| {
            let number = |name: &str| key[name].as_u64().unwrap();
            assert!(number("last_seen") >= keys["from"].as_u64().unwrap());
            let key = key["key"]["user_id"].as_str().unwrap();
            (
                key,
                number("denied"),
                number("used"),
                number("lower"),
                number("upper"),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("u2", 7, 3, 7, 7),
            ("<img src=x onerror=alert(1)>", 3, 3, 3, 3),
            ("u1", 2, 3, 2, 2),
            ("\u{1b}[2J", 1, 3, 1, 1),
        ]
    );
    assert_eq!(
        (&keys["distinct_denied"], &keys["total"]),
        (&json!(4), &json!(13))
    );
    assert_eq!(
        (&keys["shared"], &keys["instances"][0]["age"]),
        (&json!(false), &json!(0))
    );
    let used = get(
        &server,
        "/v1/rules/per-user/keys?sort=used&window=1h&limit=1",
    );
    assert_eq!(used["keys"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&used["keys"][0]["lower"], &used["total"]),
        (&json!(3), &json!(12))
    );
    let blocked = get(&server, "/v1/rules/costly/keys");
    assert_eq!(
        blocked["keys"][0]["key"],
        json!({"user_id": "bad", "method": "GET"})
    );
    assert_eq!(blocked["keys"][0]["denied"], 2);
    let shadow = get(&server, "/v1/rules/try/keys");
    assert_eq!(
        (
            &shadow["keys"][0]["key"]["user_id"],
            &shadow["keys"][0]["denied"]
        ),
        (&json!("u2"), &json!(9))
    );
    assert_eq!(get(&server, "/v1/rules/per-key/keys")["keys"], json!([]));
}

#[test]
fn secret_values_and_all_values_of_an_anonymous_server_are_digests() {
    let secret = "sk-live-0123456789abcdef";
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let key_of = |server: &Server, rule: &str, attribute: &str| {
        check(
            server,
            &json!({"path": "/v1/a", "api_key": secret, "user_id": "visible-user"}),
        );
        let call = format!("GET /v1/rules/{rule}/keys?sort=used");
        let reply = server.ask(&call, "").with_status(200);
        assert!(!reply.body.contains(secret), "{}", reply.body);
        reply.json()["keys"][0]["key"][attribute]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let server = folder.serve(&["--rules", "rules.yaml", "--log-level", "debug"]);
    let shown = key_of(&server, "per-key", "api_key");
    let digits = shown.strip_prefix("sk-l…").unwrap();
    assert!(digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_eq!(key_of(&server, "per-user", "user_id"), "visible-user");
    assert!(!server.stop().contains(secret));

    let anonymous = [("TIDEGATE_ACTIVITY", "anonymous")];
    let server = folder.serve_with(&["--rules", "rules.yaml"], &anonymous);
    assert_eq!(key_of(&server, "per-key", "api_key"), digits);
    assert_eq!(key_of(&server, "per-user", "user_id").len(), 12);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for (call, status, expected) in [
        ("/v1/activity?window=59s", 400, "`1m` to `24h`"),
        ("/v1/activity?window=25h", 400, "25h"),
        ("/v1/activity?window=", 400, "window"),
        ("/v1/activity?scope=none", 400, "`all`, `instance`"),
        ("/v1/activity?limit=0", 400, "from 1 to 1000"),
        ("/v1/activity?token=t", 400, "token"),
        ("/v1/activity/stream?token=t", 400, "token"),
        ("/v1/activity/stream?window=1", 400, "window"),
        ("/v1/rules/per-user/keys?sort=used&sort=used", 400, "twice"),
        ("/v1/rules/per-user/keys?sort=cost", 400, "`denied`, `used`"),
        ("/v1/rules/per-user/keys?window=5m", 400, "`1m`, `1h`"),
        ("/v1/rules/none/keys", 404, "`none`"),
        ("/v1/rules/none/keys?sort=x", 400, "sort"),
    ] {
        let detail = server
            .ask(&format!("GET {call}"), "")
            .with_status(status)
            .detail();
        assert!(detail.contains(expected), "{call}: {detail}");
    }
    server.ask("POST /v1/activity", "{}").with_status(405);
    server
        .ask("POST /v1/activity/stream", "{}")
        .with_status(405);
    let none = [("authorization", "Bearer wrong")];
    for call in [
        "/v1/activity",
        "/v1/activity/stream",
        "/v1/rules/per-user/keys",
    ] {
        server
            .ask_with(&format!("GET {call}"), &none, "")
            .with_status(401);
    }
    server.stop();
    let off = folder.serve_with(&["--rules", "rules.yaml"], &[("TIDEGATE_ACTIVITY", "off")]);
    for call in [
        "/v1/activity",
        "/v1/activity/stream",
        "/v1/rules/per-user/keys",
    ] {
        let detail = off
            .ask(&format!("GET {call}"), "")
            .with_status(404)
            .detail();
        assert!(detail.contains("activity: off"), "{detail}");
    }
}

#[test]
fn counts_survive_a_restart_and_the_time_between_is_a_gap() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for _ in 0..5 {
        check(
            &server,
            &json!({"path": "/v1/a", "user_id": "u-secret-name"}),
        );
    }
    let before = get(&server, "/v1/activity?window=24h");
    assert_eq!(sums(&before["total"])[..2], [3, 2]);
    let first_gap = |activity: &Value| activity["gaps"][0].clone();
    // It was not running before.
    assert_eq!(first_gap(&before)["from"], before["from"]);
    assert_eq!(before["gaps"].as_array().unwrap().len(), 1);
    server.stop();
    let file = folder.path("data/activity");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("secret-name"));
    // Time in which no server runs: shorter gaps are not shown.
    std::thread::sleep(Duration::from_millis(4_100));

    let server = serve(&folder);
    check(&server, &json!({"path": "/v1/a", "user_id": "u2"})).with_status(200);
    for window in ["5m", "24h"] {
        let after = get(&server, &format!("/v1/activity?window={window}"));
        assert_eq!(sums(&after["total"])[..2], [4, 2], "{window}");
        assert_eq!(sums(rule(&after, "per-user"))[..2], [4, 2], "{window}");
        assert_eq!(first_gap(&after)["to"], first_gap(&before)["to"]);
        let gaps = after["gaps"].as_array().unwrap();
        assert_eq!(gaps.len(), 2, "{gaps:?}");
        let (from, to) = (gaps[1]["from"].as_u64(), gaps[1]["to"].as_u64());
        assert!((2..60).contains(&(to.unwrap() - from.unwrap())), "{gaps:?}");
    }
    let mut events = Events::open(&server, "?window=5m");
    assert_eq!(events.next()["gaps"].as_array().unwrap().len(), 2);
    drop(events);
    server.stop();

    // Off: neither read nor written.
    let kept = std::fs::read(&file).unwrap();
    let off = folder.serve_with(&["--rules", "rules.yaml"], &[("TIDEGATE_ACTIVITY", "off")]);
    off.stop();
    assert_eq!(std::fs::read(&file).unwrap(), kept);

    // A damaged file is set aside.
    std::fs::write(&file, &kept[..kept.len() - 1]).unwrap();
    let server = serve(&folder);
    let log = server.log.wait_for("the history of activity begins again");
    assert!(log.contains("activity.corrupt"), "{log}");
    assert_eq!(sums(&get(&server, "/v1/activity")["total"]), [0; 6]);
}

#[test]
fn changes_of_temporary_overrides_are_marks_and_show_no_secret() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    let secret = "sk-live-0123456789abcdef";
    let put = |rule: &str, key: &str, limit: &str| {
        let body = json!({"key": key, "limit": limit, "for": "1h", "reason": "launch"});
        let call = format!("POST /v1/rules/{rule}/overrides");
        server.ask(&call, &body.to_string()).with_status(201).json()
    };
    let first = put("per-user", "u1", "5/hour");
    put("per-user", "u1", "unlimited");
    let digest = put("per-key", secret, "blocked");
    server
        .ask("DELETE /v1/rules/per-user/overrides/u1", "")
        .with_status(204);
    let reply = server.ask("GET /v1/activity", "").with_status(200);
    assert!(!reply.body.contains(secret), "{}", reply.body);
    let answer = reply.json();
    let changes = answer["changes"].as_array().unwrap();
    let marks: Vec<&Value> = changes
        .iter()
        .filter_map(|row| row.get("override"))
        .collect();
    let rows: Vec<[&Value; 3]> = marks
        .iter()
        .map(|mark| [&mark["rule"], &mark["key"], &mark["what"]])
        .collect();
    let key = &digest["key"];
    assert_eq!(
        rows,
        [
            [&json!("per-user"), &json!("u1"), &json!("added")],
            [&json!("per-user"), &json!("u1"), &json!("changed")],
            [&json!("per-key"), key, &json!("added")],
            [&json!("per-user"), &json!("u1"), &json!("removed")],
        ]
    );
    let end = first["expires_at"].as_str().unwrap();
    let text = format!("added override of per-user for u1: 5/hour until {end} (launch)");
    assert_eq!(marks[0]["text"], text);
    let of_rules = changes.iter().filter(|row| row.get("override").is_none());
    assert_eq!(of_rules.count(), changes.len() - 4);
    for row in changes {
        assert!(row["at"].as_u64() >= answer["from"].as_u64());
        assert!(row["by"].is_string() && row["version"].is_u64(), "{row}");
    }
    let history = get(&server, "/v1/rules/history");
    let of_history = history["history"].as_array().unwrap().iter();
    let of_history: Vec<&Value> = of_history.filter_map(|row| row.get("override")).collect();
    assert_eq!(of_history.into_iter().rev().collect::<Vec<_>>(), marks);
}

/// A stream of events, which is read line by line.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(server: &Server, query: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let authorization = format!("Bearer {}", server.token.as_ref().unwrap());
        let call = format!("GET /v1/activity/stream{query}");
        let head = request(&call, &[("authorization", &authorization)], "");
        stream.write_all(head.as_bytes()).unwrap();
        let mut events = Self(BufReader::new(stream));
        assert_eq!(events.line(), "HTTP/1.1 200 OK");
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The data of the next event.
    fn next(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

#[test]
fn a_stream_has_an_event_each_second_and_ends_when_the_server_drains() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    let mut events = Events::open(&server, "?window=1m");
    let mut lines = std::iter::repeat_with(|| events.line());
    assert!(lines.any(|line| line == "content-type: text/event-stream"));
    assert!(lines.any(|line| line == ": heartbeat"));
    let first = events.next();
    assert_eq!((&first["step"], sums(&first["total"])), (&json!(1), [0; 6]));
    check(&server, &json!({"path": "/v1/a", "user_id": "u1"})).with_status(200);
    let mut last = first["from"].clone();
    loop {
        let event = events.next();
        assert!(
            event["from"].as_u64() > last.as_u64(),
            "one event for each second"
        );
        last = event["from"].clone();
        if sums(&event["total"])[0] == 1 {
            break;
        }
    }
    server.shut_down();
    let mut rest = String::new();
    events.0.read_to_string(&mut rest).unwrap();
    assert!(
        rest.ends_with("0\r\n\r\n"),
        "it ends in good order: {rest:?}"
    );
    server.stop();
}

#[test]
fn there_are_at_most_32_streams_and_a_reader_that_does_not_read_loses_its_own() {
    let folder = TestFolder::new();
    // Many rules, so that an event is large.
    let rule = |number| format!("  - {{id: rule-{number}, per: [user_id], limit: 1000000/s}}\n");
    let rules: Vec<String> = (0..400).map(rule).collect();
    folder.write("rules.yaml", &format!("rules:\n{}", rules.concat()));
    let server = folder.serve(&["--rules", "rules.yaml"]);
    check(&server, &json!({"user_id": "u1"})).with_status(200);
    // It reads nothing after the first line.
    let idle = Events::open(&server, "?limit=1000");
    let mut others: Vec<Events> = (1..32).map(|_| Events::open(&server, "?limit=1")).collect();
    let detail = server
        .ask("GET /v1/activity/stream", "")
        .with_status(503)
        .detail();
    assert!(detail.contains("32"), "{detail}");
    // Another reader goes on reading meanwhile.
    let deadline = 30;
    let mut is_free = false;
    for _ in 0..deadline {
        others[0].next();
        if try_open(&server) {
            is_free = true;
            break;
        }
    }
    assert!(is_free, "the idle reader still has its stream");
    drop(idle);
}

/// Whether another stream may be opened.
fn try_open(server: &Server) -> bool {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let authorization = format!("Bearer {}", server.token.as_ref().unwrap());
    let head = request(
        "GET /v1/activity/stream?limit=1",
        &[("authorization", &authorization)],
        "",
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    status == *b"HTTP/1.1 200"
}
