//! Temporary overrides of descriptor limits: which requests a key names, and how the limit is counted.

use tidegate_core::{Anchor, Limit, Micros, Window};

use super::*;
use crate::rules::{RuleSet, RuleSettings, Units};

const NOW: Timestamp = Timestamp::from_seconds(1_794_770_000);

const RULES: &str = "
domain: d
descriptors:
  - key: route
    value: a/b
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
      - {key: kind, value: 'v*', rate_limit: {unit: minute, requests_per_unit: 5}}
      - {key: all, value: x, rate_limit: {unit: minute, requests_per_unit: 5}}
      - {key: shared, value: 'v*', share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}
  - key: path
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
      - {key: api_key, rate_limit: {unit: minute, requests_per_unit: 5}}
";

/// The entries of a request.
type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A rule of the set above.
struct Chosen {
    rules: RuleSet,
    index: usize,
}

fn read(yaml: &str, settings: &RuleSettings) -> RuleSet {
    let source = crate::rules::Source::new("rules.yaml", yaml);
    RuleSet::read(&source, settings).unwrap()
}

fn rule_for(entries: Pairs<'_>) -> Chosen {
    let rules = read(RULES, &RuleSettings::default());
    let index = rules.descriptor_index(&attributes(entries)).unwrap();
    Chosen { rules, index }
}

