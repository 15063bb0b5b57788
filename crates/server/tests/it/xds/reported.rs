//! What the API says of rules of a management server, and that it does not change them.

use serde_json::json;

use super::{Followed, assert_accepted, users};

#[test]
fn the_source_is_reported_and_changes_are_refused() {
    let followed = Followed::start(&[users("edge", 2)]);
    let (server, address) = (&followed.server, followed.management.address().to_string());
    for call in ["GET /v1/status", "GET /readyz"] {
        let rules = server.ask(call, "").with_status(200).json()["rules"].clone();
        assert_eq!(rules["source"], "xds", "{rules}");
        assert_eq!(rules["server"], address);
        assert_eq!(rules["node"], "envoy-ratelimit");
        assert_eq!(rules["server_version"], "1");
        assert!(rules["received"].as_f64().unwrap() > 1e9);
        assert_eq!(
            (&rules["connected"], &rules["failure"], &rules["kept"]),
            (&json!(true), &json!(null), &json!(null))
        );
    }
    let expected =
        format!("these rules come from the management server {address}; change them there");
    let rule = r#"{"id": "a", "per": [], "limit": "1/s"}"#;
    for (call, body) in [
        ("POST /v1/rules", rule),
        ("PUT /v1/rules/a", rule),
        ("PUT /v1/rules", r#"{"rules": []}"#),
        ("DELETE /v1/rules/edge.user", ""),
        ("POST /v1/rules/rollback", r#"{"version": 1}"#),
    ] {
        let refused = server.ask(call, body).with_status(409);
        assert_eq!(refused.detail(), expected, "{call}");
    }
}

#[test]
fn each_rule_has_its_descriptor_and_the_name_of_its_stats() {
    let followed = Followed::start(&[users("infra/gw/http", 2)]);
    let rules = followed
        .server
        .ask("GET /v1/rules", "")
        .with_status(200)
        .json();
    let rule = &rules["rules"][0];
    assert_eq!(rule["domain"], "infra/gw/http", "{rule}");
    assert_eq!(rule["descriptor"], json!([{"key": "user"}]));
    assert_eq!(
        rule["rate_limit"],
        json!({"unit": "day", "requests_per_unit": 2})
    );
    assert_eq!(rule["stat"], "infra/gw/http.user");
}

#[test]
fn each_version_is_in_the_history_with_its_server_as_the_author() {
    let followed = Followed::start(&[users("edge", 2)]);
    let server = &followed.server;
    assert_accepted(&followed.stream, "2", &[users("edge", 3)]);
    let history = server
        .ask("GET /v1/rules/history", "")
        .with_status(200)
        .json();
    let versions = history["history"].as_array().unwrap();
    assert_eq!(versions.len(), 2, "{history}");
    let by = format!("xds:{}", followed.management.address());
    assert!(versions.iter().all(|row| row["by"] == by), "{history}");
    assert_eq!(versions[0]["changes"], json!(["changed edge.user"]));
    server
        .ask("GET /v1/rules/diff?from=1&to=2", "")
        .with_status(200);
}
