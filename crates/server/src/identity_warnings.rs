//! Warns at the start of rules that a request with invalid credentials escapes because of the settings.

use tidegate::InvalidCredentials;
use tidegate::rules::RuleSet;
use tidegate_identity::AttributeSource;

use crate::config::Config;

/// Warnings about settings that let requests escape rules.
pub(crate) fn identity_warnings(config: &Config, rules: &RuleSet) -> Vec<String> {
    let mut warnings = Vec::new();
    let identify = &config.identify;
    let is_verified = |source: &AttributeSource| match source {
        AttributeSource::Jwt(_) | AttributeSource::Client(_) => true,
        AttributeSource::Header(name) => name == http::header::AUTHORIZATION,
        AttributeSource::Query(_) | AttributeSource::Cookie(_) => false,
    };
    let verified = |name: &str| {
        let mut attributes = identify.attributes.iter();
        let is_table = name == "api_key" && identify.clients_complete;
        is_table
            || name == "header.authorization"
            || attributes.any(|(known, sources)| known == name && sources.iter().any(is_verified))
    };
    if config.invalid_credentials == InvalidCredentials::Missing {
        let escaped = escaped(rules, verified);
        if !escaped.is_empty() {
            warnings.push(format!(
                "`invalid_credentials` is `missing`: a request with invalid credentials escapes {escaped}; set `deny`, or write `missing: deny` or `missing: share` in the rule"
            ));
        }
    }
    if identify.clients_file.is_some() && !identify.clients_complete {
        let escaped = escaped(rules, |name| name == "api_key");
        if !escaped.is_empty() {
            warnings.push(format!(
                "a key that is not in `clients_file` is a missing one: its requests escape {escaped}; set `clients_complete: true` if the table has all keys, or write `missing: deny` or `missing: share` in the rule"
            ));
        }
    }
    warnings
}

/// The rules that count by one of these attributes and skip requests without it, as text.
fn escaped(rules: &RuleSet, is_meant: impl Fn(&str) -> bool) -> String {
    let escaped = rules.iter().filter(|rule| rule.is_escapable());
    let escaped = escaped.filter(|rule| rule.per().iter().any(|name| is_meant(name)));
    let ids: Vec<String> = escaped.map(|rule| format!("`{}`", rule.id())).collect();
    match ids.as_slice() {
        [] => String::new(),
        [id] => format!("the rule {id}"),
        ids => format!("the rules {}", ids.join(", ")),
    }
}
