//! Explains why no rule applied: the attributes that the rules use, and probable misspellings. Where one applied, the
//! attributes that no rule uses.

use std::cmp::Reverse;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::client::ApiClient;
use crate::output::plain;

/// The [`likeness`] from which a name counts as a misspelling.
const ALIKE: usize = 700_000;

/// What every request has, whether rules use it or not.
const DESCRIBES: [&str; 4] = ["ip", "method", "path", "host"];

/// The message when no rule applied. Without details, if the rules may not be read.
pub(super) fn no_rule(client: &ApiClient, given: &[(String, String)]) -> String {
    match rules(client) {
        Ok(rules) => advice(&rules, given),
        Err(_) => "no rule limits this request\n".to_owned(),
    }
}

/// A line for each attribute that no rule uses: it is probably misspelt, and the rule that was meant did not apply.
/// Nothing if the rules may not be read.
pub(super) fn unused(client: &ApiClient, given: &[(String, String)]) -> String {
    let describes = |(name, _): &(String, String)| DESCRIBES.contains(&name.as_str());
    // Without a token the rules cannot be read.
    if given.iter().all(describes) || client.token().is_none() {
        return String::new();
    }
    rules(client).map_or_else(|_| String::new(), |rules| unused_by(&rules, given))
}

fn rules(client: &ApiClient) -> anyhow::Result<Vec<Value>> {
    let reply = client.get("/v1/rules")?.accept(&[200])?;
    reply.list("rules").map(<[Value]>::to_vec)
}

fn unused_by(rules: &[Value], given: &[(String, String)]) -> String {
    // Descriptors have no `per`, and use all that they are sent.
    if rules.iter().any(|rule| rule.get("per").is_none()) {
        return String::new();
    }
    let used: Vec<String> = rules.iter().flat_map(attributes_of).collect();
    let conditions: Vec<&str> = rules.iter().flat_map(conditions_of).collect();
    let is_used = |name: &str| {
        // A condition may put names together, and name them in other ways than `attributes["x"]`.
        let may_read = |text: &&str| text.contains(name) || reads_any(text);
        used.iter().any(|used| used == name) || conditions.iter().any(may_read)
    };
    let mut text = String::new();
    for (name, _) in given {
        if is_used(name) || DESCRIBES.contains(&name.as_str()) {
            continue;
        }
        let _ = write!(text, "no rule uses the attribute `{}`", plain(name));
        let _ = match misspelt(name, &used, given) {
            Some(near) => writeln!(text, "; did you mean `{}`?", plain(near)),
            None => writeln!(text),
        };
    }
    text
}

/// The attribute of rules that a given name probably means: one that was not given.
fn misspelt<'u>(name: &str, used: &'u [String], given: &[(String, String)]) -> Option<&'u str> {
    let is_given = |used: &str| given.iter().any(|(name, _)| name == used);
    let missing: Vec<&str> = used
        .iter()
        .map(String::as_str)
        .filter(|used| !is_given(used))
        .collect();
    nearest(&name.to_lowercase(), &missing)
}

fn advice(rules: &[Value], given: &[(String, String)]) -> String {
    if rules.is_empty() {
        return "no rule limits this request: the server has none; add some with `tidegate rules apply -f FILE`\n".to_owned();
    }
    let mut used: Vec<String> = Vec::new();
    for name in rules.iter().flat_map(attributes_of) {
        if !used.contains(&name) {
            used.push(name);
        }
    }
    if used.is_empty() {
        return "no rule limits this request\n".to_owned();
    }
    let has_exceptions = |rule: &Value| rule.get("except").is_some();
    let exceptions = if rules.iter().any(has_exceptions) {
        ", and some have exceptions"
    } else {
        ""
    };
    let mut text = format!(
        "no rule limits this request; rules here look at: {}{exceptions}\n`tidegate explain` shows why, rule by rule\n",
        plain(&used.join(", "))
    );
    for (name, _) in given.iter().filter(|(name, _)| !used.contains(name)) {
        if let Some(near) = misspelt(name, &used, given) {
            let _ = writeln!(
                text,
                "`{name}` is not one of them; did you mean `{}`?",
                plain(near)
            );
        }
    }
    text
}

/// The name that is most like `word`, if one is like it at all; of equals, the first in the alphabet.
fn nearest<'n>(word: &str, names: &[&'n str]) -> Option<&'n str> {
    let rated = names.iter().map(|name| (likeness(word, name), *name));
    let near = rated.filter(|(likeness, _)| *likeness >= ALIKE);
    let (_, name) = near.min_by_key(|(likeness, name)| (Reverse(*likeness), *name))?;
    Some(name)
}

/// The share of the characters of both words that is in their longest common subsequence, in millionths.
fn likeness(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    // The length for what was seen of `left`, and each beginning of `right`.
    let mut lengths = vec![0; right.len() + 1];
    for one in &left {
        let mut before = 0;
        for (at, other) in right.iter().enumerate() {
            let above = lengths[at + 1];
            lengths[at + 1] = if one == other {
                before + 1
            } else {
                above.max(lengths[at])
            };
            before = above;
        }
    }
    let common = lengths[right.len()];
    2_000_000 * common / (left.len() + right.len()).max(1)
}

