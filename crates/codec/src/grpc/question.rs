//! Translates a call of Envoy for the gate: a part of the request for each descriptor.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use tidegate::gate::Part;
use tidegate::limit::MAX_COUNT;
use tidegate::path::EncodedSlashes;
use tidegate::printable::hexadecimal;
use tidegate::rules::{Grant, Units};
use tidegate::{
    Algorithm, AttributeError, AttributeValue, Attributes, Limit, MAX_ATTRIBUTES, MAX_VALUE,
    Micros, Rate, Window,
};

use super::call::{CallDescriptor, RateLimitCall};
use super::proto::rate_limit::{RateLimitOverride, Unit};
use crate::CodecError;

/// How much of a too long value is kept; a digest of the whole replaces the rest.
const KEPT: usize = 1_024;

/// The most bytes that one escaped byte takes.
const LONGEST_FORM: usize = 5;

/// How many descriptors one call may have.
const MAX_DESCRIPTORS: usize = 256;

/// The parts of a call, usually one.
pub type Parts<'m> = SmallVec<[Part<'m>; 1]>;

/// The parts of a call, as [`add_parts`] adds them.
pub fn parts<'m>(asked: &RateLimitCall<'m>, units: Option<Units>) -> Result<Parts<'m>, CodecError> {
    let mut parts = Parts::new();
    add_parts(&mut parts, asked, units)?;
    Ok(parts)
}

/// Adds the parts of a call, where they stay: a part is large, and each move copies it. For descriptor rules, which
/// have `units`, the entries are kept unchanged; other rules use attributes by name.
pub fn add_parts<'m>(
    parts: &mut Parts<'m>,
    asked: &RateLimitCall<'m>,
    units: Option<Units>,
) -> Result<(), CodecError> {
    if asked.domain.is_empty() {
        let message = "the domain is empty; set `domain` in Envoy's rate limit filter";
        return Err(CodecError::invalid(message));
    }
    if asked.descriptors.is_empty() {
        let message = "there are no descriptors; a call needs at least one";
        return Err(CodecError::invalid(message));
    }
    if asked.descriptors.len() > MAX_DESCRIPTORS {
        return Err(CodecError::invalid(format!(
            "a call may have at most {MAX_DESCRIPTORS} descriptors, this has {}",
            asked.descriptors.len()
        )));
    }
    for (number, descriptor) in asked.descriptors.iter().enumerate() {
        parts.push(Part::new(Attributes::new()));
        if let Some(part) = parts.last_mut()
            && let Err(problem) = fill(part, asked, descriptor, units)
        {
            let problem = format!("descriptors[{number}]: {problem}");
            return Err(CodecError::invalid(problem));
        }
    }
    Ok(())
}

fn fill<'m>(
    part: &mut Part<'m>,
    asked: &RateLimitCall<'m>,
    descriptor: &CallDescriptor<'m>,
    units: Option<Units>,
) -> Result<(), String> {
    let attributes = &mut part.attributes;
    if units.is_some() {
        add_as_written(attributes, asked, descriptor)?;
    } else if !add_named(attributes, asked, descriptor)? {
        // Its limits are unknown, so this descriptor is denied. An error would let the whole call pass.
        *part = Part {
            grant: Some(Grant::Blocked),
            ..Part::new(Attributes::new())
        };
        return Ok(());
    }
    let of_call = u64::from(asked.hits_addend.max(1));
    let own = descriptor.hits_addend;
    let cost = match own {
        // Negative hits give back a charge of an earlier call, which is not remembered.
        Some(_) if descriptor.is_negative_hits => 0,
        Some(own) => own,
        None => of_call,
    };
    part.attributes.set_cost(cost);
    part.grant = descriptor
        .limit
        .map(|limit| grant(limit, units))
        .transpose()?;
    part.is_spent = own.is_some() && cost > 0;
    Ok(())
}

