//! Warnings: valid rules that are probably mistakes.

use strsim::osa_distance;

use super::applies::ALWAYS_KNOWN;
use super::client_written::warn_if_client_written;
use super::grant::Grant;
use super::matching::HEADER;
use super::pointless::pointless;
use super::rule::{Consistency, Cost, Missing, Mode, Rule};
use super::{DescribingFrontEnd, RuleSettings};
use crate::internal::document::{Node, Place, Problems, Spot, Value};

/// Names that a misspelt attribute probably means.
const WELL_KNOWN: [&str; 7] = ["ip", "method", "path", "host", "user_id", "api_key", "tier"];

/// The well-known name that begins with this one, or is one edit away from it; two for a long one. `plan` is not a
/// misspelt `path`.
fn well_known(name: &str) -> Option<&'static str> {
    let edits = if name.len() < 6 { 1 } else { 2 };
    let is_near = |known: &&str| osa_distance(&name.to_lowercase(), known) <= edits;
    let begins = WELL_KNOWN.into_iter().find(|known| known.starts_with(name));
    begins.or_else(|| WELL_KNOWN.into_iter().find(is_near))
}

/// A rule that was read without an error, and where it is written.
pub(super) struct RuleInspector<'r> {
    pub(super) rule: &'r Rule,
    pub(super) node: &'r Node,
    pub(super) spot: &'r Spot,
}

