//! What Envoy Gateway and Envoy AI Gateway send: the limits of their rate limit scenarios, and the calls of Envoy for
//! them.

use super::{Call, play, servers};

/// A descriptor below the route `route`, whose name is key and value.
fn below(route: &str, descriptors: &str) -> String {
    format!("  - {{key: {route:?}, value: {route:?}, descriptors: [{descriptors}]}}\n")
}

fn rules(domain: &str, descriptors: &[String]) -> String {
    format!("domain: {domain}\ndescriptors:\n{}", descriptors.concat())
}

const DOMAIN: &str = "gateway-conformance-infra/same-namespace/http";
const THREE: &str = "rate_limit: {unit: DAY, requests_per_unit: 3}";

/// The entry of a route in a call.
const ROUTE: &str = "httproute/infra/web/rule/0/match/0/*=httproute/infra/web/rule/0/match/0/*";
const OTHER: &str = "httproute/infra/other/rule/0/match/0/*=httproute/infra/other/rule/0/match/0/*";

fn route(descriptors: &str) -> String {
    below("httproute/infra/web/rule/0/match/0/*", descriptors)
}

fn other_route(descriptors: &str) -> String {
    below("httproute/infra/other/rule/0/match/0/*", descriptors)
}

async fn scenario(name: &str, rules: &str, calls: &[Call<'_>]) {
    for (store, server, _redis) in servers(rules, "headers: []\n") {
        let mut client = server.client().await;
        play(&format!("{name}, {store}"), &mut client, DOMAIN, calls).await;
    }
}

/// A call about a route, with further entries.
macro_rules! call {
    ($route:expr, $entries:expr) => {
        &*format!("{} {}", $route, $entries)
    };
}

#[tokio::test]
async fn a_matched_address_method_path_or_parameter_is_limited() {
    let key = |key: &str| format!("{{key: {key}, value: {key}, {THREE}}}");
    let cidr = format!("{{key: masked_remote_address, value: 0.0.0.0/0, {THREE}}}");
    let cases = [
        ("cidr", cidr, "masked_remote_address=0.0.0.0/0"),
        (
            "method",
            key("rule-0-method"),
            "rule-0-method=rule-0-method",
        ),
        ("path", key("rule-0-path"), "rule-0-path=rule-0-path"),
        ("query", format!("{{key: user, {THREE}}}"), "user=alice"),
    ];
    for (name, descriptor, entry) in cases {
        let asked = call!(ROUTE, entry).to_owned();
        let calls: [Call<'_>; 3] = [
            (&[&asked], 3, "O O"),
            (&[&asked], 2, "X X"),
            // What does not match has no limit.
            (&[ROUTE], 4, "O O"),
        ];
        scenario(name, &rules(DOMAIN, &[route(&descriptor)]), &calls).await;
    }
}

#[tokio::test]
async fn all_of_several_headers_and_addresses_have_to_match() {
    let last = format!("{{key: masked_remote_address, value: 0.0.0.0/0, {THREE}}}");
    let second = format!("{{key: rule-0-match-1, value: rule-0-match-1, descriptors: [{last}]}}");
    let descriptors =
        format!("{{key: rule-0-match-0, value: rule-0-match-0, descriptors: [{second}]}}");
    let all = call!(
        ROUTE,
        "rule-0-match-0=rule-0-match-0 rule-0-match-1=rule-0-match-1 masked_remote_address=0.0.0.0/0"
    )
    .to_owned();
    let one = call!(ROUTE, "rule-0-match-0=rule-0-match-0").to_owned();
    let calls: [Call<'_>; 3] = [
        (&[&all], 3, "O O"),
        (&[&all], 1, "X X"),
        (&[&one], 4, "O O"),
    ];
    scenario(
        "headers and cidr",
        &rules(DOMAIN, &[route(&descriptors)]),
        &calls,
    )
    .await;
}

#[tokio::test]
async fn each_distinct_value_has_a_counter_and_an_inverted_address_is_one_more_entry() {
    let inverted = format!("{{key: masked_remote_address, value: 'invert:10.0.0.0/8', {THREE}}}");
    let descriptors = format!("{{key: rule-0-match-0, {THREE}}}, {inverted}");
    let of = |user: &str| call!(ROUTE, format!("rule-0-match-0={user}")).to_owned();
    let (one, two) = (of("one"), of("two"));
    let outside = call!(ROUTE, "masked_remote_address=invert:10.0.0.0/8").to_owned();
    let calls: [Call<'_>; 5] = [
        (&[&one], 3, "O O"),
        (&[&one], 1, "X X"),
        (&[&two], 3, "O O"),
        (&[&two, &outside], 1, "X XO"),
        (&[&outside], 2, "O O"),
    ];
    scenario("distinct", &rules(DOMAIN, &[route(&descriptors)]), &calls).await;
}

#[tokio::test]
async fn claims_and_the_rules_of_a_policy_are_descriptors_of_one_call() {
    let descriptors = format!(
        "{{key: rule-0-match-0, value: rule-0-match-0, {THREE}}}, {{key: rule-1-match-0, rate_limit: {{unit: DAY, requests_per_unit: 1}}}}"
    );
    let claim = call!(ROUTE, "rule-0-match-0=rule-0-match-0").to_owned();
    let user = call!(ROUTE, "rule-1-match-0=one").to_owned();
    let calls: [Call<'_>; 4] = [
        (&[&claim, &user], 1, "O OO"),
        (&[&claim, &user], 1, "X OX"),
        // The first was charged by both calls.
        (&[&claim], 1, "O O"),
        (&[&claim], 1, "X X"),
    ];
    scenario("claims", &rules(DOMAIN, &[route(&descriptors)]), &calls).await;
}

#[tokio::test]
async fn a_shared_rule_is_one_counter_for_all_routes_and_another_is_one_for_each() {
    let own = format!("{{key: rule-0-match-0, value: rule-0-match-0, {THREE}}}");
    let shared = below("infra/policy/rule/0", &own);
    let text = rules(DOMAIN, &[route(&own), other_route(&own), shared]);
    let of = |route: &str| call!(route, "rule-0-match-0=rule-0-match-0").to_owned();
    let (web, other) = (of(ROUTE), of(OTHER));
    let shared = of("infra/policy/rule/0=infra/policy/rule/0");
    let calls: [Call<'_>; 6] = [
        (&[&web], 3, "O O"),
        (&[&web], 1, "X X"),
        (&[&other], 3, "O O"),
        (&[&other], 1, "X X"),
        // Sent for requests of either route.
        (&[&shared], 3, "O O"),
        (&[&shared], 1, "X X"),
    ];
    scenario("shared", &text, &calls).await;
}

#[tokio::test]
async fn two_listeners_are_two_domains() {
    let own = [route(&format!("{{key: rule-0-match-0, {THREE}}}"))];
    let text = format!(
        "{}---\n{}",
        rules("infra/gw/http-1", &own),
        rules("infra/gw/http-2", &own)
    );
    let asked = call!(ROUTE, "rule-0-match-0=one").to_owned();
    for (store, server, _redis) in servers(&text, "") {
        let mut client = server.client().await;
        for domain in ["infra/gw/http-1", "infra/gw/http-2"] {
            let calls: [Call<'_>; 2] = [(&[&asked], 3, "O O"), (&[&asked], 1, "X X")];
            play(store, &mut client, domain, &calls).await;
        }
    }
}

#[tokio::test]
async fn a_shadow_rule_limits_nothing() {
    let watched = format!("{{key: rule-0-match-0, shadow_mode: true, {THREE}}}");
    let asked = call!(ROUTE, "rule-0-match-0=one").to_owned();
    scenario(
        "shadow",
        &rules(DOMAIN, &[route(&watched)]),
        &[(&[&asked], 6, "O O")],
    )
    .await;
}

#[tokio::test]
async fn a_response_is_charged_with_the_same_descriptor_at_its_end() {
    let budget = "{key: rule-0-match-0, rate_limit: {unit: DAY, requests_per_unit: 21}}";
    let text = rules(DOMAIN, &[route(budget)]);
    let request = call!(ROUTE, "rule-0-match-0=one +0").to_owned();
    let end = call!(ROUTE, "rule-0-match-0=one +10").to_owned();
    let calls: [Call<'_>; 7] = [
        (&[&request], 1, "O O"),
        (&[&end], 1, "O O"),
        (&[&request], 1, "O O"),
        (&[&end], 1, "O O"),
        // 20 of 21 are used: one more request is let through, and costs as much as the others.
        (&[&request], 1, "O O"),
        (&[&end], 1, "X X"),
        (&[&request], 3, "X X"),
    ];
    scenario("usage", &text, &calls).await;
}

const QUOTAS: &str = "
domain: ai-gateway-quota
descriptors:
  - key: backend_name
    value: default/testupstream
    descriptors:
      - key: model_name_override
        value: small
        quota_mode: true
        rate_limit: {unit: DAY, requests_per_unit: 10}
      - key: model_name_override
        value: large
        quota_mode: true
        rate_limit: {unit: DAY, requests_per_unit: 4294967295}
        descriptors:
          - {key: rule-0-x-user-match-0, quota_mode: true, rate_limit: {unit: DAY, requests_per_unit: 20}}
";

#[tokio::test]
async fn a_token_budget_counts_the_request_and_its_tokens() {
    const SMALL: &str = "backend_name=default/testupstream model_name_override=small";
    const LARGE: &str = "backend_name=default/testupstream model_name_override=large";
    const USER: &str =
        "backend_name=default/testupstream model_name_override=large rule-0-x-user-match-0=u";
    for (store, server, _redis) in servers(QUOTAS, "headers: []\n") {
        let mut client = server.client().await;
        let tokens = |text: &str, tokens: u64| format!("{text} +{tokens}");
        let end = tokens(SMALL, 20);
        let calls: [Call<'_>; 3] = [
            (&[SMALL], 1, "O O"),
            (&[&end], 1, "X X"),
            // 21 of 10 are used.
            (&[SMALL], 2, "X X"),
        ];
        play(store, &mut client, "ai-gateway-quota", &calls).await;
        // It is denied when all quotas are used up.
        let (end, billion) = (tokens(USER, 30), tokens(LARGE, 4_294_967_290));
        let calls: [Call<'_>; 6] = [
            (&[LARGE, USER], 1, "O OO"),
            (&[&end], 1, "X X"),
            (&[LARGE, USER], 1, "O OX"),
            (&[&billion], 1, "O O"),
            (&[LARGE, USER], 3, "O OX"),
            (&[LARGE, USER], 1, "X XX"),
        ];
        play(store, &mut client, "ai-gateway-quota", &calls).await;
    }
}
