//! Writes a decision as JSON. By hand: times are exact to the microsecond, and it is done for every request.

use tidegate::gate::{Decision, LimitOutcome};
use tidegate::{Micros, Outcome, Reason};

use crate::write_seconds;

/// Writes the decision as a JSON object.
pub fn write(out: &mut Vec<u8>, decision: &Decision) {
    write_with(out, decision, write_limits);
}

/// Like `write`, with at most about `most` bytes of limits. `omitted` is the number of limits that are left out, if any
/// are.
pub fn write_within(out: &mut Vec<u8>, decision: &Decision, most: usize) {
    write_with(out, decision, |out, decision| {
        write_limits_within(out, decision, most);
    });
}

#[inline]
fn write_with(
    out: &mut Vec<u8>,
    decision: &Decision,
    write_limits: impl FnOnce(&mut Vec<u8>, &Decision),
) {
    let Some(headline) = decision.headline() else {
        out.extend_from_slice(
            br#"{"allowed":true,"rule":null,"limit":null,"remaining":null,"reset_time":null,"retry_after":null,"delay":null,"degraded":null"#,
        );
        write_lease(out, decision);
        write_limits(out, decision);
        write_reason(out, None);
        out.push(b'}');
        return;
    };
    let outcome = headline.outcome;
    out.extend_from_slice(br#"{"allowed":"#);
    boolean(out, decision.is_allowed());
    // The id of a rule needs no escaping: it has letters, digits, `.`, `_` and `-` only.
    text(out, br#","rule":""#, headline.rule.id());
    numbers(out, outcome);
    out.extend_from_slice(br#","delay":"#);
    write_seconds(out, Micros::from(decision.delay()).get());
    out.extend_from_slice(br#","degraded":"#);
    boolean(out, decision.is_degraded());
    write_lease(out, decision);
    write_limits(out, decision);
    write_reason(out, Some(&headline));
    out.push(b'}');
}

/// The lease, also if only a shadow rule holds a permit: otherwise it could not be released.
fn write_lease(out: &mut Vec<u8>, decision: &Decision) {
    match decision.permit() {
        Some(lease) => text(out, br#","lease":""#, &lease.to_string()),
        None => out.extend_from_slice(br#","lease":null"#),
    }
}

/// The reason of a denial, and the missing attributes if that is the reason.
fn write_reason(out: &mut Vec<u8>, headline: Option<&LimitOutcome<'_>>) {
    let Some((limit, reason)) = headline.and_then(|limit| Some((limit, limit.reason?))) else {
        out.extend_from_slice(br#","reason":null"#);
        return;
    };
    text(out, br#","reason":""#, reason.name());
    if reason == Reason::MissingAttribute {
        out.extend_from_slice(br#","missing":"#);
        let missing: Vec<&str> = limit.missing().collect();
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(out, &missing);
    }
}

/// The outcome of every limit.
fn write_limits(out: &mut Vec<u8>, decision: &Decision) {
    out.extend_from_slice(br#","limits":["#);
    for (index, limit) in decision.limits().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_limit(out, &limit);
        out.push(b'}');
    }
    out.push(b']');
}

/// The outcome of every limit for which there is room.
fn write_limits_within(out: &mut Vec<u8>, decision: &Decision, most: usize) {
    out.extend_from_slice(br#","limits":["#);
    let (start, mut omitted) = (out.len(), 0);
    for (index, limit) in decision.limits().enumerate() {
        if out.len() - start > most {
            omitted += 1;
            continue;
        }
        if index > 0 {
            out.push(b',');
        }
        write_limit(out, &limit);
        out.push(b'}');
    }
    out.push(b']');
    if omitted > 0 {
        out.extend_from_slice(br#","omitted":"#);
        integer(out, omitted);
    }
}

/// Writes the outcome of one limit for an explanation: with the most that it can admit, as numbers and in
/// words, and what it counts.
pub fn write_explained_limit(out: &mut Vec<u8>, decided: &LimitOutcome<'_>) {
    write_limit(out, decided);
    match decided.highest() {
        Some(limit) => {
            let worst = limit.worst_case();
            out.extend_from_slice(br#","worst_case":{"window":"#);
            match worst.window {
                Some(most) => integer(out, most),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(br#","instant":"#);
            integer(out, worst.instant);
            // Letters, digits and punctuation: it needs no escaping.
            text(out, br#"},"promise":""#, &decided.rule.promise(&limit));
        }
        None => out.extend_from_slice(br#","worst_case":null,"promise":null"#),
    }
    text(out, br#","unit":""#, decided.rule.unit().as_str());
    out.push(b'}');
}

/// The outcome of one limit, without the end of its object.
fn write_limit(out: &mut Vec<u8>, decided: &LimitOutcome<'_>) {
    let outcome = decided.outcome;
    let algorithm = decided
        .limit
        .map_or("blocked", |limit| limit.algorithm().name());
    text(out, br#"{"rule":""#, decided.rule.id());
    text(out, br#","algorithm":""#, algorithm);
    out.extend_from_slice(br#","window":"#);
    match decided.limit.and_then(tidegate::Limit::window) {
        Some(window) => {
            let (start, end) = match window {
                tidegate::Window::Span(span) => (
                    tidegate::Timestamp::EPOCH,
                    tidegate::Timestamp::EPOCH + span,
                ),
                calendar => calendar.around(outcome.at),
            };
            write_seconds(out, end.since(start).get());
        }
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(br#","rate":"#);
    integer(out, decided.limit.map_or(0, |limit| limit.rate().count));
    let allowed: &[u8] = if outcome.allowed {
        br#","allowed":true"#
    } else {
        br#","allowed":false"#
    };
    out.extend_from_slice(allowed);
    numbers(out, outcome);
    out.extend_from_slice(br#","delay":"#);
    write_seconds(out, outcome.delay.get());
    out.extend_from_slice(br#","shadow":"#);
    boolean(out, decided.is_shadow);
    out.extend_from_slice(br#","degraded":"#);
    boolean(out, decided.is_degraded);
    write_reason(out, Some(decided));
    if decided.is_candidate() {
        out.extend_from_slice(br#","candidate":true"#);
    }
}

/// The numbers that a decision and each of its limits share.
fn numbers(out: &mut Vec<u8>, outcome: &Outcome) {
    out.extend_from_slice(br#","limit":"#);
    integer(out, outcome.limit);
    out.extend_from_slice(br#","remaining":"#);
    integer(out, outcome.remaining);
    out.extend_from_slice(br#","reset_time":"#);
    write_seconds(out, outcome.reset_at.as_micros());
    out.extend_from_slice(br#","retry_after":"#);
    match outcome.retry.wait() {
        Some(wait) => write_seconds(out, wait.get()),
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes text that needs no escaping, after `before`, which ends with its opening quote.
pub(super) fn text(out: &mut Vec<u8>, before: &[u8], text: &str) {
    out.extend_from_slice(before);
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Writes a number. Without the machinery of `write!`, which takes longer than the rest.
pub(crate) fn integer(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}
