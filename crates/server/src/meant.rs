//! Finds the client that a caller means: by a value, or by the digest that tables and the log show for it.
//!
//! A value in clear comes first. A digest is looked up among the clients that were seen, those of `clients_file`, and
//! those with an override. Another instance may have seen a client that this one has not: then it must be asked,
//! because only digests are published.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use tidegate::gate::RulesInForce;
use tidegate::rules::{OverrideKey, Rule, ValueDigest};
use tidegate::{Attributes, Clock as _, SystemClock};
use tidegate_activity::{KeptAttribute, KeyPart, LastDecision};

use crate::activity::FoundClient;
use crate::admin::Admin;
use crate::problem::HttpProblem;

/// The attribute by which `clients_file` knows clients.
const API_KEY: &str = "api_key";

/// The most clients that a problem lists.
const MOST_LISTED: usize = 5;

/// Attributes and their values in clear.
type ClearKey = Vec<(String, String)>;

/// What was found.
pub(crate) enum Meant<T> {
    /// This instance knows it.
    Here(T),
    /// Another instance has seen it.
    Elsewhere(SeenElsewhere),
}

/// A client that another instance has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeenElsewhere {
    pub(crate) instance: String,
    /// The client as other instances may know it: not in clear if it is secret.
    pub(crate) client: String,
}

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

fn pair(kept: &KeptAttribute) -> (&str, &str) {
    (&kept.shown.attribute, kept.value())
}

fn pairs(key: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    key.iter().map(|(name, value)| (&**name, &**value))
}

/// Attributes in the form in which they are counted.
fn of_pairs<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Attributes<'static> {
    let mut attributes = Attributes::new();
    for (name, value) in pairs {
        add(&mut attributes, name, value);
    }
    attributes
}

/// Adds an attribute in the form in which it is counted.
fn add(attributes: &mut Attributes<'_>, name: &str, value: &str) {
    if name == "ip" {
        // The key of an IPv6 client is its network.
        let address = value.split('/').next().unwrap_or_default();
        let _ = attributes.insert("ip", address.to_owned());
    } else {
        attributes.push(name.to_owned(), value.to_owned());
    }
}

/// What is known of a digest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KnownDigest {
    /// The value that has it.
    Value(String),
    /// The instance that has seen the value.
    Elsewhere(String),
    /// A temporary override is for it; the value is not known.
    Hashed,
    Unknown,
}

impl Admin {
    /// Whether values of this attribute are shown as digests.
    fn shows_digests(&self, attribute: &str) -> bool {
        let is_anonymous = self.activity.as_ref().is_some_and(|one| one.is_anonymous);
        is_anonymous || self.book.settings().is_secret(attribute)
    }

    /// The value of an attribute for a caller that may know it only as a digest.
    pub(crate) fn shown_of_client(&self, attribute: &str, value: &str) -> String {
        if self.shows_digests(attribute) && is_counted_by(self, attribute) {
            return self.digest.shown(value);
        }
        self.shown(attribute, value)
    }

    /// The digits, if a value of this attribute may be a digest.
    pub(crate) fn digits_of<'v>(&self, attribute: &str, value: &'v str) -> Option<&'v str> {
        ValueDigest::read(value).filter(|_| self.shows_digests(attribute))
    }
}

