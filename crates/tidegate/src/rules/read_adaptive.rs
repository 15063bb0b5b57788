//! Reads between which bounds a limit may move by itself, and says what does not go with that.

use tidegate_core::limit::{MAX_COUNT, MAX_WINDOW, MIN_WINDOW};
use tidegate_core::{Limit, Micros, Rate};

use super::read_limit::Counting;
use super::rule::Grant;
use crate::adaptive::{Adaptive, DEFAULT_START};
use crate::document::{Fields, Node, Problems, Spot};

/// `{min: 10, max: 500, target: 200ms}`.
pub(super) fn read(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<Adaptive> {
    let mut fields = Fields::of(node, spot.clone(), problems)?;
    let (min, max) = (fields.take("min"), fields.take("max"));
    let target = fields.take("target");
    let all_known = fields.done(problems);
    for (taken, key) in [(&min, "min"), (&max, "max")] {
        // An unknown key was probably meant to be the one that is missing.
        if taken.is_none() && all_known {
            let message = format!(
                "the key `{key}` is missing; write for example `{{min: 10, max: 500, target: 200ms}}`"
            );
            problems.error(&node.place, &spot.field(key), message);
        }
    }
    // All of them are read before one that cannot be ends it, so that every mistake is told.
    let lowest = min.and_then(|(spot, node)| spot.integer(node, 1, MAX_COUNT, problems));
    let highest = max
        .as_ref()
        .and_then(|(spot, node)| spot.integer(node, 1, MAX_COUNT, problems));
    let target = match target {
        Some((spot, node)) => Some(spot.parsed(node, read_target, problems)?),
        None => None,
    };
    let (min, max, (max_spot, max_node)) = (lowest?, highest?, max?);
    if min > max {
        let message = format!("`max` is lower than `min`, which is {min}; exchange them");
        problems.error(&max_node.place, &max_spot, message);
        return None;
    }
    Some(Adaptive { min, max, target })
}

fn read_target(text: &str) -> Result<Micros, String> {
    let target: Micros = text
        .parse()
        .map_err(|error: tidegate_core::LimitError| error.to_string())?;
    if (MIN_WINDOW..=MAX_WINDOW).contains(&target) {
        return Ok(target);
    }
    Err(format!(
        "a target is a latency from 1ms to 366d, not `{text}`; write for example `200ms`, or leave it out to follow how latency changes with load"
    ))
}

/// Where a rule begins that names no limit.
pub(super) fn start(counting: &Counting) -> Option<Grant> {
    let adaptive = counting.adaptive?;
    let rate = Rate {
        count: DEFAULT_START.clamp(adaptive.min, adaptive.max),
        window: None,
        burst: None,
    };
    let limit = Limit::new(rate, counting.algorithm?).ok()?;
    Some(Grant::Limits(vec![limit]))
}

/// What is wrong with the limit that an adaptive rule begins with, if anything is.
pub(super) fn wrong_start(adaptive: &Adaptive, grant: &Grant) -> Option<String> {
    let Adaptive { min, max, .. } = adaptive;
    match grant {
        Grant::Limits(limits) => {
            let count = limits.first()?.rate().count;
            (!(*min..=*max).contains(&count)).then(|| {
                format!(
                    "an adaptive limit begins between its `min` and its `max`; write a number from {min} to {max}, or leave `limit` out"
                )
            })
        }
        Grant::Unlimited | Grant::Blocked => Some(format!(
            "an adaptive rule begins with a number; write one from {min} to {max}, or leave `limit` out"
        )),
    }
}

/// What is wrong with a tier or an override of an adaptive rule, if anything is.
pub(super) fn wrong_exception(grant: &Grant) -> Option<&'static str> {
    matches!(grant, Grant::Limits(_)).then_some(
        "an adaptive rule has one limit for all; write `unlimited` or `blocked`, or make a rule of its own for them",
    )
}
