//! Temporary overrides of limits that a management server sends: they stay when it sends others.

use serde_json::json;
use tidegate_server::grpc_messages::rate_limit::Unit;
use tidegate_testkit_xds::{descriptor, domain, limited, per};

use super::{Followed, allowed, assert_accepted, users};

#[test]
fn an_override_stays_while_the_management_server_sends_other_limits() {
    let followed = Followed::start(&[users("infra/gw/http", 1)]);
    let server = &followed.server;
    let rules = server.ask("GET /v1/rules", "").json();
    let id = rules["rules"][0]["id"].as_str().unwrap();
    let overrides = format!("/v1/rules/{id}/overrides");
    let body = json!({"key": "alice", "limit": "2/day", "for": "1h", "reason": "asked by support"});
    server
        .ask(&format!("POST {overrides}"), &body.to_string())
        .with_status(201);
    assert_eq!(allowed(server, "infra/gw/http", "alice"), 2);
    assert_eq!(allowed(server, "infra/gw/http", "bob"), 1);
    // Another value of the limit, and another route next to it.
    let route = descriptor("route", "route", [limited("rule", "", per(1, Unit::Day))]);
    let both = [users("infra/gw/http", 3), domain("other", [route])];
    assert_accepted(&followed.stream, "2", &both);
    assert_eq!(allowed(server, "infra/gw/http", "alice"), 0);
    assert_eq!(allowed(server, "infra/gw/http", "bob"), 2);
    // Without the limit there is nothing to override; it is still listed, and there when the limit is back.
    assert_accepted(&followed.stream, "3", &both[1..]);
    assert_eq!(allowed(server, "infra/gw/http", "alice"), 3);
    let listed = server.ask(&format!("GET {overrides}"), "").with_status(200);
    assert_eq!(listed.json()["overrides"][0]["key"], "alice");
    assert_accepted(&followed.stream, "4", &both);
    assert_eq!(allowed(server, "infra/gw/http", "alice"), 0);
    let gone = format!("DELETE {overrides}/alice");
    server.ask(&gone, "").with_status(204);
    assert_eq!(allowed(server, "infra/gw/http", "alice"), 1);
}
