//! Explains why a rule does not apply to a request: the condition, the expected value and the actual value.

use std::collections::BTreeSet;

use tidegate_core::{CostUnit, Limit, Timestamp};

use super::applies::Unmet;
use super::condition::Condition;
use super::grant::Grant;
use super::matching::Match;
use super::rule::Rule;
use super::write;
use crate::attributes::Attributes;
use crate::value::text_of_form;

/// The first condition of a rule that a request does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedCondition {
    /// `starts_at`, `expires_at`, `method`, `host`, `path`, `ip`, `attributes.NAME`, `when`, `except` or
    /// `missing`.
    pub condition: String,
    /// The value that the rule expects.
    pub expected: String,
    /// The value in the request. `None` if it is missing.
    pub actual: Option<String>,
}

/// How the value of an attribute is shown, by the attribute's name and the value: secret ones not in clear.
pub type ShowValue<'s> = dyn Fn(&str, &str) -> String + 's;

/// The request for which a rule is explained.
#[derive(Clone, Copy)]
pub(crate) struct Explaining<'e, 'a> {
    pub(crate) attributes: &'e Attributes<'a>,
    pub(crate) now: Timestamp,
    pub(crate) show: &'e ShowValue<'e>,
}

impl Explaining<'_, '_> {
    /// The value of an attribute, as it is shown.
    pub(crate) fn shown(&self, name: &str) -> Option<String> {
        let value = self.attributes.get(name)?;
        Some((self.show)(name, value))
    }

