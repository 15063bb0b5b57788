//! Finds the client that a caller means: by a value, or by the digest that tables and the log show for it.
//!
//! A value in clear comes first. A digest is looked up among the clients that were seen, those of `clients_file`, and
//! those with an override (`digests.rs`). Another instance may have seen a client that this one has not: then it must be
//! asked, because only digests are published. `client.rs` finds a client by any attribute that makes a key.

mod client;
mod digests;

pub(crate) use client::{MeantClient, find_client, find_unlisted};

use std::sync::Arc;

use http::StatusCode;
use tidegate::Attributes;
use tidegate::rules::{OverrideKey, Rule, ValueDigest};

use crate::admin::Admin;
use crate::problem::HttpProblem;
use digests::{KnownDigest, find_digest, is_in_clear};

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

impl Admin {
    /// Whether values of this attribute are shown as digests.
    fn shows_digests(&self, attribute: &str) -> bool {
        self.is_anonymous() || self.book.settings().is_secret(attribute)
    }

    /// Whether clients are shown as digests alone.
    fn is_anonymous(&self) -> bool {
        let activity = self.activity.as_ref();
        activity.is_some_and(|activity| activity.is_anonymous)
    }

    /// The value of an attribute for a caller that may know it only as a digest.
    pub(crate) fn shown_of_client(&self, attribute: &str, value: &str) -> String {
        if self.is_anonymous() && is_counted_by(self, attribute) {
            return self.digest.of(value);
        }
        self.shown(attribute, value)
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
        let is_secret = admin.book.settings().is_secret(name);
        let digits = ValueDigest::read(value);
        let Some(digits) = digits.filter(|_| is_counted_by(admin, name)) else {
            has_clear_secret |= is_secret;
            continue;
        };
        if is_in_clear(admin, &attributes, (name, value), rule).await {
            has_clear_secret |= is_secret;
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
            KnownDigest::Unknown if admin.shows_digests(name) => return Err(not_seen(value)),
            // Only the log shows digests of it, and it may well be a value.
            KnownDigest::Unknown => {}
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

/// The key of an override as a caller writes it. Digests in it are those of clients that are known.
pub(crate) async fn override_key(
    admin: &Arc<Admin>,
    rule: &Rule,
    written: &str,
) -> Result<OverrideKey, HttpProblem> {
    let in_key = |message| unusable(format!("`key`: {message}"));
    let values = rule.override_values(written).map_err(in_key)?;
    let named = rule.attributes_of_override(&values).unwrap_or_default();
    let mut keys = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let by_digest = override_digest(admin, rule, (index, value), &named).await?;
        keys.push(match by_digest {
            Some(key) => key,
            None => rule
                .override_value(index, value, admin.book.settings(), &admin.digest)
                .map_err(in_key)?,
        });
    }
    Ok(rule.override_of_values(keys))
}

/// The key of a value that is given as its digest, if the client is known. A value in clear that only looks like a
/// digest is returned as its own. `named` is what the whole key names.
async fn override_digest(
    admin: &Arc<Admin>,
    rule: &Rule,
    (index, written): (usize, &str),
    named: &Attributes<'_>,
) -> Result<Option<OverrideKey>, HttpProblem> {
    let Some(name) = rule.overridden_by().get(index) else {
        return Ok(None);
    };
    let Some(digits) = ValueDigest::read(written) else {
        return Ok(None);
    };
    let is_hidden = admin.shows_digests(name);
    if is_in_clear(admin, named, (name, written), None).await {
        return Ok(is_hidden.then(|| OverrideKey::Digest(admin.digest.of(written))));
    }
    match find_digest(admin, name, digits).await? {
        KnownDigest::Unknown if is_hidden => Err(not_seen(written)),
        // Only the log shows digests of it, and it may well be a value.
        KnownDigest::Unknown => Ok(None),
        KnownDigest::Value(value) if !is_hidden => {
            let key = rule.override_value(index, &value, admin.book.settings(), &admin.digest);
            Ok(key.ok())
        }
        _ => Ok(Some(OverrideKey::Digest(digits.to_owned()))),
    }
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

/// Whether any rule counts by an attribute.
fn is_counted_by(admin: &Admin, attribute: &str) -> bool {
    admin.gate.rules().counts_by(attribute)
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
