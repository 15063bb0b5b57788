//! A client that is named by a value or digest of any attribute that makes its key.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use tidegate::Attributes;
use tidegate::rules::{Rule, ValueDigest};
use tidegate_activity::{KeyPart, LastDecision};

use super::digests::{
    KnownDigest, clear_key, find_clients, find_digest, is_in_clear, of_pairs, pair, pairs,
};
use super::{ClearKey, Meant, SeenElsewhere, not_seen, only_hashed, unusable};
use crate::activity::FoundClient;
use crate::admin::Admin;
use crate::problem::HttpProblem;

/// The most clients that a problem lists.
const MOST_LISTED: usize = 5;

/// A client that was found by its value or digest.
#[derive(Debug)]
pub(crate) struct MeantClient {
    /// The attributes that make it, in clear.
    pub(crate) identity: ClearKey,
    /// Its keys by the rules that have seen it, in clear.
    pub(crate) keys: Vec<(Arc<str>, ClearKey)>,
    /// The last decision about it.
    pub(crate) last: Option<Arc<LastDecision>>,
}

impl MeantClient {
    /// What its last request was known by; without one, what makes the client.
    pub(crate) fn attributes(&self) -> Attributes<'static> {
        if let Some(last) = &self.last {
            return of_pairs(last.attributes.iter().map(pair));
        }
        of_pairs(pairs(&self.identity))
    }

    /// An attribute of its last request as it may be shown.
    pub(crate) fn shown(&self, attribute: &str, value: &str) -> Option<String> {
        let kept = self.last.as_ref()?.attribute(attribute)?;
        (kept.value() == value).then(|| kept.shown.value.to_string())
    }

    /// The attributes that make it, and its tier.
    pub(crate) fn own_attributes(&self) -> Attributes<'static> {
        of_pairs(pairs(&self.identity).chain(self.tier()))
    }

    /// The keys that need more attributes than those that make it, each with its rule and the tier.
    pub(crate) fn longer_keys(&self) -> impl Iterator<Item = (&str, Attributes<'static>)> {
        let longer = self.keys.iter();
        let longer = longer.filter(|(_, key)| key.len() > self.identity.len());
        longer.map(|(rule, key)| (&**rule, of_pairs(pairs(key).chain(self.tier()))))
    }

    fn tier(&self) -> Option<(&str, &str)> {
        let is_made_by_it = self.identity.iter().any(|(name, _)| name == "tier");
        let tier = self.last.as_ref()?.attribute("tier");
        tier.filter(|_| !is_made_by_it).map(pair)
    }
}

/// Finds a client by a value or digest of any attribute that a rule counts by, or that this rule counts by.
pub(crate) async fn find_client(
    admin: &Arc<Admin>,
    wanted: &str,
    rule: Option<&str>,
) -> Result<Meant<MeantClient>, HttpProblem> {
    if let Some(rule) = rule
        && admin.gate.rules().get(rule).is_none()
    {
        return Err(HttpProblem::not_found(format!("there is no rule `{rule}`")));
    }
    let wanted = ClientSearch::new(admin, wanted);
    let seen = wanted.seen_here(rule).await;
    let identities: BTreeSet<&ClearKey> = seen.iter().map(|seen| &seen.identity).collect();
    if identities.len() > 1 {
        return Err(wanted.several(&identities));
    }
    let last = seen
        .iter()
        .map(|seen| &seen.last)
        .max_by_key(|last| last.at);
    if let (Some(first), Some(last)) = (seen.first(), last) {
        let keys = seen.iter();
        return Ok(Meant::Here(MeantClient {
            identity: first.identity.clone(),
            keys: keys
                .map(|seen| (Arc::clone(&seen.rule), seen.key.clone()))
                .collect(),
            last: Some(Arc::clone(last)),
        }));
    }
    if let Some(elsewhere) = wanted.seen_elsewhere(rule).await {
        return Ok(Meant::Elsewhere(elsewhere));
    }
    wanted.known_otherwise(rule).await.map(Meant::Here)
}

/// Finds a client that no table lists, after the instance that does has not answered.
pub(crate) async fn find_unlisted(
    admin: &Arc<Admin>,
    wanted: &str,
    rule: Option<&str>,
) -> Result<MeantClient, HttpProblem> {
    ClientSearch::new(admin, wanted).known_otherwise(rule).await
}

/// A client in the tables of this instance.
struct SeenHere {
    /// The attributes that are meant, in clear.
    identity: ClearKey,
    rule: Arc<str>,
    /// Its whole key by that rule, in clear.
    key: ClearKey,
    last: Arc<LastDecision>,
}

impl SeenHere {
    fn new(identity: ClearKey, key: ClearKey, found: FoundClient) -> Self {
        Self {
            identity,
            rule: found.rule,
            key,
            last: found.last,
        }
    }
}

/// A client that is looked for.
struct ClientSearch<'w> {
    admin: &'w Arc<Admin>,
    text: &'w str,
    /// If it has the form of digests: those of each value of a key, as the log writes them.
    digests: Vec<&'w str>,
}

impl<'w> ClientSearch<'w> {
    fn new(admin: &'w Arc<Admin>, text: &'w str) -> Self {
        let digests: Option<Vec<&str>> = text.split(',').map(ValueDigest::read).collect();
        Self {
            admin,
            text,
            digests: digests.unwrap_or_default(),
        }
    }

