//! Rules as they are written, read and written down again, and texts that are no rules.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::fmt::Write as _;
use std::sync::LazyLock;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use tidegate::document::{self, Node, Source};
use tidegate::rules::{DescribingFrontEnd, Rule, RuleSet, RuleSettings};
use tidegate::{AdaptiveBounds, Attributes, Gate, MemoryStore};
use tidegate_testkit::JsonSchema;

static SETTINGS: LazyLock<RuleSettings> = LazyLock::new(RuleSettings::default);

fn from_text(text: &str) -> Result<RuleSet, String> {
    let source = Source::new("rules.yaml", text);
    RuleSet::read(&source, &SETTINGS).map_err(|problems| problems.render(&source))
}

fn from_body(body: &str) -> Result<RuleSet, String> {
    let node: Node = serde_json::from_str(body).map_err(|error| error.to_string())?;
    RuleSet::from_node(&node, &SETTINGS).map_err(|problems| problems.to_string())
}

/// What the schema says about files.
static FILES: LazyLock<JsonSchema> =
    LazyLock::new(|| JsonSchema::new(tidegate::rules::schema()).unwrap());

/// What the description of the API says about lists of rules.
static BODIES: LazyLock<JsonSchema> = LazyLock::new(|| {
    let schemas = tidegate::rules::api_schemas();
    let list = json!({
        "type": "array",
        "items": {"$ref": "#/components/schemas/Rule"},
        "components": {"schemas": schemas},
    });
    JsonSchema::new(list).unwrap()
});

fn body(rules: &Value) -> String {
    json!({ "rules": rules }).to_string()
}

/// Text that people and programs put into values: whatever is not a control character.
fn free_text() -> impl Strategy<Value = String> {
    prop_oneof![
        select(
            &[
                "007", "yes", "1e3", "~", "null", "true", "0x1f", "- a", "a: b", "#x", "'", "\"",
                "\\", " x "
            ][..]
        )
        .prop_map(str::to_owned),
        "[^\\p{Cc}]{1,12}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        select(
            &[
                "user_id",
                "api_key",
                "ip",
                "tier",
                "host",
                "header.x-team",
                "path",
                "007",
                "~",
                "null"
            ][..]
        )
        .prop_map(str::to_owned),
        "[a-z~:./_-]{1,8}",
    ]
    .prop_filter("headers are lower-case already", |name| {
        !name.contains(char::is_whitespace)
    })
}

/// How a rule counts: the algorithm with its options, and limits that it can count.
fn counting() -> impl Strategy<Value = (Map<String, Value>, Vec<Value>)> {
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    let spans = vec![
        "100/minute",
        "5/250ms",
        "10 per 2 hours",
        "1/w",
        "10000000/366d",
        "2/7s",
        "9/1ms",
        "3/90s",
    ];
    let buckets = vec![
        "100/minute burst 20",
        "5/s burst 1000",
        "7/day burst 1",
        "10/minute; 2/second burst 3",
    ];
    let months = vec!["1000/month", "1/year", "10/month; 2/second"];
    let several = vec!["10/minute; 2/second", "1/s,2/m|3/h"];
    let texts = |lists: &[&Vec<&'static str>]| -> Vec<Value> {
        lists
            .iter()
            .flat_map(|list| list.iter().map(|text| json!(text)))
            .collect()
    };
    let written = vec![
        json!({"requests": 100, "window": "60s"}),
        json!({"requests": 3, "window": "minute"}),
        json!([{"requests": 3, "window": "1h"}, "2/second"]),
    ];
    let with_burst = json!({"requests": 3, "window": "5m", "burst": 2});
    let word = [json!("unlimited"), json!("blocked")];
    let windows = [texts(&[&spans, &several]), written.clone(), word.to_vec()].concat();
    let of_buckets = [windows.clone(), texts(&[&buckets]), vec![with_burst]].concat();
    let by_default = [of_buckets.clone(), texts(&[&months])].concat();
    let by_clock = [windows.clone(), texts(&[&vec!["1000/month", "1/year"]])].concat();
    let slots = vec![
        json!("100/minute"),
        json!("7/hour"),
        json!("1/day; 1/h"),
        json!("blocked"),
    ];
    let holders = vec![
        json!("10"),
        json!(3),
        json!({"requests": 4}),
        json!("unlimited"),
        json!("blocked"),
    ];
    let words = word.to_vec();
    #[rustfmt::skip]
    let table = vec![
        (json!({}),                                                                         by_default),
        (json!({"max_delay": "500ms"}),                                                     of_buckets.clone()),
        (json!({"algorithm": "token_bucket"}),                                              of_buckets.clone()),
        (json!({"algorithm": "token_bucket", "max_delay": "2s"}),                           of_buckets.clone()),
        (json!({"algorithm": "token_bucket", "max_delay": "0s"}),                           of_buckets.clone()),
        (json!({"algorithm": "leaky_bucket"}),                                              of_buckets.clone()),
        (json!({"algorithm": "leaky_bucket", "shape": false}),                              of_buckets),
        (json!({"algorithm": "fixed_window", "anchor": "clock"}),                           by_clock),
        (json!({"algorithm": "fixed_window", "anchor": "first_request"}),                   windows.clone()),
        (json!({"algorithm": "sliding_window_log"}),                                        windows.clone()),
        (json!({"algorithm": "sliding_window_counter"}),                                    windows),
        (json!({"algorithm": "sliding_window_slots"}),                                      slots.clone()),
        (json!({"algorithm": "sliding_window_slots", "slots": 10, "strict": true}),         slots),
        (json!({"algorithm": "concurrency"}),                                               holders.clone()),
        (json!({"algorithm": "concurrency", "lease_ttl": "90s"}),                           holders),
        (json!({"algorithm": "concurrency", "limit": 7, "adaptive": {"min": 5, "max": 50}}), words.clone()),
        (json!({"algorithm": "concurrency", "limit": 7, "adaptive": {"min": 7, "max": 7, "target": "1500ms"}}), words.clone()),
        (json!({"limit": "7/s", "adaptive": {"min": "5/s", "max": "50/s"}}),                words.clone()),
        (json!({"max_delay": "2s", "limit": "60/m", "adaptive": {"min": "1/m", "max": "90/m burst 7", "target": "90ms"}}), words.clone()),
        (json!({"algorithm": "leaky_bucket", "limit": "7/s", "adaptive": {"min": {"requests": 5, "window": "1s"}, "max": {"requests": 9, "window": "1s", "burst": 9}}}), words),
    ];
    select(table).prop_map(move |(options, limits)| (map(options), limits))
}

