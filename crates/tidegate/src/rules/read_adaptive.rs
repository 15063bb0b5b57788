//! Reads the bounds of an adaptive limit, and refuses options that do not go with it.

use tidegate_core::limit::{MAX_COUNT, MAX_WINDOW, MIN_WINDOW};
use tidegate_core::{Algorithm, Limit, Micros, Rate, Window};

use super::grant::Grant;
use super::keys::ADAPTIVE;
use super::read_limit::{self, Counting};
use crate::adaptive::{Adaptive, DEFAULT_START};
use crate::internal::document::{Fields, Node, Problems, Spot};

/// The algorithms whose limits can move.
pub(super) const ALGORITHMS: [&str; 3] = ["concurrency", "token_bucket", "leaky_bucket"];

/// Between which bounds a limit moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) settings: Adaptive,
    /// The highest rate, with the burst of the bucket at every rate. Its window is `None` for concurrency.
    highest: Rate,
}

impl Bounds {
    fn at(&self, count: u64) -> Rate {
        self.highest.with_count(count)
    }

    fn is_rate(&self) -> bool {
        self.highest.window.is_some()
    }

    /// The bounds as they are written in a rule.
    fn range(&self) -> String {
        let Adaptive { min, max, .. } = self.settings;
        match self.highest.window {
            Some(window) => format!("{} to {}", Rate::new(min, window), Rate::new(max, window)),
            None => format!("{min} to {max}"),
        }
    }
}

/// `{min: 10, max: 500, target: 200ms}`, and with buckets `{min: 10/s, max: 500/s burst 50}`.
pub(super) fn read(
    node: &Node,
    spot: &Spot,
    counting: &Counting,
    problems: &mut Problems,
) -> Option<Bounds> {
    let is_rate = !matches!(counting.algorithm, Some(Algorithm::Concurrency { .. }));
    let example = if is_rate {
        "{min: 10/s, max: 500/s, target: 200ms}"
    } else {
        "{min: 10, max: 500, target: 200ms}"
    };
    let fields = Fields::new(node, spot.clone(), &ADAPTIVE, problems)?;
    let (min, max) = (fields.take("min"), fields.take("max"));
    let target = fields.take("target");
    let all_known = fields.done(problems);
    for (taken, key) in [(&min, "min"), (&max, "max")] {
        // An unknown key was probably meant to be the one that is missing.
        if taken.is_none() && all_known {
            let message = format!("the key `{key}` is missing; write for example `{example}`");
            problems.error(&node.place, &spot.field(key), message);
        }
    }
    // Reads all of them before returning for one that is invalid, so that every mistake is reported.
    let mut bound = |taken: &Option<(Spot, &Node)>, is_max: bool| {
        let (spot, node) = taken.as_ref()?;
        if is_rate {
            rate(node, spot, counting, is_max, problems)
        } else {
            let count = spot.integer(node, 1, MAX_COUNT, problems)?;
            Some(Rate::concurrent(count))
        }
    };
    let (lowest, highest) = (bound(&min, false), bound(&max, true));
    let target = match target {
        Some((spot, node)) => Some(spot.parsed(node, read_target, problems)?),
        None => None,
    };
    let (lowest, highest, (max_spot, max_node)) = (lowest?, highest?, max?);
    let mut wrong = |message: String| problems.error(&max_node.place, &max_spot, message);
    if let (Some(min), Some(max)) = (lowest.window, highest.window)
        && min != max
    {
        wrong(format!(
            "`min` and `max` are rates over the same window, and `min` has `{min}`; write `max` per {min} too"
        ));
        return None;
    }
    if lowest.count > highest.count {
        wrong(format!(
            "`max` is lower than `min`, which is {}; exchange them",
            lowest.count
        ));
        return None;
    }
    let bounds = Bounds {
        settings: Adaptive {
            min: lowest.count,
            max: highest.count,
            target,
        },
        highest,
    };
    // A limit that is valid at both bounds is valid between them.
    let at_bounds = [highest.count, lowest.count].map(|count| limit_at(&bounds, count, counting));
    if is_rate && let Some(error) = at_bounds.into_iter().find_map(Result::err) {
        wrong(error.to_string());
        return None;
    }
    Some(bounds)
}

