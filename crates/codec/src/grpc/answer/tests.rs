//! Answers decoded by prost: what they say, and that prost would have written the same bytes.

use prost::Message as _;
use tidegate::rules::{
    FrontEnd, OverrideKey, RuleSet, RuleSettings, Source, TemporaryOverride, TemporaryOverrides,
};
use tidegate::{Gate, MemoryStore, Timestamp};

use super::super::proto::rate_limit::{
    DescriptorEntry, HeaderValue, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, UInt64Value,
};
use super::super::{MessageBuffer, decode, parts};
use super::*;

const RULES: &str = "rules:
- {id: per-user, per: [user_id], limit: 2/minute}
- {id: month, match: {attributes: {tier: free}}, per: [tier], limit: 1000000000/month}
- {id: day, match: {attributes: {tier: long}}, per: [tier], limit: 3/day, algorithm: fixed_window}
- {id: blocked, match: {attributes: {tier: none}}, per: [tier], limit: 1/day, overrides: {none: blocked}}
";

const DESCRIPTORS: &str = "domain: web
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 1}, quota_mode: true, metadata: {pool: small, deep: {list: [1, two, null, true]}}}
- {key: open, rate_limit: {unlimited: true}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
";

fn call(domain: &str, entries: &[(&str, &str)]) -> RateLimitRequest {
    let descriptors = entries.iter().map(|(key, value)| RateLimitDescriptor {
        entries: vec![DescriptorEntry {
            key: (*key).to_owned(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        }],
        ..RateLimitDescriptor::default()
    });
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: 0,
    }
}

/// The answer to a call, read by prost.
fn answered(gate: &Gate, asked: &RateLimitRequest) -> RateLimitResponse {
    let rules = gate.rules();
    let asked = &RateLimitCall::of(asked);
    let parts = parts(asked, rules.descriptor_units()).unwrap();
    let decided = gate.try_decide_by(&rules, FrontEnd::Grpc, &parts[..]);
    let decisions = decided.unwrap().into_decisions();
    let answer = RateLimitAnswer {
        asked,
        rules: &rules,
        parts: &parts,
        decisions: &decisions,
    };
    let mut frames = MessageBuffer::default();
    frames.put(answer.framed(&AnswerSettings::default()));
    let message = frames.take().unwrap().unwrap();
    assert!(frames.is_empty());
    let response: RateLimitResponse = decode(message.clone()).unwrap();
    // A map has no order, and prost chooses one.
    if response.dynamic_metadata.is_none() {
        assert_eq!(response.encode_to_vec(), message, "{response:?}");
    }
    assert_eq!(response.encoded_len(), message.len(), "{response:?}");
    response
}

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a [u8]> {
    let mut headers = response.response_headers_to_add.iter();
    let found: Option<&HeaderValue> = headers.find(|header| header.key == name.as_bytes());
    found.map(|header| &header.value[..])
}

#[test]
fn answers_by_rules_are_those_of_prost() {
    let rules = RuleSet::from_yaml(RULES).unwrap();
    let gate = Gate::new(MemoryStore::new(), rules);
    let one = call("web", &[("user_id", "u1")]);
    for (round, remaining) in [(1, 1), (2, 0)] {
        let response = answered(&gate, &one);
        assert_eq!(response.overall_code, 1, "{round}");
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), (2, 2));
        assert_eq!(limit.name, "per-user");
        assert_eq!(status.limit_remaining, remaining);
    }
    let denied = answered(&gate, &one);
    assert_eq!(denied.overall_code, 2);
    assert_eq!(denied.statuses[0].code, 2);
    assert!(denied.statuses[0].duration_until_reset.is_some());
    assert_eq!(
        header(&denied, "x-tidegate-reason"),
        Some(&b"over_limit"[..])
    );

    let many = call(
        "web",
        &[
            ("tier", "free"),
            ("tier", "long"),
            ("other", "x"),
            ("tier", "none"),
        ],
    );
    let response = answered(&gate, &many);
    let [month, day, other, blocked] = &response.statuses[..] else {
        panic!("{response:?}")
    };
    let limit = month.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit), (1_000_000_000, 5));
    assert_eq!(day.current_limit.as_ref().unwrap().unit, 4);
    assert_eq!((other.code, &other.current_limit), (1, &None));
    assert_eq!(blocked.code, 2);
}

#[test]
fn limits_of_a_call_and_quotas_are_those_of_prost() {
    let rules = RuleSet::from_yaml(DESCRIPTORS).unwrap();
    let gate = Gate::new(MemoryStore::new(), rules);
    let mut asked = call(
        "web",
        &[
            ("user", "u1"),
            ("open", "x"),
            ("shadow", "x"),
            ("none", "x"),
        ],
    );
    asked.hits_addend = 1;
    asked.descriptors[3].limit = Some(RateLimitOverride {
        requests_per_unit: 7,
        unit: 7,
    });
    asked.descriptors[3].hits_addend = Some(UInt64Value { value: 3 });
    let first = answered(&gate, &asked);
    let second = answered(&gate, &asked);
    assert_eq!(first.statuses[1].limit_remaining, u32::MAX);
    assert_eq!(first.statuses[2].limit_remaining, 4);
    let brought = first.statuses[3].current_limit.as_ref().unwrap();
    assert_eq!((brought.requests_per_unit, brought.unit), (7, 7));
    for response in [first, second] {
        let metadata = response.dynamic_metadata.unwrap();
        assert!(metadata.fields.contains_key("quotaModeEnabled"));
    }
}

#[test]
fn an_override_is_reported_with_its_own_limit_and_unit() {
    for units in [Units::Calendar, Units::Epoch] {
        let mut settings = RuleSettings::default();
        settings.units = units;
        let source = Source::new("rules.yaml", DESCRIPTORS);
        let rules = RuleSet::read(&source, &settings).unwrap();
        let gate = Gate::new(MemoryStore::new(), rules);
        let one = |user: &str, limit: &str| TemporaryOverride {
            key: OverrideKey::Value(user.to_owned()),
            limit: limit.to_owned(),
            expires_at: Timestamp::EPOCH + Micros::MAX,
        };
        #[rustfmt::skip]
        let limits = [
            // limit                requests, unit, left of them
            ("9/hour",              Some((9, 3, 8))),
            ("9/week",              Some((9, 7, 8))),
            ("9/month",             Some((9, 5, 8))),
            ("9/10 minutes",        Some((9, 0, 8))),
            ("9/day; 4/minute",     Some((4, 2, 3))),
            ("unlimited",           None),
        ];
        let overrides = limits.map(|(limit, _)| one(limit, limit));
        let overrides = [("web.user".to_owned(), overrides.to_vec())];
        gate.replace_overrides(TemporaryOverrides::from(overrides));
        for (user, expected) in limits {
            let status = &answered(&gate, &call("web", &[("user", user)])).statuses[0];
            let limit = status.current_limit.as_ref();
            let found = limit.map(|limit| {
                let count = limit.requests_per_unit;
                (count, limit.unit, status.limit_remaining)
            });
            assert_eq!(found, expected, "{units:?} {user}");
            if expected.is_none() {
                assert_eq!((status.code, status.limit_remaining), (1, u32::MAX));
            }
        }
        let other = answered(&gate, &call("web", &[("user", "other")]));
        let limit = other.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), (1, 2));
    }
}
