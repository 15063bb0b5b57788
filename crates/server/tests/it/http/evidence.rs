//! Evidence about clients: samples of denied requests, the last decision of a client, and the search over clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder};

use crate::Server;
use crate::redis::shared::check;

const SECRET: &str = "sk-live-0123456789abcdef";
const RULES: &str = "
rules:
  - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: deny, limit: 2/hour, tiers: {pro: 5/hour}}
  - {id: per-key, match: {path: /keys/**}, per: [api_key], limit: 1/hour, overrides: {bad: blocked}}
  - {id: try, match: {path: /v1/**}, per: [user_id], limit: 1/hour, mode: shadow}
";

fn serve(folder: &TestFolder) -> Server {
    folder.write("rules.yaml", RULES);
    folder.serve(&["--rules", "rules.yaml", "--resp", "127.0.0.1:0"])
}

fn get(server: &Server, call: &str) -> Value {
    let reply = server.ask(&format!("GET {call}"), "").with_status(200);
    assert!(!reply.body.contains(SECRET), "{}", reply.body);
    reply.json()
}

fn denied(server: &Server, query: &str) -> Vec<Value> {
    let answer = get(server, &format!("/v1/denied{query}"));
    assert_eq!(answer["instances"].as_array().unwrap().len(), 1);
    answer["denied"].as_array().unwrap().clone()
}

#[test]
fn of_each_client_the_last_ten_denied_requests_are_shown_newest_first() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for number in 0..14 {
        let path = format!("/v1/orders/{number}");
        let request = json!({"path": path, "method": "post", "user_id": "u1", "ip": "203.0.113.7", "note": "hidden"});
        check(&server, &request);
    }
    check(&server, &json!({"path": "/v1/a"})).with_status(429);
    for _ in 0..2 {
        check(&server, &json!({"path": "/keys/a", "api_key": SECRET}));
    }
    check(&server, &json!({"path": "/keys/a", "api_key": "bad"}));

    let of_user = denied(&server, "?rule=per-user&key=u1");
    let paths: Vec<&str> = of_user
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    let expected: Vec<String> = (4..14)
        .rev()
        .map(|number| format!("/v1/orders/{number}"))
        .collect();
    assert_eq!(paths, expected);
    let newest = &of_user[0];
    assert_eq!(newest["key"], json!({"user_id": "u1"}));
    for (name, value) in [
        ("rule", "per-user"),
        ("reason", "over_limit"),
        ("method", "POST"),
        ("address", "203.0.113.7"),
        ("front_end", "http"),
    ] {
        assert_eq!(newest[name], value, "{newest}");
    }
    assert!(newest["at"].as_f64().unwrap() > of_user[9]["at"].as_f64().unwrap());
    assert!(newest["instance"].as_str().unwrap().len() == 8);

    let all = denied(&server, "");
    let reasons: Vec<(&str, &str)> = all[..3]
        .iter()
        .map(|one| {
            (
                one["rule"].as_str().unwrap(),
                one["reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        reasons,
        [
            ("per-key", "blocked"),
            ("per-key", "over_limit"),
            ("per-user", "missing_attribute")
        ]
    );
    assert_eq!(all[2]["key"], json!({}));
    assert!(
        all.iter().all(|one| one["rule"] != "try"),
        "a shadow rule denies nothing"
    );
    let shown = all[1]["key"]["api_key"].as_str().unwrap();
    assert!(shown.starts_with("sk-l…"), "{shown}");
    let digits = shown.trim_start_matches("sk-l…");
    for key in [shown, digits, SECRET] {
        let key = key.replace('…', "%E2%80%A6");
        assert_eq!(denied(&server, &format!("?key={key}")), all[1..2], "{key}");
    }
    assert_eq!(denied(&server, "?limit=2").len(), 2);
    assert_eq!(denied(&server, "?key=unknown").len(), 0);
    for (query, status) in [
        ("?rule=nothing", 404),
        ("?limit=101", 400),
        ("?limit=0", 400),
        ("?user=u1", 400),
    ] {
        server
            .ask(&format!("GET /v1/denied{query}"), "")
            .with_status(status);
    }
    assert!(!server.stop().contains(SECRET));
}

#[test]
fn the_last_decision_of_a_client_has_what_decided_it() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    let request = json!({"path": "/v1/a?q=1", "method": "GET", "user_id": "carl", "tier": "pro", "note": "hidden"});
    for _ in 0..6 {
        check(&server, &request);
    }
    let keys = get(&server, "/v1/rules/per-user/keys");
    let last = &keys["keys"][0]["last"];
    let attributes = json!({"path": "/v1/a", "method": "GET", "user_id": "carl", "tier": "pro"});
    assert_eq!(last["attributes"], attributes);
    assert_eq!(last["grant"], json!({"from": "tier", "value": "5/hour"}));
    for (name, value) in [
        ("allowed", json!(false)),
        ("rule", json!("per-user")),
        ("reason", json!("over_limit")),
        ("tier", json!("pro")),
        ("cost", json!(1)),
        ("front_end", json!("http")),
        ("method", json!("GET")),
        ("path", json!("/v1/a")),
        ("address", Value::Null),
    ] {
        assert_eq!(last[name], value, "{name}");
    }
    let wait = last["retry_after"].as_f64().unwrap();
    assert!((719.0..=720.0).contains(&wait), "{wait}");

    // By the Redis protocol, too; a key that is only admitted has one as well.
    let mut resp = TcpStream::connect(server.resp.unwrap()).unwrap();
    resp.write_all(b"TG.CHECK path /keys/b api_key k2\r\n")
        .unwrap();
    assert!(resp.read(&mut [0; 1_024]).unwrap() > 0);
    let clients = wait_until("it is counted", PATIENCE, || {
        let clients = get(&server, "/v1/clients?search=k2");
        (clients["clients"] != json!([])).then_some(clients)
    });
    let client = &clients["clients"][0];
    assert_eq!(
        (&client["rule"], &client["used"]),
        (&json!("per-key"), &json!(1))
    );
    assert_eq!(client["last"]["front_end"], "resp");
    assert_eq!(client["last"]["allowed"], true);
    assert_eq!(client["last"]["retry_after"], 0.0);
}

#[test]
fn clients_are_found_by_a_part_of_what_tables_show() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for (user, count) in [
        ("acme-1", 4),
        ("ACME-2", 5),
        ("other", 1),
        ("<b>x\u{202e}", 1),
    ] {
        for _ in 0..count {
            check(&server, &json!({"path": "/v1/a", "user_id": user}));
        }
    }
    for _ in 0..9 {
        check(&server, &json!({"path": "/keys/a", "api_key": SECRET}));
    }
    let found = |query: &str| -> Vec<(String, String)> {
        let answer = get(&server, &format!("/v1/clients{query}"));
        let clients = answer["clients"].as_array().unwrap().iter();
        let row = |client: &Value| {
            let values = client["key"].as_object().unwrap().values();
            let value = values
                .map(|value| value.as_str().unwrap().to_owned())
                .collect();
            (client["rule"].as_str().unwrap().to_owned(), value)
        };
        clients.map(row).collect()
    };
    let row = |rule: &str, key: &str| (rule.to_owned(), key.to_owned());
    let acme = [
        row("try", "ACME-2"),
        row("per-user", "ACME-2"),
        row("try", "acme-1"),
        row("per-user", "acme-1"),
    ];
    assert_eq!(found("?search=Acme"), acme);
    assert_eq!(found("?search=Acme&limit=1"), acme[..1]);
    let by_value = found(&format!("?search={SECRET}"));
    assert_eq!(by_value.len(), 1);
    assert!(by_value[0].1.starts_with("sk-l…"));
    let digits = by_value[0].1.trim_start_matches("sk-l…");
    assert_eq!(found(&format!("?search={digits}")), by_value);
    assert_eq!(found(&format!("?search={}", &digits[..6])), by_value);
    assert_eq!(found("?search=live"), [], "only what is shown is searched");
    assert_eq!(found("")[0].0, "per-key", "the most denied of all rules");
    assert_eq!(found("?search=%3Cb%3E").len(), 2);
    server.ask("GET /v1/clients?q=a", "").with_status(400);
}

#[test]
fn anonymous_activity_shows_no_value_of_a_client() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    folder.write("config.yaml", "activity: anonymous\n");
    let server = folder.serve(&["--config", "config.yaml", "--rules", "rules.yaml"]);
    for _ in 0..3 {
        check(
            &server,
            &json!({"path": "/v1/invoice-77", "method": "GET", "user_id": "carl-the-client-with-a-long-name", "ip": "203.0.113.7"}),
        );
    }
    for call in [
        "/v1/denied",
        "/v1/clients",
        "/v1/rules/per-user/keys",
        "/v1/clients?search=carl-the-client-with-a-long-name",
    ] {
        let text = get(&server, call).to_string();
        for value in ["carl", "invoice", "203.0.113"] {
            assert!(!text.contains(value), "{call}: {text}");
        }
        assert!(text.contains("\"GET\""), "{call}: {text}");
    }
}

#[test]
fn without_activity_there_is_no_evidence() {
    let folder = TestFolder::new();
    folder.write("config.yaml", "activity: off\n");
    let server = folder.serve(&["--config", "config.yaml"]);
    for call in ["/v1/denied", "/v1/clients"] {
        let reply = server.ask(&format!("GET {call}"), "").with_status(404);
        assert!(reply.body.contains("activity: off"), "{}", reply.body);
    }
}
