//! What `N/period` grants, as the API says it: `worst_case` of rules, `rate` of decisions, both in explanations.

use serde_json::{Value, json};
use tidegate_testkit_server::{ClientReply, TestFolder};

fn most(window: u64, instant: u64) -> Value {
    json!({"window": window, "instant": instant})
}

fn login() -> Value {
    json!({"id": "login", "per": ["ip"], "limit": "3/minute", "tiers": {"pro": "10000/day; 100/second burst 20", "vip": "unlimited", "bad": "blocked"}})
}

fn of_login() -> Value {
    json!({
        "limit": [most(5, 3)],
        "tiers": {"pro": [most(20_000, 10_000), most(119, 20)], "vip": [], "bad": []},
    })
}

fn tag(reply: &ClientReply) -> String {
    reply.header("etag").unwrap().to_owned()
}

#[test]
fn every_rule_in_an_answer_has_the_most_that_it_can_admit() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    let mut answered = login();
    answered["worst_case"] = of_login();

    let created = client.ask("POST /v1/rules", &login().to_string());
    assert_eq!(created.with_status(201).json(), answered);
    let read = client.ask("GET /v1/rules/login", "").with_status(200);
    assert_eq!(read.json(), answered);
    let all = client.ask("GET /v1/rules", "").with_status(200).json();
    assert_eq!(all["rules"], json!([answered]));
    let text = json!({"text": login().to_string()}).to_string();
    let checked = client.ask("POST /v1/rules/login/validate", &text).json();
    assert_eq!(checked["rule"], answered);
    assert!(!checked["yaml"].as_str().unwrap().contains("worst_case"));
    assert_eq!(
        checked["promises"]["limit"],
        json!(["at most 5 in any minute: 3 at once, then one every 20 s"])
    );
    assert_eq!(
        checked["promises"]["tiers"]["pro"][0],
        json!("10,000 in each day (UTC); at most 20,000 in any 24 hours")
    );

    let other = json!({"id": "held", "per": [], "limit": 7, "algorithm": "concurrency"});
    let put = client.ask("PUT /v1/rules/held", &other.to_string());
    let held = json!({"limit": [{"window": null, "instant": 7}], "tiers": {}});
    assert_eq!(put.with_status(201).json()["worst_case"], held);
    let back = client.ask("POST /v1/rules/rollback", r#"{"version": 1}"#);
    assert_eq!(back.with_status(200).json()["rules"], json!([answered]));
}

#[test]
fn a_rule_can_be_sent_back_as_it_was_answered_and_its_worst_case_is_stored_nowhere() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut client = server.client();
    let mut wrong = login();
    wrong["worst_case"] = json!({"limit": "anything"});
    let created = client.ask("POST /v1/rules", &wrong.to_string());
    let created = created.with_status(201);
    assert_eq!(created.json()["worst_case"], of_login());

    let read = client.ask("GET /v1/rules/login", "");
    let put = client.ask("PUT /v1/rules/login", &read.json().to_string());
    assert_eq!(tag(&put.with_status(200)), tag(&created));
    let all = client.ask("GET /v1/rules", "");
    let put = client.ask("PUT /v1/rules", &all.json().to_string());
    let put = put.with_status(200);
    assert_eq!(tag(&put), tag(&all));
    assert_eq!(put.json()["version"], 1, "nothing has changed");
    let text = json!({"text": read.json().to_string()}).to_string();
    let checked = client.ask("POST /v1/rules/login/validate", &text).json();
    assert_eq!(checked["valid"], true);

    let plain = client.ask("PUT /v1/rules/login", &login().to_string());
    assert_eq!(tag(&plain.with_status(200)), tag(&created));
    client.ask("DELETE /v1/rules/login", "").with_status(204);
    for call in [
        "GET /v1/rules/history",
        "GET /v1/rules/history/1",
        "GET /v1/rules/diff",
    ] {
        let answer = client.ask(call, "").with_status(200);
        assert!(!answer.whole().contains("worst_case"), "{call}");
    }
}

#[test]
fn a_limit_in_an_answer_has_its_rate_next_to_its_capacity() {
    let folder = TestFolder::new();
    let server = folder.serve(&["--trust-timestamps"]);
    let rules = json!({"rules": [
        {"id": "burst", "per": [], "limit": "100/minute burst 20"},
        {"id": "quota", "per": [], "limit": "10000/day; 50/second"},
        {"id": "month", "per": [], "limit": "1000/month"},
        {"id": "held", "per": [], "limit": 7, "algorithm": "concurrency"},
        {"id": "closed", "match": {"path": "/closed"}, "per": [], "limit": "blocked"},
    ]});
    let put = server.ask("PUT /v1/rules", &rules.to_string());
    put.with_status(200);
    let body = r#"{"attributes": {"path": "/closed"}, "timestamp": 1794770000}"#;
    let checked = server.ask("POST /v1/check", body).with_status(429).json();
    let of = |limits: &Value, keys: &[&str]| -> Vec<Vec<Value>> {
        let limits = limits.as_array().unwrap().iter();
        let picked = |limit: &Value| keys.iter().map(|key| limit[*key].clone()).collect();
        limits.map(picked).collect()
    };
    let keys = ["algorithm", "limit", "rate", "window"];
    #[rustfmt::skip]
    let expected = json!([
        ["token_bucket", 20, 100, 60],
        ["fixed_window", 10_000, 10_000, 86_400],
        ["token_bucket", 50, 50, 1],
        ["fixed_window", 1_000, 1_000, 2_592_000],
        ["concurrency", 7, 7, null],
        ["blocked", 0, 0, null],
    ]);
    assert_eq!(json!(of(&checked["limits"], &keys)), expected);

    let explained = server.ask("POST /v1/explain", body).with_status(200).json();
    let limits = explained["rules"].as_array().unwrap().iter();
    let limits = limits.flat_map(|rule| rule["limits"].as_array().unwrap().clone());
    let limits = Value::Array(limits.collect());
    assert_eq!(json!(of(&limits, &keys)), expected);
    let worst = [
        most(119, 20),
        most(20_000, 10_000),
        most(99, 50),
        most(2_000, 1_000),
        json!({"window": null, "instant": 7}),
        Value::Null,
    ];
    assert_eq!(json!(of(&limits, &["worst_case"]).concat()), json!(worst));
    assert_eq!(
        limits[0]["promise"],
        "at most 119 in any minute: 20 at once, then one every 600 ms"
    );
}

/// The quota of a plan, as people write it.
#[test]
fn ten_a_day_are_ten_on_every_day() {
    let folder = TestFolder::new();
    let server = folder.serve(&["--trust-timestamps"]);
    let rule = json!({"id": "plan", "per": ["user_id"], "limit": "10/day"});
    server
        .ask("POST /v1/rules", &rule.to_string())
        .with_status(201);
    let midnight = 1_794_700_800_u64;
    for day in 0..3 {
        let allowed = (0..24).filter(|hour| {
            let at = midnight + day * 86_400 + hour * 3_600;
            let body = json!({"attributes": {"user_id": "u"}, "timestamp": at});
            server.ask("POST /v1/check", &body.to_string()).status == 200
        });
        assert_eq!(allowed.count(), 10, "day {day}");
    }
}
