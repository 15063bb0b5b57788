//! Which requests `match` is about, and each item of `except`.

use super::condition::Condition;
use super::facts::{ConditionFailed, Reading};
use super::networks::NetworkList;
use super::pattern::{HostPattern, PathPattern};

/// What the name of an attribute begins with that is a header of the request.
pub(super) const HEADER: &str = "header.";

/// Which requests are meant. All parts that are given must hold.
#[derive(Debug, Clone, Default)]
pub struct Match {
    pub(super) path: Vec<PathPattern>,
    pub(super) method: Vec<String>,
    pub(super) host: Vec<HostPattern>,
    pub(super) ip: NetworkList,
    pub(super) attributes: Vec<(String, Vec<String>)>,
    pub(super) when: Option<Condition>,
}

impl Match {
    /// Whether all parts hold. A part about something that is not known of the request does not.
    pub(super) fn holds(&self, reading: &Reading<'_, '_>) -> Result<bool, ConditionFailed> {
        let fits = fits(&self.path, reading.get("path"), PathPattern::matches)
            && fits(&self.method, reading.get("method"), |method, given| {
                method == given
            })
            && fits(&self.host, reading.get("host"), HostPattern::matches)
            && (self.ip.is_empty()
                || reading
                    .attributes()
                    .ip()
                    .is_some_and(|ip| self.ip.contains(ip)))
            && self.attributes.iter().all(|(name, wanted)| {
                fits(wanted, reading.get(name), |value, given| value == given)
            });
        match &self.when {
            Some(condition) if fits => condition.holds(reading),
            _ => Ok(fits),
        }
    }

    /// Whether it reads the host of a request.
    pub(super) fn reads_host(&self) -> bool {
        let in_condition = |condition: &Condition| condition.reads("host");
        !self.host.is_empty()
            || self.attributes.iter().any(|(name, _)| name == "host")
            || self.when.as_ref().is_some_and(in_condition)
    }

    /// The names of the headers that it reads, as `header.` attributes; some perhaps more than once.
    pub(super) fn headers(&self) -> impl Iterator<Item = &str> {
        let names = self.attributes.iter().map(|(name, _)| name.as_str());
        let condition = self.when.as_ref().map_or("", Condition::text);
        names
            .filter(|name| name.starts_with(HEADER))
            .chain(headers_in(condition))
    }
}

/// Whether nothing is wanted, or what is given is one of what is wanted.
fn fits<T>(wanted: &[T], given: Option<&str>, fits: impl Fn(&T, &str) -> bool) -> bool {
    wanted.is_empty() || given.is_some_and(|given| wanted.iter().any(|one| fits(one, given)))
}

/// The names that begin with `header.` in the text of a condition, whatever it does with them.
fn headers_in(condition: &str) -> impl Iterator<Item = &str> {
    condition.match_indices(HEADER).filter_map(|(start, _)| {
        let name = &condition[start..];
        let end = name.find(|character: char| !is_token(character));
        let name = &name[..end.unwrap_or(name.len())];
        (name.len() > HEADER.len()).then_some(name)
    })
}

/// Whether a character may be part of the name of a header.
fn is_token(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$%&*+-.^_`|~".contains(character)
}
