//! What a request costs: for the whole call, for a descriptor, and when a stream is done.

use tidegate_testkit::wait_until;

use super::{Front, printed};
use tidegate_testkit_server::PATIENCE;

const RULES: &str = "
rules:
  - {id: per-address, per: [remote_address], limit: 100/day, algorithm: fixed_window}
  - {id: per-user, per: [user], limit: 100/day, algorithm: fixed_window}
  - {id: bytes-of-user, per: [bytes_of], limit: 100/day, algorithm: fixed_window, settle: true}
";
const ADDRESS: &str = r#"{"remote_address": "127.0.0.1"}"#;
const USER: &str = r#"{"user": "u1"}"#;

/// The actions of the guide.
const BY_USER: &str = "- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]";

#[test]
fn filter_state_sets_the_cost_of_the_whole_call() {
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
    // What does not fit takes nothing.
    for (expected, address, user) in [(200, 99, 70), (200, 98, 40), (200, 97, 10), (429, 97, 10)] {
        assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, expected);
        assert_eq!((front.left(ADDRESS), front.left(USER)), (address, user));
    }
}

/// The items of a list as they stand below `rate_limits`.
fn items(list: &str) -> String {
    let list = list.trim().replace('\n', &format!("\n{}", " ".repeat(32)));
    list.trim_start_matches("rate_limits:").trim().to_owned()
}

#[test]
fn what_a_response_cost_is_charged_when_the_stream_is_done() {
    let printed = printed("rate_limits:");
    let front = Front::new(RULES, |config| {
        config.replace(BY_USER, &items(&printed.replace("\n  ", "\n")))
    });
    let user = r#"{"bytes_of": "u1"}"#;
    for left in [90, 80] {
        assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, 200);
        wait_until("the stream is charged", PATIENCE, || {
            (front.left(user) == left).then_some(())
        });
    }
    // What does not fit is taken as far as it goes, because the rule settles.
    let most = r#"{"attributes": {"bytes_of": "u1"}, "cost": 75}"#;
    assert_eq!(front.server.ask("POST /v1/check", most).status, 200);
    assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, 200);
    wait_until("the stream is settled", PATIENCE, || {
        (front.left(user) == 0).then_some(())
    });
    assert_eq!(front.envoy.get("/", &[("x-user", "u1")]).status, 429);
}

/// Actions for a user, charged when the stream is done.
fn when_done(key: &str, cost: &str) -> String {
    format!(
        "- actions: [{{request_headers: {{header_name: x-user, descriptor_key: {key}}}}}]
  apply_on_stream_done: true
  hits_addend: {{format: \"{cost}\"}}
"
    )
}

#[test]
fn a_missing_metadata_value_makes_envoy_drop_the_descriptor() {
    let filter = r#"http_filters:
                  - name: tokens
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
                      request_rules:
                        - header: x-tokens
                          on_header_present: {metadata_namespace: app, key: tokens, type: NUMBER}"#;
    let tokens = when_done("user", "%DYNAMIC_METADATA(app:tokens)%");
    let bytes = when_done("bytes_of", "%BYTES_SENT%");
    let both = items(&format!("{tokens}{bytes}"));
    let front = Front::new(RULES, |config| {
        let config = config.replace("http_filters:", filter);
        config.replace(BY_USER, &both)
    });
    let headers = [("x-user", "u1"), ("x-tokens", "7")];
    for (sent, bytes, user) in [(2, 90, 93), (1, 80, 93), (2, 70, 86)] {
        assert_eq!(front.envoy.get("/", &headers[..sent]).status, 200);
        wait_until("the stream is charged", PATIENCE, || {
            (front.left(r#"{"bytes_of": "u1"}"#) == bytes).then_some(())
        });
        // One call has both descriptors, so this one was either charged by now or never sent.
        assert_eq!(front.left(USER), user);
    }
}