/// Replaces digests among the attributes by the values that have them. `rule` is the one that the caller names.
pub(crate) async fn resolve<'a>(
    admin: &Arc<Admin>,
    mut attributes: Attributes<'a>,
    rule: Option<&str>,
) -> Result<Meant<Attributes<'a>>, HttpProblem> {
    let given: ClearKey = attributes
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut elsewhere = None;
    let mut has_clear_secret = false;
    for (name, value) in &given {
        let digits = admin.digits_of(name, value);
        let Some(digits) = digits.filter(|_| is_counted_by(admin, name)) else {
            has_clear_secret |= admin.book.settings().is_secret(name);
            continue;
        };
        if is_in_clear(admin, &attributes, (name, value), rule).await {
            has_clear_secret = true;
            continue;
        }
        match find_digest(admin, name, digits).await? {
            KnownDigest::Value(value) => {
                // An empty value removes the digest.
                let _ = attributes.set(name.clone(), "");
                add(&mut attributes, name, &value);
            }
            KnownDigest::Elsewhere(instance) => {
                let client = digits.to_owned();
                elsewhere = Some(SeenElsewhere { instance, client });
            }
            KnownDigest::Hashed => return Err(only_hashed(value)),
            KnownDigest::Unknown => return Err(not_seen(value)),
        }
    }
    match elsewhere {
        // The question is written to Redis.
        Some(elsewhere) if has_clear_secret => {
            let SeenElsewhere { client, instance } = elsewhere;
            Err(unusable(format!(
                "`{client}` was seen by another server, instance {instance}, which is not asked because other secret attributes are given in clear; give all of them in clear, or all as digests"
            )))
        }
        Some(elsewhere) => Ok(Meant::Elsewhere(elsewhere)),
        None => Ok(Meant::Here(attributes)),
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

/// The key of a client in clear, as its rule counts it. Empty if the rule is gone.
fn clear_key(rules: &RulesInForce, found: &FoundClient) -> ClearKey {
    let attributes = of_pairs(found.last.attributes.iter().map(pair));
    let Some(rule) = rules.get(&found.rule) else {
        return Vec::new();
    };
    let values = rule.key_values(&attributes).into_iter();
    let values = values.map(|(name, value)| (name.to_owned(), value.into_owned()));
    values.collect()
}

/// The clients in the tables of this instance that a value or digest names. On a thread that may block: there can be
/// many.
async fn find_clients(admin: &Admin, wanted: &str) -> Vec<FoundClient> {
    let Some(activity) = admin.activity.clone() else {
        return Vec::new();
    };
    let wanted = wanted.to_owned();
    let finding = tokio::task::spawn_blocking(move || activity.find_clients(&wanted));
    finding.await.unwrap_or_default()
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

/// Whether any rule counts by an attribute.
fn is_counted_by(admin: &Admin, attribute: &str) -> bool {
    let rules = admin.gate.rules();
    let counts = |rule: &Rule| rule.per().iter().any(|name| name == attribute);
    rules.iter().any(|rule| counts(&rule))
}

/// Whether a client is known by this value: it has used something, or it is written in `clients_file` or in
/// `overrides`.
async fn is_in_clear(
    admin: &Admin,
    attributes: &Attributes<'_>,
    (name, value): (&str, &str),
    rule: Option<&str>,
) -> bool {
    if name == API_KEY && admin.decider.identity.knows_key(value) {
        return true;
    }
    if overridden(admin, name).any(|overridden| overridden == value) {
        return true;
    }
    let now = admin.decider.observer.latest_time();
    let used = match now.filter(|_| attributes.time().is_none()) {
        Some(now) => {
            let attributes = attributes.clone().at(now);
            admin.gate.has_used(&attributes, name, rule).await
        }
        None => admin.gate.has_used(attributes, name, rule).await,
    };
    // Without the store, what is given is looked up.
    used.unwrap_or(false)
}

/// The values of an attribute that have an override, temporary or in a rule.
fn overridden(admin: &Admin, attribute: &str) -> impl Iterator<Item = String> {
    let rules = admin.gate.rules();
    let is_first = |rule: &Rule| rule.per().first().is_some_and(|name| name == attribute);
    let mut values: Vec<String> = Vec::new();
    for rule in rules.iter().filter(|rule| is_first(rule)) {
        let overrides = rule.overrides().map(|(value, _)| value);
        values.extend(overrides.filter(|value| !value.starts_with("sha256:")));
        for one in admin.overrides.list(Some(rule.id()), SystemClock.now()) {
            if let OverrideKey::Value(_) = &one.grant.key {
                values.push(one.grant.key.text());
            }
        }
    }
    values.into_iter()
}

/// Whether a temporary override is for a digest.
fn is_overridden(admin: &Admin, attribute: &str, digits: &str) -> bool {
    let rules = admin.gate.rules();
    let is_first = |rule: &Rule| rule.per().first().is_some_and(|name| name == attribute);
    let overrides = admin.overrides.list(None, SystemClock.now());
    overrides.iter().any(|one| {
        let rule = rules.get(&one.rule);
        one.grant.key.digest() == Some(digits) && rule.is_some_and(|rule| is_first(&rule))
    })
}

/// Looks up a digest of a value of this attribute.
pub(crate) async fn find_digest(
    admin: &Arc<Admin>,
    attribute: &str,
    digits: &str,
) -> Result<KnownDigest, HttpProblem> {
    let is_meant = |value: &str| admin.digest.of(value) == digits;
    let mut values: BTreeSet<String> = overridden(admin, attribute)
        .filter(|value| is_meant(value))
        .collect();
    let found = find_clients(admin, digits).await.into_iter();
    let rules = admin.gate.rules();
    let parts = found.flat_map(|found| clear_key(&rules, &found));
    let meant = parts.filter(|(name, value)| name == attribute && is_meant(value));
    values.extend(meant.map(|(_, value)| value));
    if values.is_empty() && attribute == API_KEY {
        let digits = digits.to_owned();
        let reading = admin.read_document(move |admin| {
            let is_meant = |key: &str| admin.digest.of(key) == digits;
            admin.decider.identity.find_keys(is_meant)
        });
        values.extend(reading.await.unwrap_or_default());
    }
    if values.len() > 1 {
        return Err(HttpProblem::new(
            StatusCode::CONFLICT,
            format!("two keys have the digest `{digits}`; give the key itself"),
        ));
    }
    if let Some(value) = values.into_iter().next() {
        return Ok(KnownDigest::Value(value));
    }
    if let Some(activity) = &admin.activity {
        let lists = |_: &str, parts: &[KeyPart]| {
            let mut parts = parts.iter();
            parts.any(|part| {
                *part.attribute == *attribute && part.is_digest && *part.value == *digits
            })
        };
        let redis = admin.store.redis();
        if let Some(instance) = activity.find_elsewhere(redis, lists).await {
            return Ok(KnownDigest::Elsewhere(instance));
        }
    }
    Ok(if is_overridden(admin, attribute, digits) {
        KnownDigest::Hashed
    } else {
        KnownDigest::Unknown
    })
}

/// Whether an override for a digest is for a client that is known. A value in clear that only looks like a digest is
/// returned as its own.
pub(crate) async fn override_digest(
    admin: &Arc<Admin>,
    rule: &Rule,
    written: &str,
) -> Result<Option<OverrideKey>, HttpProblem> {
    let Some(name) = rule.per().first() else {
        return Ok(None);
    };
    let Some(digits) = admin.digits_of(name, written) else {
        return Ok(None);
    };
    let mut attributes = Attributes::new();
    let is_usable = attributes.insert(name.clone(), written.to_owned()).is_ok();
    if is_usable && is_in_clear(admin, &attributes, (name, written), None).await {
        return Ok(Some(OverrideKey::Digest(admin.digest.of(written))));
    }
    match find_digest(admin, name, digits).await? {
        KnownDigest::Unknown => Err(not_seen(written)),
        _ => Ok(Some(OverrideKey::Digest(digits.to_owned()))),
    }
}

fn unusable(detail: impl Into<String>) -> HttpProblem {
    HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// Nothing has this digest.
fn not_seen(digest: &str) -> HttpProblem {
    unusable(format!(
        "`{digest}` is not a key that was seen; give the key itself"
    ))
}

/// Only the digest is known.
fn only_hashed(digest: &str) -> HttpProblem {
    unusable(format!(
        "the key with the digest `{digest}` was not seen: a temporary override is for it, which has only the digest; give the key itself"
    ))
}
