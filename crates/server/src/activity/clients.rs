//! Clients in the tables of activity: found by a value or a digest, listed, and with the requests of theirs that were
//! denied.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidegate::rules::ValueDigest;
use tidegate_activity::{
    DeniedRequest, KeyName, KeyPart, KeySort, KeyWindow, LastDecision, ShowRequests as _, TopKey,
    rule_of_candidate,
};

use super::answer::{AnswerParts, shown};
use super::{ServerActivity, now};
use crate::seconds::decimal_seconds;

/// A client of this instance.
#[derive(Debug, Clone)]
pub(crate) struct FoundClient {
    /// The rule that counted it.
    pub(crate) rule: Arc<str>,
    /// Its last decision by that rule.
    pub(crate) last: Arc<LastDecision>,
}

/// A client that is asked for: by its value, or by the digest that tables show.
pub(crate) struct WantedClient<'w> {
    text: &'w str,
    /// The digits of the text, if it is written as a digest.
    digits: Option<&'w str>,
    /// The digest of the text.
    digest: String,
    secret: &'w ValueDigest,
}

impl<'w> WantedClient<'w> {
    pub(crate) fn new(text: &'w str, digest: &'w ValueDigest) -> Self {
        Self {
            text,
            digits: ValueDigest::read(text),
            digest: digest.of(text),
            secret: digest,
        }
    }

    /// Whether a value of a key is meant. The log has digests of all values.
    pub(crate) fn is(&self, part: &KeyPart) -> bool {
        if !part.is_digest {
            let has_digest = |digits: &str| self.secret.of(&part.value) == digits;
            return *part == KeyPart::clear(&part.attribute, self.text)
                || self.digits.is_some_and(has_digest);
        }
        let digits = part.value.rsplit('…').next();
        digits == Some(&self.digest) || (digits.is_some() && digits == self.digits)
    }

    /// Whether any value of a key is meant.
    pub(crate) fn is_in(&self, name: &KeyName) -> bool {
        name.parts().iter().any(|part| self.is(part))
    }

    /// Whether any value of a key is meant, or contains the text.
    fn is_part_of(&self, name: &KeyName, lower: &str) -> bool {
        let contains = |part: &KeyPart| part.value.to_lowercase().contains(lower);
        name.parts().iter().any(contains) || self.is_in(name)
    }
}

impl ServerActivity {
    /// The clients of this instance that a value or digest names.
    pub(crate) fn find_clients(&self, wanted: &str) -> Vec<FoundClient> {
        let wanted = WantedClient::new(wanted, &self.digest);
        let mut found = Vec::new();
        for rule in self.live.rules() {
            let keys = rule.top_keys(KeySort::Denied, KeyWindow::Hour, now(), usize::MAX);
            let used = rule.top_keys(KeySort::Used, KeyWindow::Hour, now(), usize::MAX);
            let mut keys: Vec<TopKey> = keys.keys.into_iter().chain(used.keys).collect();
            keys.retain(|key| wanted.is_in(&key.name));
            keys.sort_by(|one, other| one.name.cmp(&other.name));
            keys.dedup_by(|one, other| one.name == other.name);
            found.extend(keys.into_iter().filter_map(|key| {
                let last = self.decision(rule.id(), &*key.last?);
                Some(FoundClient {
                    rule: Arc::clone(rule.id()),
                    last: Arc::new(last),
                })
            }));
        }
        found
    }
}

/// The parameters of `GET /v1/denied`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedQuestion {
    pub(crate) rule: Option<String>,
    /// A value of the key, or its digest.
    pub(crate) key: Option<String>,
    pub(crate) limit: usize,
}

/// Samples of denied requests, the newest first.
pub(crate) fn denied_json(parts: &AnswerParts<'_>, question: &DeniedQuestion) -> String {
    let wanted = question.key.as_deref();
    let wanted = wanted.map(|key| WantedClient::new(key, &parts.activity.digest));
    let is_meant = |rule: &str, denied: &DeniedRequest| {
        let is_rule = question.rule.as_deref().is_none_or(|asked| asked == rule);
        is_rule && wanted.as_ref().is_none_or(|key| key.is_in(&denied.key))
    };
    let own = parts.activity.live.rules().into_iter().flat_map(|rule| {
        let samples = rule.samples().into_iter();
        samples.map(move |request| (Arc::clone(rule.id()), parts.activity.denied(&request)))
    });
    let own = own.filter(|(rule, denied)| is_meant(rule, denied));
    let own = own.map(|(rule, denied)| {
        let entry = denied_entry(&rule, &denied, &parts.activity.instance);
        (denied.at, entry)
    });
    let others = parts.others.iter().flat_map(|other| {
        let rules = other.part.rules.iter();
        let denied = rules.flat_map(|rule| rule.denied.iter().map(|denied| (&rule.rule, denied)));
        let denied = denied.filter(|(rule, denied)| is_meant(rule, denied));
        denied.map(|(rule, denied)| (denied.at, denied_entry(rule, denied, &other.id)))
    });
    let mut all: Vec<(u64, Value)> = own.chain(others).collect();
    all.sort_by_key(|(at, _)| Reverse(*at));
    all.truncate(question.limit);
    let all: Vec<Value> = all.into_iter().map(|(_, entry)| entry).collect();
    json!({"denied": all, "instances": parts.instances()}).to_string()
}