fn matching() -> impl Strategy<Value = Value> {
    let path = select(
        &[
            "/",
            "/**",
            "/v1/**",
            "/login/",
            "/users/*/orders",
            "/é",
            "/a b",
        ][..],
    );
    let host = select(
        &[
            "api.example.com",
            "*.Example.org",
            "localhost",
            "[::1]",
            "10.0.0.1",
        ][..],
    );
    let ip = select(
        &[
            "10.0.0.0/8",
            "203.0.113.7",
            "2001:db8::/32",
            "::1",
            "::ffff:10.0.0.0/104",
            "0.0.0.0/0",
        ][..],
    );
    let when = select(
        &[
            "cost > 1",
            "attributes[\"region\"] == \"eu\" && cost > 1",
            "'a' in attributes",
        ][..],
    );
    let method = select(&["GET", "post", "M-SEARCH"][..]);
    let list = |strategy: proptest::sample::Select<&'static str>| {
        option::of(prop_oneof![
            strategy.clone().prop_map(|one| json!(one)),
            prop::collection::vec(strategy, 1..3).prop_map(|list| json!(list)),
        ])
    };
    let values = prop_oneof![
        free_text().prop_map(|value| json!(value)),
        prop::collection::vec(free_text(), 1..3).prop_map(|values| json!(values)),
    ];
    let attribute = name().prop_filter("values of these have a form", |name| {
        !matches!(name.as_str(), "ip" | "path" | "host")
    });
    let attributes = option::of(prop::collection::btree_map(attribute, values, 1..3));
    (
        list(path),
        list(method),
        list(host),
        list(ip),
        attributes,
        option::of(when),
    )
        .prop_map(|(path, method, host, ip, attributes, when)| {
            object([
                ("path", path),
                ("method", method),
                ("host", host),
                ("ip", ip),
                ("attributes", attributes.map(|map| json!(map))),
                ("when", when.map(|when| json!(when))),
            ])
        })
}

fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let entry = |(key, value): (&str, Option<Value>)| Some((key.to_owned(), value?));
    Value::Object(entries.into_iter().filter_map(entry).collect())
}

