//! What an answer says: limits, times, headers, metadata.

use prost_types::Value;
use prost_types::value::Kind;
use serde_json::{Value as Json, json};
use tidegate_server::grpc_messages::rate_limit::{
    CurrentLimit, RateLimitOverride, RateLimitResponse, Unit,
};

use super::{calling, codes, servers};
use crate::grpc::quotas::read;

const RULES: &str = "
domain: web
descriptors:
  - {key: two, metadata: {pool: a, route: {x: 1}}, rate_limit: {unit: day, requests_per_unit: 2, name: pair}}
  - {key: nine, metadata: {pool: b, route: {y: 2}}, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: nothing, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: bucket, rate_limit: {unit: second, requests_per_unit: 1000}, tidegate: {algorithm: token_bucket}}
  - {key: free, rate_limit: {unlimited: true}}
";

/// The headers of an answer.
fn headers(answer: &RateLimitResponse) -> Vec<(String, String)> {
    let headers = answer.response_headers_to_add.iter();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    headers
        .map(|header| (text(&header.key), text(&header.value)))
        .collect()
}

fn metadata(answer: RateLimitResponse) -> Option<Json> {
    let kind = Some(Kind::StructValue(answer.dynamic_metadata?));
    Some(read(Value { kind }))
}

#[tokio::test]
async fn statuses_have_the_limit_as_it_is_written_and_whole_seconds() {
    for (store, server, _redis) in servers(RULES, "") {
        let mut client = server.client().await;
        let limit = |count, unit: Unit, name: &str| {
            Some(CurrentLimit {
                requests_per_unit: count,
                unit: unit.into(),
                name: name.to_owned(),
            })
        };
        #[rustfmt::skip]
        let table = [
            // descriptor       code    limit                               left    at most
            ("two=a +3",        "X X",  limit(2, Unit::Day, "pair"),        0,      86_400),
            ("two=b",           "O O",  limit(2, Unit::Day, "pair"),        1,      86_400),
            ("two=b +2",        "X X",  limit(2, Unit::Day, "pair"),        0,      86_400),
            ("nine=a +0",       "O O",  limit(9, Unit::Hour, ""),           9,      3_600),
            ("nothing=a",       "X X",  limit(0, Unit::Minute, ""),         0,      60),
            ("nothing=a +0",    "O O",  limit(0, Unit::Minute, ""),         0,      60),
            ("watched=a",       "O O",  limit(1, Unit::Month, ""),          0,      31 * 86_400),
            ("watched=a",       "O O",  limit(1, Unit::Month, ""),          0,      31 * 86_400),
            ("quota=a",         "O O",  limit(1, Unit::Year, ""),           0,      366 * 86_400),
            ("bucket=a",        "O O",  limit(1_000, Unit::Second, ""),     999,    1),
        ];
        for (entries, expected, limit, left, most) in table {
            let answer = client.ask(calling("web", &[entries])).await.unwrap();
            assert_eq!(codes(&answer), expected, "{store}: {entries}");
            let status = &answer.statuses[0];
            assert_eq!(status.current_limit, limit, "{store}: {entries}");
            assert_eq!(status.limit_remaining, left, "{store}: {entries}");
            let wait = status.duration_until_reset.as_ref().unwrap();
            assert_eq!(wait.nanos, 0, "{store}: {entries}");
            assert!(
                (1..=most).contains(&wait.seconds),
                "{store}: {entries}: {wait:?}"
            );
        }
        for (entries, left) in [("free=a", u32::MAX), ("none=a", 0)] {
            let answer = client.ask(calling("web", &[entries])).await.unwrap();
            let status = &answer.statuses[0];
            assert_eq!(
                (&status.current_limit, status.limit_remaining),
                (&None, left)
            );
            assert_eq!(status.duration_until_reset, None, "{entries}");
        }
    }
}

