//! Decisions by a configuration of envoyproxy/ratelimit.

use super::{adding, calling, header, request, start};
use tidegate_server::grpc_messages::rate_limit::{CurrentLimit, RateLimitOverride, Unit};
use tidegate_testkit::eventually;

const RULES: &str = "
domain: web
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2, name: users}
  - key: user
    value: vip
    rate_limit: {unlimited: true}
  - key: empty
    value: ''
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: größe
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: quota
    value: one
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: quota
    value: two
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 2}
---
domain: other
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 9}
";

#[tokio::test]
async fn each_descriptor_is_charged_on_its_own() {
    let server = start(RULES);
    let mut client = server.client().await;
    #[rustfmt::skip]
    let story = [
        (vec!["user=a", "user=b"],          (true,  vec![(true, 1), (true, 1)])),
        (vec!["user=a"],                    (true,  vec![(true, 0)])),
        (vec!["user=a", "user=b"],          (false, vec![(false, 0), (true, 0)])),
        (vec!["user=b"],                    (false, vec![(false, 0)])),
        (vec!["user=vip", "none=x"],        (true,  vec![(true, u32::MAX), (true, 0)])),
        (vec!["empty="],                    (true,  vec![(true, 0)])),
        (vec!["empty="],                    (false, vec![(false, 0)])),
        (vec!["größe=x"],                   (true,  vec![(true, 0)])),
        (vec!["watched=x"],                 (true,  vec![(true, 0)])),
        (vec!["watched=x"],                 (true,  vec![(true, 0)])),
        (vec!["quota=one", "quota=two"],    (true,  vec![(true, 0), (true, 1)])),
        (vec!["quota=one", "quota=two"],    (true,  vec![(false, 0), (true, 0)])),
        (vec!["quota=one", "quota=two"],    (false, vec![(false, 0), (false, 0)])),
    ];
    for (asked, expected) in story {
        assert_eq!(client.decide(request(&asked)).await, expected, "{asked:?}");
    }
    let mut other = request(&["user=a"]);
    other.domain = "other".to_owned();
    assert_eq!(client.decide(other).await, (true, vec![(true, 8)]));
}

#[tokio::test]
async fn limits_have_the_names_that_they_are_given() {
    let server = start(RULES);
    let mut client = server.client().await;
    let answer = client.ask(request(&["user=a", "quota=one"])).await.unwrap();
    let names = answer
        .statuses
        .iter()
        .map(|status| status.current_limit.as_ref().unwrap().name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["users", ""]);
    assert_eq!(header(&answer, "x-ratelimit-limit"), Some("1"));
}

#[tokio::test]
async fn a_changed_file_is_in_force_at_once() {
    let server = start(RULES);
    let mut client = server.client().await;
    assert!(client.decide(request(&["user=guest"])).await.0);
    // Only that one descriptor has no limit is new: no rule is changed by it.
    let changed = RULES.replacen(
        "descriptors:",
        "descriptors:\n  - {key: user, value: guest}",
        1,
    );
    server.folder.write("rules.yaml", &changed);
    server.server.reload();
    let is_in_force = async || {
        client.decide(request(&["user=guest"])).await == (true, vec![(true, 0)])
            && client.decide(request(&["user=guest"])).await.0
    };
    eventually("the change is in force", is_in_force).await;
}

#[tokio::test]
async fn a_limit_of_nothing_has_the_unit_of_the_file() {
    let rules = "
domain: web
descriptors:
  - {key: closed, rate_limit: {unit: week, requests_per_unit: 0, name: none}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
";
    let server = start(rules);
    let mut client = server.client().await;
    let answer = client
        .ask(request(&["closed=x", "watched=x"]))
        .await
        .unwrap();
    let limit = |unit: Unit, name: &str| CurrentLimit {
        requests_per_unit: 0,
        unit: unit.into(),
        name: name.to_owned(),
    };
    let limits = answer.statuses.into_iter();
    let limits: Vec<_> = limits.map(|status| status.current_limit.unwrap()).collect();
    assert_eq!(limits, [limit(Unit::Week, "none"), limit(Unit::Hour, "")]);
}

#[tokio::test]
async fn a_limit_that_comes_with_a_call_continues_the_counter_of_the_file() {
    let server = start(RULES);
    let mut client = server.client().await;
    let mut brought = request(&["user=a"]);
    brought.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 5,
        unit: Unit::Day.into(),
    });
    let file = || request(&["user=a"]);
    assert_eq!(client.decide(file()).await, (true, vec![(true, 1)]));
    assert_eq!(
        client.decide(brought.clone()).await,
        (true, vec![(true, 3)])
    );
    assert_eq!(client.decide(file()).await, (false, vec![(false, 0)]));
    assert_eq!(client.decide(brought).await, (true, vec![(true, 2)]));
}

#[tokio::test]
async fn an_addend_that_does_not_fit_takes_what_is_left() {
    let server = start(RULES);
    let mut client = server.client().await;
    let adds = || calling(vec![adding("user=a", 5), adding("user=b", 1)]);
    let story = [
        (adds(), (false, vec![(false, 0), (true, 1)])),
        (request(&["user=a"]), (false, vec![(false, 0)])),
        (adds(), (false, vec![(false, 0), (true, 0)])),
    ];
    for (asked, expected) in story {
        assert_eq!(client.decide(asked).await, expected);
    }
}

const REPLACING: &str = "
domain: web
descriptors:
  - key: a
    rate_limit: {unit: day, requests_per_unit: 100, name: first, replaces: [{name: second}]}
  - key: b
    rate_limit: {unit: day, requests_per_unit: 1, name: second}
";

#[tokio::test]
async fn a_limit_that_comes_with_a_call_replaces_nothing() {
    let server = start(REPLACING);
    let mut client = server.client().await;
    let both = || request(&["a=x", "b=x"]);
    assert_eq!(
        client.decide(both()).await.1[1],
        (true, 0),
        "it is replaced"
    );
    let mut brought = both();
    brought.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: u32::MAX,
        unit: Unit::Day.into(),
    });
    assert!(client.decide(brought.clone()).await.0);
    assert!(
        !client.decide(brought).await.0,
        "the other limit is used up"
    );
}

#[tokio::test]
async fn values_have_a_counter_each_and_credentials_have_one() {
    let of_envoy = "domain: web\ndescriptors:\n  - key: authorization\n    rate_limit: {unit: day, requests_per_unit: 1}\n  - key: authorization\n    value: 'Bearer  root'\n    rate_limit: {unlimited: true}\n";
    let native = "rules:\n- {id: a, per: [authorization], limit: 1/hour, overrides: {'Bearer  root': unlimited}}\n";
    for rules in [of_envoy, native] {
        let server = start(rules);
        let mut client = server.client().await;
        let mut may = async |value: &[u8]| {
            let mut asked = request(&["authorization=x"]);
            asked.descriptors[0].entries[0].value = value.to_vec().into();
            client.decide(asked).await.0
        };
        for value in [&b"k\xff"[..], b"k\xfe", "k\u{fffd}".as_bytes(), b"Bearer t"] {
            assert!(may(value).await, "{value:?}");
            assert!(!may(value).await, "{value:?}");
        }
        for value in [&b"bearer t"[..], b"BEARER  t", b"Bearer\tt "] {
            assert!(!may(value).await, "{value:?}");
        }
        for value in [&b"Bearer t x"[..], b"Basic !"] {
            assert!(!may(value).await, "{value:?}");
        }
        for value in [&b"bearer root"[..], b"BEARER root", b"Bearer root"] {
            assert!(may(value).await, "{value:?}");
        }
    }
}