fn attributes(entries: Pairs<'_>) -> Attributes<'_> {
    let mut attributes = Attributes::new();
    attributes.push("domain", "d");
    for (name, value) in entries {
        attributes.push(*name, *value);
    }
    attributes
}

fn digest() -> Arc<ValueDigest> {
    Arc::new(ValueDigest::new(b"secret"))
}

impl Chosen {
    fn key(&self, written: &str) -> Result<OverrideKey, String> {
        let rule = self.rules.at(self.index);
        rule.override_key(written, &RuleSettings::default(), &digest())
    }

    /// Whether an override with this key is found for a request.
    fn names(&self, key: &OverrideKey, entries: Pairs<'_>) -> bool {
        let rule = self.rules.at(self.index);
        let one = TemporaryOverride {
            key: key.clone(),
            limit: "unlimited".to_owned(),
            expires_at: NOW,
        };
        let grants = TemporaryGrants::of(rule, &[one], Some(&digest()));
        let at = |now| grants.find(rule, &attributes(entries), now).is_some();
        assert!(!at(NOW), "it has ended");
        at(NOW - Micros::new(1))
    }
}

#[test]
fn keys_by_hand() {
    let path = "/v1";
    #[rustfmt::skip]
    let table: [(Pairs<'_>, &str, &str, Pairs<'_>); 9] = [
        // entries                          key             as it is kept   another client
        (&[("route", "a/b"), ("user", "u/1%2F")], "u/1%2F", "u/1%2F",       &[("route", "a/b"), ("user", "u/1/")]),
        (&[("route", "a/b"), ("user", "10.0.0.0/8")], "10.0.0.0/8", "10.0.0.0/8", &[("route", "a/b"), ("user", "10.1.2.3")]),
        (&[("route", "a/b"), ("kind", "v1")], "v1",         "v1",           &[("route", "a/b"), ("kind", "v2")]),
        (&[("ip", "10.0.0.0/8")],           "10.0.0.0/8",   "10.0.0.0/8",   &[("ip", "10.1.2.3")]),
        (&[("path", path), ("user", "u1")], "%2Fv1/u1",     "%2Fv1/u1",     &[("path", path), ("user", "u2")]),
        (&[("path", "50%"), ("user", "")],  "50%25/",       "50%25/",       &[("path", "50%25"), ("user", "")]),
        (&[("path", "a%b"), ("user", "u")], "a%b/u",        "a%25b/u",      &[("path", "a"), ("user", "u")]),
        (&[("path", "/"), ("user", "u")],   "%2f/u",        "%2F/u",        &[("path", ""), ("user", "u")]),
        (&[("path", "é"), ("user", "u")],   "é/u",          "é/u",          &[("path", "u"), ("user", "é")]),
    ];
    for (entries, written, kept, other) in table {
        let rule = rule_for(entries);
        let key = rule.key(written).unwrap();
        assert_eq!(key.text(), kept);
        assert_eq!(rule.key(kept).as_ref(), Ok(&key), "{kept}");
        assert!(key.is_written(kept), "{kept}");
        assert!(rule.names(&key, entries), "{written}");
        assert!(!rule.names(&key, other), "{written}");
    }
}

#[test]
fn a_descriptor_without_open_entries_is_overridden_for_all() {
    for (entries, written) in [
        ([("route", "a/b"), ("all", "x")], "a/b/x"),
        ([("route", "a/b"), ("shared", "v1")], "a/b/v*"),
    ] {
        let rule = rule_for(&entries);
        let key = rule.key(written).unwrap();
        assert_eq!(key.text(), written);
        assert!(rule.names(&key, &entries));
        let refused = rule.key("x").unwrap_err();
        assert!(refused.contains(&format!("write `{written}`")), "{refused}");
    }
}

#[test]
fn what_names_no_client_is_refused() {
    #[rustfmt::skip]
    let table: [(Pairs<'_>, &str, &str); 6] = [
        (&[("route", "a/b"), ("user", "u")],   "",         "needs a value"),
        (&[("route", "a/b"), ("kind", "v")],   "w",        "fit `v*`"),
        (&[("path", "/"), ("user", "u")],      "u1",       "leaves 2 entries open"),
        (&[("path", "/"), ("user", "u")],      "//u1",     "a `/` in a value as `%2F`"),
        (&[("path", "/"), ("api_key", "k")],   "a/sha256:1", "64 hexadecimal digits"),
        (&[("ip", "10.0.0.1")],                "sha256:1", "64 hexadecimal digits"),
    ];
    for (entries, written, message) in table {
        let refused = rule_for(entries).key(written).unwrap_err();
        assert!(refused.contains(message), "{written}: {refused}");
    }
    let long = "x".repeat(crate::attributes::MAX_VALUE + 1);
    assert!(rule_for(&[("ip", "x")]).key(&long).is_err());
}

#[test]
fn secret_values_are_kept_as_digests_and_found_by_what_is_known() {
    let asked = [("path", "/v1"), ("api_key", "k2")];
    let other = [("path", "/v1"), ("api_key", "k3")];
    let rule = rule_for(&asked);
    let digits = digest().of("k2");
    let by_value = rule.key("%2Fv1/k2").unwrap();
    assert_eq!(by_value.text(), format!("%2Fv1/{digits}"));
    assert_eq!(by_value.digest(), None, "two values name the client");
    let shown = rule.key(&format!("%2Fv1/abcd…{digits}"));
    assert_eq!(shown.as_ref(), Ok(&by_value));
    assert!(by_value.is_written(&format!("%2Fv1/abcd…{digits}")));
    // What `printf %s k2 | sha256sum` says.
    let hash = "sha256:015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
    let by_hash = rule.key(&format!("%2Fv1/{hash}")).unwrap();
    assert!(by_hash.is_written("%2Fv1/k2"));
    for key in [by_value, by_hash] {
        assert!(rule.names(&key, &asked) && !rule.names(&key, &other));
    }
}

#[test]
fn of_two_that_name_a_client_the_newer_wins() {
    let asked = [("path", "/v1"), ("api_key", "k2")];
    let one = rule_for(&asked);
    let rule = one.rules.at(one.index);
    let hash = "%2Fv1/sha256:015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
    for keys in [["%2Fv1/k2", hash], [hash, "%2Fv1/k2"]] {
        let overrides = ["blocked", "unlimited"].into_iter().zip(keys);
        let overrides = overrides.map(|(limit, key)| TemporaryOverride {
            key: one.key(key).unwrap(),
            limit: limit.to_owned(),
            expires_at: NOW,
        });
        let overrides: Vec<TemporaryOverride> = overrides.collect();
        let grants = TemporaryGrants::of(rule, &overrides, Some(&digest()));
        let found = grants.find(rule, &attributes(&asked), NOW - Micros::SECOND);
        let index = found.unwrap() - rule.grants().len();
        assert_eq!(grants.grants()[index], Grant::Unlimited, "{keys:?}");
    }
}

/// The limits of an override of a descriptor limit with this block `tidegate`.
fn granted(own: &str, limit: &str, units: Units) -> Result<Vec<Limit>, String> {
    let settings = RuleSettings {
        units,
        ..RuleSettings::default()
    };
    let yaml = format!(
        "domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: minute, requests_per_unit: 5}}{own}}}]\n"
    );
    let rules = read(&yaml, &settings);
    let grant = rules.at(0).override_grant(limit)?;
    Ok(grant.limits().to_vec())
}

#[test]
fn limits_are_counted_as_those_of_the_file() {
    let window = |count, window, anchor| vec![Limit::fixed_window(count, window, anchor).unwrap()];
    let days = |count| Window::Span(Micros::DAY.times(count));
    let (calendar, epoch) = (Units::Calendar, Units::Epoch);
    let (clock, week) = (Anchor::Clock, Window::Span(Micros::WEEK));
    #[rustfmt::skip]
    let table = [
        ("9/minute",            calendar,   window(9, Window::Span(Micros::MINUTE), clock)),
        ("4294967295/day",      calendar,   window(4_294_967_295, days(1), clock)),
        ("9/week",              calendar,   window(9, week, clock)),
        ("9/month",             calendar,   window(9, Window::Month, clock)),
        ("9/week",              epoch,      window(9, week, Anchor::Epoch)),
        ("9/month",             epoch,      window(9, days(30), clock)),
        ("9/year",              epoch,      window(9, days(365), clock)),
    ];
    for (limit, units, expected) in table {
        assert_eq!(granted("", limit, units).as_ref(), Ok(&expected), "{limit}");
    }
    assert_eq!(granted("", "9/minute; 20/hour", calendar).unwrap().len(), 2);
    assert!(granted("", "9/minute burst 2", calendar).is_err());
    assert!(granted("", "9", calendar).is_err());
    let bucket = ", tidegate: {algorithm: token_bucket, burst: 20}";
    let of_rules: Limit = "9/minute burst 2".parse().unwrap();
    let granted_bucket = granted(bucket, "9/minute burst 2", calendar);
    assert_eq!(granted_bucket, Ok(vec![of_rules]));
    let concurrent = ", tidegate: {algorithm: concurrency}";
    assert!(granted(concurrent, "9", calendar).is_ok());
}