    /// The clients in the tables of this instance. If any has the value in clear, only those.
    async fn seen_here(&self, rule: Option<&str>) -> Vec<SeenHere> {
        let rules = self.admin.gate.rules();
        let in_clear = find_clients(self.admin, self.text).await;
        let in_clear = in_clear
            .into_iter()
            .filter(|found| rule.is_none_or(|rule| *found.rule == *rule));
        let in_clear = in_clear.filter_map(|found| {
            let key = clear_key(&rules, &found);
            let value = key.iter().find(|(_, value)| value == self.text)?;
            Some(SeenHere::new(vec![value.clone()], key, found))
        });
        let in_clear: Vec<SeenHere> = in_clear.collect();
        let Some(first) = self.digests.first().filter(|_| in_clear.is_empty()) else {
            return in_clear;
        };
        let found = find_clients(self.admin, first).await.into_iter();
        let found = found.filter(|found| rule.is_none_or(|rule| *found.rule == *rule));
        let digest = |value: &str| self.admin.digest.of(value);
        let by_digest = found.filter_map(|found| {
            let key = clear_key(&rules, &found);
            let identity = match self.digests.as_slice() {
                [one] => {
                    let value = key.iter().find(|(_, value)| digest(value) == *one)?;
                    vec![value.clone()]
                }
                several => {
                    let mut each = pairs(&key).zip(several);
                    let is_same = key.len() == several.len()
                        && each.all(|((_, value), digits)| digest(value) == **digits);
                    is_same.then(|| key.clone())?
                }
            };
            Some(SeenHere::new(identity, key, found))
        });
        by_digest.collect()
    }

    /// Another instance whose tables list it.
    async fn seen_elsewhere(&self, rule: Option<&str>) -> Option<SeenElsewhere> {
        let activity = self.admin.activity.as_ref()?;
        let own = self.admin.digest.of(self.text);
        let digest = &self.admin.digest;
        let has_digest = |part: &KeyPart, digits: &str| {
            *part.value == *digits || !part.is_digest && digest.of(&part.value) == digits
        };
        let is_meant = |id: &str, parts: &[KeyPart]| {
            let is_same = match self.digests.as_slice() {
                [] => false,
                [one] => parts.iter().any(|part| has_digest(part, one)),
                several => {
                    let mut each = parts.iter().zip(several);
                    parts.len() == several.len() && each.all(|(part, one)| has_digest(part, one))
                }
            };
            let is_value = |part: &KeyPart| has_digest(part, &own);
            rule.is_none_or(|rule| rule == id) && (is_same || parts.iter().any(is_value))
        };
        let redis = self.admin.store.redis();
        let instance = activity.find_elsewhere(redis, is_meant).await?;
        let client = match self.digests.as_slice() {
            [] => own,
            digests => digests.join(","),
        };
        Some(SeenElsewhere { instance, client })
    }

    /// The client, by its counters, `clients_file`, and overrides.
    async fn known_otherwise(&self, rule: Option<&str>) -> Result<MeantClient, HttpProblem> {
        let (admin, rules) = (self.admin, self.admin.gate.rules());
        let is_meant = |one: &Rule| rule.is_none_or(|rule| rule == one.id());
        let meant = rules.iter().filter(|one| is_meant(one));
        let names: BTreeSet<String> = meant.flat_map(|one| one.per().to_vec()).collect();
        let mut known = BTreeSet::new();
        for name in &names {
            let mut attributes = Attributes::new();
            let is_usable = attributes
                .insert(name.clone(), self.text.to_owned())
                .is_ok();
            let pair = (name.as_str(), self.text);
            if is_usable && is_in_clear(admin, &attributes, pair, rule).await {
                known.insert(vec![(name.clone(), self.text.to_owned())]);
            }
        }
        let mut is_hashed = false;
        if let ([digits], true) = (self.digests.as_slice(), known.is_empty()) {
            for name in &names {
                match find_digest(admin, name, digits).await? {
                    KnownDigest::Value(value) => {
                        known.insert(vec![(name.clone(), value)]);
                    }
                    KnownDigest::Hashed => is_hashed = true,
                    KnownDigest::Elsewhere(_) | KnownDigest::Unknown => {}
                }
            }
        }
        if known.len() > 1 {
            return Err(self.several(&known.iter().collect()));
        }
        match known.into_iter().next() {
            Some(identity) => Ok(MeantClient {
                identity,
                keys: Vec::new(),
                last: None,
            }),
            None if is_hashed => Err(only_hashed(self.text)),
            None if !self.digests.is_empty() => Err(not_seen(self.text)),
            None => Err(unusable(
                // Not repeated: it may be a secret.
                "no client with this value was seen; give the attributes of a request, or the key itself as tables show it",
            )),
        }
    }

    /// Lists the clients, as they may be shown.
    fn several(&self, identities: &BTreeSet<&ClearKey>) -> HttpProblem {
        let shown = |(name, value): (&str, &str)| {
            let value = if self.admin.shows_digests(name) {
                self.admin.digest.of(value)
            } else {
                value.to_owned()
            };
            format!("{name}={value}")
        };
        let each = identities.iter().take(MOST_LISTED).map(|identity| {
            let parts: Vec<String> = pairs(identity).map(shown).collect();
            format!("`{}`", parts.join(", "))
        });
        let mut each: Vec<String> = each.collect();
        if identities.len() > MOST_LISTED {
            each.push(format!("{} more", identities.len() - MOST_LISTED));
        }
        HttpProblem::new(
            StatusCode::CONFLICT,
            format!(
                "this means more than one client: {}; give `rule`, or attributes",
                each.join(", ")
            ),
        )
    }
}