fn denied_entry(rule: &str, denied: &DeniedRequest, instance: &str) -> Value {
    json!({
        "at": decimal_seconds(denied.at),
        "rule": rule,
        "reason": denied.reason,
        "key": shown(&denied.key),
        "method": denied.method,
        "path": denied.path,
        "address": denied.address,
        "front_end": denied.front_end,
        "instance": instance,
    })
}

/// The last decision of a client on any instance, as JSON.
pub(crate) fn last_json(last: &LastDecision, instance: &str) -> Value {
    let value = |name: &str| {
        let attribute = last.attribute(name);
        attribute.map(|attribute| attribute.shown.value.clone())
    };
    let attributes = last.attributes.iter().map(|attribute| {
        let KeyPart {
            attribute, value, ..
        } = &attribute.shown;
        (attribute.to_string(), json!(value))
    });
    json!({
        "at": decimal_seconds(last.at),
        "allowed": last.is_allowed,
        "rule": last.rule,
        "reason": last.reason,
        "retry_after": last.retry_after.map(decimal_seconds),
        "tier": value("tier"),
        "grant": {"from": last.grant_from, "value": last.grant},
        "cost": last.cost,
        "front_end": last.front_end,
        "method": value("method"),
        "path": value("path"),
        "address": value("ip"),
        "attributes": attributes.collect::<Map<_, _>>(),
        "instance": instance,
    })
}

/// The newest decision for a client among those of all instances.
pub(super) fn newest_decision(parts: &AnswerParts<'_>, rule: &str, key: &TopKey) -> Value {
    let name = key.name.published();
    let others = parts.others.iter().filter_map(|other| {
        let last = other.part.rule(rule)?.last_of(&name)?;
        Some((last, other.id.as_str()))
    });
    let newest = others.max_by_key(|(last, _)| last.at);
    match (&key.last, newest) {
        (Some(own), newest) if newest.is_none_or(|(last, _)| own.at >= last.at) => {
            let own = parts.activity.decision(rule, own);
            last_json(&own, &parts.activity.instance)
        }
        (_, Some((last, instance))) => last_json(last, instance),
        (_, None) => Value::Null,
    }
}

/// The parameters of `GET /v1/clients`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientsQuestion {
    pub(crate) search: Option<String>,
    pub(crate) limit: usize,
}

/// The clients of all rules and instances in the last hour, the most denied first.
pub(crate) fn clients_json(parts: &AnswerParts<'_>, question: &ClientsQuestion) -> String {
    let search = question.search.as_deref().unwrap_or("");
    let (lower, wanted) = (
        search.to_lowercase(),
        WantedClient::new(search, &parts.activity.digest),
    );
    let own = parts.activity.live.rules();
    let mut ids: Vec<Arc<str>> = own.iter().map(|rule| Arc::clone(rule.id())).collect();
    let others = parts.others.iter().flat_map(|other| &other.part.rules);
    let others = others.map(|rule| Arc::clone(&rule.rule));
    ids.extend(others.filter(|rule| rule_of_candidate(rule).is_none()));
    ids.sort_unstable();
    ids.dedup();
    let mut found: Vec<(Arc<str>, TopKey)> = Vec::new();
    for id in ids {
        let mut keys: Vec<TopKey> = Vec::new();
        for sort in [KeySort::Denied, KeySort::Used] {
            let top = parts.top_keys(&id, sort, KeyWindow::Hour, usize::MAX);
            keys.extend(top.keys);
        }
        keys.retain(|key| wanted.is_part_of(&key.name, &lower));
        keys.sort_by(|one, other| one.name.cmp(&other.name));
        keys.dedup_by(|one, other| one.name == other.name);
        found.extend(keys.into_iter().map(|key| (Arc::clone(&id), key)));
    }
    found.sort_by(|(one_rule, one), (other_rule, other)| {
        let counts = (other.denied, other.used).cmp(&(one.denied, one.used));
        counts.then_with(|| (one_rule, &one.name).cmp(&(other_rule, &other.name)))
    });
    found.truncate(question.limit);
    let client = |(rule, key): &(Arc<str>, TopKey)| {
        json!({
            "rule": &**rule,
            "key": shown(&key.name),
            "denied": key.denied,
            "used": key.used,
            "last_seen": key.seen,
            "last": newest_decision(parts, rule, key),
        })
    };
    let clients: Vec<Value> = found.iter().map(client).collect();
    json!({"clients": clients, "instances": parts.instances()}).to_string()
}