    /// `name=value`, or a note that the attribute is missing.
    fn pair(&self, name: &str) -> String {
        match self.shown(name) {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} is missing"),
        }
    }

    /// The text of a condition in CEL. It may have been written for a secret value of this very request.
    fn condition(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in self.attributes.iter() {
            let shown = (self.show)(name, value);
            for quote in ['"', '\''] {
                if shown != value {
                    let quoted = |value: &str| format!("{quote}{value}{quote}");
                    text = text.replace(&quoted(value), &quoted(&shown));
                }
            }
        }
        text
    }

    /// The values of a rule. A secret value is shown in the same form as a request's value, so that the two can be
    /// compared.
    fn values(&self, name: &str, values: &[String]) -> String {
        let shown = values.iter().map(|value| match (self.show)(name, value) {
            shown if shown == *value => text_of_form(value),
            shown => shown,
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

impl Rule {
    /// The condition that a request does not meet.
    pub(crate) fn failed(&self, unmet: Unmet, asked: &Explaining<'_, '_>) -> FailedCondition {
        let matches = &self.matches;
        let at = |at: Option<Timestamp>| at.map(write::write_time).unwrap_or_default();
        let own = |name: &str, expected: String| (name.to_owned(), expected, asked.shown(name));
        let (condition, expected, actual) = match unmet {
            Unmet::StartsAt | Unmet::ExpiresAt => {
                let (name, at) = match unmet {
                    Unmet::StartsAt => ("starts_at", at(self.starts_at)),
                    _ => ("expires_at", at(self.expires_at)),
                };
                (name.to_owned(), at, Some(write::write_time(asked.now)))
            }
            Unmet::Method => own("method", asked.values("method", &matches.method)),
            Unmet::Host => own("host", listed(&matches.host)),
            Unmet::Path => own("path", listed(&matches.path)),
            Unmet::Ip => own("ip", listed(matches.ip.iter())),
            Unmet::Attribute(index) => {
                let (name, values) = &matches.attributes[index];
                let expected = asked.values(name, values);
                (format!("attributes.{name}"), expected, asked.shown(name))
            }
            Unmet::When | Unmet::Unevaluable => {
                let condition = matches.when.as_ref();
                let text = condition.map_or("", Condition::text);
                let answer = match unmet {
                    Unmet::When => "false",
                    _ => "it cannot be evaluated",
                };
                let actual = format!("{answer}: {}", matches.pairs(asked, true, &self.unit));
                ("when".to_owned(), asked.condition(text), Some(actual))
            }
            Unmet::Except(index) => {
                let item = &self.except[index];
                let expected = format!("not ({})", item.described(asked));
                (
                    "except".to_owned(),
                    expected,
                    Some(item.pairs(asked, false, &self.unit)),
                )
            }
            Unmet::Missing => {
                let missing = self.missing_of(asked.attributes);
                let missing: Vec<&str> = missing.of(self).collect();
                ("missing".to_owned(), missing.join(", "), None)
            }
        };
        FailedCondition {
            condition,
            expected,
            actual,
        }
    }

    /// Why a descriptor rule is not the one that was `found`.
    pub(crate) fn failed_descriptor(
        &self,
        found: Option<&str>,
        asked: &Explaining<'_, '_>,
    ) -> FailedCondition {
        match &self.descriptor {
            Some(descriptor) => descriptor.failed(found, asked),
            None => self.failed(Unmet::Missing, asked),
        }
    }

    /// The values that name the counter of a request, as they are shown.
    pub(crate) fn shown_key(&self, asked: &Explaining<'_, '_>) -> Vec<(String, String)> {
        let values = self.key_values(asked.attributes).into_iter();
        values
            .map(|(name, value)| (name.to_owned(), (asked.show)(name, &value)))
            .collect()
    }
}

impl Match {
    /// Its parts, as text.
    fn described(&self, asked: &Explaining<'_, '_>) -> String {
        let mut parts = vec![
            ("method", asked.values("method", &self.method)),
            ("host", listed(&self.host)),
            ("path", listed(&self.path)),
            ("ip", listed(self.ip.iter())),
        ];
        for (name, values) in &self.attributes {
            parts.push((name, asked.values(name, values)));
        }
        if let Some(condition) = &self.when {
            parts.push(("when", asked.condition(condition.text())));
        }
        let given = parts.iter().filter(|(_, expected)| !expected.is_empty());
        let texts: Vec<String> = given
            .map(|(name, text)| format!("{name}: {text}"))
            .collect();
        texts.join("; ")
    }

    /// The values of the attributes that the rule reads, or only of those that its condition reads.
    fn pairs(&self, asked: &Explaining<'_, '_>, is_of_condition: bool, unit: &CostUnit) -> String {
        let mut names = BTreeSet::new();
        if !is_of_condition {
            let parts = [
                ("method", self.method.is_empty()),
                ("host", self.host.is_empty()),
                ("path", self.path.is_empty()),
                ("ip", self.ip.is_empty()),
            ];
            let given = parts.iter().filter(|(_, is_empty)| !is_empty);
            names.extend(given.map(|(name, _)| *name));
            names.extend(self.attributes.iter().map(|(name, _)| name.as_str()));
        }
        let mut has_cost = false;
        match self.when.as_ref().map(Condition::names) {
            Some(Some(read)) => names.extend(read),
            // It reads the cost, or names that are put together.
            Some(None) => has_cost = true,
            None => {}
        }
        let cost = has_cost.then(|| format!("cost={}", asked.attributes.costs().of(unit)));
        let pairs = names.into_iter().map(|name| asked.pair(name)).chain(cost);
        pairs.collect::<Vec<_>>().join(", ")
    }
}

impl Grant {
    /// It as rules write it: `100/minute`, `unlimited`, `blocked`; limits joined by `; `.
    pub fn text(&self) -> String {
        match self {
            Self::Unlimited => "unlimited".to_owned(),
            Self::Blocked => "blocked".to_owned(),
            Self::Limits(limits) => limits_text(limits),
        }
    }
}

/// Limits as rules write them.
pub(crate) fn limits_text(limits: &[Limit]) -> String {
    let texts = limits.iter().map(|limit| match limit.capacity() {
        0 => "blocked".to_owned(),
        _ => limit.rate().to_string(),
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let texts = items.into_iter().map(|item| item.to_string());
    texts.collect::<Vec<_>>().join(", ")
}
