//! Temporary overrides of descriptor limits, as Envoy sees them.

use serde_json::json;
use tidegate_server::grpc_messages::rate_limit::{RateLimitResponse, Unit};

use tidegate_testkit_server::{HttpClient, TestFolder};

use super::{Call, calling, play, servers};
use crate::grpc::{Running, start_in};

const RULES: &str = "
domain: web
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: user, value: own, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: path
    descriptors:
      - {key: kind, value: 'k*', rate_limit: {unit: day, requests_per_unit: 2}}
      - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: bucket, rate_limit: {unit: day, requests_per_unit: 3}, tidegate: {algorithm: token_bucket, burst: 1}}
  - {key: leased, rate_limit: {unit: day, requests_per_unit: 2}, tidegate: {algorithm: fixed_window, sync: leased}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: nothing, rate_limit: {unit: day, requests_per_unit: 0}}
";

fn put(running: &Running, rule: &str, key: &str, limit: &str) {
    let body = json!({"key": key, "limit": limit, "for": "1h"}).to_string();
    let call = format!("POST /v1/rules/{rule}/overrides");
    running.server.ask(&call, &body).with_status(201);
}

fn limit_of(answer: &RateLimitResponse) -> Option<(u32, i32)> {
    let limit = answer.statuses[0].current_limit.as_ref()?;
    Some((limit.requests_per_unit, limit.unit))
}

#[tokio::test]
async fn an_override_decides_for_its_client_alone() {
    for (store, server, _redis) in servers(RULES, "") {
        let mut client = server.client().await;
        #[rustfmt::skip]
        let before: [Call<'_>; 4] = [
            (&["user=a"],               2, "O O"),
            (&["user=a"],               1, "X X"),
            (&["leased=a"],             2, "O O"),
            (&["leased=a"],             1, "X X"),
        ];
        play(store, &mut client, "web", &before).await;
        put(&server, "web.user", "a", "4/day");
        put(&server, "web.user", "barred", "blocked");
        put(&server, "web.user_own", "own", "3/day");
        put(&server, "web.path.quota", "%2Fx/a", "2/day");
        put(&server, "web.bucket", "a", "9/day burst 2");
        put(&server, "web.leased", "a", "4/day");
        put(&server, "web.free", "a", "1/day");
        put(&server, "web.nothing", "a", "unlimited");
        let kind = server.server.ask("GET /v1/rules", "").json();
        let kind = kind["rules"].as_array().unwrap().iter();
        let mut kind = kind.filter_map(|rule| rule["id"].as_str());
        let kind = kind.find(|id| id.starts_with("web.path.kind")).unwrap();
        put(&server, kind, "%2Fx/k1", "3/day");
        #[rustfmt::skip]
        let after: [Call<'_>; 22] = [
            // What was used stays used, and hits beyond the limit are counted.
            (&["user=a"],               1, "O O"),
            (&["user=a +3"],            1, "X X"),
            (&["user=a +0"],            1, "X X"),
            (&["user=b"],               2, "O O"),
            (&["user=b"],               1, "X X"),
            (&["user=barred"],          1, "X X"),
            (&["user=own"],             3, "O O"),
            (&["user=own"],             1, "X X"),
            (&["path=/x kind=k1"],      3, "O O"),
            (&["path=/x kind=k1"],      1, "X X"),
            (&["path=/x kind=k2"],      2, "O O"),
            (&["path=/x kind=k2"],      1, "X X"),
            // A quota denies only with all others.
            (&["path=/x quota=a", "path=/x quota=b"], 2, "O O O"),
            (&["path=/x quota=a"],      1, "X X"),
            (&["bucket=a"],             2, "O O"),
            (&["bucket=a"],             1, "X X"),
            (&["bucket=b"],             1, "O O"),
            (&["bucket=b"],             1, "X X"),
            (&["leased=a"],             2, "O O"),
            (&["leased=a"],             1, "X X"),
            (&["free=a"],               1, "O O"),
            (&["free=a", "free=b"],     1, "X XO"),
        ];
        play(store, &mut client, "web", &after[..12]).await;
        let quotas = calling("web", after[12].0);
        for expected in [[true, true], [true, false]] {
            let (is_allowed, statuses) = client.decide(quotas.clone()).await;
            assert!(is_allowed, "{store}");
            let statuses = statuses.into_iter().map(|(is_ok, _)| is_ok);
            assert_eq!(statuses.collect::<Vec<_>>(), expected, "{store}");
        }
        play(store, &mut client, "web", &after[13..]).await;
    }
}

#[tokio::test]
async fn an_answer_has_the_limit_in_force() {
    for (store, server, _redis) in servers(RULES, "") {
        let mut client = server.client().await;
        put(&server, "web.user", "hour", "7/hour");
        put(&server, "web.user", "odd", "7/10minutes");
        put(&server, "web.user", "barred", "blocked");
        put(&server, "web.user", "free", "unlimited");
        let (hour, day) = (Unit::Hour as i32, Unit::Day as i32);
        #[rustfmt::skip]
        let table = [
            ("user=hour",   Some((7, hour)),    6),
            ("user=odd",    Some((7, 0)),       6),
            ("user=barred", Some((0, day)),     0),
            ("user=free",   None,               u32::MAX),
            ("user=other",  Some((2, day)),     1),
        ];
        for (entries, limit, remaining) in table {
            let answer = client.ask(calling("web", &[entries])).await.unwrap();
            assert_eq!(limit_of(&answer), limit, "{store} {entries}");
            let status = &answer.statuses[0];
            assert_eq!(status.limit_remaining, remaining, "{store} {entries}");
        }
        let gone = "DELETE /v1/rules/web.user/overrides/hour";
        server.server.ask(gone, "").with_status(204);
        let answer = client.ask(calling("web", &["user=hour"])).await.unwrap();
        assert_eq!(limit_of(&answer), Some((2, day)), "{store}");
    }
}

#[tokio::test]
async fn stats_are_of_the_limit_that_decided() {
    let server = start_in(TestFolder::new(), Some(RULES), "debug: 127.0.0.1:0\n");
    put(&server, "web.user", "a", "1000/day; 1/year");
    put(&server, "web.user", "free", "unlimited");
    let mut client = server.client().await;
    let calls: [Call<'_>; 3] = [
        (&["user=a"], 1, "O O"),
        (&["user=a"], 2, "X X"),
        (&["user=free"], 3, "O O"),
    ];
    play("memory", &mut client, "web", &calls).await;
    let stats = HttpClient::to(server.server.debug.unwrap()).ask("GET /stats", "");
    for (name, count) in [("total_hits", 3), ("within_limit", 1), ("over_limit", 2)] {
        let line = format!("ratelimit.service.rate_limit.web.user.{name}: {count}\n");
        assert!(stats.body.contains(&line), "{line}{}", stats.body);
    }
}