#[tokio::test]
async fn the_headers_of_the_original_are_those_of_the_last_that_is_over_or_of_the_least_left() {
    let settings = "headers: []\nenvoy_headers: {limit: X-Limit, reset: x-reset}\n";
    for (store, server, _redis) in servers(RULES, settings) {
        let mut client = server.client().await;
        let three = |limit: &str, remaining: &str| {
            [
                ("X-Limit".to_owned(), limit.to_owned()),
                ("RateLimit-Remaining".to_owned(), remaining.to_owned()),
            ]
        };
        #[rustfmt::skip]
        let table: [(&[&str], &str, _); 5] = [
            (&["nine=a", "two=a"],              "O OO",     three("2", "1")),
            (&["two=a", "nine=a"],              "O OO",     three("2", "0")),
            (&["nothing=a", "two=a", "nine=a"], "X XXO",    three("2", "0")),
            (&["two=a", "nothing=a", "nine=a"], "X XXO",    three("0", "0")),
            (&["none=a", "nine=b"],             "O OO",     three("9", "8")),
        ];
        for (asked, expected, [limit, remaining]) in table {
            let answer = client.ask(calling("web", asked)).await.unwrap();
            assert_eq!(codes(&answer), expected, "{store}: {asked:?}");
            let sent = headers(&answer);
            let chosen = usize::from(limit.1 != "9");
            assert_eq!(sent[..2], [limit, remaining], "{store}: {asked:?} {chosen}");
            let waits = answer
                .statuses
                .iter()
                .filter_map(|status| status.duration_until_reset.as_ref());
            let waits: Vec<String> = waits.map(|wait| wait.seconds.to_string()).collect();
            assert_eq!(sent[2].0, "x-reset");
            assert!(waits.contains(&sent[2].1), "{store}: {asked:?}: {sent:?}");
            // The reason of a denial is Tidegate's.
            assert_eq!(
                sent.len(),
                3 + usize::from(expected.starts_with('X')),
                "{sent:?}"
            );
        }
        let answer = client
            .ask(calling("web", &["none=a", "free=a"]))
            .await
            .unwrap();
        assert_eq!(headers(&answer), [], "no limit, no headers");
    }
}

#[tokio::test]
async fn every_call_has_metadata_by_the_setting() {
    for (_, server, _redis) in servers(RULES, "dynamic_metadata: true\n") {
        let mut client = server.client().await;
        let mut asked = calling("web", &["two=a +3", "nine=a b=c"]);
        asked.descriptors[1].limit = Some(RateLimitOverride {
            requests_per_unit: 7,
            unit: Unit::Week.into(),
        });
        asked.hits_addend = 2;
        let answer = client.ask(asked).await.unwrap();
        let expected = json!({
            "domain": "web",
            "descriptors": [
                {"entries": ["two=a"], "hitsAddend": 3.0},
                {"entries": ["nine=a", "b=c"], "limit": "requests_per_unit:7 unit:WEEK"},
            ],
            "hitsAddend": 2.0,
        });
        assert_eq!(metadata(answer), Some(expected));
        let asked = calling("web", &["nine=a", "two=b", "quota=a", "quota=a"]);
        let answer = client.ask(asked).await.unwrap();
        let found = metadata(answer).unwrap();
        let merged = json!({"pool": "b", "route": {"x": 1.0, "y": 2.0}});
        assert_eq!(found["metadata"], merged, "the first counts");
        assert_eq!(found["quotaModeViolations"], json!([3.0]));
        assert_eq!(found.get("quotaModeEnabled"), None);
    }
    for (_, server, _redis) in servers(RULES, "dynamic_metadata: false\n") {
        let mut client = server.client().await;
        let answer = client.ask(calling("web", &["quota=a"])).await.unwrap();
        assert_eq!(metadata(answer), None);
    }
}

#[tokio::test]
async fn a_call_that_is_let_pass_has_nothing_to_retry() {
    for (_, server, _redis) in servers(RULES, "shadow: true\n") {
        let mut client = server.client().await;
        let answer = client.ask(calling("web", &["nothing=a"])).await.unwrap();
        assert_eq!(codes(&answer), "O X");
        let sent = headers(&answer);
        let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
        assert!(!names.contains(&"retry-after"), "{names:?}");
        assert!(!names.contains(&"x-tidegate-reason"), "{names:?}");
        assert!(names.contains(&"x-ratelimit-limit"), "{names:?}");
    }
}
