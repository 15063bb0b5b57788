//! Reads what a rule grants, and how it is counted.

use tidegate_core::limit::MAX_COUNT;
use tidegate_core::{Algorithm, Anchor, Limit, Micros, Rate, Window};

use super::rule::Grant;
use crate::document::{Fields, Node, Problems, ScalarKind, Spot, Value};

/// How the limits of a rule are counted.
pub(super) struct Counting {
    /// The algorithm that was asked for; otherwise each limit has its default.
    pub(super) algorithm: Option<Algorithm>,
    /// How early a token bucket may admit.
    pub(super) max_delay: Option<Micros>,
    /// The algorithm could not be read, so nothing can be said about the limits.
    is_unknown: bool,
}

const ALGORITHMS: [(&str, Algorithm); 7] = [
    ("token_bucket", Algorithm::TOKEN_BUCKET),
    ("leaky_bucket", Algorithm::LEAKY_BUCKET),
    ("fixed_window", Algorithm::FIXED_WINDOW),
    ("sliding_window_log", Algorithm::SlidingWindowLog),
    ("sliding_window_counter", Algorithm::SlidingWindowCounter),
    ("sliding_window_slots", Algorithm::SLIDING_WINDOW_SLOTS),
    ("concurrency", Algorithm::CONCURRENCY),
];

/// Which algorithm has a use for an option.
const OPTIONS: [(&str, &str); 6] = [
    ("anchor", "fixed_window"),
    ("slots", "sliding_window_slots"),
    ("strict", "sliding_window_slots"),
    ("shape", "leaky_bucket"),
    ("max_delay", "token_bucket"),
    ("lease_ttl", "concurrency"),
];

impl Counting {
    pub(super) fn read(fields: &mut Fields<'_>, problems: &mut Problems) -> Self {
        let written = fields.take("algorithm");
        let algorithm = written
            .as_ref()
            .and_then(|(spot, node)| spot.one_of(node, &ALGORITHMS, problems));
        let mut counting = Self {
            algorithm,
            max_delay: None,
            is_unknown: written.is_some() && algorithm.is_none(),
        };
        for (option, owner) in OPTIONS {
            let Some((spot, node)) = fields.take(option) else {
                continue;
            };
            if counting.is_unknown {
                continue;
            }
            let name = counting.algorithm.map_or("token_bucket", Algorithm::name);
            if name == owner {
                counting.set(option, node, &spot, problems);
            } else {
                let message = format!(
                    "`{option}` is an option of `{owner}`, and this rule counts with `{name}`; remove it, or write `algorithm: {owner}`"
                );
                problems.error(&node.place, &spot, message);
            }
        }
        counting
    }

    fn set(&mut self, option: &str, node: &Node, spot: &Spot, problems: &mut Problems) {
        match (option, &mut self.algorithm) {
            ("anchor", Some(Algorithm::FixedWindow { anchor })) => {
                let words = [
                    ("clock", Anchor::Clock),
                    ("first_request", Anchor::FirstRequest),
                ];
                *anchor = spot.one_of(node, &words, problems).unwrap_or(*anchor);
            }
            ("slots", Some(Algorithm::SlidingWindowSlots { slots, .. })) => {
                let most = tidegate_core::limit::MAX_SLOTS;
                let number = spot.integer(node, 1, u64::from(most), problems);
                *slots = number.and_then(|number| u32::try_from(number).ok());
            }
            ("strict", Some(Algorithm::SlidingWindowSlots { strict, .. })) => {
                *strict = spot.boolean(node, problems).unwrap_or(*strict);
            }
            ("shape", Some(Algorithm::LeakyBucket { shape })) => {
                *shape = spot.boolean(node, problems).unwrap_or(*shape);
            }
            ("lease_ttl", Some(Algorithm::Concurrency { lease_ttl })) => {
                *lease_ttl = spot
                    .parsed(node, str::parse, problems)
                    .unwrap_or(*lease_ttl);
            }
            ("max_delay", algorithm) => {
                let delay: Option<Micros> = spot.parsed(node, str::parse, problems);
                if let (Some(Algorithm::TokenBucket { max_delay }), Some(delay)) =
                    (algorithm, delay)
                {
                    *max_delay = delay;
                }
                self.max_delay = delay;
            }
            _ => {}
        }
    }

    fn algorithm_for(&self, rate: &Rate) -> Algorithm {
        let default = || match (Algorithm::default_for(rate), self.max_delay) {
            (Algorithm::TokenBucket { .. }, Some(max_delay)) => {
                Algorithm::TokenBucket { max_delay }
            }
            (other, _) => other,
        };
        self.algorithm.unwrap_or_else(default)
    }
}

