//! Which requests are kept as evidence, and how they are shown: secret values as digests. What is kept in clear stays in
//! the memory of this process.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate::gate::ObservedRule;
use tidegate::rules::Grant;
use tidegate::{Micros, Reason, Retry, Timestamp};
use tidegate_activity::{
    DeniedRequest, KeptAttribute, KeyName, KeyPart, LastDecision, RequestTexts, SeenClient,
    SeenRequest, ShowRequests, rule_of_candidate,
};

use super::ServerActivity;

/// Attributes that say nothing about who a client is.
const NEVER_HIDDEN: [&str; 2] = ["method", "tier"];
/// The longest value that is kept of an attribute that does not name the client, in bytes, and the most attributes.
const LONGEST: usize = 1_024;
const MOST: usize = 32;

/// Whether an attribute is kept even if no rule reads it.
fn is_always_kept(name: &str) -> bool {
    matches!(
        name,
        "method" | "path" | "host" | "ip" | "tier" | "user_id" | "api_key"
    )
}

/// A decision of a rule, and the activity that it is kept in.
pub(super) struct SeenDecision<'s, 'o, 'b> {
    pub(super) activity: &'s ServerActivity,
    pub(super) rule: &'s ObservedRule<'o, 'b>,
    /// Those of the rule.
    pub(super) grants: &'s GrantTexts,
    /// Whether it is what the candidate said, which is no sample of a denial.
    pub(super) is_compared: bool,
}

/// The texts of a rule's grants that were last needed: many clients have the same.
#[derive(Default)]
pub(super) struct GrantTexts(Mutex<Vec<(Grant, Arc<str>)>>);

impl GrantTexts {
    /// The most that are kept.
    const MOST: usize = 8;

    fn of(&self, grant: &Grant) -> Arc<str> {
        let mut known = self.0.lock();
        if let Some((_, text)) = known.iter().find(|(known, _)| known == grant) {
            return Arc::clone(text);
        }
        let text: Arc<str> = grant.text().into();
        known.truncate(Self::MOST - 1);
        known.insert(0, (grant.clone(), Arc::clone(&text)));
        text
    }
}

impl SeenClient for SeenDecision<'_, '_, '_> {
    fn name(&self) -> KeyName {
        let values = self.rule.key_values().into_iter();
        KeyName::new(values.map(|(name, value)| self.activity.key_part(name, &value)))
    }

    fn request(&self) -> SeenRequest {
        let part = self.rule.part();
        let headline = part.decision.headline();
        let headline = headline.as_ref();
        let decided_by = headline.map(|headline| headline.rule.id());
        let retry = headline.map(|headline| headline.outcome.retry);
        let reason = headline.and_then(|headline| headline.reason);
        let (grant, source) = self.rule.grant();
        let current = self.rule.current_limit();
        let key = self.rule.key_values();
        let is_kept = |(name, value): &(&str, &str)| {
            let is_read = || is_always_kept(name) || self.rule.is_read(name);
            let is_of_key = || key.iter().any(|(of_key, _)| of_key == name);
            (value.len() <= LONGEST && is_read()) || is_of_key()
        };
        let attributes = part.attributes.iter().filter(is_kept).take(MOST);
        let attributes: SmallVec<[(&str, &str); 8]> = attributes.collect();
        SeenRequest {
            at: self.rule.at().map_or(0, Timestamp::as_micros),
            is_allowed: part.decision.is_allowed(),
            decided_by: decided_by
                .filter(|id| *id != self.rule.rule().id())
                .map(Into::into),
            reason: reason.map(Reason::name),
            denied_for: self.rule.reason().map(Reason::name),
            retry_after: retry.and_then(Retry::wait).map(Micros::get),
            grant_from: source.name(),
            grant: match current {
                Some(limit) => limit.rate().to_string().into(),
                None => self.grants.of(grant),
            },
            cost: part.costs.of(self.rule.rule().unit()),
            front_end: part.front_end.name(),
            texts: RequestTexts::new(
                key.iter().map(|(name, value)| (*name, &**value)),
                attributes.iter().copied(),
            ),
        }
    }

    fn is_shadow(&self) -> bool {
        self.is_compared || self.rule.is_shadow()
    }
}

/// A request that was reserved, now that its cost is known.
pub(super) struct SettledClient<'s> {
    pub(super) activity: &'s ServerActivity,
    pub(super) request: SeenRequest,
    pub(super) is_shadow: bool,
}

impl SeenClient for SettledClient<'_> {
    fn name(&self) -> KeyName {
        self.activity.key_name(&self.request)
    }

    fn request(&self) -> SeenRequest {
        self.request.clone()
    }

    fn is_shadow(&self) -> bool {
        self.is_shadow
    }
}

impl ServerActivity {
    /// The key of a request as it is shown.
    fn key_name(&self, request: &SeenRequest) -> KeyName {
        let key = request.texts.key();
        KeyName::new(key.map(|(name, value)| self.key_part(name, value)))
    }

    /// An attribute as it is shown.
    fn kept(&self, name: &str, value: &str) -> KeptAttribute {
        let is_hidden = self.is_anonymous && !NEVER_HIDDEN.contains(&name);
        if is_hidden {
            KeptAttribute::secret(name, &self.digest.of(value), value)
        } else if self.settings.is_secret(name) {
            KeptAttribute::secret(name, &self.digest.shown(value), value)
        } else {
            KeptAttribute::clear(name, value)
        }
    }

    /// An attribute of a key as it is shown.
    fn key_part(&self, name: &str, value: &str) -> KeyPart {
        if self.is_anonymous {
            KeyPart::digest(name, &self.digest.of(value))
        } else if self.settings.is_secret(name) {
            KeyPart::digest(name, &self.digest.shown(value))
        } else {
            KeyPart::clear(name, value)
        }
    }
}

impl ShowRequests for ServerActivity {
    fn decision(&self, rule: &str, request: &SeenRequest) -> LastDecision {
        let attributes = request.texts.attributes();
        let rule = rule_of_candidate(rule).unwrap_or(rule);
        LastDecision {
            at: request.at,
            is_allowed: request.is_allowed,
            rule: Some(request.decided_by.as_deref().unwrap_or(rule).into()),
            reason: request.reason.map(Into::into),
            retry_after: request.retry_after,
            grant_from: request.grant_from.into(),
            grant: (&*request.grant).into(),
            cost: request.cost,
            front_end: request.front_end.into(),
            attributes: attributes
                .map(|(name, value)| self.kept(name, value))
                .collect(),
        }
    }

    fn denied(&self, request: &SeenRequest) -> DeniedRequest {
        // As all instances show it.
        let attribute = |name| {
            let value = request.texts.attribute(name)?;
            Some(self.kept(name, value).shown.published().value)
        };
        DeniedRequest {
            at: request.at,
            reason: request.denied_for.unwrap_or_default().into(),
            key: self.key_name(request),
            method: attribute("method"),
            path: attribute("path"),
            address: attribute("ip"),
            front_end: request.front_end.into(),
        }
    }
}
