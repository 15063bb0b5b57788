//! Last decisions and denied requests as bytes, within a part of an instance's activity.

use std::borrow::Cow;
use std::sync::Arc;

use crate::evidence::{DeniedRequest, KeptAttribute, LastDecision};
use crate::names::{KeyName, KeyPart};
use crate::part::NamedKey;
use crate::record::{put, take};
use crate::text_bytes::{put_text, take_count, take_text};

/// The most parts of a name, attributes of a decision, and denied requests of a rule that are read.
const MOST_PARTS: usize = 64;
const MOST_ATTRIBUTES: usize = 128;
const MOST_DENIED: usize = 100;

/// Bits of the first byte of a decision.
const IS_ALLOWED: u8 = 1;
const HAS_WAIT: u8 = 1 << 1;

pub(crate) fn put_name(bytes: &mut Vec<u8>, name: &KeyName) {
    put(bytes, name.parts().len() as u64);
    for part in name.parts() {
        put_part(bytes, part);
    }
}

pub(crate) fn take_name(bytes: &mut impl Iterator<Item = u8>) -> Option<KeyName> {
    let count = take_count(bytes, MOST_PARTS)?;
    let parts: Option<Vec<KeyPart>> = (0..count).map(|_| take_part(bytes)).collect();
    parts.map(KeyName::new)
}

fn put_part(bytes: &mut Vec<u8>, part: &KeyPart) {
    bytes.push(u8::from(part.is_digest));
    put_text(bytes, &part.attribute);
    put_text(bytes, &part.value);
}

fn take_part(bytes: &mut impl Iterator<Item = u8>) -> Option<KeyPart> {
    let is_digest = bytes.next()? == 1;
    let (attribute, value) = (take_text(bytes)?, take_text(bytes)?);
    let part = KeyPart::clear(&attribute, &value);
    Some(KeyPart { is_digest, ..part })
}

/// Writes the last decisions of these keys and denied requests, the first ones first, until the room is used up.
pub(crate) fn put_evidence<'e>(
    bytes: &mut Vec<u8>,
    keys: impl Iterator<Item = &'e NamedKey>,
    denied: &[DeniedRequest],
    most: usize,
) {
    let (mut count, mut written) = (0, Vec::new());
    for (index, key) in keys.enumerate() {
        let Some(last) = &key.last else { continue };
        let mut one = Vec::new();
        put(&mut one, index as u64);
        put_decision(&mut one, last);
        if written.len() + one.len() > most / 3 * 2 {
            break;
        }
        written.extend(one);
        count += 1;
    }
    put(bytes, count);
    let left = most.saturating_sub(written.len());
    bytes.extend(written);
    let (mut count, mut written) = (0, Vec::new());
    for denied in denied {
        let mut one = Vec::new();
        put_denied(&mut one, denied);
        if written.len() + one.len() > left {
            break;
        }
        written.extend(one);
        count += 1;
    }
    put(bytes, count);
    bytes.extend(written);
}

/// Reads what [`put_evidence`] wrote: the decisions into their keys.
pub(crate) fn take_evidence(
    bytes: &mut impl Iterator<Item = u8>,
    keys: &mut [NamedKey],
) -> Option<Vec<DeniedRequest>> {
    for _ in 0..take_count(bytes, keys.len())? {
        let index = usize::try_from(take(bytes)?).ok()?;
        keys.get_mut(index)?.last = Some(Arc::new(take_decision(bytes)?));
    }
    let count = take_count(bytes, MOST_DENIED)?;
    (0..count).map(|_| take_denied(bytes)).collect()
}

fn put_decision(bytes: &mut Vec<u8>, last: &LastDecision) {
    let is_allowed = if last.is_allowed { IS_ALLOWED } else { 0 };
    let has_wait = last.retry_after.map_or(0, |_| HAS_WAIT);
    bytes.push(is_allowed | has_wait);
    put(bytes, last.at);
    put(bytes, last.retry_after.unwrap_or(0));
    put(bytes, last.cost);
    let (rule, reason) = (last.rule.as_deref(), last.reason.as_deref());
    for text in [rule.unwrap_or(""), reason.unwrap_or("")] {
        put_text(bytes, text);
    }
    for text in [&*last.grant_from, &*last.grant, &*last.front_end] {
        put_text(bytes, text);
    }
    put(bytes, last.attributes.len() as u64);
    for attribute in &last.attributes {
        put_part(bytes, &attribute.shown);
    }
}

fn take_decision(bytes: &mut impl Iterator<Item = u8>) -> Option<LastDecision> {
    let flags = bytes.next()?;
    let (at, wait, cost) = (take(bytes)?, take(bytes)?, take(bytes)?);
    let (rule, reason) = (take_text(bytes)?, take_text(bytes)?);
    let (grant_from, grant, front_end) = (take_text(bytes)?, take_text(bytes)?, take_text(bytes)?);
    let count = take_count(bytes, MOST_ATTRIBUTES)?;
    let attributes: Option<Vec<KeptAttribute>> = (0..count)
        .map(|_| take_part(bytes).map(KeptAttribute::received))
        .collect();
    Some(LastDecision {
        at,
        is_allowed: flags & IS_ALLOWED != 0,
        rule: unless_empty(rule),
        reason: Some(reason)
            .filter(|reason| !reason.is_empty())
            .map(Cow::Owned),
        retry_after: (flags & HAS_WAIT != 0).then_some(wait),
        grant_from: grant_from.into(),
        grant: grant.into(),
        cost,
        front_end: front_end.into(),
        attributes: attributes?.into(),
    })
}

fn put_denied(bytes: &mut Vec<u8>, denied: &DeniedRequest) {
    put(bytes, denied.at);
    for text in [&denied.method, &denied.path, &denied.address] {
        put_text(bytes, text.as_deref().unwrap_or(""));
    }
    put_text(bytes, &denied.reason);
    put_text(bytes, &denied.front_end);
    put_name(bytes, &denied.key);
}

fn take_denied(bytes: &mut impl Iterator<Item = u8>) -> Option<DeniedRequest> {
    Some(DeniedRequest {
        at: take(bytes)?,
        method: unless_empty(take_text(bytes)?),
        path: unless_empty(take_text(bytes)?),
        address: unless_empty(take_text(bytes)?),
        reason: take_text(bytes)?.into(),
        front_end: take_text(bytes)?.into(),
        key: take_name(bytes)?,
    })
}

/// A text that is written as an empty one if it is not known.
fn unless_empty(text: String) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}
