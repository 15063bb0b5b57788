//! What temporary overrides are for, what they grant, and when they end.

use tidegate_core::Micros;

use super::*;
use crate::attributes::Attributes;
use crate::rules::{GrantSource, RuleSet, RuleSettings};

const START: Timestamp = Timestamp::from_seconds(1_794_770_000);

fn rules(yaml: &str) -> RuleSet {
    RuleSet::from_yaml(yaml).unwrap()
}

fn digest() -> Arc<ValueDigest> {
    Arc::new(ValueDigest::new(b"secret"))
}

fn key(rule: &Rule, written: &str) -> Result<OverrideKey, String> {
    rule.override_key(written, &RuleSettings::default(), &digest())
}

/// The first of the rules, with temporary overrides.
struct Overridden<'r> {
    rule: &'r Rule,
    temporary: TemporaryGrants,
}

impl<'r> Overridden<'r> {
    fn of(rules: &'r RuleSet, overrides: &[TemporaryOverride]) -> Self {
        let (rule, digest) = (rules.at(0), digest());
        Self {
            rule,
            temporary: TemporaryGrants::of(rule, overrides, Some(&digest)),
        }
    }

    fn grant(&self, attributes: &Attributes<'_>, now: Timestamp) -> (&Grant, GrantSource) {
        let own = self.rule.grants();
        if let Some(index) = self.temporary.find(self.rule, attributes, now) {
            let granted = &self.temporary.grants()[index - own.len()];
            return (granted, GrantSource::Temporary);
        }
        let (index, source) = self.rule.grant(attributes);
        (&own[index], source)
    }
}

/// The rules, with overrides of the first that end a second after the start.
fn overridden<'r>(rules: &'r RuleSet, overrides: &[(&str, &str)]) -> Overridden<'r> {
    let rule = rules.at(0);
    let one = |(written, limit): &(&str, &str)| TemporaryOverride {
        key: key(rule, written).unwrap(),
        limit: (*limit).to_owned(),
        expires_at: START + Micros::SECOND,
    };
    let all: Vec<TemporaryOverride> = overrides.iter().map(one).collect();
    Overridden::of(rules, &all)
}

fn grant(rules: &Overridden<'_>, name: &str, value: &str, now: Timestamp) -> (String, GrantSource) {
    let mut attributes = Attributes::new();
    attributes
        .insert(name.to_owned(), value.to_owned())
        .unwrap();
    let (granted, source) = rules.grant(&attributes, now);
    let text = match granted {
        Grant::Unlimited => "unlimited".to_owned(),
        Grant::Blocked => "blocked".to_owned(),
        Grant::Limits(limits) => limits
            .iter()
            .map(|limit| limit.capacity().to_string())
            .collect::<Vec<_>>()
            .join(" "),
    };
    (text, source)
}

#[test]
fn one_beats_tiers_and_overrides_until_the_microsecond_in_which_it_ends() {
    let rules = rules(
        "rules: [{id: a, per: [user_id], limit: 5/minute, tiers: {pro: 10/minute}, overrides: {u1: 20/minute}}]",
    );
    let with = overridden(&rules, &[("u1", "30/minute; 2/second"), ("u2", "blocked")]);
    let end = START + Micros::SECOND;
    let last = end - Micros::new(1);
    let grant = |value, now| grant(&with, "user_id", value, now);
    assert_eq!(
        grant("u1", last),
        ("30 2".to_owned(), GrantSource::Temporary)
    );
    assert_eq!(
        grant("u2", last),
        ("blocked".to_owned(), GrantSource::Temporary)
    );
    assert_eq!(grant("u1", end), ("20".to_owned(), GrantSource::Override));
    assert_eq!(grant("u2", end), ("5".to_owned(), GrantSource::Limit));
    assert_eq!(grant("u3", last), ("5".to_owned(), GrantSource::Limit));
}