/// The attributes that a rule uses, in the order in which it names them.
fn attributes_of(rule: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let per = rule.get("per").and_then(Value::as_array);
    let per = per.into_iter().flatten().filter_map(Value::as_str);
    names.extend(per.map(str::to_owned));
    for (part, value) in matches_of(rule).flatten() {
        match part.as_str() {
            "attributes" => names.extend(
                value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.clone()),
            ),
            "when" => names.extend(named_in(value.as_str().unwrap_or_default())),
            part => names.push(part.to_owned()),
        }
    }
    if rule.get("tiers").is_some() {
        names.push("tier".to_owned());
    }
    let cost = rule.get("cost").and_then(|cost| cost.get("attribute"));
    names.extend(cost.and_then(Value::as_str).map(str::to_owned));
    names
}

/// `match` and the items of `except`.
fn matches_of(rule: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let except = rule.get("except").and_then(Value::as_array);
    let all = rule
        .get("match")
        .into_iter()
        .chain(except.into_iter().flatten());
    all.filter_map(Value::as_object)
}

/// The conditions of a rule.
fn conditions_of(rule: &Value) -> impl Iterator<Item = &str> {
    matches_of(rule).filter_map(|item| item.get("when")?.as_str())
}

/// Whether a condition reads attributes without naming them: `attributes.exists(…)`, `attributes[attributes.x]`.
fn reads_any(condition: &str) -> bool {
    let mut uses = condition.split("attributes").skip(1);
    uses.any(|rest| match rest.trim_start().strip_prefix('[') {
        Some(index) => !index.trim_start().starts_with(['"', '\'']),
        None => rest.strip_prefix('.').is_some_and(|word| {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            word.trim_start_matches(is_word).starts_with('(')
        }),
    })
}

/// The attributes that a condition names: `attributes["x"]`, `attributes.x`.
fn named_in(condition: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in condition.split("attributes").skip(1) {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let name = match (rest.strip_prefix(['[']), rest.strip_prefix('.')) {
            (Some(quoted), _) => {
                let quoted = quoted.trim_start().trim_start_matches(['"', '\'']);
                quoted.split(|c| !is_name(c)).next()
            }
            (None, Some(word)) => {
                let name = word.split(|c| !is_word(c)).next().unwrap_or_default();
                // `attributes.exists(…)` is a call, not an attribute.
                (!word[name.len()..].starts_with('(')).then_some(name)
            }
            (None, None) => None,
        };
        names.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_attributes_of_rules_are_listed_and_near_misses_named() {
        let rules = [
            json!({"id": "a", "per": ["user_id"], "limit": "1/s", "tiers": {"free": "2/s"}}),
            json!({"id": "b", "per": ["ip", "user_id"], "match": {"path": ["/v1/**"],
                "attributes": {"plan": ["free"]},
                "when": "attributes[\"region\"] == 'eu' && attributes.team == 'x' && attributes.exists(a, a == 'b')"}}),
        ];
        let given = [("userid", "u1"), ("path", "/v2"), ("colour", "red")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        insta::assert_snapshot!(advice(&rules, &given));
    }

    #[test]
    fn attributes_that_no_rule_uses_are_named_although_a_rule_applied() {
        let keyed = json!({"id": "a", "per": ["api_key"], "tiers": {"pro": "2/s"}, "cost": {"attribute": "bytes"},
            "except": [{"attributes": {"staff": "1"}}], "match": {"when": "'region' in attributes"}});
        let all = json!({"id": "b", "per": [], "limit": "1/s"});
        let any =
            json!({"id": "c", "per": [], "match": {"when": "attributes.exists(a, a == 'b')"}});
        let descriptor = json!({"id": "d"});
        let unused = |rules: &[&Value], names: &[&str]| {
            let rules: Vec<Value> = rules.iter().map(|rule| (*rule).clone()).collect();
            let given = names
                .iter()
                .map(|name| ((*name).to_owned(), "x".to_owned()));
            unused_by(&rules, &given.collect::<Vec<_>>())
        };
        assert_eq!(
            unused(&[&keyed, &all], &["path", "apikey", "colour"]),
            "no rule uses the attribute `apikey`; did you mean `api_key`?\nno rule uses the attribute `colour`\n"
        );
        let used = ["ip", "api_key", "tier", "bytes", "staff", "region"];
        assert_eq!(unused(&[&keyed, &all], &used), "");
        assert_eq!(unused(&[&keyed, &any], &["apikey"]), "");
        assert_eq!(unused(&[&keyed, &descriptor], &["apikey"]), "");
    }

    #[test]
    fn the_likeness_of_words_is_the_share_that_they_have_in_common() {
        let cases = [
            ("", "", 0),
            ("a", "", 0),
            ("abc", "abc", 1_000_000),
            ("userid", "user_id", 923_076),
            ("abcd", "bacd", 750_000),
            ("grün", "grau", 500_000),
        ];
        for (left, right, expected) in cases {
            assert_eq!(likeness(left, right), expected, "{left} {right}");
            assert_eq!(likeness(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn the_nearest_name_is_the_most_alike_and_then_the_first() {
        assert_eq!(
            nearest("user", &["path", "users", "user_id"]),
            Some("users")
        );
        assert_eq!(nearest("team", &["teamb", "teama"]), Some("teama"));
        assert_eq!(nearest("colour", &["user_id", "ip"]), None);
    }

    #[test]
    fn a_server_without_rules_has_its_own_message() {
        assert!(advice(&[], &[]).contains("the server has none"));
    }
}
