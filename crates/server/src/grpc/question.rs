//! Translates a call of Envoy for the gate: a part of the request for each descriptor.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use tidegate::gate::Part;
use tidegate::limit::MAX_COUNT;
use tidegate::path::EncodedSlashes;
use tidegate::rules::Grant;
use tidegate::{
    Algorithm, AttributeError, AttributeValue, Attributes, Limit, MAX_ATTRIBUTES, MAX_VALUE,
    Micros, Rate, Window,
};

use super::proto::rate_limit::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit};
use super::status::Status;

/// How much of a too long value is kept; a digest of the whole replaces the rest.
const KEPT: usize = 1_024;

/// The most bytes that one escaped byte takes.
const LONGEST_FORM: usize = 5;

/// How many descriptors one call may have.
const MAX_DESCRIPTORS: usize = 256;

pub(super) type Parts<'m> = SmallVec<[Part<'m>; 1]>;

/// The parts of a call. `as_written` keeps the entries unchanged, for descriptor rules; other rules use
/// attributes by name.
pub(super) fn parts(asked: &RateLimitRequest, as_written: bool) -> Result<Parts<'_>, Status> {
    if asked.domain.is_empty() {
        let message = "the domain is empty; set `domain` in Envoy's rate limit filter";
        return Err(Status::invalid(message));
    }
    if asked.descriptors.is_empty() {
        let message = "there are no descriptors; a call needs at least one";
        return Err(Status::invalid(message));
    }
    if asked.descriptors.len() > MAX_DESCRIPTORS {
        return Err(Status::invalid(format!(
            "a call may have at most {MAX_DESCRIPTORS} descriptors, this has {}",
            asked.descriptors.len()
        )));
    }
    let mut parts = Parts::new();
    for (number, descriptor) in asked.descriptors.iter().enumerate() {
        let part = part(asked, descriptor, as_written);
        parts.push(
            part.map_err(|problem| Status::invalid(format!("descriptors[{number}]: {problem}")))?,
        );
    }
    Ok(parts)
}

fn part<'m>(
    asked: &'m RateLimitRequest,
    descriptor: &'m RateLimitDescriptor,
    as_written: bool,
) -> Result<Part<'m>, String> {
    let attributes = if as_written {
        Some(entries_as_written(asked, descriptor)?)
    } else {
        named_entries(asked, descriptor)?
    };
    let Some(attributes) = attributes else {
        // Its limits are unknown, so this descriptor is denied. An error would let the whole call pass.
        return Ok(Part {
            grant: Some(Grant::Blocked),
            ..Part::new(Attributes::new())
        });
    };
    let of_call = u64::from(asked.hits_addend.max(1));
    let own = descriptor.hits_addend.map(|hits| hits.value);
    let cost = match own {
        // Negative hits give back a charge of an earlier call, which is not remembered.
        Some(_) if descriptor.is_negative_hits => 0,
        Some(own) => own,
        None => of_call,
    };
    let grant = descriptor.limit.map(grant).transpose()?;
    Ok(Part {
        attributes: attributes.with_cost(cost),
        grant,
        is_spent: own.is_some() && cost > 0,
    })
}

/// The entries in their order, with any names.
fn entries_as_written<'m>(
    asked: &'m RateLimitRequest,
    descriptor: &'m RateLimitDescriptor,
) -> Result<Attributes<'m>, String> {
    if descriptor.entries.len() >= MAX_ATTRIBUTES {
        let count = descriptor.entries.len();
        return Err(format!(
            "there are {count} entries, give fewer than {MAX_ATTRIBUTES}"
        ));
    }
    let mut attributes = Attributes::new();
    attributes.push("domain", &asked.domain);
    for entry in &descriptor.entries {
        if entry.key.len() > MAX_VALUE {
            return Err(format!("a key has more than {MAX_VALUE} bytes"));
        }
        attributes.push(&entry.key, value(&entry.value).into_form());
    }
    Ok(attributes)
}

/// The entries by key. A repeated key is numbered: `generic_key`, `generic_key.2`. `None` if a client sent a
/// malformed `ip`, `path` or `host`.
fn named_entries<'m>(
    asked: &'m RateLimitRequest,
    descriptor: &'m RateLimitDescriptor,
) -> Result<Option<Attributes<'m>>, String> {
    let mut attributes = Attributes::new();
    let domain = attributes.insert("domain", &asked.domain);
    domain.map_err(|error| error.to_string())?;
    for (index, entry) in descriptor.entries.iter().enumerate() {
        let before = &descriptor.entries[..index];
        let same = before.iter().filter(|other| other.key == entry.key).count();
        let same = same + usize::from(entry.key == "domain");
        let name: Cow<'m, str> = match same {
            0 => Cow::Borrowed(&entry.key),
            _ => Cow::Owned(format!("{}.{}", entry.key, same + 1)),
        };
        let inserted = match name.as_ref() {
            // Envoy forwards the path unchanged.
            "path" => attributes.insert_raw_path(value(&entry.value), EncodedSlashes::Decode),
            _ => attributes.insert(name, value(&entry.value)),
        };
        match inserted {
            Ok(()) => {}
            Err(
                AttributeError::NotAnAddress { .. }
                | AttributeError::Path(_)
                | AttributeError::Host(_),
            ) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(Some(attributes))
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
    let mut short = format!("{}…", &text[..kept]);
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(short, "{byte:02x}");
    }
    AttributeValue::from(short)
}

/// The grant of a limit that comes with the call.
fn grant(limit: RateLimitOverride) -> Result<Grant, String> {
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
    if limit.requests_per_unit == 0 {
        return Ok(Grant::Blocked);
    }
    let rate = Rate {
        count: u64::from(limit.requests_per_unit).min(MAX_COUNT),
        window: Some(window),
        burst: None,
    };
    let limit = Limit::new(rate, Algorithm::FIXED_WINDOW);
    let limit = limit.map_err(|error| format!("`limit`: {error}"))?;
    Ok(Grant::Limits(vec![limit]))
}