#[test]
fn networks_are_found_by_their_longest_live_prefix() {
    let rules = rules("rules: [{id: a, per: [ip], limit: 5/minute}]");
    let with = overridden(
        &rules,
        &[
            ("10.0.0.0/8", "1/minute"),
            ("10.1.0.0/16", "2/minute"),
            ("10.1.1.1", "3/minute"),
            ("2001:db8::1", "4/minute"),
        ],
    );
    let grant = |ip| grant(&with, "ip", ip, START).0;
    assert_eq!(grant("10.9.9.9"), "1");
    assert_eq!(grant("10.1.9.9"), "2");
    assert_eq!(grant("10.1.1.1"), "3");
    assert_eq!(grant("2001:db8::ffff"), "4", "of the same /64");
    assert_eq!(grant("11.0.0.1"), "5");

    // One that has ended leaves the shorter prefix.
    let ending = |written: &str, limit: &str, seconds| TemporaryOverride {
        key: key(rules.at(0), written).unwrap(),
        limit: limit.to_owned(),
        expires_at: START + Micros::from_seconds(seconds),
    };
    let both = vec![
        ending("10.0.0.0/8", "1/minute", 9),
        ending("10.1.0.0/16", "2/minute", 1),
    ];
    let with = Overridden::of(&rules, &both);
    let later = START + Micros::SECOND;
    let grant = |now| super::tests::grant(&with, "ip", "10.1.0.1", now).0;
    assert_eq!((grant(START).as_str(), grant(later).as_str()), ("2", "1"));
}

#[test]
fn a_secret_is_found_by_its_hash_and_by_what_tables_show() {
    let rules = rules("rules: [{id: a, per: [api_key], limit: 5/minute}]");
    let rule = rules.at(0);
    let secret = "sk_live_0123456789abcdef";
    let shown = digest().shown(secret);
    let hash = hashed::hash_of(secret);
    for written in [secret, &shown, &digest().of(secret), &hash] {
        let with = overridden(&rules, &[(written, "9/minute")]);
        assert_eq!(grant(&with, "api_key", secret, START).0, "9", "{written}");
        // What it is written as is not a key.
        for other in ["other", &hash, &digest().of(secret)] {
            assert_eq!(grant(&with, "api_key", other, START).0, "5", "{other}");
        }
        let key = key(rule, written).unwrap();
        assert!(!format!("{key:?}").contains(secret), "{key:?}");
    }
    let named = |written| key(rule, written).unwrap();
    // A hash that anyone can calculate is kept only if it was given.
    assert_eq!(
        named(secret),
        OverrideKey::Digest(digest().of(secret)),
        "{hash}"
    );
    assert_eq!(named(&shown), named(secret));
    assert_eq!(named(&hash), OverrideKey::Hash(hash.clone()));
    assert!(named(secret).is_written(&shown) && named(&hash).is_written(secret));
    assert!(!named(secret).is_written("other") && !named(&hash).is_written("other"));
    // Whether both mean the same client cannot be known: the last one counts.
    let both = |first, last| {
        let with = overridden(&rules, &[(first, "8/minute"), (last, "9/minute")]);
        grant(&with, "api_key", secret, START).0
    };
    assert_eq!(
        (both(secret, &hash), both(&hash, secret)),
        ("9".to_owned(), "9".to_owned())
    );
    // Where it is no secret, twelve digits are a value.
    let plain = super::tests::rules("rules: [{id: a, per: [user_id], limit: 5/minute}]");
    let digits = digest().of(secret);
    assert_eq!(
        key(plain.at(0), &digits),
        Ok(OverrideKey::Value(digits.clone()))
    );
}

