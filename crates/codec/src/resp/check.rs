//! `TG.CHECK attribute value ... [COST n]`: a decision by the rules.

use tidegate::gate::Decision;
use tidegate::{Attributes, Micros};

use super::arguments::RespCommand;
use super::replies::Replies;
use crate::CodecError;
use crate::json::number::MAX;

/// Reads the attributes of the request. Borrows nothing: the buffer may be reused before the answer.
pub fn read(command: RespCommand<'_>) -> Result<Attributes<'static>, CodecError> {
    let given = command.len().saturating_sub(1);
    if !given.is_multiple_of(2) {
        return Err(CodecError::invalid(
            "TG.CHECK takes `attribute value ... [COST n]`: each attribute needs a value",
        ));
    }
    let mut end = command.len();
    let mut cost = 1;
    // Only at the end: elsewhere it can be the name of an attribute.
    if given >= 2 && command.is(end - 2, "COST") {
        cost = whole("COST", command.get(end - 1))?;
        end -= 2;
    }
    Ok(attributes(command, end)?.with_cost(cost))
}

/// The attributes and values before `end`.
pub(super) fn attributes(
    command: RespCommand<'_>,
    end: usize,
) -> Result<Attributes<'static>, CodecError> {
    let mut attributes = Attributes::new();
    for index in (1..end).step_by(2) {
        let value = command.get(index + 1).to_vec();
        attributes
            .insert(text(command, index)?, value)
            .map_err(|error| CodecError::invalid(error.to_string()))?;
    }
    Ok(attributes)
}

fn text(command: RespCommand<'_>, index: usize) -> Result<String, CodecError> {
    let bytes = command.get(index);
    String::from_utf8(bytes.to_vec()).map_err(|_| {
        let given = super::quoted(bytes);
        CodecError::invalid(format!(
            "the name of an attribute must be UTF-8 text, not `{given}`"
        ))
    })
}

/// The number of an option with this name: the numbers of the HTTP API.
pub(super) fn whole(name: &str, bytes: &[u8]) -> Result<u64, CodecError> {
    let text = std::str::from_utf8(bytes).ok();
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.filter(|number| *number <= MAX).ok_or_else(|| {
        let given = super::quoted(bytes);
        CodecError::invalid(format!(
            "{name} must be a whole number from 0 to {MAX}, not `{given}`"
        ))
    })
}

/// Writes a decision, with the field names of the JSON answer.
pub fn write(decision: &Decision, replies: &mut Replies) {
    write_with(decision, replies, 0, |_| {});
}

/// Writes a decision, with so many fields more.
#[inline]
pub(super) fn write_with(
    decision: &Decision,
    replies: &mut Replies,
    count: usize,
    more: impl FnOnce(&mut Replies),
) {
    if decision.is_failed() {
        replies.error("UNAVAILABLE", super::UNDECIDED);
        return;
    }
    let headline = decision.headline();
    let outcome = headline.as_ref().map(|answer| answer.outcome);
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    replies.map(10 + count);
    replies.bulk(b"allowed");
    replies.boolean(decision.is_allowed());
    replies.bulk(b"rule");
    some(replies, headline.as_ref(), |replies, answer| {
        replies.bulk(answer.rule.id().as_bytes());
    });
    replies.bulk(b"limit");
    some(replies, outcome, |replies, outcome| {
        replies.integer(whole(outcome.limit));
    });
    replies.bulk(b"remaining");
    some(replies, outcome, |replies, outcome| {
        replies.integer(whole(outcome.remaining));
    });
    replies.bulk(b"reset_time");
    some(replies, outcome, |replies, outcome| {
        replies.seconds(outcome.reset_at.as_micros());
    });
    replies.bulk(b"retry_after");
    let wait = outcome.and_then(|outcome| outcome.retry.wait());
    some(replies, wait, |replies, wait| replies.seconds(wait.get()));
    replies.bulk(b"delay");
    some(replies, outcome, |replies, _| {
        replies.seconds(Micros::from(decision.delay()).get());
    });
    replies.bulk(b"degraded");
    some(replies, outcome, |replies, _| {
        replies.boolean(decision.is_degraded());
    });
    replies.bulk(b"lease");
    some(replies, decision.permit(), |replies, lease| {
        replies.bulk(lease.to_string().as_bytes());
    });
    replies.bulk(b"reason");
    some(replies, decision.reason(), |replies, reason| {
        replies.bulk(reason.name().as_bytes());
    });
    more(replies);
}

fn some<T>(replies: &mut Replies, value: Option<T>, write: impl FnOnce(&mut Replies, T)) {
    match value {
        Some(value) => write(replies, value),
        None => replies.null(),
    }
}