/// Any rule that is valid, but for its id.
fn rule() -> impl Strategy<Value = Value> {
    let per = prop::collection::btree_set(name(), 0..3);
    let named = || prop::collection::vec((free_text(), any::<Index>()), 0..3);
    let addresses = select(
        &[
            "10.0.0.1",
            "2001:DB8::1",
            "2001:db8:1::/64",
            "2001:db8::/32",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "0.0.0.0/0",
            "::ffff:10.0.0.0/104",
            "::ffff:10.0.0.2",
        ][..],
    );
    let words = (
        option::of(select(&["skip", "share", "deny"][..])),
        option::of(select(&["enforce", "shadow"][..])),
        option::of(select(&["allow", "deny", "local"][..])),
        any::<bool>(),
    );
    let cost = option::of(prop_oneof![
        (1_u64..=1_000_000_000).prop_map(|cost| json!(cost)),
        name().prop_map(|name| json!({ "attribute": name })),
    ]);
    let starts_at = option::of(select(
        &["2026-12-01T00:00:00Z", "2027-01-01T01:00:00.123456+02:00"][..],
    ));
    let expires_at = option::of(select(
        &["2027-01-01T00:00:00Z", "2027-01-01T02:00:00.123456+02:00"][..],
    ));
    let times = (starts_at, expires_at);
    let exception = matching().prop_filter("an empty item is refused", |item| {
        item.as_object().is_some_and(|parts| !parts.is_empty())
    });
    let except = prop::collection::vec(exception, 0..3);
    let chosen = (any::<Index>(), named(), named(), addresses);
    let free = (option::of(free_text()), option::of(matching()), except, per);
    (free, counting(), chosen, words, cost, times).prop_map(
        |(
            (description, matching, except, per),
            (options, limits),
            (limit, tiers, overrides, address),
            words,
            cost,
            (starts_at, expires_at),
        )| {
            let (missing, mode, on_store_failure, leased) = words;
            let per: Vec<String> = per.into_iter().collect();
            let grants = |named: Vec<(String, Index)>| -> Map<String, Value> {
                named
                    .into_iter()
                    .map(|(name, limit)| (name, limit.get(&limits).clone()))
                    .collect()
            };
            let overrides = match per.first().map(String::as_str) {
                None => Map::new(),
                Some("ip") => Map::from_iter([(address.to_owned(), limit.get(&limits).clone())]),
                Some("host") => Map::from_iter([("x.example".to_owned(), json!("blocked"))]),
                Some("path" | "method") => Map::from_iter([("/x".to_owned(), json!("blocked"))]),
                Some(_) => grants(overrides),
            };
            let goes_leased = matches!(
                options.get("algorithm").and_then(Value::as_str),
                Some("fixed_window" | "sliding_window_counter" | "sliding_window_slots")
            );
            let mut rule = object([
                ("id", None),
                ("description", description.map(|text| json!(text))),
                ("match", matching),
                ("except", Some(json!(except))),
                ("per", Some(json!(per))),
                ("missing", missing.map(|word| json!(word))),
                ("limit", Some(limit.get(&limits).clone())),
                ("tiers", Some(Value::Object(grants(tiers)))),
                ("overrides", Some(Value::Object(overrides))),
                ("cost", cost),
                ("mode", mode.map(|word| json!(word))),
                ("on_store_failure", on_store_failure.map(|word| json!(word))),
                ("sync", (leased && goes_leased).then(|| json!("leased"))),
                ("starts_at", starts_at.map(|time| json!(time))),
                ("expires_at", expires_at.map(|time| json!(time))),
            ]);
            if let Some(map) = rule.as_object_mut() {
                map.extend(options);
            }
            rule
        },
    )
}

fn rules() -> impl Strategy<Value = Value> {
    prop::collection::vec(rule(), 0..5).prop_map(|rules| {
        let with_id = |(index, mut rule): (usize, Value)| {
            rule["id"] = json!(format!("Rule.{index}_x-"));
            rule
        };
        rules.into_iter().enumerate().map(with_id).collect()
    })
}

