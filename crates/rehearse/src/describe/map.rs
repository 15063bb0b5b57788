//! `--map NAME=SOURCE[,SOURCE…]`: attributes, times, durations and costs from fields of the line.

use tidegate::{AttributeError, Attributes};

use crate::read::{FieldSource, LineRequest};

/// What `--map` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldMap(Vec<(String, Vec<FieldSource>)>);

/// Why a `--map` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldMapError {
    /// It is not `NAME=SOURCE`.
    #[error("`{text}` is not `NAME=SOURCE`; write for example `user_id=$remote_user`")]
    NotAPair {
        /// What was given.
        text: String,
    },
    /// A time, a duration or a cost from an attribute.
    #[error("`{name}` cannot be taken from `@{attribute}`; name a field of the line")]
    FromAttribute {
        /// What is mapped.
        name: String,
        /// The attribute.
        attribute: String,
    },
}

/// What is no attribute.
const SPECIAL: [&str; 3] = ["time", "duration", "cost"];

impl FieldMap {
    /// The map that these texts are.
    pub fn read_all<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, FieldMapError> {
        let mut map = Vec::new();
        for text in texts {
            let not_a_pair = || FieldMapError::NotAPair {
                text: text.to_owned(),
            };
            let (name, sources) = text.split_once('=').ok_or_else(not_a_pair)?;
            let sources: Option<Vec<FieldSource>> =
                sources.split(',').map(FieldSource::read).collect();
            let sources = sources
                .filter(|_| !name.is_empty())
                .ok_or_else(not_a_pair)?;
            let attribute = sources.iter().find_map(|source| match source {
                FieldSource::Attribute(name) => Some(name.clone()),
                _ => None,
            });
            if let Some(attribute) = attribute.filter(|_| SPECIAL.contains(&name)) {
                let name = name.to_owned();
                return Err(FieldMapError::FromAttribute { name, attribute });
            }
            map.push((name.to_owned(), sources));
        }
        Ok(Self(map))
    }

    /// Whether it maps anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is mapped, each with its sources.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[FieldSource])> {
        self.0
            .iter()
            .map(|(name, sources)| (name.as_str(), &sources[..]))
    }

    /// Whether it gives this name a value.
    pub fn has(&self, name: &str) -> bool {
        self.sources(name).is_some()
    }

    /// Whether it reads an attribute.
    pub(crate) fn reads(&self, attribute: &str) -> bool {
        let mut sources = self.0.iter().flat_map(|(_, sources)| sources);
        sources.any(|source| matches!(source, FieldSource::Attribute(name) if name == attribute))
    }

    /// The sources of a name.
    pub(crate) fn sources(&self, name: &str) -> Option<&[FieldSource]> {
        let mut all = self.0.iter().rev();
        all.find(|(known, _)| known == name)
            .map(|(_, sources)| &sources[..])
    }

    /// Whether a line has a time where it says.
    pub(crate) fn has_time(&self, line: &LineRequest<'_>) -> bool {
        let mut sources = self.sources("time").into_iter().flatten();
        sources.any(|source| line.values.get(source).is_some())
    }

    /// Each attribute that another one stands in for, and that one.
    pub fn stand_ins(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(name, sources)| {
            sources.iter().filter_map(move |source| match source {
                FieldSource::Attribute(other) => Some((name.as_str(), other.as_str())),
                _ => None,
            })
        })
    }

    /// Sets the attributes. One without a source that is present is removed.
    pub(super) fn apply(
        &self,
        line: &LineRequest<'_>,
        attributes: &mut Attributes<'_>,
    ) -> Result<(), AttributeError> {
        let attributes_of = self
            .0
            .iter()
            .filter(|(name, _)| !SPECIAL.contains(&name.as_str()));
        for (name, sources) in attributes_of {
            let value = sources.iter().find_map(|source| match source {
                FieldSource::Attribute(other) => {
                    attributes.get(other).map(|text| text.as_bytes().to_vec())
                }
                field => line.values.get(field).map(std::borrow::Cow::into_owned),
            });
            attributes.set(name.clone(), value.unwrap_or_default())?;
        }
        Ok(())
    }
}
