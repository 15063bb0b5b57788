//! Reads the story.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate::document::{Entry, Node, Problems, ScalarKind, Source, Value};
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{AttributeError, Attributes, Timestamp};

/// Where every request comes from.
pub(super) const PEER: &str = "127.0.0.1";
/// When the story happens, where a front end can say so.
pub(super) const NOW: Timestamp = Timestamp::from_seconds(1_794_770_000);

/// Rules, and what is asked of them.
pub(super) struct Scenario {
    rules: Node,
    pub(super) story: Vec<Step>,
}

/// One request, and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    #[serde(rename = "step")]
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) cost: Option<u64>,
    pub(super) expect: Expected,
}

/// What must come of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    pub(super) allowed: bool,
    pub(super) rule: Option<String>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    /// Seconds, or `never`.
    pub(super) retry_after: Option<Json>,
    pub(super) reason: Option<String>,
    /// The attributes that are missing.
    #[serde(default)]
    pub(super) missing: Vec<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
}

impl Scenario {
    pub(super) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/story/story.yaml");
        Self::of(&fs::read_to_string(path).unwrap())
    }

    /// The scenario of a text in YAML.
    pub(super) fn of(text: &str) -> Self {
        let source = Source::new("story.yaml", text);
        let mut problems = Problems::new();
        let node = source.read(&mut problems);
        let node = node.unwrap_or_else(|| panic!("{}", problems.render(&source)));
        let Value::Map(entries) = node.value else {
            panic!("the story has keys");
        };
        let (rules, rest): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|entry| entry.key == "rules");
        let rules = Node {
            value: Value::Map(rules),
            place: node.place,
        };
        let story = json_of(&rest.first().unwrap().value);
        Self {
            rules,
            story: serde_json::from_value(story).unwrap(),
        }
    }

    /// The rules, to be used in process.
    pub(super) fn rules(&self) -> RuleSet {
        RuleSet::from_node(&self.rules, &RuleSettings::default()).unwrap()
    }

    /// The rules as a file for a server.
    pub(super) fn rules_file(&self) -> String {
        json!({ "rules": self.rules().written() }).to_string()
    }
}

impl Step {
    /// All that is known of the request, for front ends that are given it.
    pub(super) fn known(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.attributes.iter();
        own.map(|(name, value)| (name.as_str(), value.as_str()))
            .chain([("ip", PEER)])
    }

    /// An attribute of the request.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// The headers of the request, for front ends that carry it.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.attributes.iter();
        own.filter_map(|(name, value)| Some((name.strip_prefix("header.")?, value.as_str())))
    }

    /// The host of the request, for front ends that carry it: none of them goes without one.
    pub(super) fn host(&self) -> &str {
        self.get("host").unwrap_or("localhost")
    }

    /// The request as the library knows it, unless it is refused.
    pub(super) fn as_attributes(&self) -> Result<Attributes<'_>, AttributeError> {
        let mut attributes = Attributes::new().with_cost(self.cost.unwrap_or(1));
        for (name, value) in self.known() {
            attributes.insert(name, value)?;
        }
        Ok(attributes)
    }
}

/// What was written, as JSON: without quotes, numbers and `true` are what they look like.
fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::List(list) => list.iter().map(json_of).collect(),
        Value::Map(entries) => {
            let entry = |entry: &Entry| (entry.key.clone(), json_of(&entry.value));
            Json::Object(entries.iter().map(entry).collect())
        }
        Value::Scalar(scalar) if scalar.kind == ScalarKind::Plain => {
            let read = serde_json::from_str(&scalar.text).ok();
            read.filter(|value: &Json| value.is_number() || value.is_boolean())
                .unwrap_or_else(|| json!(scalar.text))
        }
        Value::Scalar(scalar) => json!(scalar.text),
    }
}
