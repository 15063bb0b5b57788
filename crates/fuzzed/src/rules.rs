//! Rule files: every problem has a place in the text, and rules that are written down read as the same rules.

use serde_json::{Value, json};
use tidegate::document::{Place, Problems, Source, write_yaml};
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Attributes, Gate, MemoryStore};

/// How many keys the store of a check holds.
const KEYS: usize = 1_024;
/// The longest message about one problem, without its excerpt; names and values in it are shortened or checked.
const LONGEST_MESSAGE: usize = 64 * 1_024;

/// Reads a file of rules, and what it was read as again.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match read(text) {
        Ok(rules) if rules.is_by_descriptors() => {}
        Ok(rules) => {
            check_problems(rules.warnings(), text);
            assert!(!rules.warnings().has_errors());
            reads_as_written(&rules);
            decide(rules);
        }
        Err(problems) => {
            assert!(problems.has_errors(), "rules are refused without an error");
            check_problems(&problems, text);
        }
    }
}

pub(crate) fn read(text: &str) -> Result<RuleSet, Problems> {
    RuleSet::read(&Source::new("rules", text), &RuleSettings::default())
}

/// A problem can be shown, and stands in the text.
pub(crate) fn check_problems(problems: &Problems, text: &str) {
    // To YAML, a carriage return ends a line too, and the end of the text begins one.
    let lines = text.split(['\n', '\r']).count() + 1;
    for problem in problems.iter() {
        assert!(!problem.message.is_empty(), "{problem:?}");
        assert!(problem.to_string().len() <= LONGEST_MESSAGE + 4 * text.len());
        if let Place::Text { line, column, .. } = problem.place {
            assert!((1..=lines).contains(&line), "{problem:?}");
            assert!(column >= 1, "{problem:?}");
        }
    }
    let shown = problems.render(&Source::new("rules", text));
    assert_eq!(shown.is_empty(), problems.is_empty());
}

fn reads_as_written(rules: &RuleSet) {
    let written = rules.to_json();
    let document = json!({ "rules": written });
    for text in [document.to_string(), write_yaml(&document)] {
        same(&text, &written);
    }
}

fn same(text: &str, written: &Value) {
    let again = read(text).map(|rules| rules.to_json());
    match again {
        Ok(again) => assert_eq!(&again, written, "read from {text}"),
        Err(problems) => unreachable!("{problems}: read from {text}"),
    }
}

/// A few requests are decided.
pub(crate) fn decide(rules: RuleSet) {
    let gate = Gate::new(MemoryStore::builder().max_keys(KEYS).build(), rules);
    let requests: [&[(&str, &str)]; 3] = [
        &[],
        &[
            ("ip", "203.0.113.7"),
            ("path", "/v1/a"),
            ("host", "a.example.com"),
        ],
        &[
            ("method", "POST"),
            ("user_id", "u1"),
            ("tier", "free"),
            ("api_key", "k"),
        ],
    ];
    for request in requests {
        let mut attributes = Attributes::new();
        for (name, value) in request {
            let inserted = attributes.insert(*name, *value);
            assert!(inserted.is_ok(), "{inserted:?}");
        }
        let decided =
            gate.try_decide_by(&gate.rules(), tidegate::rules::FrontEnd::Http, &attributes);
        assert!(decided.is_ok(), "a store in memory does not wait");
    }
}
