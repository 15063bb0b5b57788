//! A rule as it is shown: secret values that it names are digests.

use serde_json::{Value, json};
use tidegate::document::write_yaml;
use tidegate::rules::Rule;

use crate::run::ClientNames;

/// The YAML of a rule.
pub(super) fn yaml(rule: &Rule, names: &ClientNames) -> String {
    let mut written = rule.written().clone();
    let is_secret = |name: &str| names.is_hidden(name);
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
    if let Some(Value::String(condition)) = part.get_mut("when") {
        *condition = mask_condition(condition, is_secret);
    }
    let attributes = part.get_mut("attributes").and_then(Value::as_object_mut);
    let attributes = attributes.into_iter().flatten();
    for (name, value) in attributes.filter(|(name, _)| is_secret(name)) {
        let mask = |value: &Value| json!(masked(value.as_str().unwrap_or_default(), name, names));
        *value = match value.as_array() {
            Some(values) => values.iter().map(mask).collect(),
            None => mask(value),
        };
    }
}

/// A condition with `…` in place of the texts that it compares, if it may read a secret attribute. The names of
/// attributes stay.
fn mask_condition(condition: &str, is_secret: &dyn Fn(&str) -> bool) -> String {
    let pieces = Pieces(condition).collect::<Vec<_>>();
    let is_name = |index: usize| {
        let before = index.checked_sub(1).map(|before| pieces[before].trim_end());
        let after = pieces.get(index + 1).map(|after| after.trim_start());
        before.is_some_and(|before| before.ends_with("attributes["))
            || after.is_some_and(|after| after.starts_with("in attributes"))
    };
    let is_text = |piece: &str| piece.starts_with(['"', '\'']);
    let texts = || (0..pieces.len()).filter(|index| is_text(pieces[*index]));
    let names = texts().filter(|index| is_name(*index));
    let reads_secret = names.clone().any(|index| is_secret(inner(pieces[index])));
    let code = (0..pieces.len()).filter(|index| !is_text(pieces[*index]));
    let mentions: usize = code
        .map(|index| pieces[index].matches("attributes").count())
        .sum();
    // A name that is computed may be any.
    if !reads_secret && mentions == names.count() {
        return condition.to_owned();
    }
    let shown = pieces.iter().enumerate().map(|(index, piece)| {
        if is_text(piece) && !is_name(index) {
            "\"…\""
        } else {
            piece
        }
    });
    shown.collect()
}

fn inner(text: &str) -> &str {
    text.trim_matches(['"', '\''])
}

/// The texts of a condition, with their quotes, and what is between them.
struct Pieces<'c>(&'c str);

impl<'c> Iterator for Pieces<'c> {
    type Item = &'c str;

    fn next(&mut self) -> Option<&'c str> {
        let first = self.0.chars().next()?;
        let end = if matches!(first, '"' | '\'') {
            let mut is_escaped = false;
            let closing = self.0[1..].char_indices().find(|(_, c)| {
                let is_end = *c == first && !is_escaped;
                is_escaped = *c == '\\' && !is_escaped;
                is_end
            });
            closing.map_or(self.0.len(), |(at, c)| 1 + at + c.len_utf8())
        } else {
            self.0.find(['"', '\'']).unwrap_or(self.0.len())
        };
        let (piece, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_names_and_lose_texts_that_may_be_secrets() {
        let is_secret = |name: &str| name == "api_key";
        for (condition, expected) in [
            (
                r#"attributes["api_key"] == "sk""#,
                r#"attributes["api_key"] == "…""#,
            ),
            (
                r"'api_key' in attributes && attributes['api_key'].startsWith('s\'k')",
                r#"'api_key' in attributes && attributes['api_key'].startsWith("…")"#,
            ),
            (
                r#"attributes.exists(name, name == "sk")"#,
                r#"attributes.exists(name, name == "…")"#,
            ),
            (
                r#"attributes["plan"] == "pro""#,
                r#"attributes["plan"] == "pro""#,
            ),
            (
                r#"cost > 1 && method == "GET""#,
                r#"cost > 1 && method == "GET""#,
            ),
            (
                r#"attributes["api_key"] == "é"#,
                r#"attributes["api_key"] == "…""#,
            ),
        ] {
            assert_eq!(mask_condition(condition, &is_secret), expected);
        }
    }
}