/// A bound of a rate. `max` has the burst of the bucket.
fn rate(
    node: &Node,
    spot: &Spot,
    counting: &Counting,
    is_max: bool,
    problems: &mut Problems,
) -> Option<Rate> {
    let rates = read_limit::rates(node, spot, counting, problems)?;
    let name = counting.name();
    let [rate] = rates[..] else {
        let message = "this must be one rate, for example `100/s`";
        return spot.refused(node, message, problems);
    };
    let wrong = match (rate.window, rate.burst) {
        (None, _) => Some(format!(
            "with `{name}` the bounds are rates, and `{0}` names no window; write for example `{0}/second`, or `algorithm: concurrency` for so many requests at once",
            rate.count
        )),
        (Some(window @ (Window::Month | Window::Year)), _) => Some(format!(
            "a {window} has no one length, so no rate over it can move; write a span such as `30d`"
        )),
        _ if rate.count == 0 => {
            Some("a rate of 0 would never let anything pass; give 1 or more".to_owned())
        }
        (_, Some(_)) if !is_max => Some(
            "the burst goes with `max`, because the capacity of the bucket does not move; remove it here".to_owned(),
        ),
        _ => None,
    };
    if let Some(message) = wrong {
        return spot.refused(node, message, problems);
    }
    let burst = rate.burst.unwrap_or_else(|| default_burst(&rate));
    Some(if is_max {
        rate.burst(burst)
    } else {
        rate.without_burst()
    })
}

/// The default burst of an adaptive bucket: one second of the highest rate.
pub(super) fn default_burst(highest: &Rate) -> u64 {
    let Some(Window::Span(window)) = highest.window else {
        return highest.count;
    };
    let second = u128::from(highest.count) * u128::from(Micros::SECOND.get());
    let burst = second.div_ceil(u128::from(window.get().max(1)));
    u64::try_from(burst)
        .unwrap_or(MAX_COUNT)
        .clamp(1, MAX_COUNT)
}

fn limit_at(
    bounds: &Bounds,
    count: u64,
    counting: &Counting,
) -> Result<Limit, tidegate_core::LimitError> {
    let rate = bounds.at(count);
    let algorithm = counting.algorithm.unwrap_or(Algorithm::TokenBucket {
        max_delay: counting.max_delay.unwrap_or_default(),
    });
    Limit::new(rate, algorithm)
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
    let bounds = counting.adaptive?;
    let Adaptive { min, max, .. } = bounds.settings;
    let count = if bounds.is_rate() {
        max
    } else {
        DEFAULT_START.clamp(min, max)
    };
    let limit = limit_at(&bounds, count, counting).ok()?;
    Some(Grant::Limits(vec![limit]))
}

/// The initial limit of an adaptive rule: the one in the file, with the burst of its bucket. The error is a message.
pub(super) fn started(
    bounds: &Bounds,
    grant: &Grant,
    counting: &Counting,
) -> Result<Grant, String> {
    let range = bounds.range();
    let Grant::Limits(limits) = grant else {
        let what = if bounds.is_rate() { "rate" } else { "number" };
        return Err(format!(
            "an adaptive rule begins with a {what}; write one from {range}, or leave `limit` out"
        ));
    };
    let [limit] = limits.as_slice() else {
        return Err(format!(
            "an adaptive rule has one limit that moves; write one from {range}, or make a rule of its own for each other limit"
        ));
    };
    let Rate {
        count,
        window,
        burst,
        ..
    } = limit.rate();
    if window != bounds.highest.window {
        return Err(format!(
            "`limit` has another window than `min` and `max`; write a rate from {range}, or leave `limit` out"
        ));
    }
    if burst.is_some() {
        return Err(
            "the burst goes with `max` of `adaptive`, because the capacity of the bucket does not move; write it there".to_owned(),
        );
    }
    if !(bounds.settings.min..=bounds.settings.max).contains(&count) {
        return Err(format!(
            "an adaptive limit begins between its `min` and its `max`; write {}, or leave `limit` out",
            if bounds.is_rate() {
                format!("a rate from {range}")
            } else {
                format!("a number from {range}")
            }
        ));
    }
    let limit = limit_at(bounds, count, counting).map_err(|error| error.to_string())?;
    Ok(Grant::Limits(vec![limit]))
}

/// Why a grant cannot be a tier or an override of an adaptive rule, if it cannot.
pub(super) fn wrong_exception(grant: &Grant) -> Option<&'static str> {
    matches!(grant, Grant::Limits(_)).then_some(
        "an adaptive rule has one limit for all; write `unlimited` or `blocked`, or make a rule of its own for them",
    )
}
