//! The JSON Schemas are current in the documentation, and true: what the program accepts they accept, and unknown
//! keys and values of the wrong type they refuse.

use std::fs;
use std::process::Command;

use serde_json::{Value as Json, json};
use tidegate::document::{Entry, Key, Node, Problems, ScalarKind, Source, Value, value};
use tidegate::rules::RuleSet;
use tidegate_server::config::{self, SETTINGS};
use tidegate_testkit::JsonSchema;

use super::{blocks, root};

/// Whether each document of a YAML text fits.
fn check(schema: &JsonSchema, text: &str) -> Result<(), String> {
    text.split("\n---\n").try_for_each(|document| {
        let node = Source::new("test.yaml", document).read(&mut Problems::new());
        schema.check(&as_in_editors(&node.unwrap()))
    })
}

/// A document with the types that YAML 1.2 gives its scalars, as an editor validates it.
fn as_in_editors(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::List(items) => items.iter().map(as_in_editors).collect(),
        Value::Map(entries) => {
            let entry = |entry: &Entry| (entry.key.clone(), as_in_editors(&entry.value));
            Json::Object(entries.iter().map(entry).collect())
        }
        Value::Scalar(scalar) => {
            let text = scalar.text.as_str();
            let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
            let typed = match scalar.kind {
                ScalarKind::Text => None,
                _ if matches!(text, "true" | "True" | "TRUE") => Some(json!(true)),
                _ if matches!(text, "false" | "False" | "FALSE") => Some(json!(false)),
                _ if !is_number => None,
                _ => match text.parse::<i64>() {
                    Ok(number) => Some(json!(number)),
                    Err(_) => text.parse::<f64>().ok().map(Json::from),
                },
            };
            typed.unwrap_or_else(|| json!(text))
        }
    }
}

/// Every rule file of the tests and examples, by name.
fn rule_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in ["crates/tidegate/tests/it/broken", "examples"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let name = path.file_stem().unwrap().display().to_string();
                files.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    files
}

#[test]
fn the_schemas_in_the_documentation_are_current() {
    for name in ["rules", "config"] {
        let program = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["schema", name])
            .output();
        let printed = String::from_utf8(program.unwrap().stdout).unwrap();
        let file = format!("docs/reference/{name}.schema.json");
        let written = fs::read_to_string(root().join(&file)).unwrap_or_default();
        let command = format!("tidegate schema {name} > {file}");
        assert!(printed == written, "out of date; run `{command}`");
    }
}

#[test]
fn every_rule_that_the_program_accepts_fits_the_schema() {
    let schema = JsonSchema::new(tidegate::rules::schema()).unwrap();
    let shown = [
        "rules:",
        "domain: edge",
        "# yaml-language-server: $schema=./rules.schema.json",
    ];
    let shown = shown.into_iter().flat_map(blocks);
    let mut accepted = 0;
    for (name, text) in shown.chain(rule_files()) {
        if RuleSet::from_yaml(&text).is_err() {
            continue;
        }
        accepted += 1;
        assert_eq!(check(&schema, &text), Ok(()), "{name}");
    }
    assert!(accepted > 40, "only {accepted} were found");
}

#[test]
fn unknown_keys_and_wrong_types_in_rules_do_not_fit_the_schema() {
    let schema = JsonSchema::new(tidegate::rules::schema()).unwrap();
    let (mut files, mut refused) = (0, 0);
    for (name, text) in rule_files() {
        let source = Source::new(&name, &text);
        let mut problems = Problems::new();
        let is_yaml = source.read(&mut problems).is_some() && !problems.has_errors();
        let is_broken = is_yaml && RuleSet::from_yaml(&text).is_err();
        if !is_broken {
            continue;
        }
        files += 1;
        let is_refused = check(&schema, &text).is_err();
        refused += usize::from(is_refused);
        let plain = ["unknown_key", "misspelt", "_is_a_", "_is_text", "_is_true"];
        let is_plain = plain.iter().any(|kind| name.contains(kind));
        let is_plain = is_plain || name.ends_with("_of_another");
        // A schema sees no quotes, and not whether a limit is per month.
        let hidden = ["ratelimit_shadow_mode_is_text", "option_anchor_of_another"];
        let is_plain = is_plain && !hidden.contains(&name.as_str());
        assert!(is_refused || !is_plain, "the schema accepts {name}");
    }
    // The rest depends on several keys, or on more than the form of a text.
    assert!(refused * 5 > files * 2, "only {refused} of {files}");
}

#[test]
fn every_configuration_that_is_shown_fits_the_schema() {
    let schema = JsonSchema::new(config::schema()).unwrap();
    for (position, text) in blocks("# tidegate.yaml") {
        assert_eq!(check(&schema, &text), Ok(()), "{position}");
    }
    assert_eq!(check(&schema, "{}"), Ok(()));
}

#[test]
fn unknown_keys_and_wrong_types_in_settings_do_not_fit_the_schema() {
    let schema = JsonSchema::new(config::schema()).unwrap();
    for text in [
        "htpp: 127.0.0.1:8080",
        "config: other.yaml",
        "http: 8080",
        "grpc: on",
        "history: 0",
        "history: many",
        "ipv6_prefix: 129",
        "trust_timestamps: 1",
        "log_format: xml",
        "drain_delay: 5",
        "counters: {snapshots: 10s}",
        "counters: 10s",
        "redis: http://127.0.0.1",
        "headers: [x, y]",
        "routes: {prefix: /}",
        "routes: [{prefix: /}]",
        "routes: [{upstreams: ['http://a'], retries: 11}]",
        "routes: [{upstreams: 'ftp://a'}]",
        "identify: {api_key: {headers: x-api-key}}",
        "identify: {api_key: []}",
        "jwt: {algorithm: RS256}",
        "jwt: {algorithms: [none]}",
        "tokens: [{name: ops, token: secret, scopes: [read]}]",
        "tokens: [{name: ops, token_env: OPS, scopes: [admin]}]",
    ] {
        assert!(check(&schema, text).is_err(), "{text}");
    }
}

/// Examples and defaults are what people copy.
#[test]
fn every_example_and_default_of_a_key_fits_its_schema() {
    let values = |key: &Key| {
        let texts = [key.default, key.example].into_iter();
        texts
            .filter(|text| !text.is_empty())
            .map(value)
            .collect::<Vec<_>>()
    };
    let schema = JsonSchema::new(tidegate::rules::schema()).unwrap();
    for key in tidegate::rules::keys() {
        for value in values(key) {
            let mut rule = json!({"id": "x", "per": [], "limit": "1/s"});
            if let Some(algorithm) = key.needs.first() {
                rule["algorithm"] = json!(algorithm);
            }
            rule[key.name] = value;
            let checked = schema.check(&json!({"rules": [rule]}));
            assert_eq!(checked, Ok(()), "{}", key.name);
        }
    }
    let schema = JsonSchema::new(config::schema()).unwrap();
    for setting in SETTINGS.iter().filter(|setting| setting.is_in_file()) {
        for value in values(&setting.key) {
            let checked = schema.check(&json!({setting.key.name: value}));
            assert_eq!(checked, Ok(()), "{}", setting.key.name);
        }
    }
}
