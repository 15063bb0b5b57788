//! A decision as JSON. Written by hand: times are exact to the microsecond, and it is done for every
//! request.

use std::io::Write as _;

use tidegate::gate::{Answer, Decision};
use tidegate::{Outcome, Reason};

use crate::seconds::write_seconds;

/// Writes the decision as a JSON object.
pub(super) fn write(out: &mut Vec<u8>, decision: &Decision) {
    let Some(headline) = decision.headline() else {
        out.extend_from_slice(
            br#"{"allowed":true,"rule":null,"limit":null,"remaining":null,"reset_time":null,"retry_after":null,"delay":null,"degraded":null"#,
        );
        write_lease(out, decision);
        write_answers(out, decision);
        write_reason(out, None);
        out.push(b'}');
        return;
    };
    let outcome = headline.outcome;
    out.extend_from_slice(br#"{"allowed":"#);
    boolean(out, decision.is_allowed());
    // The id of a rule needs no escaping: it has letters, digits, `.`, `_` and `-` only.
    let _ = write!(out, r#","rule":"{}""#, headline.rule.id());
    numbers(out, outcome);
    out.extend_from_slice(br#","delay":"#);
    write_seconds(out, decision.delay().get());
    out.extend_from_slice(br#","degraded":"#);
    boolean(out, decision.is_degraded());
    write_lease(out, decision);
    write_answers(out, decision);
    write_reason(out, Some(&headline));
    out.push(b'}');
}

/// Also told where only a rule that counts holds something: otherwise nobody could release it.
fn write_lease(out: &mut Vec<u8>, decision: &Decision) {
    match decision.lease() {
        Some(lease) => {
            let _ = write!(out, r#","lease":"{lease}""#);
        }
        None => out.extend_from_slice(br#","lease":null"#),
    }
}

/// Why it is denied, and which attributes are missing if that is why.
fn write_reason(out: &mut Vec<u8>, answer: Option<&Answer<'_>>) {
    let Some((answer, reason)) = answer.and_then(|answer| Some((answer, answer.reason?))) else {
        out.extend_from_slice(br#","reason":null"#);
        return;
    };
    let _ = write!(out, r#","reason":"{}""#, reason.name());
    if reason == Reason::MissingAttribute {
        out.extend_from_slice(br#","missing":"#);
        let missing: Vec<&str> = answer.missing().collect();
        // Writing text to memory cannot fail.
        let _ = serde_json::to_writer(out, &missing);
    }
}

/// Every limit's own answer.
fn write_answers(out: &mut Vec<u8>, decision: &Decision) {
    out.extend_from_slice(br#","limits":["#);
    for (index, answer) in decision.answers().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_answer(out, &answer);
    }
    out.push(b']');
}

fn write_answer(out: &mut Vec<u8>, answer: &Answer<'_>) {
    let outcome = answer.outcome;
    let algorithm = answer
        .limit
        .map_or("blocked", |limit| limit.algorithm().name());
    let _ = write!(
        out,
        r#"{{"rule":"{}","algorithm":"{algorithm}","window":"#,
        answer.rule.id()
    );
    match answer.limit.and_then(tidegate::Limit::window) {
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
    out.extend_from_slice(br#","allowed":"#);
    boolean(out, outcome.allowed);
    numbers(out, outcome);
    out.extend_from_slice(br#","delay":"#);
    write_seconds(out, outcome.delay.get());
    out.extend_from_slice(br#","shadow":"#);
    boolean(out, answer.is_shadow);
    out.extend_from_slice(br#","degraded":"#);
    boolean(out, answer.is_degraded);
    write_reason(out, Some(answer));
    out.push(b'}');
}

/// The numbers that a decision and each of its limits have alike.
fn numbers(out: &mut Vec<u8>, outcome: &Outcome) {
    let _ = write!(
        out,
        r#","limit":{},"remaining":{},"reset_time":"#,
        outcome.limit, outcome.remaining
    );
    write_seconds(out, outcome.reset_at.as_micros());
    out.extend_from_slice(br#","retry_after":"#);
    match outcome.retry.wait() {
        Some(wait) => write_seconds(out, wait.get()),
        None => out.extend_from_slice(b"null"),
    }
}

fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}
