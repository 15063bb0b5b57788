//! Which requests `match` is about, and each item of `except`.

use tidegate_core::CostUnit;

use super::applies::Unmet;
use super::condition::Condition;
use super::facts::Reading;
use super::networks::NetworkList;
use super::pattern::{HostPattern, PathPattern};

/// The prefix of attributes that are request headers.
pub(super) const HEADER: &str = "header.";

/// The method that reads no body.
pub(super) const HEAD: &str = "HEAD";

/// Which requests are meant. All parts that are given must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Match {
    pub(super) path: Vec<PathPattern>,
    pub(super) method: Vec<String>,
    /// Whether HEAD is meant, too: where `match` names GET, because servers answer HEAD by the same code.
    pub(super) covers_head: bool,
    pub(super) host: Vec<HostPattern>,
    pub(super) ip: NetworkList,
    pub(super) attributes: Vec<(String, Vec<String>)>,
    pub(super) when: Option<Condition>,
}

impl Match {
    /// Whether all parts hold, or the first that does not. A part about something that is not known of the
    /// request does not hold, unless only invalid credentials keep it from being known. A condition on the cost is
    /// about the cost in `unit`.
    pub(super) fn check(&self, reading: &Reading<'_, '_>, unit: &CostUnit) -> Result<(), Unmet> {
        if !fits(
            &self.method,
            || reading.get("method"),
            |method, given| method == given || (self.covers_head && given == HEAD),
        ) {
            return Err(Unmet::Method);
        }
        if !fits(&self.host, || reading.get("host"), HostPattern::matches) {
            return Err(Unmet::Host);
        }
        if !fits(&self.path, || reading.get("path"), PathPattern::matches) {
            return Err(Unmet::Path);
        }
        let is_listed = |ip| self.ip.contains(ip);
        if !self.ip.is_empty() && !reading.attributes.ip().is_some_and(is_listed) {
            return Err(Unmet::Ip);
        }
        for (index, (name, wanted)) in self.attributes.iter().enumerate() {
            let fits = fits(wanted, || reading.get(name), |value, given| value == given);
            if !fits && !is_refused(reading, |refused| refused == name) {
                return Err(Unmet::Attribute(index));
            }
        }
        let when = self.when.as_ref();
        match when.map(|condition| condition.holds(reading, unit)) {
            None | Some(Ok(true)) => Ok(()),
            Some(_) if is_refused(reading, |name| self.condition_reads(name)) => Ok(()),
            Some(Ok(false)) => Err(Unmet::When),
            Some(Err(_)) => Err(Unmet::Unevaluable),
        }
    }

    /// Whether it reads the host of a request.
    pub(super) fn reads_host(&self) -> bool {
        !self.host.is_empty() || self.reads("host")
    }

    /// Whether it reads an attribute by its name.
    pub(super) fn reads(&self, attribute: &str) -> bool {
        let mut names = self.attributes.iter().map(|(name, _)| name);
        names.any(|name| name == attribute) || self.condition_reads(attribute)
    }

    fn condition_reads(&self, attribute: &str) -> bool {
        let condition = self.when.as_ref();
        condition.is_some_and(|condition| condition.reads(attribute))
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

/// Whether an attribute in `reads` is missing because of invalid credentials, and the request is denied for that.
fn is_refused(reading: &Reading<'_, '_>, reads: impl Fn(&str) -> bool) -> bool {
    let refused = reading.refused();
    refused.is_some_and(|refused| refused.reason(reads).is_some())
}

/// Whether the list of expected values is empty, or contains the given one.
#[inline]
fn fits<'g, T>(
    wanted: &[T],
    given: impl FnOnce() -> Option<&'g str>,
    fits: impl Fn(&T, &str) -> bool,
) -> bool {
    wanted.is_empty() || given().is_some_and(|given| wanted.iter().any(|one| fits(one, given)))
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
