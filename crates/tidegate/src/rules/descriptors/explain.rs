//! Explains why a descriptor rule is not the one that a request's entries select.

use super::descriptor::{Descriptor, Wanted};
use super::{DOMAIN, entries};
use crate::rules::explain::{Explaining, FailedCondition};

impl Descriptor {
    /// The first entry that does not fit. If all do, a more specific descriptor, `found`, was chosen.
    pub(in crate::rules) fn failed(
        &self,
        found: Option<&str>,
        asked: &Explaining<'_, '_>,
    ) -> FailedCondition {
        let failed = |name: &str, expected: String, actual: Option<String>| FailedCondition {
            condition: format!("attributes.{name}"),
            expected,
            actual,
        };
        let domain = asked.attributes.get(DOMAIN);
        if domain.is_some_and(|domain| domain != self.domain) {
            return failed(DOMAIN, self.domain.clone(), asked.shown(DOMAIN));
        }
        let mut given = entries(asked.attributes);
        for step in &self.steps {
            let expected = match &step.wanted {
                Wanted::Any => "any value".to_owned(),
                wanted => (asked.show)(&step.key, &wanted.text()),
            };
            match given.next() {
                Some((key, value)) if key == step.key && step.wanted.fits(value) => {}
                Some((key, value)) if key == step.key => {
                    return failed(key, expected, Some((asked.show)(key, value)));
                }
                // Another entry at this index, or none.
                other => {
                    let other =
                        other.map(|(key, value)| format!("{key}={}", (asked.show)(key, value)));
                    return failed(&step.key, expected, other);
                }
            }
        }
        if let Some((key, value)) = given.next() {
            let value = (asked.show)(key, value);
            return failed(key, "no further entry".to_owned(), Some(value));
        }
        match (found, self.steps.last()) {
            (Some(found), Some(step)) => {
                let actual = format!("the descriptor of rule {found}");
                let expected = "no more specific descriptor".to_owned();
                failed(&step.key, expected, Some(actual))
            }
            // Without a name for the domain, there must be only one.
            _ => failed(DOMAIN, self.domain.clone(), None),
        }
    }
}
