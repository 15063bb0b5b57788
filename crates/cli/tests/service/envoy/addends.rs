//! What a request costs: for the whole call, for a descriptor, and when a stream is done.

use tidegate_testkit::wait_until;

use super::Front;
use crate::server::PATIENCE;

const RULES: &str = "
rules:
  - {id: per-address, per: [remote_address], limit: 100/hour, algorithm: fixed_window}
  - {id: per-user, per: [user], limit: 100/hour, algorithm: fixed_window}
";
const ADDRESS: &str = r#"{"remote_address": "127.0.0.1"}"#;
const USER: &str = r#"{"user": "u1"}"#;

/// The actions of the guide.
const BY_USER: &str = "- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]";

#[test]
fn filter_state_tells_the_cost_of_the_whole_call() {
    let filter = r#"http_filters:
                  - name: cost
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config
                      on_request_headers:
                        - object_key: envoy.ratelimit.hits_addend
                          format_string: {text_format_source: {inline_string: "%REQ(x-cost)%"}}"#;
    let front = Front::new(RULES, |config| config.replace("http_filters:", filter));
    assert_eq!(
        front
            .envoy
            .get("/", &[("x-user", "u1"), ("x-cost", "7")])
            .status,
        200
    );
    assert_eq!(front.left(ADDRESS), 93);
    assert_eq!(front.left(USER), 93);
}

#[test]
fn a_descriptor_may_have_a_cost_of_its_own() {
    let own = format!("{BY_USER}\n                                  hits_addend: {{number: 30}}");
    let front = Front::new(RULES, |config| config.replace(BY_USER, &own));
    for (expected, address, user) in [(200, 99, 70), (200, 98, 40), (200, 97, 10), (429, 97, 0)] {
        assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, expected);
        assert_eq!((front.left(ADDRESS), front.left(USER)), (address, user));
    }
}

#[test]
fn what_a_response_cost_is_charged_when_the_stream_is_done() {
    let at_the_end = format!(
        "{BY_USER}\n{0}apply_on_stream_done: true\n{0}hits_addend: {{format: \"%BYTES_SENT%\"}}",
        "                                  "
    );
    let front = Front::new(RULES, |config| config.replace(BY_USER, &at_the_end));
    for left in [90, 80] {
        assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, 200);
        wait_until("the stream is charged", PATIENCE, || {
            (front.left(USER) == left).then_some(())
        });
    }
    // What does not fit is taken as far as it goes, though Envoy does not listen to the answer.
    let most = r#"{"attributes": {"user": "u1"}, "cost": 75}"#;
    assert_eq!(front.server.ask("POST /v1/check", most).status, 200);
    assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, 200);
    wait_until("the stream is settled", PATIENCE, || {
        (front.left(USER) == 0).then_some(())
    });
}