/// Adds the entries in their order, with any names.
fn add_as_written<'m>(
    attributes: &mut Attributes<'m>,
    asked: &RateLimitCall<'m>,
    descriptor: &CallDescriptor<'m>,
) -> Result<(), String> {
    if descriptor.entries.len() >= MAX_ATTRIBUTES {
        let count = descriptor.entries.len();
        return Err(format!(
            "there are {count} entries, give fewer than {MAX_ATTRIBUTES}"
        ));
    }
    attributes.push("domain", asked.domain);
    for entry in &descriptor.entries {
        if entry.key.len() > MAX_VALUE {
            return Err(format!("a key has more than {MAX_VALUE} bytes"));
        }
        attributes.push(entry.key, value(entry.value).into_form());
    }
    Ok(())
}

/// Adds the entries by key. A repeated key is numbered: `generic_key`, `generic_key.2`. Whether all could be read:
/// a client may send a malformed `ip`, `path` or `host`.
fn add_named<'m>(
    attributes: &mut Attributes<'m>,
    asked: &RateLimitCall<'m>,
    descriptor: &CallDescriptor<'m>,
) -> Result<bool, String> {
    let domain = attributes.insert("domain", asked.domain);
    domain.map_err(|error| error.to_string())?;
    for (index, entry) in descriptor.entries.iter().enumerate() {
        let before = &descriptor.entries[..index];
        let same = before.iter().filter(|other| other.key == entry.key).count();
        let same = same + usize::from(entry.key == "domain");
        let name: Cow<'m, str> = match same {
            0 => Cow::Borrowed(entry.key),
            _ => Cow::Owned(format!("{}.{}", entry.key, same + 1)),
        };
        let inserted = match name.as_ref() {
            // Envoy forwards the path unchanged.
            "path" => attributes.insert_raw_path(value(entry.value), EncodedSlashes::Decode),
            _ => attributes.insert(name, value(entry.value)),
        };
        match inserted {
            Ok(()) => {}
            Err(
                AttributeError::NotAnAddress { .. }
                | AttributeError::Path(_)
                | AttributeError::Host(_),
            ) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(true)
}

/// Any value of a client as text: bytes that are not UTF-8 are escaped as [`AttributeValue`] does.
fn value(bytes: &[u8]) -> AttributeValue<'_> {
    let value = AttributeValue::from(bytes);
    if bytes.len() <= MAX_VALUE / LONGEST_FORM {
        return value;
    }
    let text = value.clone().into_form();
    if text.len() <= MAX_VALUE {
        return value;
    }
    let kept = text.floor_char_boundary(KEPT);
    let hash = hexadecimal(&Sha256::digest(bytes));
    AttributeValue::from(format!("{}…{hash}", &text[..kept]))
}

/// The grant of a limit that comes with the call.
fn grant(limit: RateLimitOverride, units: Option<Units>) -> Result<Grant, String> {
    let window = match Unit::try_from(limit.unit) {
        Ok(Unit::Second) => Window::Span(Micros::SECOND),
        Ok(Unit::Minute) => Window::Span(Micros::MINUTE),
        Ok(Unit::Hour) => Window::Span(Micros::HOUR),
        Ok(Unit::Day) => Window::Span(Micros::DAY),
        Ok(Unit::Week) => Window::Span(Micros::WEEK),
        Ok(Unit::Month) => Window::Month,
        Ok(Unit::Year) => Window::Year,
        Ok(Unit::Unknown) | Err(_) => {
            return Err(format!("`limit.unit` {} is not a unit of time", limit.unit));
        }
    };
    let count = u64::from(limit.requests_per_unit);
    let limit = match units {
        Some(units) => {
            let (window, anchor) = units.window(window);
            Limit::fixed_window(count, window, anchor)
        }
        None if count == 0 => return Ok(Grant::Blocked),
        None => {
            let rate = Rate::new(count.min(MAX_COUNT), window);
            Limit::new(rate, Algorithm::FIXED_WINDOW)
        }
    };
    let limit = limit.map_err(|error| format!("`limit`: {error}"))?;
    Ok(Grant::Limits(vec![limit]))
}
