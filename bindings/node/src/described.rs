//! The response headers of a decision, as the server sends them.

use std::borrow::Cow;

use tidegate_core::headers::{HeaderSettings, Item, limit_name};
use tidegate_core::outcome::deciding;
use tidegate_core::{Limit, Micros, Outcome, Retry, Timestamp};

use crate::buffers::OUTCOME_NUMBERS;

/// The headers of a decision about these limits, as lines of a name and a value. `numbers` are those of the outcomes.
pub(crate) fn header_lines(name: &str, limits: &[Limit], numbers: &[f64]) -> String {
    let outcomes: Vec<Outcome> = numbers
        .as_chunks::<OUTCOME_NUMBERS>()
        .0
        .iter()
        .take(limits.len())
        .map(outcome)
        .collect();
    let names: Vec<Cow<'_, str>> = limits
        .iter()
        .enumerate()
        .map(|(index, limit)| limit_name(name, index, limit))
        .collect();
    let items: Vec<Item<'_>> = limits
        .iter()
        .zip(&names)
        .zip(&outcomes)
        .map(|((limit, name), outcome)| Item {
            name,
            limit: Some(limit),
            unit: None,
            outcome,
        })
        .collect();
    let headers = HeaderSettings::default().headers(&items, deciding(&outcomes));
    let lines = headers.map(|(name, value)| format!("{name}\n{value}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn outcome(numbers: &[f64; OUTCOME_NUMBERS]) -> Outcome {
    let [allowed, limit, remaining, retry, reset_at, delay, at] = *numbers;
    let is_allowed = allowed != 0.0;
    Outcome {
        allowed: is_allowed,
        limit: whole(limit),
        remaining: whole(remaining),
        exceeded: 0,
        retry: match is_allowed {
            true => Retry::Now,
            false if retry < 0.0 => Retry::Never,
            false => Retry::After(Micros::new(whole(retry))),
        },
        reset_at: Timestamp::from_micros(whole(reset_at)),
        delay: Micros::new(whole(delay)),
        at: Timestamp::from_micros(whole(at)),
        is_remembered: false,
    }
}

/// The nearest whole number; zero for what is none. Not by `round`, for which WebAssembly has no instruction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range is clamped"
)]
#[inline]
pub(crate) fn whole(number: f64) -> u64 {
    (number + 0.5) as u64
}
