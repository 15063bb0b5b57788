//! Decisions by rules.

use super::{adding, calling, descriptor, header, is_ok, request, start, start_in};
use tidegate_server::grpc_messages::rate_limit::{CurrentLimit, RateLimitOverride, Unit};
use tidegate_testkit_server::TestFolder;

const RULES: &str = "
rules:
- {id: per-user, per: [user], limit: 3/day, algorithm: fixed_window}
- {id: per-team, match: {attributes: {domain: web}}, per: [team], limit: 5/day, algorithm: fixed_window}
- {id: per-address, per: [remote_address], limit: 100/minute burst 20}
- {id: second-key, per: [generic_key.2], limit: 1/30s}
- {id: entry-named-domain, per: [domain.2], limit: 7/month}
- {id: never, match: {attributes: {blocked: \"1\"}}, per: [], limit: blocked}
- {id: bytes, per: [bytes], limit: 3/day, algorithm: fixed_window, settle: true}
- {id: huge, per: [huge], limit: 1000000000/second, algorithm: fixed_window}
";

#[tokio::test]
async fn one_call_is_one_request_across_its_descriptors() {
    let server = start(RULES);
    let mut client = server.client().await;
    let both = || request(&["user=a", "team=t"]);
    assert_eq!(
        client.decide(both()).await,
        (true, vec![(true, 2), (true, 4)])
    );
    let mut with_addend = both();
    with_addend.hits_addend = 2;
    assert_eq!(
        client.decide(with_addend.clone()).await,
        (true, vec![(true, 0), (true, 2)])
    );
    assert_eq!(
        client.decide(with_addend).await,
        (false, vec![(false, 0), (true, 2)])
    );
    assert_eq!(
        client.decide(request(&["team=t"])).await,
        (true, vec![(true, 1)])
    );
}

#[tokio::test]
async fn a_status_says_everything_about_its_limit() {
    let server = start(RULES);
    let mut client = server.client().await;
    let asked = request(&[
        "user=a",
        "unknown=x",
        "remote_address=::1",
        "generic_key=a generic_key=b",
        "domain=x",
        "huge=1",
    ]);
    let answer = client.ask(asked).await.unwrap();
    let limits: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| status.current_limit.clone())
        .collect();
    let limit = |name: &str, requests_per_unit, unit: Unit| {
        let (name, unit) = (name.to_owned(), unit.into());
        Some(CurrentLimit {
            requests_per_unit,
            unit,
            name,
        })
    };
    assert_eq!(
        limits,
        [
            limit("per-user", 3, Unit::Day),
            None,
            limit("per-address", 100, Unit::Minute),
            limit("second-key", 1, Unit::Unknown),
            limit("entry-named-domain", 7, Unit::Month),
            limit("huge", 1_000_000_000, Unit::Second),
        ]
    );
    let left: Vec<u32> = answer
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!(left, [2, 0, 19, 0, 6, 999_999_999]);
    let wait = answer.statuses[0].duration_until_reset.as_ref().unwrap();
    assert!((0..=86_400).contains(&wait.seconds), "{wait:?}");
    let wait = answer.statuses[2].duration_until_reset.as_ref().unwrap();
    assert_eq!(
        (wait.seconds, wait.nanos),
        (0, 600_000_000),
        "a token in 0.6 s"
    );
    assert!(answer.statuses[1].duration_until_reset.is_none());
    assert_eq!(header(&answer, "x-ratelimit-remaining"), Some("0"));
    assert!(
        header(&answer, "ratelimit-policy")
            .unwrap()
            .contains("\"per-user\";q=3;w=86400")
    );
    assert_eq!(header(&answer, "retry-after"), None);
}

#[tokio::test]
async fn a_denied_call_says_when_to_come_back() {
    let server = start(RULES);
    let mut client = server.client().await;
    let asked = || request(&["generic_key=a generic_key=b"]);
    assert!(client.decide(asked()).await.0);
    let answer = client.ask(asked()).await.unwrap();
    assert!(!is_ok(answer.overall_code));
    let wait = answer.statuses[0].duration_until_reset.as_ref().unwrap();
    assert!((29..=30).contains(&wait.seconds), "{wait:?}");
    assert_eq!(header(&answer, "retry-after"), Some("30"));
    assert_eq!(header(&answer, "x-tidegate-degraded"), None);
    assert_eq!(header(&answer, "x-tidegate-reason"), Some("over_limit"));
    // Waiting does not help who is blocked.
    let answer = client.ask(request(&["blocked=1"])).await.unwrap();
    assert!(!is_ok(answer.overall_code));
    assert!(answer.statuses[0].duration_until_reset.is_none());
    assert_eq!(
        answer.statuses[0].current_limit.as_ref().unwrap().name,
        "never"
    );
    assert_eq!(header(&answer, "x-tidegate-reason"), Some("blocked"));
    // Of several descriptors the one with the longest wait gives the reason.
    let both = request(&["generic_key=a generic_key=b", "blocked=1"]);
    let answer = client.ask(both).await.unwrap();
    assert_eq!(header(&answer, "x-tidegate-reason"), Some("blocked"));
    let allowed = client.ask(request(&["user=z"])).await.unwrap();
    assert_eq!(header(&allowed, "x-tidegate-reason"), None);
}

#[tokio::test]
async fn an_addend_of_a_descriptor_asks_takes_all_of_it_or_is_settled() {
    let server = start(RULES);
    let mut client = server.client().await;
    let story = [
        (vec![adding("user=a", 0)], (true, vec![(true, 3)])),
        (vec![adding("user=a", 2)], (true, vec![(true, 1)])),
        // What does not fit takes nothing, whatever else is asked.
        (vec![adding("user=a", 2)], (false, vec![(false, 1)])),
        (vec![adding("user=a", u64::MAX)], (false, vec![(false, 1)])),
        (
            vec![adding("user=a", 2), adding("bytes=a", 1)],
            (false, vec![(false, 1), (true, 2)]),
        ),
        (vec![descriptor("user=a")], (true, vec![(true, 0)])),
        (vec![adding("user=a", 0)], (false, vec![(false, 0)])),
        (
            vec![adding("user=a", 0), descriptor("team=t")],
            (false, vec![(false, 0), (true, 5)]),
        ),
        (
            vec![adding("user=b", 0), descriptor("team=t")],
            (true, vec![(true, 3), (true, 4)]),
        ),
        // Unless the rule settles.
        (vec![adding("bytes=b", 2)], (true, vec![(true, 1)])),
        (vec![adding("bytes=b", 2)], (false, vec![(false, 0)])),
        (vec![adding("bytes=c", u64::MAX)], (false, vec![(false, 0)])),
        (vec![adding("bytes=c", 0)], (false, vec![(false, 0)])),
    ];
    for (descriptors, expected) in story {
        assert_eq!(
            client.decide(calling(descriptors.clone())).await,
            expected,
            "{descriptors:?}"
        );
    }
    let mut gives_back = adding("team=t", 3);
    gives_back.is_negative_hits = true;
    assert_eq!(
        client.decide(calling(vec![gives_back])).await,
        (true, vec![(true, 4)]),
        "asked only"
    );
}

#[tokio::test]
async fn a_limit_of_the_call_stands_in_the_place_of_the_rules() {
    let server = start(RULES);
    let mut client = server.client().await;
    for (unit, seconds) in [
        (Unit::Second, 1),
        (Unit::Week, 604_800),
        (Unit::Year, 366 * 86_400),
    ] {
        let mut brings = descriptor(&format!("user={unit:?}"));
        brings.limit = Some(RateLimitOverride {
            requests_per_unit: 9,
            unit: unit.into(),
        });
        let answer = client
            .ask(calling(vec![brings, descriptor("team=t")]))
            .await
            .unwrap();
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!(
            (limit.requests_per_unit, limit.unit, limit.name.as_str()),
            (9, unit.into(), "")
        );
        assert_eq!(status.limit_remaining, 8);
        let wait = status.duration_until_reset.as_ref().unwrap().seconds;
        assert!((0..=seconds).contains(&wait), "{wait}");
    }
    assert_eq!(
        client.decide(request(&["team=t"])).await,
        (true, vec![(true, 1)]),
        "charged in addition"
    );
    let mut nothing = descriptor("user=a");
    nothing.limit = Some(RateLimitOverride {
        requests_per_unit: 0,
        unit: Unit::Day.into(),
    });
    let answer = client.ask(calling(vec![nothing])).await.unwrap();
    assert!(!is_ok(answer.overall_code));
    let limit = answer.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit), (0, Unit::Day.into()));
}

#[tokio::test]
async fn headers_by_unit_are_those_of_all_descriptors() {
    let rules = "
rules:
- {id: requests, per: [user], limit: 10/day}
- {id: tokens, per: [team], unit: tokens, limit: 100/day}
";
    let server = start_in(TestFolder::new(), Some(rules), "headers: [openai]\n");
    let mut client = server.client().await;
    for (asked, expected) in [
        (vec!["user=a"], [Some("9"), None]),
        (vec!["user=a", "team=t"], [Some("8"), Some("99")]),
    ] {
        let answer = client.ask(request(&asked)).await.unwrap();
        let names = [
            "x-ratelimit-remaining-requests",
            "x-ratelimit-remaining-tokens",
        ];
        assert_eq!(names.map(|name| header(&answer, name)), expected);
        assert_eq!(header(&answer, "x-ratelimit-limit"), None);
    }
}