#[test]
fn limits_are_read_as_the_rule_reads_its_overrides() {
    let rules = rules(
        "
rules:
  - {id: calendar, per: [user_id], limit: 5/month}
  - {id: sliding, per: [user_id], limit: 5/minute, algorithm: sliding_window_log}
  - {id: slots, per: [user_id], limit: 5/minute, algorithm: sliding_window_slots, slots: 6}
  - {id: held, per: [user_id], limit: 5, algorithm: concurrency}
  - {id: moving, per: [user_id], algorithm: concurrency, adaptive: {min: 1, max: 9}}
  - {id: leased, per: [user_id], limit: 5/minute, sync: leased}
  - {id: delayed, per: [user_id], limit: 5/minute, max_delay: 3s}
",
    );
    let read = |id: &str, limit: &str| {
        let limits = match rules.get(id).unwrap().override_grant(limit)? {
            Grant::Limits(limits) => limits,
            other => return Ok(format!("{other:?}")),
        };
        let names = limits.iter().map(|limit| limit.algorithm().name());
        Ok(names.collect::<Vec<_>>().join(" "))
    };
    let ok = |text: &str| Ok::<_, String>(text.to_owned());
    assert_eq!(read("calendar", "9/minute"), ok("token_bucket"));
    assert_eq!(read("calendar", "9/year"), ok("fixed_window"));
    assert_eq!(read("sliding", "9/hour"), ok("sliding_window_log"));
    assert_eq!(read("held", "9"), ok("concurrency"));
    assert_eq!(read("moving", "unlimited"), ok("Unlimited"));
    assert_eq!(read("moving", "blocked"), ok("Blocked"));
    for (id, limit, why) in [
        ("moving", "9", "write `unlimited` or `blocked`"),
        ("held", "9/minute", ""),
        ("calendar", "fast", ""),
        ("calendar", "unlimted", "`unlimited`"),
        ("calendar", "", ""),
        ("calendar", "0/minute", ""),
        ("slots", "9/7s", ""),
        ("calendar", "1/minute; 2/minute", ""),
    ] {
        let error = read(id, limit).unwrap_err();
        assert!(
            !error.is_empty() && error.contains(why),
            "{id} {limit}: {error}"
        );
    }
    assert!(read("leased", "9/minute").is_ok());
    let max_delay = rules.get("delayed").unwrap().override_grant("9/minute");
    let max_delay = max_delay.unwrap().limits()[0].algorithm();
    assert!(
        matches!(max_delay, tidegate_core::Algorithm::TokenBucket { max_delay } if max_delay == Micros::from_seconds(3))
    );
}

#[test]
fn what_a_rule_cannot_have_is_refused_and_left_out_of_a_rule_that_changed() {
    let all = rules(
        "
rules:
  - {id: shared, per: [], limit: 5/minute}
  - {id: by-ip, per: [ip], limit: 5/minute}
",
    );
    let shared = key(all.at(0), "u1").unwrap_err();
    assert!(shared.contains("`per`"), "{shared}");
    assert!(key(all.at(1), "no-address").is_err());
    assert!(key(all.at(1), "").is_err());
    assert!(key(all.at(1), "10.0.0.1/8").is_err());

    let one = rules("rules: [{id: a, per: [user_id], limit: 5/minute}]");
    let kept = [TemporaryOverride {
        key: OverrideKey::Value("u1".to_owned()),
        limit: "9/minute".to_owned(),
        expires_at: START + Micros::SECOND,
    }];
    let moving = rules(
        "rules: [{id: a, per: [user_id], algorithm: concurrency, adaptive: {min: 1, max: 9}}]",
    );
    assert!(Overridden::of(&moving, &kept).temporary.grants().is_empty());
    let back = Overridden::of(&one, &kept);
    assert_eq!(grant(&back, "user_id", "u1", START).0, "9");
}

#[test]
fn an_address_that_is_secret_can_be_named_and_a_network_cannot() {
    let all = rules("rules: [{id: a, per: [ip], limit: 5/minute}]");
    let mut settings = RuleSettings::default();
    settings.secret_attributes.push("ip".to_owned());
    let key = |written: &str| all.at(0).override_key(written, &settings, &digest());
    let one = key("203.0.113.7").unwrap();
    assert_eq!(one.text(), digest().of("203.0.113.7"));
    assert_eq!(key(&one.text()).unwrap(), one);
    assert!(key("203.0.113.0/24").is_err());
}
