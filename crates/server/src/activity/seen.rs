//! What is kept of a decision as evidence: the client's name, the decision, and the request if it was denied. Secret
//! values are shown as digests; what is kept of them in clear stays in the memory of this process.

use std::borrow::Cow;

use tidegate::gate::ObservedRule;
use tidegate::{Micros, Reason, Retry};
use tidegate_activity::{DeniedRequest, KeptAttribute, KeyName, KeyPart, LastDecision, SeenClient};

use super::ServerActivity;

/// Attributes that are kept whether a rule reads them or not.
const ALWAYS_KEPT: [&str; 7] = ["method", "path", "host", "ip", "tier", "user_id", "api_key"];
/// Attributes that say nothing about who a client is.
const NEVER_HIDDEN: [&str; 2] = ["method", "tier"];
/// Headers that hold credentials, whatever the settings say of them.
const CREDENTIALS: [&str; 4] = [
    "authorization",
    "header.authorization",
    "header.proxy-authorization",
    "header.cookie",
];

/// The longest value that is kept of an attribute that does not name the client, and the most of all, in bytes.
const LONGEST: usize = 1_024;
const MOST_BYTES: usize = 4_096;

/// A decision of a rule, and the activity that it is kept in.
pub(super) struct SeenDecision<'s, 'o, 'b> {
    pub(super) activity: &'s ServerActivity,
    pub(super) rule: &'s ObservedRule<'o, 'b>,
}

impl ServerActivity {
    /// An attribute as it is kept.
    fn kept(&self, name: &str, value: &str) -> KeptAttribute {
        let is_hidden = self.is_anonymous && !NEVER_HIDDEN.contains(&name);
        if is_hidden {
            KeptAttribute::secret(name, &self.digest.of(value), value)
        } else if self.settings.is_secret(name) || CREDENTIALS.contains(&name) {
            KeptAttribute::secret(name, &self.digest.shown(value), value)
        } else {
            KeptAttribute::clear(name, value)
        }
    }

    /// An attribute of a key as it is shown.
    fn shown(&self, name: &str, value: &str) -> KeyPart {
        if self.is_anonymous {
            KeyPart::digest(name, &self.digest.of(value))
        } else if self.settings.is_secret(name) {
            KeyPart::digest(name, &self.digest.shown(value))
        } else {
            KeyPart::clear(name, value)
        }
    }
}

impl SeenDecision<'_, '_, '_> {
    /// The attributes of the request that rules read, and those of the key whatever their length.
    fn attributes(&self) -> Box<[KeptAttribute]> {
        let attributes = self.rule.part().attributes;
        let key = self.rule.key_values();
        let mut left = MOST_BYTES;
        let mut kept = Vec::new();
        for (name, value) in attributes.iter() {
            let is_of_key = key.iter().any(|(of_key, _)| *of_key == name);
            let is_read = || ALWAYS_KEPT.contains(&name) || self.rule.is_read(name);
            if is_of_key || (value.len() <= LONGEST.min(left) && is_read()) {
                left = left.saturating_sub(value.len());
                kept.push(self.activity.kept(name, value));
            }
        }
        kept.into()
    }

    /// The value of an attribute of the request, as all instances show it.
    fn attribute(&self, name: &str) -> Option<Box<str>> {
        let value = self.rule.part().attributes.get(name)?;
        Some(self.activity.kept(name, value).shown.published().value)
    }

    /// The time of the decision, in microseconds.
    fn at(&self) -> u64 {
        self.rule.at().map_or(0, |at| at.as_micros())
    }

    fn front_end(&self) -> Cow<'static, str> {
        self.rule.part().front_end.name().into()
    }
}

impl SeenClient for SeenDecision<'_, '_, '_> {
    #[cold]
    fn name(&self) -> KeyName {
        let values = self.rule.key_values().into_iter();
        KeyName::new(values.map(|(name, value)| self.activity.shown(name, &value)))
    }

    #[cold]
    fn decision(&self) -> LastDecision {
        let part = self.rule.part();
        let headline = part.decision.headline();
        let retry = headline.as_ref().map(|headline| headline.outcome.retry);
        let grant = self.rule.grant();
        LastDecision {
            at: self.at(),
            is_allowed: part.decision.is_allowed(),
            rule: headline.map(|headline| headline.rule.id().into()),
            reason: part.decision.reason().map(|reason| reason.name().into()),
            retry_after: retry.and_then(Retry::wait).map(Micros::get),
            grant_from: grant.source.name().into(),
            grant: grant.text.into(),
            cost: part.attributes.cost(),
            front_end: self.front_end(),
            attributes: self.attributes(),
        }
    }

    #[cold]
    fn denied(&self) -> Option<DeniedRequest> {
        if self.rule.is_shadow() {
            return None;
        }
        Some(DeniedRequest {
            at: self.at(),
            reason: self.rule.reason().map_or("", Reason::name).into(),
            key: self.name(),
            method: self.attribute("method"),
            path: self.attribute("path"),
            address: self.attribute("ip"),
            front_end: self.front_end(),
        })
    }
}
