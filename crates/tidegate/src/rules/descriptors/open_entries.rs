//! The entries that a descriptor leaves open: their values name the client that a temporary override is for.

use super::DOMAIN;
use super::descriptor::{Descriptor, DescriptorStep, Values, Wanted};
use crate::attributes::{Attributes, MAX_VALUE};
use crate::credentials::{are_credentials, credentials, folded};

impl Descriptor {
    /// The values that the file gives, for an override of a descriptor that leaves no entry open.
    pub(in crate::rules) fn fixed_text(&self) -> String {
        let values = self.steps.iter().map(|step| step.wanted.text());
        values.collect::<Vec<_>>().join("/")
    }

    /// The values of a request, in the order of the open entries.
    pub(in crate::rules) fn open_values<'a>(
        &self,
        attributes: &'a Attributes<'_>,
    ) -> Option<Values<'a>> {
        self.values(attributes, Wanted::is_counted_by)
    }

    /// The entries of a request with these values of the open ones. A pattern of values that share a counter fits
    /// itself.
    pub(in crate::rules) fn attributes_with(&self, values: &[String]) -> Attributes<'static> {
        let mut attributes = Attributes::new();
        attributes.push(DOMAIN, self.domain.clone());
        let mut values = values.iter();
        for step in &self.steps {
            let value = if step.wanted.is_counted_by() {
                values.next().cloned().unwrap_or_default()
            } else {
                step.wanted.text()
            };
            attributes.push(step.key.clone(), value);
        }
        attributes
    }

    /// A value of the open entry with this index, in the form that requests have.
    pub(in crate::rules) fn override_value(
        &self,
        index: usize,
        value: &str,
    ) -> Result<String, String> {
        let mut open = self.steps.iter().filter(|step| step.wanted.is_counted_by());
        let Some(DescriptorStep { key, wanted, .. }) = open.nth(index) else {
            return Err("the descriptor has no such entry".to_owned());
        };
        if value.len() > MAX_VALUE {
            return Err(format!(
                "the value of `{key}` is {} bytes long; give at most {MAX_VALUE}",
                value.len()
            ));
        }
        let value = if are_credentials(key) {
            credentials(value.into()).unwrap_or_else(|_| folded(value.into()))
        } else {
            value.into()
        };
        if !wanted.fits(&value) {
            return Err(format!(
                "the descriptor is for values of `{key}` that fit `{}`; give one",
                wanted.text()
            ));
        }
        Ok(value.into_owned())
    }
}