impl RuleInspector<'_> {
    /// Adds the warnings of this rule.
    pub(super) fn warn(&self, settings: &RuleSettings, problems: &mut Problems) {
        // The operator of a proxy chooses the names of descriptor entries, and a client cannot leave them out.
        let is_of_descriptors = self.requires("domain");
        if !is_of_descriptors {
            let is_said = self.unset(settings, problems);
            if !is_said {
                self.escapes(problems);
            }
            self.names(problems);
        }
        self.unread(settings, problems);
        self.exceptions(problems);
        self.overrides(problems);
        self.costs(problems);
        self.limits(problems);
        if let (Some(now), Some(end)) = (settings.now, self.rule.expires_at)
            && end <= now
        {
            let place = &self.value("expires_at").place;
            let message = "the rule has expired and does not apply any more; remove it, or change `expires_at`";
            problems.warning(place, &self.spot.field("expires_at"), message);
        }
        if self.rule.sync == Consistency::Leased && self.rule.mode == Mode::Shadow {
            problems.warning(
                &self.value("sync").place,
                &self.spot.field("sync"),
                "a shadow rule is charged for every request; `leased` makes no difference",
            );
        }
    }

    /// A request may leave its identity out.
    fn escapes(&self, problems: &mut Problems) {
        let rule = self.rule;
        if rule.missing != Missing::Skip || rule.mode != Mode::Enforce {
            return;
        }
        let escape =
            |name: &&String| !ALWAYS_KNOWN.contains(&name.as_str()) && !self.requires(name);
        let escapes: Vec<&String> = rule.per.iter().filter(escape).collect();
        if let Some(first) = escapes.first() {
            let names: Vec<String> = escapes.iter().map(|name| format!("`{name}`")).collect();
            let message = format!(
                "a request without {} escapes this rule; write `missing: deny` or `missing: share` if it must not, or see that another rule is about such requests",
                names.join(" or ")
            );
            problems.warning(
                self.place_in("per", first),
                &self.spot.field("per"),
                message,
            );
        }
    }

    /// Attributes that no setting gives to the front end that describes requests. Whether there are any.
    fn unset(&self, settings: &RuleSettings, problems: &mut Problems) -> bool {
        let Some(front_end) = &settings.described_by else {
            return false;
        };
        let (rule, place) = (self.rule, front_end.place);
        let is_unset = |name: &&str| {
            let is_set = ALWAYS_KNOWN.contains(name) || name.starts_with(HEADER);
            !is_set && !front_end.identified.iter().any(|known| known == name)
        };
        let mut required = rule
            .matches
            .attributes
            .iter()
            .map(|(name, _)| name.as_str());
        let mut counted = rule.per.iter().map(String::as_str);
        let (key, name, effect) = if let Some(name) = required.find(is_unset) {
            ("match", name, "applies to no request")
        } else if let Some(name) = counted.find(is_unset) {
            let effect = match rule.missing {
                Missing::Skip => "applies to no request",
                Missing::Share => "has one counter for all requests",
                Missing::Deny => "denies every request",
            };
            ("per", name, effect)
        } else {
            return false;
        };
        let message = format!("nothing in `identify` sets `{name}`, so {place} this rule {effect}");
        problems.warning(self.place_in(key, name), &self.spot.field(key), message);
        true
    }

    /// A unit in which nothing says what requests cost.
    fn unread(&self, settings: &RuleSettings, problems: &mut Problems) {
        let unit = self.rule.unit().as_str();
        let is_unread = |front_end: &&DescribingFrontEnd| front_end.unread_units.contains(&unit);
        if let Some(front_end) = settings.described_by.as_ref().filter(is_unread) {
            let place = front_end.place;
            let message = format!(
                "{place} this rule is charged 1 for each request, because no `usage` says what requests cost"
            );
            problems.warning(&self.value("unit").place, &self.spot.field("unit"), message);
        }
    }

    /// Whether `match` requires an attribute.
    fn requires(&self, name: &str) -> bool {
        let mut required = self.rule.matches.attributes.iter();
        required.any(|(known, _)| known == name)
    }

    /// Warns of names that are similar to a well-known one.
    fn names(&self, problems: &mut Problems) {
        for name in &self.rule.per {
            let known = WELL_KNOWN.contains(&name.as_str());
            let suggestion = match name.strip_prefix("headers.") {
                Some(header) => format!(" (did you mean `header.{header}`?)"),
                None if known || name.len() < 4 => String::new(),
                None => well_known(name)
                    .map_or_else(String::new, |known| format!(" (did you mean `{known}`?)")),
            };
            if !suggestion.is_empty() {
                let message = format!(
                    "`{name}` is not an attribute that Tidegate knows{suggestion}; ignore this if your callers send it"
                );
                problems.warning(self.place_in("per", name), &self.spot.field("per"), message);
            }
        }
    }

    /// Exceptions that any client can claim.
    fn exceptions(&self, problems: &mut Problems) {
        let written = match &self.value("except").value {
            Value::List(list) => list.as_slice(),
            _ => &[],
        };
        let spot = self.spot.field("except");
        for (index, (item, node)) in self.rule.except.iter().zip(written).enumerate() {
            warn_if_client_written(item, node, &spot.item(index), problems);
        }
    }

    fn overrides(&self, problems: &mut Problems) {
        let is_by_address = self.rule.per.first().is_some_and(|first| first == "ip");
        if self.rule.overrides.is_empty() || is_by_address {
            return;
        }
        let entries = self.value("overrides").entries().iter();
        for entry in entries.filter(|entry| entry.key.contains('*')) {
            let key = &entry.key;
            let message = format!(
                "`*` stands for itself in an override; this is for a client that is called `{key}`"
            );
            let spot = self.spot.field("overrides").field(key);
            problems.warning(&entry.key_place, &spot, message);
        }
    }

    /// Warns of limits that never decide, because another one of the same grant does.
    fn limits(&self, problems: &mut Problems) {
        // What is settled is taken from each limit as far as it goes.
        if self.rule.settles {
            return;
        }
        let limit = (
            &self.rule.grants[0],
            self.value("limit"),
            self.spot.field("limit"),
        );
        let named = [
            ("tiers", &self.rule.tiers),
            ("overrides", &self.rule.overrides),
        ];
        let named = named.into_iter().flat_map(|(key, indexes)| {
            let entries = self.value(key).entries().iter();
            entries.filter_map(move |entry| {
                let grant = &self.rule.grants[*indexes.get(&entry.key)?];
                let spot = self.spot.field(key).field(&entry.key);
                Some((grant, &entry.value, spot))
            })
        });
        for (grant, node, spot) in std::iter::once(limit).chain(named) {
            if let Some((limit, other)) = pointless(grant.limits()) {
                let message = format!(
                    "`{}` never denies a request that `{}` allows, so it decides nothing; remove it, or check the numbers",
                    limit.rate(),
                    other.rate()
                );
                problems.warning(&node.place, &spot, message);
            }
        }
    }

    /// Warns of costs that a limit can never grant.
    fn costs(&self, problems: &mut Problems) {
        let Cost::Fixed(cost) = self.rule.cost else {
            return;
        };
        // A limit that moves may become large enough.
        let first = usize::from(self.rule.adaptive.is_some());
        let limits = self.rule.grants.iter().skip(first).flat_map(Grant::limits);
        let small = limits
            .filter(|limit| limit.capacity() < cost)
            .min_by_key(|limit| limit.capacity());
        if let Some(limit) = small {
            let message = format!(
                "each request costs {cost}, and the limit `{}` grants {} at the most, so it denies all requests that it is for; lower the cost, or raise the limit or its burst",
                limit.rate(),
                limit.capacity()
            );
            problems.warning(&self.value("cost").place, &self.spot.field("cost"), message);
        }
    }

    /// The value of a key of the rule.
    fn value(&self, key: &str) -> &Node {
        self.node.get(key).unwrap_or(self.node)
    }

    /// Where a text stands in the list under a key of the rule.
    fn place_in(&self, key: &str, text: &str) -> &Place {
        let value = self.value(key);
        let is_meant = |item: &&Node| item.text() == Some(text);
        let item = match &value.value {
            Value::List(list) => list.iter().find(is_meant),
            _ => None,
        };
        &item.unwrap_or(value).place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_near_a_well_known_one_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("user", Some("user_id")), ("userid", Some("user_id")), ("usr_id", Some("user_id")),
            ("user_ip", Some("user_id")), ("apikey", Some("api_key")), ("API_KEY", Some("api_key")),
            ("teir", Some("tier")), ("paths", Some("path")), ("hots", Some("host")),
            ("plan", None), ("team", None), ("time", None), ("page", None),
            ("account", None), ("username", None),
        ];
        for (name, expected) in table {
            assert_eq!(well_known(name), expected, "{name}");
        }
    }
}
