//! The names of counters: by the domain, and the keys and values of the entries. The name does not depend on the line
//! of the file, or on the limit of a caller, that applies. So a value that gets a line of its own, and a limit that
//! comes with a request, continue the same counter.

use std::fmt::Write as _;

use tidegate_core::Scope;

use super::descriptor::{DescriptorStep, Values, Wanted, key_of};
use super::entries;
use crate::attributes::Attributes;
use crate::rules::RuleSettings;

/// The scope of a limit at the end of these steps. Values that share a counter are named by their pattern.
pub(super) fn scope_of_steps(
    domain: &str,
    steps: &[DescriptorStep],
    settings: &RuleSettings,
) -> Scope {
    let named = steps.iter().map(|step| match &step.wanted {
        Wanted::Fitting { wildcard, .. } if step.wanted.is_shared() => {
            (step.key.as_str(), Some(wildcard.to_string()))
        }
        _ => (step.key.as_str(), None),
    });
    scope(domain, named, settings)
}

/// The scope and the key of the counter of a request's descriptor, whose values are all its own.
pub(super) fn counter_of_entries(
    domain: &str,
    attributes: &Attributes<'_>,
    settings: &RuleSettings,
) -> (Scope, String) {
    let named = entries(attributes).map(|(key, _)| (key, None));
    let values: Values<'_> = entries(attributes).map(|(_, value)| value.into()).collect();
    (scope(domain, named, settings), key_of(values).into_owned())
}

/// Begins with an `@` and a digit, as the scope of no other rule does. Lengths keep names apart.
fn scope<'n>(
    domain: &str,
    named: impl Iterator<Item = (&'n str, Option<String>)>,
    settings: &RuleSettings,
) -> Scope {
    let mut name = format!("@{}.{domain}", domain.len());
    let mut is_secret = false;
    for (key, pattern) in named {
        is_secret |= settings.is_secret(key);
        // Writing to a string does not fail.
        let _ = write!(name, "@{}.{key}", key.len());
        if let Some(pattern) = pattern {
            let _ = write!(name, "-{}.{pattern}", pattern.len());
        }
    }
    let scope = Scope::new(&name).charged_in_full();
    if is_secret {
        scope.with_secret_keys()
    } else {
        scope
    }
}

#[cfg(test)]
mod tests {
    use super::super::wildcard::Wildcard;
    use super::*;

    fn step(key: &str, value: &str, is_shared: bool) -> DescriptorStep {
        let wanted = match Wildcard::parse(value) {
            Some(wildcard) => Wanted::Fitting {
                wildcard,
                is_shared,
            },
            None if value.is_empty() => Wanted::Any,
            None => Wanted::Text(value.to_owned()),
        };
        DescriptorStep {
            key: key.to_owned(),
            wanted,
            names_stat: false,
        }
    }

    #[test]
    fn scopes_by_hand() {
        let settings = RuleSettings {
            secret_attributes: vec!["card".to_owned()],
            ..RuleSettings::default()
        };
        #[rustfmt::skip]
        let table = [
            (vec![step("user", "", false)],                             "@3.web@4.user",            false),
            (vec![step("user", "vip", false)],                          "@3.web@4.user",            false),
            (vec![step("user", "v*", false)],                           "@3.web@4.user",            false),
            (vec![step("user", "v*", true)],                            "@3.web@4.user-2.v*",       false),
            (vec![step("a@1.b", "", false)],                            "@3.web@5.a@1.b",           false),
            (vec![step("a", "", false), step("b", "", false)],          "@3.web@1.a@1.b",           false),
            (vec![step("card", "1234", false)],                         "@3.web@4.card",            true),
            (vec![step("a", "", false), step("api_key", "", false)],    "@3.web@1.a@7.api_key",     true),
        ];
        for (steps, name, is_secret) in table {
            let scope = scope_of_steps("web", &steps, &settings);
            assert_eq!((scope.name(), scope.has_secret_keys()), (name, is_secret));
        }
    }

    #[test]
    fn a_descriptor_of_a_request_has_the_counter_of_its_line() {
        let settings = RuleSettings::default();
        let mut attributes = Attributes::new();
        attributes.push("domain", "web");
        attributes.push("path", "/a");
        attributes.push("api_key", "k");
        let (scope, key) = counter_of_entries("web", &attributes, &settings);
        let steps = [step("path", "/a", false), step("api_key", "", false)];
        let line = scope_of_steps("web", &steps, &settings);
        assert_eq!((scope.name(), scope.id()), (line.name(), line.id()));
        assert!(scope.has_secret_keys());
        assert_eq!(key, "2:/a1:k");
    }
}
