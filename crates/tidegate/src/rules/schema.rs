//! The rules as JSON Schema: for editors of rule files, and for the API's description.

use serde_json::{Map, Value, json};

use super::descriptors;
use super::keys::{DESCRIPTOR, DOMAIN, OWN, RATE_LIMIT, REPLACED, RULE, RULE_SET};
use super::read_rule::RESERVED;
use crate::internal::document::{Key, Schema, SchemaForm};

/// The keys of a rule.
#[doc(hidden)]
pub fn keys() -> &'static [Key] {
    &RULE
}

/// The schema of a rule file, in either form.
#[doc(hidden)]
pub fn schema() -> Value {
    let mut schema = Schema::new(SchemaForm::Yaml);
    for (name, keys) in [("RuleSet", &RULE_SET[..]), ("Domain", &DOMAIN)] {
        let map = schema.map(keys);
        schema.definitions.insert(name.to_owned(), map);
    }
    add_what_depends(&mut schema.definitions);
    let levels: [(_, &[Key]); 4] = [
        ("Domain", &DOMAIN),
        ("Descriptor", &DESCRIPTOR),
        ("RateLimit", &RATE_LIMIT),
        ("Replaced", &REPLACED),
    ];
    for (name, keys) in levels {
        let map = &mut schema.definitions[name];
        for (key, about) in descriptors::ignored(keys) {
            map["properties"][key] = json!({"description": about, "deprecated": true});
        }
        map["properties"]["<<"] = json!({"description": "what the map has in common with others"});
        // Required keys may come from a merge key.
        if let Some(map) = map.as_object_mut() {
            map.shift_remove("required");
        }
    }
    schema.definitions["RuleId"]["not"] = json!({"enum": RESERVED});
    // In the order in which the reader asks.
    let root = json!({
        "if": {
            "not": {"required": ["rules"]},
            "anyOf": [{"required": ["domain"]}, {"required": ["descriptors"]}],
        },
        "then": schema.reference("Domain"),
        "else": schema.reference("RuleSet"),
    });
    schema.file("Rules of Tidegate", root)
}

/// The schemas of a rule in the bodies of the API, by their names.
#[doc(hidden)]
pub fn api_schemas() -> Map<String, Value> {
    let mut schema = Schema::new(SchemaForm::Json);
    let nameless = schema.map(RULE.iter().filter(|row| row.name != "id"));
    let rule = schema.map(&RULE);
    let mut definitions = schema.definitions;
    for (name, mut rule) in [("Rule", rule), ("RuleWithoutId", nameless)] {
        // A rule can be sent back as it was answered.
        rule["properties"]["worst_case"] =
            json!({"readOnly": true, "description": "computed; ignored in requests"});
        definitions.insert(name.to_owned(), rule);
    }
    add_what_depends(&mut definitions);
    definitions
}

/// Adds the dependencies between keys, which a table of keys does not have.
fn add_what_depends(definitions: &mut Map<String, Value>) {
    let maps: [(_, &[Key]); 3] = [
        ("Rule", &RULE),
        ("RuleWithoutId", &RULE),
        ("Tidegate", &OWN),
    ];
    for (name, keys) in maps {
        let Some(map) = definitions.get_mut(name) else {
            continue;
        };
        let options = keys.iter().filter(|row| !row.needs.is_empty());
        map["allOf"] = options.map(option).collect();
        if name != "Tidegate" {
            map["anyOf"] = json!([{"required": ["limit"]}, {"required": ["adaptive"]}]);
        }
    }
}

/// An option goes with the algorithms that have a use for it, also if that is the default.
fn option(row: &Key) -> Value {
    let name = row.name;
    let mut algorithms: Vec<Value> = row.needs.iter().map(|name| json!(name)).collect();
    let mut then = json!({});
    // A rule without an algorithm counts with one of these.
    if row
        .needs
        .iter()
        .any(|name| ["token_bucket", "fixed_window"].contains(name))
    {
        algorithms.push(Value::Null);
    } else {
        then["required"] = json!(["algorithm"]);
    }
    then["properties"] = json!({"algorithm": {"enum": algorithms}});
    json!({
        "if": {"required": [name], "properties": {name: {"not": {"type": "null"}}}},
        "then": then,
    })
}