/// What `sync: leased` cannot go with, if it is here.
pub(super) fn why_not_leased(grants: &[Grant]) -> Option<&'static str> {
    let limits = grants.iter().flat_map(|grant| match grant {
        Grant::Limits(limits) => limits.as_slice(),
        Grant::Unlimited | Grant::Blocked => &[],
    });
    let why_not = |limit: &Limit| match limit.algorithm() {
        Algorithm::SlidingWindowLog => Some("`sliding_window_log`"),
        Algorithm::Concurrency { .. } => Some("`concurrency`"),
        Algorithm::LeakyBucket { shape: true } => Some("`leaky_bucket` with `shape: true`"),
        Algorithm::TokenBucket { max_delay } if !max_delay.is_zero() => Some("`max_delay`"),
        _ => None,
    };
    limits.into_iter().find_map(why_not)
}

/// What a limit, a tier or an override grants.
pub(super) fn grant(
    node: &Node,
    spot: &Spot,
    counting: &Counting,
    problems: &mut Problems,
) -> Option<Grant> {
    if let Value::Scalar(scalar) = &node.value {
        match scalar.text.as_str() {
            "unlimited" => return Some(Grant::Unlimited),
            "blocked" => return Some(Grant::Blocked),
            _ => {}
        }
    }
    let rates = rates(node, spot, problems)?;
    if counting.is_unknown {
        return None;
    }
    let mut limits: Vec<Limit> = Vec::new();
    for rate in rates {
        match Limit::new(rate, counting.algorithm_for(&rate)) {
            Ok(limit) if limits.iter().any(|other| other.shape() == limit.shape()) => {
                problems.error(
                    &node.place,
                    spot,
                    format!("two limits over the same window `{rate}`; keep the smaller one"),
                );
                return None;
            }
            Ok(limit) => limits.push(limit),
            Err(error) => {
                problems.error(&node.place, spot, error.to_string());
                return None;
            }
        }
    }
    Some(Grant::Limits(limits))
}

fn rates(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<Vec<Rate>> {
    match &node.value {
        Value::Map(_) => rate(node, spot, problems).map(|rate| vec![rate]),
        Value::Scalar(scalar) if scalar.kind == ScalarKind::Boolean => {
            problems.error(
                &node.place,
                spot,
                "this must be a limit, for example `100/minute`",
            );
            None
        }
        Value::Scalar(scalar) => match Rate::parse_all(&scalar.text) {
            Ok(rates) => Some(rates),
            Err(error) => {
                problems.error(&node.place, spot, error.to_string());
                None
            }
        },
        Value::List(list) if !list.is_empty() => {
            let mut all = Vec::new();
            for (index, item) in list.iter().enumerate() {
                if matches!(item.value, Value::List(_)) {
                    problems.error(
                        &item.place,
                        &spot.item(index),
                        "a list of limits cannot hold a list",
                    );
                    return None;
                }
                all.extend(rates(item, &spot.item(index), problems)?);
            }
            Some(all)
        }
        Value::List(_) | Value::Null => {
            problems.error(
                &node.place,
                spot,
                "there is no limit; give one, for example `100/minute`",
            );
            None
        }
    }
}

/// `{requests: 100, window: 60s, burst: 20}`.
fn rate(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<Rate> {
    let mut fields = Fields::of(node, spot.clone(), problems)?;
    let requests = fields.take("requests");
    let window = fields.take("window");
    let burst = fields.take("burst");
    fields.done(problems);
    let Some((requests_spot, requests_node)) = requests else {
        problems.error(
            &node.place,
            &spot.field("requests"),
            "the key `requests` is missing; write for example `{requests: 100, window: 60s}`",
        );
        return None;
    };
    let count = requests_spot.integer(requests_node, 0, u64::MAX, problems);
    let window = match window {
        Some((spot, node)) => Some(spot.parsed(node, read_window, problems)?),
        None => None,
    };
    let burst = match burst {
        Some((spot, node)) => Some(spot.integer(node, 1, MAX_COUNT, problems)?),
        None => None,
    };
    Some(Rate {
        count: count?,
        window,
        burst,
    })
}

fn read_window(text: &str) -> Result<Window, String> {
    match text {
        "month" => return Ok(Window::Month),
        "year" => return Ok(Window::Year),
        _ => {}
    }
    if let Ok(span) = text.parse::<Micros>() {
        return Ok(Window::Span(span));
    }
    // A unit alone, as in `minute`.
    match Rate::parse_all(&format!("1/{text}")).as_deref() {
        Ok(
            [
                Rate {
                    window: Some(window),
                    burst: None,
                    ..
                },
            ],
        ) => Ok(*window),
        _ => Err(format!(
            "`{text}` is not a window; write for example `60s`, `5m`, `1h` or `month`"
        )),
    }
}