proptest! {
    #[test]
    fn rules_that_are_written_down_read_as_the_same_rules(written in rules()) {
        let first = from_body(&body(&written)).map_err(TestCaseError::fail)?;
        prop_assert_eq!(first.len(), written.as_array().map_or(0, Vec::len));
        let json = first.to_json();
        for rules in [&written, &json] {
            let fits = FILES.check(&json!({ "rules": rules })).and_then(|()| BODIES.check(rules));
            fits.map_err(TestCaseError::fail)?;
        }
        let again = from_body(&body(&json)).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&again.to_json(), &json);
        for text in [body(&written), body(&json), serde_json::to_string_pretty(&json!({"rules": json})).unwrap()] {
            let read = from_text(&text).map_err(TestCaseError::fail)?;
            prop_assert_eq!(&read.to_json(), &json, "{}", text);
        }
        for (one, other) in first.iter().zip(again.iter()) {
            prop_assert_eq!(one.grants(), other.grants());
            let bounds = |rule: &Rule| {
                rule.adaptive().map(|bounds| (bounds.min(), bounds.max(), bounds.target()))
            };
            let windows = |rule: &Rule| rule.adaptive().map(AdaptiveBounds::window);
            prop_assert_eq!(windows(one), windows(other));
            prop_assert_eq!(bounds(one), bounds(other));
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = from_text(&text);
        let _ = from_text(&format!("rules:\n  - {text}\n"));
        let _ = from_text(&format!("rules:\n  - id: a\n    per: [ip]\n    limit: {text}\n"));
    }

    #[test]
    fn no_mutation_of_a_file_makes_the_reader_panic(
        written in rules(),
        edits in prop::collection::vec((any::<Index>(), select(&["", "\n", "\t", "  ", "- ", ": ", "{", "]", "\"", "&a", "*a", "<<", "é", "\u{0}", "#", "|", "0", "/"][..])), 1..5),
    ) {
        let mut text = as_yaml(&written);
        prop_assert!(from_text(&text).is_ok(), "{}\n{}", from_text(&text).unwrap_err(), text);
        for (index, insert) in edits {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = *index.get(&places);
            if insert.is_empty() {
                text.remove(at);
            } else {
                text.insert_str(at, insert);
            }
            let source = Source::new("rules.yaml", text.as_str());
            if let Err(problems) = RuleSet::read(&source, &SETTINGS) {
                prop_assert!(problems.has_errors());
                problems.render(&source);
            }
        }
    }

    #[test]
    fn no_json_makes_the_reader_panic(value in any_json(), key in select(tidegate::rules::keys())) {
        let mut rule = json!({"id": "a", "per": ["ip"], "limit": "1/s"});
        rule[key.name] = value.clone();
        if from_body(&body(&json!([rule]))).is_ok() {
            BODIES.check(&json!([rule])).map_err(TestCaseError::fail)?;
        }
        for body in [value.to_string(), body(&value), body(&json!([value])), body(&json!([rule]))] {
            let node: Node = serde_json::from_str(&body).unwrap();
            let errors = |problems: &document::Problems| problems.has_errors();
            prop_assert!(RuleSet::from_node(&node, &SETTINGS).as_ref().err().is_none_or(errors));
            prop_assert!(Rule::from_node(&node, &SETTINGS).as_ref().err().is_none_or(errors));
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        any::<f64>().prop_map(|value| json!(value)),
        any::<String>().prop_map(|value| json!(value)),
        select(
            &[
                "1/s",
                "0/s",
                "ip",
                "unlimited",
                "path",
                "id",
                "per",
                "limit",
                "/a/**"
            ][..]
        )
        .prop_map(|value| json!(value)),
    ];
    let key = prop_oneof![
        select(
            &[
                "rules",
                "id",
                "per",
                "limit",
                "match",
                "path",
                "attributes",
                "requests",
                "window",
                "burst",
                "attribute"
            ][..]
        )
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|list| json!(list)),
            prop::collection::btree_map(key.clone(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// The rules as people write them: a key on each line.
fn as_yaml(rules: &Value) -> String {
    let mut text = "rules:\n".to_owned();
    for rule in rules.as_array().into_iter().flatten() {
        let mut lead = "  - ";
        for (key, value) in rule.as_object().into_iter().flatten() {
            let _ = writeln!(text, "{lead}{key}: {value}");
            lead = "    ";
        }
    }
    if text.lines().count() == 1 {
        return "rules: []\n".to_owned();
    }
    text
}

#[test]
fn keys_and_values_are_text_as_written() {
    let text = "
rules:
  - id: as-written
    match: {attributes: {007: 007, yes: [yes, no], 1e3: 1e3, ~: '~', null: \"null\", 0x1f: 0x1f, on: 1.0}}
    per: [user_id]
    missing: deny
    limit: 10/minute
    tiers: {007: 7/minute, yes: 1/minute, 1e3: 2/minute, ~: 3/minute, null: 4/minute, true: 5/minute}
    overrides: {007: 7/minute, yes: 1/minute, 1e3: 2/minute, ~: 3/minute, null: 4/minute, 2026-10-05: 5/minute}
";
    let json = from_text(text).unwrap().to_json();
    let keys = |key: &str| -> Vec<&String> { json[0][key].as_object().unwrap().keys().collect() };
    assert_eq!(keys("tiers"), ["007", "yes", "1e3", "~", "null", "true"]);
    assert_eq!(
        keys("overrides"),
        ["007", "yes", "1e3", "~", "null", "2026-10-05"]
    );
    let expected = json!({
        "007": ["007"], "yes": ["yes", "no"], "1e3": ["1e3"], "~": ["~"], "null": ["null"], "0x1f": ["0x1f"], "on": ["1.0"],
    });
    assert_eq!(json[0]["match"]["attributes"], expected);
    assert_eq!(from_text(&body(&json)).unwrap().to_json(), json);
    assert_eq!(from_body(&body(&json)).unwrap().to_json(), json);
}

#[test]
fn files_as_editors_and_programs_write_them() {
    let written =
        from_text("rules:\n  - {id: a, per: [ip], limit: 1/s, description: \"\u{1f30a} é\"}\n")
            .unwrap()
            .to_json();
    #[rustfmt::skip]
    let table = [
        ("with a byte order mark",              "\u{feff}rules:\n  - id: a\n    per: [ip]\n    limit: 1/s\n    description: \u{1f30a} é\n"),
        ("with the line ends of Windows",       "rules:\r\n  - id: a\r\n    per: [ip]\r\n    limit: 1/s\r\n    description: \u{1f30a} é\r\n"),
        ("between marks of a document",         "%YAML 1.2\n---\nrules:\n- id: a\n  per: ip\n  limit: 1/s\n  description: \u{1f30a} é\n...\n"),
        ("as JSON with tabs",                   "{\n\t\"rules\": [\n\t\t{\n\t\t\t\"id\": \"a\",\n\t\t\t\"per\": [\"ip\"],\n\t\t\t\"limit\": \"1/s\",\n\t\t\t\"description\": \"\u{1f30a} é\"\n\t\t}\n\t]\n}\n"),
        ("as JSON with everything escaped",     r#"{"rules":[{"id":"a","per":["ip"],"limit":"1\/s","description":"\ud83c\udf0a \u00e9"}]}"#),
        ("with an alias",                       "rules:\n  - {id: a, per: &p [ip], limit: 1/s, description: \u{1f30a} é}\n"),
    ];
    for (name, text) in table {
        let read = from_text(text).unwrap_or_else(|problems| panic!("{name}:\n{problems}"));
        assert_eq!(read.to_json(), written, "{name}");
    }
}

#[test]
fn many_keys_are_read_in_the_time_of_many_keys() {
    let mut text = "rules:\n  - id: a\n    per: [user_id]\n    missing: deny\n    limit: 1/s\n    overrides:\n".to_owned();
    for number in 0..100_000 {
        let _ = writeln!(text, "      user_{number}: blocked");
    }
    assert_eq!(from_text(&text).unwrap().len(), 1);
}

/// Every rule that can be read can be decided by, too.
#[test]
fn a_gate_decides_by_whatever_was_read() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    runner
        .run(
            &(
                rules(),
                prop::collection::btree_map(name(), free_text(), 0..6),
                0_u64..3,
            ),
            |(written, known, cost)| {
                let gate = Gate::new(
                    MemoryStore::new(),
                    from_body(&body(&written)).map_err(TestCaseError::fail)?,
                );
                let mut attributes = Attributes::new().with_cost(cost);
                for (name, value) in known {
                    let _ = attributes.insert(name, value);
                }
                let decision = tidegate_testkit::block_on(gate.decide(&attributes));
                prop_assert_eq!(decision.is_allowed(), !decision.is_denied());
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn a_scope_says_what_a_store_must_know_of_a_rule() {
    let mut settings = RuleSettings::default();
    settings.secret_attributes = vec!["session".to_owned()];
    #[rustfmt::skip]
    let table = [
        // rule                                             secret  leased
        ("per: [user_id]",                                  false,  false),
        ("per: []",                                         false,  false),
        ("per: [api_key]",                                  true,   false),
        ("per: [user_id, session]",                         true,   false),
        ("per: [user_id], sync: leased",                    false,  true),
        ("per: [session], sync: leased",                    true,   true),
        ("per: [user_id], sync: leased, mode: shadow",      false,  false),
    ];
    for (rule, is_secret, is_leased) in table {
        let text = format!("rules:\n- {{id: r, limit: 1/s, {rule}}}");
        let source = Source::new("rules.yaml", text);
        let rules = RuleSet::read(&source, &settings).unwrap();
        let scope = rules.get("r").unwrap().scope();
        assert_eq!(
            (scope.has_secret_keys(), scope.is_leased()),
            (is_secret, is_leased),
            "{rule}"
        );
        let mut name = vec!["r"];
        name.extend(rules.get("r").unwrap().per().iter().map(String::as_str));
        assert_eq!(scope.name(), name.join("@"), "another `per` begins anew");
    }
}

#[test]
fn calls_of_the_api_cannot_be_ids() {
    for id in ["history", "rollback", "diff"] {
        let set = json!({"rules": [{"id": id, "per": [], "limit": "1/s"}]});
        let node: Node = serde_json::from_value(set).unwrap();
        let problems = RuleSet::from_node(&node, &SETTINGS).unwrap_err();
        let fields: Vec<&str> = problems
            .errors()
            .map(|error| error.field.as_str())
            .collect();
        assert_eq!(fields, ["id"], "{id}");
    }
}

#[test]
fn a_rule_that_has_expired_is_a_warning_if_the_time_is_known() {
    let text = "rules:\n- {id: a, per: [], limit: 1/s, expires_at: 2026-01-01T00:00:00Z}\n";
    let source = Source::new("rules.yaml", text);
    let end = tidegate::Timestamp::from_seconds(1_767_225_600);
    let warnings = |settings: &RuleSettings| {
        let rules = RuleSet::read(&source, settings).unwrap();
        rules.warnings().iter().count()
    };
    assert_eq!(warnings(&SETTINGS), 0);
    assert_eq!(warnings(&SETTINGS.at(end - tidegate::Micros::new(1))), 0);
    assert_eq!(warnings(&SETTINGS.at(end)), 1);
}

#[test]
fn a_month_takes_an_anchor_without_an_algorithm() {
    let list = |limit: &str, anchor: &str| {
        from_text(&format!(
            "rules:\n- {{id: a, per: [], limit: {limit}, anchor: {anchor}}}\n"
        ))
    };
    for limit in ["1000/month", "10/second; 1000/month", "1/year", "1000/day"] {
        let rules = list(limit, "clock").unwrap();
        let again = from_body(&body(&rules.to_json())).unwrap();
        assert_eq!(again.to_json(), rules.to_json());
    }
    let refused = list("1000/month", "first_request").unwrap_err();
    assert!(refused.contains("is a calendar period"), "{refused}");
    assert!(!refused.contains("token_bucket"), "{refused}");
    assert!(list("1000/day", "first_request").is_ok());
    for limit in ["1000/hour", "1000/day burst 5", "1000/day, max_delay: 1s"] {
        let refused = list(limit, "clock").unwrap_err();
        assert!(refused.contains("counts with `token_bucket`"), "{refused}");
    }
}

/// The algorithms of every grant of a rule with these keys, in the order of its limits.
fn algorithms(keys: &str) -> Vec<&'static str> {
    let rules = from_text(&format!("rules:\n- {{id: a, per: [user_id], {keys}}}\n")).unwrap();
    let again = from_body(&body(&rules.to_json())).unwrap();
    assert_eq!(again.to_json(), rules.to_json(), "{keys}");
    let names = |rules: &RuleSet| {
        let grants = rules.get("a").unwrap().grants().to_vec();
        let limits = grants.iter().flat_map(|grant| grant.limits().to_vec());
        limits
            .map(|limit| limit.algorithm().name())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&again), names(&rules), "{keys}");
    names(&rules)
}

#[test]
fn the_default_algorithm_is_chosen_for_each_limit_by_itself() {
    let (bucket, fixed) = ("token_bucket", "fixed_window");
    #[rustfmt::skip]
    let table: [(&str, &[&str]); 14] = [
        ("limit: 10000/day",                                                      &[fixed]),
        ("limit: 10000/24h",                                                      &[fixed]),
        ("limit: 10000/23h",                                                      &[bucket]),
        ("limit: {requests: 10, window: 1w}",                                     &[fixed]),
        ("limit: 10000/day; 100/second",                                          &[fixed, bucket]),
        ("limit: 10000/day burst 50; 5/week",                                     &[bucket, fixed]),
        ("limit: 10/minute, tiers: {pro: 1000/day}, overrides: {u: 9/week, v: 9/day burst 9}", &[bucket, fixed, fixed, bucket]),
        ("limit: 10000/day, algorithm: token_bucket",                             &[bucket]),
        ("limit: 10000/day; 5/second, algorithm: sliding_window_log",             &["sliding_window_log"; 2]),
        ("limit: 10000/day; 5/second, max_delay: 1s",                             &[bucket, bucket]),
        ("limit: 10000/day, tiers: {pro: 20000/day}, max_delay: 1s",              &[bucket, bucket]),
        ("limit: 10000/day, max_delay: 0s",                                       &[fixed]),
        ("limit: 10000/month; 5/day, max_delay: 1s",                              &[fixed, bucket]),
        ("limit: 100/day, adaptive: {min: 10/day, max: 200/day}",                 &[bucket]),
    ];
    for (keys, expected) in table {
        assert_eq!(algorithms(keys), expected, "{keys}");
    }
}

#[test]
fn a_temporary_override_is_counted_by_the_same_defaults() {
    let rules = from_text(
        "rules:
- {id: plain, per: [user_id], limit: 10/minute}
- {id: delayed, per: [user_id], limit: 10/minute, max_delay: 1s}
- {id: log, per: [user_id], limit: 10/minute, algorithm: sliding_window_log}
",
    )
    .unwrap();
    let of = |id: &str, limit: &str| {
        let grant = rules.get(id).unwrap().override_grant(limit).unwrap();
        grant.limits()[0].algorithm().name()
    };
    assert_eq!(of("plain", "1000/day"), "fixed_window");
    assert_eq!(of("plain", "1000/day burst 5"), "token_bucket");
    assert_eq!(of("plain", "1000/hour"), "token_bucket");
    assert_eq!(of("delayed", "1000/day"), "token_bucket");
    assert_eq!(of("log", "1000/day"), "sliding_window_log");
}

#[test]
fn the_worst_case_is_computed_and_cannot_be_written_in_a_file() {
    let text = "rules:\n- {id: a, per: [], limit: 1/s, worst_case: {limit: []}}\n";
    let refused = from_text(text).unwrap_err();
    assert!(refused.contains("unknown key `worst_case`"), "{refused}");
}

/// Every key is given a value that it cannot have.
#[test]
fn every_key_of_a_rule_is_read() {
    for key in tidegate::rules::keys() {
        let algorithm = key.needs.first();
        let mut rule = json!({"id": "x", "per": [], "limit": "1/s", "algorithm": algorithm});
        rule[key.name] = json!({"no such key": [1, 2]});
        let node: Node = serde_json::from_str(&rule.to_string()).unwrap();
        let problems = Rule::from_node(&node, &SETTINGS).unwrap_err();
        let name = key.name;
        let is_read = problems.iter().any(|problem| {
            let is_about = problem.field.contains(name);
            is_about && !problem.message.contains(&format!("unknown key `{name}`"))
        });
        assert!(is_read, "`{name}` is in the table and is not read");
    }
}

#[test]
fn every_key_of_a_rule_is_written_down() {
    for key in tidegate::rules::keys() {
        let algorithm = key.needs.first().copied();
        let limit = match (key.name, algorithm) {
            ("adaptive", _) => Value::Null,
            (_, Some("concurrency")) => json!(5),
            _ => json!("100/minute"),
        };
        // With a rate, which the example has.
        let algorithm = algorithm.filter(|_| key.name != "adaptive");
        let mut rule =
            json!({"id": "x", "per": ["user_id"], "algorithm": algorithm, "limit": limit});
        rule[key.name] = document::value(key.example);
        let rule = rule.as_object_mut().unwrap();
        rule.retain(|_, value| !value.is_null());
        let read = from_body(&body(&json!([rule]))).unwrap();
        let written = read.to_json();
        assert!(!written[0][key.name].is_null(), "`{}` is lost", key.name);
        let again = from_body(&body(&written)).unwrap();
        assert_eq!(again.to_json(), written, "{}", key.name);
    }
}

#[test]
fn a_rule_that_can_never_apply_at_the_front_end_is_warned_about() {
    let mut settings = RuleSettings::default();
    settings.described_by = Some(DescribingFrontEnd {
        place: "at the gateway",
        identified: vec!["user_id".to_owned()],
        unread_units: vec!["tokens", "money"],
    });
    let said = |rule: &str| {
        let text = format!("rules:\n- {{id: a, {rule}, limit: 3/minute}}\n");
        let read = RuleSet::read(&Source::new("rules.yaml", text), &settings).unwrap();
        let warnings = read.warnings().warnings();
        warnings
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    #[rustfmt::skip]
    let table = [
        ("per: [api_key]",                                      "nothing in `identify` sets `api_key`, so at the gateway this rule applies to no request"),
        ("per: [ip, api_key], missing: deny",                   "sets `api_key`, so at the gateway this rule denies every request"),
        ("per: [api_key], missing: share",                      "so at the gateway this rule has one counter for all requests"),
        ("match: {attributes: {plan: free}}, per: [ip]",        "nothing in `identify` sets `plan`, so at the gateway this rule applies to no request"),
        ("per: [user_id]",                                      "a request without `user_id` escapes this rule"),
        ("per: [ip, method, path, host]",                       ""),
        ("per: [header.x-team], missing: deny",                 ""),
        ("match: {attributes: {domain: web}}, per: [user]",     ""),
        ("per: [], unit: money",                                "at the gateway this rule is charged 1 for each request, because no `usage` says what requests cost"),
        ("per: [], unit: rows",                                 ""),
    ];
    for (rule, expected) in table {
        let said = said(rule);
        assert!(said.contains(expected), "{rule}: {said}");
        assert_eq!(
            said.lines().count(),
            usize::from(!expected.is_empty()),
            "{rule}: {said}"
        );
    }
}

#[test]
fn what_is_exempt_is_an_exception_of_each_rule() {
    let text = "
exempt:
  - {path: /healthz}
rules:
  - {id: a, per: [ip], limit: 1/minute}
  - {id: b, per: [], limit: 1/second, except: [{ip: 10.0.0.0/8}]}
";
    let written = "
rules:
  - {id: a, per: [ip], limit: 1/minute, except: [{path: /healthz}]}
  - {id: b, per: [], limit: 1/second, except: [{ip: 10.0.0.0/8}, {path: /healthz}]}
";
    let exempt = RuleSet::from_yaml(text).unwrap();
    let expected = RuleSet::from_yaml(written).unwrap();
    assert_eq!(exempt.to_json(), expected.to_json());
    assert_eq!(exempt.written(), expected.written());
    let again = serde_json::json!({"rules": exempt.written()}).to_string();
    let again = RuleSet::from_yaml(&again).unwrap();
    assert_eq!(again.to_json(), expected.to_json());
}

#[test]
fn exceptions_of_all_rules_are_bounded_as_if_they_were_written_out() {
    let paths = vec!["/a/b/c"; 1_000].join(", ");
    let rule = |index: usize| format!("  - {{id: r{index}, per: [], limit: {}/s}}\n", index + 1);
    let rules: String = (0..1_000).map(rule).collect();
    let text = format!("exempt: [{{path: [{paths}]}}]\nrules:\n{rules}");
    let problems = RuleSet::from_yaml(&text).unwrap_err().to_string();
    assert!(
        problems.contains("in each of 1000 rules are more than 8 MiB"),
        "{problems}"
    );
}

#[test]
fn a_candidate_is_written_so_that_it_reads_as_the_same() {
    #[rustfmt::skip]
    let table = [
        ("limit: 9/s, candidate: 5/s", json!("5/second")),
        ("limit: 9/s, candidate: {limit: 5/s}", json!("5/second")),
        ("limit: 9/s, candidate: {requests: 5, window: 1s, burst: 2}", json!("5/second burst 2")),
        ("limit: 9/s, candidate: [5/s, 100/hour]", json!("5/second; 100/hour")),
        ("limit: 9/s, candidate: 9/s", json!("9/second")),
        ("limit: 5, algorithm: concurrency, candidate: 3", json!(3)),
        ("limit: 9/s, tiers: {a: 5/s}, candidate: {tiers: {}}", json!({"tiers": {}})),
        ("limit: 9/s, tiers: {a: 5/s}, candidate: {tiers: {a: 4/s}, limit: 9/s}", json!({"tiers": {"a": "4/second"}})),
        ("limit: 9/s, algorithm: fixed_window, anchor: first_request, candidate: {anchor: clock}", json!({"anchor": "clock"})),
        ("limit: 9/s, algorithm: fixed_window, anchor: first_request, candidate: {algorithm: token_bucket}", json!({"algorithm": "token_bucket"})),
        ("limit: 9/s, algorithm: leaky_bucket, shape: false, candidate: {shape: true}", json!({"shape": true})),
        ("limit: 9/s, max_delay: 500ms, candidate: {max_delay: 0s, limit: 7/s}", json!({"limit": "7/second", "max_delay": "0s"})),
        ("limit: 9/s, max_delay: 500ms, candidate: {limit: 7/s}", json!("7/second")),
        ("limit: 9/s, overrides: {u1: blocked}, candidate: {overrides: {u1: 2/s, u2: unlimited}}", json!({"overrides": {"u1": "2/second", "u2": "unlimited"}})),
    ];
    for (fields, expected) in table {
        let text = format!("rules: [{{id: a, per: [user_id], missing: deny, {fields}}}]");
        let read = RuleSet::from_yaml(&text).unwrap();
        let written = read.to_json();
        assert_eq!(written[0]["candidate"], expected, "{fields}");
        let again = from_body(&body(&written)).unwrap();
        assert_eq!(again.to_json(), written, "{fields}");
        let grants = |set: &RuleSet| {
            let candidate = set.get("a").unwrap().candidate().unwrap();
            candidate.grants().to_vec()
        };
        assert_eq!(grants(&again), grants(&read), "{fields}");
    }
}
