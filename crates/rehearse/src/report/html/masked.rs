//! A rule as it is shown: secret values that it names are digests.

use serde_json::{Value, json};
use tidegate::document::write_yaml;
use tidegate::rules::Rule;

use crate::run::ClientNames;

/// The YAML of a rule.
pub(super) fn yaml(rule: &Rule, names: &ClientNames) -> String {
    let mut written = rule.written().clone();
    let is_secret = |name: &str| names.anonymous || names.settings.is_secret(name);
    if let Some(first) = rule.per().first().filter(|first| is_secret(first)) {
        let mask = |value: &str| masked(value, first, names);
        rename_overrides(&mut written, &mask);
    }
    for part in ["match", "except"] {
        if let Some(part) = written.get_mut(part) {
            mask_match(part, names, &is_secret);
        }
    }
    write_yaml(&written)
}

/// Gives the values that have overrides, also those of a candidate, other names.
pub(crate) fn rename_overrides(written: &mut Value, name: &dyn Fn(&str) -> String) {
    if let Some(candidate) = written.get_mut("candidate") {
        rename_overrides(candidate, name);
    }
    let overrides = written.get_mut("overrides").and_then(Value::as_object_mut);
    if let Some(overrides) = overrides {
        let named = std::mem::take(overrides).into_iter();
        *overrides = named.map(|(value, limit)| (name(&value), limit)).collect();
    }
}

fn masked(value: &str, name: &str, names: &ClientNames) -> String {
    if value.starts_with("sha256:") {
        value.to_owned()
    } else {
        names.value(name, value)
    }
}

fn mask_match(part: &mut Value, names: &ClientNames, is_secret: &dyn Fn(&str) -> bool) {
    if let Some(items) = part.as_array_mut() {
        for item in items.iter_mut() {
            mask_match(item, names, is_secret);
        }
        return;
    }
    let Some(attributes) = part.get_mut("attributes").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, value) in attributes.iter_mut().filter(|(name, _)| is_secret(name)) {
        let mask = |value: &Value| json!(masked(value.as_str().unwrap_or_default(), name, names));
        *value = match value.as_array() {
            Some(values) => values.iter().map(mask).collect(),
            None => mask(value),
        };
    }
}
