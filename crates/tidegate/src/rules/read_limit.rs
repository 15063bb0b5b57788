//! Reads the limits of a rule, and how they are counted.

use std::cell::Cell;

use tidegate_core::limit::{MAX_COUNT, MAX_WINDOW, MIN_WINDOW};
use tidegate_core::{Algorithm, Anchor, Limit, LimitError, Micros, Rate, Window};

use super::descriptors::Units;
use super::grant::Grant;
use super::keys::{RATE, RULE};
use super::read_adaptive::{self, Bounds};
use crate::internal::document::{
    Fields, Node, Place, Problem, Problems, ScalarKind, Spot, Value, suggestion,
};

/// How the limits of a rule are counted.
#[derive(Default)]
pub(super) struct Counting {
    /// The algorithm that was asked for; otherwise each limit has its default.
    pub(super) algorithm: Option<Algorithm>,
    /// How early a token bucket may admit.
    pub(super) max_delay: Option<Micros>,
    /// Between which bounds the limit moves by itself.
    pub(super) adaptive: Option<Bounds>,
    /// The algorithm or one of its options could not be read, so nothing can be said about the limits.
    is_unknown: bool,
    /// The positions of options whose use depends on the limits.
    slots_at: Option<(Spot, Place)>,
    max_delay_at: Option<(Spot, Place)>,
    /// Where the windows start of limits that are counted with `fixed_window` by default, and where
    /// that is written.
    default_anchor: Option<(Anchor, Spot, Place)>,
    /// Whether a limit is counted with `fixed_window` by default, or may be because it cannot be read.
    may_be_fixed: Cell<bool>,
    /// How units of time are meant, if the rule is written as a descriptor.
    units: Option<Units>,
}

pub(super) const ALGORITHMS: [(&str, Algorithm); 7] = [
    ("token_bucket", Algorithm::TOKEN_BUCKET),
    ("leaky_bucket", Algorithm::LEAKY_BUCKET),
    ("fixed_window", Algorithm::FIXED_WINDOW),
    ("sliding_window_log", Algorithm::SlidingWindowLog),
    ("sliding_window_counter", Algorithm::SlidingWindowCounter),
    ("sliding_window_slots", Algorithm::SLIDING_WINDOW_SLOTS),
    ("concurrency", Algorithm::CONCURRENCY),
];

pub(super) const ANCHORS: [(&str, Anchor); 2] = [
    ("clock", Anchor::Clock),
    ("first_request", Anchor::FirstRequest),
];

impl Counting {
    pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Self {
        let written = fields.take("algorithm");
        let algorithm = written
            .as_ref()
            .and_then(|(spot, node)| spot.one_of(node, &ALGORITHMS, problems));
        let mut counting = Self {
            algorithm,
            max_delay: None,
            adaptive: None,
            is_unknown: written.is_some() && algorithm.is_none(),
            slots_at: None,
            max_delay_at: None,
            default_anchor: None,
            may_be_fixed: Cell::new(false),
            units: None,
        };
        // `adaptive` is the last: the others say how the limit is counted that moves.
        for row in RULE.iter().filter(|row| !row.needs.is_empty()) {
            let (option, owners) = (row.name, row.needs);
            let taken = fields.row(option).and_then(|_| fields.take(option));
            let Some((spot, node)) = taken else {
                continue;
            };
            if counting.is_unknown {
                // Its value is still checked, unless it depends on the algorithm.
                let [owner] = owners else { continue };
                let owner = ALGORITHMS.iter().find(|(name, _)| name == owner);
                let mut assumed = Self {
                    algorithm: owner.map(|(_, algorithm)| *algorithm),
                    ..Self::default()
                };
                assumed.set(option, node, &spot, problems);
                continue;
            }
            if option == "anchor" && algorithm.is_none() {
                let anchor = spot.one_of(node, &ANCHORS, problems);
                let at = |anchor| (anchor, spot.clone(), node.place.clone());
                counting.default_anchor = anchor.map(at);
                continue;
            }
            let name = counting.name();
            if owners.contains(&name) {
                counting.set(option, node, &spot, problems);
            } else {
                problems.error(&node.place, &spot, no_use(option, owners, name));
            }
        }
        counting
    }

    /// The limits of a descriptor, which are counted in windows of the clock unless it says otherwise.
    pub(super) fn of_descriptor(self, units: Units) -> Self {
        Self {
            algorithm: self.algorithm.or(Some(Algorithm::FIXED_WINDOW)),
            units: Some(units),
            ..self
        }
    }

    fn limit(&self, rate: Rate) -> Result<Limit, LimitError> {
        let algorithm = self.algorithm_for(&rate);
        match self.units {
            Some(units) => units.limit(rate, algorithm),
            None => Limit::new(rate, algorithm),
        }
    }

    /// The name of the algorithm.
    pub(super) fn name(&self) -> &'static str {
        self.algorithm.map_or("token_bucket", Algorithm::name)
    }

    fn set(&mut self, option: &str, node: &Node, spot: &Spot, problems: &mut Problems) {
        match (option, &mut self.algorithm) {
            ("anchor", Some(Algorithm::FixedWindow { anchor })) => {
                *anchor = spot.one_of(node, &ANCHORS, problems).unwrap_or(*anchor);
            }
            ("slots", Some(Algorithm::SlidingWindowSlots { slots, .. })) => {
                let most = tidegate_core::limit::MAX_SLOTS;
                let number = spot.integer(node, 1, u64::from(most), problems);
                *slots = number.and_then(|number| u32::try_from(number).ok());
                self.slots_at = Some((spot.clone(), node.place.clone()));
            }
            ("strict", Some(Algorithm::SlidingWindowSlots { strict, .. })) => {
                *strict = spot.boolean(node, problems).unwrap_or(*strict);
            }
            ("shape", Some(Algorithm::LeakyBucket { shape })) => {
                *shape = spot.boolean(node, problems).unwrap_or(*shape);
            }
            ("lease_ttl", Some(Algorithm::Concurrency { lease_ttl })) => {
                let span = spot.parsed(node, |text| read_span("lease_ttl", text), problems);
                *lease_ttl = span.unwrap_or(*lease_ttl);
            }
            ("adaptive", _) => {
                self.adaptive = read_adaptive::read(node, spot, self, problems);
            }
            ("max_delay", algorithm) => {
                let delay = spot.parsed(node, read_delay, problems);
                self.max_delay_at = Some((spot.clone(), node.place.clone()));
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

    /// Reports options that no limit uses, once the algorithms are known.
    pub(super) fn check_use(&self, grants: &[Grant], problems: &mut Problems) {
        if let Some((_, spot, place)) = &self.default_anchor
            && !self.may_be_fixed.get()
        {
            let message = no_use("anchor", &["fixed_window"], "token_bucket");
            problems.error(place, spot, message);
        }
        let Some((spot, place)) = &self.max_delay_at else {
            return;
        };
        let mut limits = limits_of(grants).peekable();
        let is_bucket = |limit: &Limit| matches!(limit.algorithm(), Algorithm::TokenBucket { .. });
        if self.can_delay() && limits.peek().is_some() && !limits.any(is_bucket) {
            problems.error(
                place,
                spot,
                "`max_delay` is an option of `token_bucket`, and a month or a year is counted with `fixed_window`; remove it",
            );
        }
    }

    /// Adds the problem of a limit, at the option that causes it if there is one.
    pub(super) fn refuse(
        &self,
        error: &LimitError,
        node: &Node,
        spot: &Spot,
        problems: &mut Problems,
    ) {
        let message = error.to_string();
        let (spot, place) = match (error, &self.slots_at) {
            (LimitError::SlotsDoNotDivide { .. }, Some((spot, place))) => (spot, place),
            _ => (spot, &node.place),
        };
        let is_said = |known: &Problem| {
            known.message == message && known.field == spot.path() && known.place == *place
        };
        // Tiers and overrides often have the window of the limit.
        if *place == Place::Nowhere || !problems.iter().any(is_said) {
            problems.error(place, spot, message);
        }
    }

    /// Whether it has a `max_delay` other than the default of none.
    fn can_delay(&self) -> bool {
        self.max_delay.is_some_and(|delay| !delay.is_zero())
    }

    /// The algorithm of a limit. The default is chosen for each limit separately. An option that only buckets have
    /// makes every limit a bucket that can be one.
    fn algorithm_for(&self, rate: &Rate) -> Algorithm {
        if let Some(algorithm) = self.algorithm {
            return algorithm;
        }
        let needs_bucket = self.can_delay() || self.adaptive.is_some();
        match (Algorithm::default_for(rate), rate.window) {
            (Algorithm::FixedWindow { anchor }, window)
                if !needs_bucket || !matches!(window, Some(Window::Span(_))) =>
            {
                Algorithm::FixedWindow {
                    anchor: self.default_anchor.as_ref().map_or(anchor, |at| at.0),
                }
            }
            _ => Algorithm::TokenBucket {
                max_delay: self.max_delay.unwrap_or_default(),
            },
        }
    }
}

/// The message for an option that a rule's algorithm does not have.
fn no_use(option: &str, owners: &[&str], name: &str) -> String {
    format!(
        "`{option}` is an option of `{}`, and this rule counts with `{name}`; remove it, or write `algorithm: {}`",
        owners.join("`, `"),
        owners[0],
    )
}

fn limits_of(grants: &[Grant]) -> impl Iterator<Item = &Limit> {
    grants.iter().flat_map(|grant| match grant {
        Grant::Limits(limits) => limits.as_slice(),
        Grant::Unlimited | Grant::Blocked => &[],
    })
}

fn read_span(what: &'static str, text: &str) -> Result<Micros, LimitError> {
    let span: Micros = text.parse()?;
    if (MIN_WINDOW..=MAX_WINDOW).contains(&span) {
        return Ok(span);
    }
    Err(LimitError::SpanOutOfRange { what, span })
}

fn read_delay(text: &str) -> Result<Micros, LimitError> {
    let max_delay: Micros = text.parse()?;
    if max_delay > MAX_WINDOW {
        return Err(LimitError::DelayTooLong { max_delay });
    }
    Ok(max_delay)
}

/// Why these grants do not go with `sync: leased`, if they do not.
pub(super) fn why_not_leased(grants: &[Grant]) -> Option<&'static str> {
    limits_of(grants).find_map(|limit| why_not(limit.algorithm()))
}

/// Why an algorithm does not go with `sync: leased`, if it does not.
pub(super) fn why_not(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::SlidingWindowLog => Some("`sliding_window_log`"),
        Algorithm::Concurrency { .. } => Some("`concurrency`"),
        Algorithm::LeakyBucket { shape: true } => Some("`leaky_bucket` with `shape: true`"),
        Algorithm::TokenBucket { max_delay } if !max_delay.is_zero() => Some("`max_delay`"),
        _ => None,
    }
}

/// Reads the grant of a limit, a tier or an override.
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
    let rates = rates(node, spot, counting, problems);
    let is_fixed =
        |rate: &Rate| matches!(counting.algorithm_for(rate), Algorithm::FixedWindow { .. });
    if rates
        .as_ref()
        .is_none_or(|rates| rates.iter().any(is_fixed))
    {
        counting.may_be_fixed.set(true);
    }
    let rates = rates?;
    if counting.is_unknown {
        check_numbers(&rates, node, spot, problems);
        return None;
    }
    let mut limits: Vec<Limit> = Vec::new();
    for rate in rates {
        match counting.limit(rate) {
            Ok(limit) if limits.iter().any(|other| other.shape() == limit.shape()) => {
                let error = match rate.window {
                    Some(window) => LimitError::SameWindowTwice { window },
                    None => LimitError::SameShapeTwice { rate },
                };
                counting.refuse(&error, node, spot, problems);
                return None;
            }
            Ok(limit) => limits.push(limit),
            Err(error) => {
                counting.refuse(&error, node, spot, problems);
                return None;
            }
        }
    }
    Some(Grant::Limits(limits))
}

/// Reports problems of limits that do not depend on the algorithm.
fn check_numbers(rates: &[Rate], node: &Node, spot: &Spot, problems: &mut Problems) {
    for rate in rates {
        let counted = Limit::new(*rate, Algorithm::default_for(rate));
        if let Err(
            error @ (LimitError::Zero { .. }
            | LimitError::TooLarge { .. }
            | LimitError::SpanOutOfRange { .. }),
        ) = counted
        {
            problems.error(&node.place, spot, error.to_string());
            return;
        }
    }
}

pub(super) fn rates(
    node: &Node,
    spot: &Spot,
    counting: &Counting,
    problems: &mut Problems,
) -> Option<Vec<Rate>> {
    match &node.value {
        Value::Map(_) => rate(node, spot, counting, problems).map(|rate| vec![rate]),
        Value::Scalar(scalar) if scalar.kind == ScalarKind::Boolean => spot.refused(
            node,
            "this must be a limit, for example `100/minute`",
            problems,
        ),
        Value::Scalar(scalar) => match Rate::parse_all(&scalar.text) {
            Ok(rates) => Some(rates),
            Err(error) => {
                let suggestion = suggestion(&scalar.text, &["unlimited", "blocked"]);
                spot.refused(node, format!("{error}{suggestion}"), problems)
            }
        },
        Value::List(list) if !list.is_empty() => {
            let mut all = Vec::new();
            for (index, item) in list.iter().enumerate() {
                if matches!(item.value, Value::List(_)) {
                    let message = "a list of limits cannot hold a list";
                    return spot.item(index).refused(item, message, problems);
                }
                all.extend(rates(item, &spot.item(index), counting, problems)?);
            }
            Some(all)
        }
        Value::List(_) | Value::Null => spot.refused(
            node,
            "there is no limit; give one, for example `100/minute`",
            problems,
        ),
    }
}

/// `{requests: 100, window: 60s, burst: 20}`.
fn rate(node: &Node, spot: &Spot, counting: &Counting, problems: &mut Problems) -> Option<Rate> {
    let mut fields = Fields::new(node, spot.clone(), &RATE, problems)?;
    if let Some(entry) = fields.key("limit") {
        let message = without_limit(spot, &entry.value);
        fields.refuse("limit", &message, problems);
    }
    let requests = fields.take("requests");
    let window = fields.take("window");
    let burst = fields.take("burst");
    let all_known = fields.done(problems);
    let needs_window =
        !counting.is_unknown && !matches!(counting.algorithm, Some(Algorithm::Concurrency { .. }));
    for (taken, key, is_needed) in [
        (&requests, "requests", true),
        (&window, "window", needs_window),
    ] {
        // An unknown key was probably meant to be the one that is missing.
        if taken.is_none() && is_needed && all_known {
            let message = format!(
                "the key `{key}` is missing; write for example `{{requests: 100, window: 60s}}`"
            );
            problems.error(&node.place, &spot.field(key), message);
        }
        if taken.is_none() && is_needed {
            return None;
        }
    }
    let (requests_spot, requests) = requests?;
    // Reads all of them before returning for one that is invalid, so that every mistake is reported.
    let count = read_count(requests, &requests_spot, problems);
    let window = window.map(|(spot, node)| spot.parsed(node, read_window, problems));
    let burst = burst.map(|(spot, node)| read_count(node, &spot, problems));
    let mut rate = Rate::concurrent(count?);
    if let Some(window) = window {
        rate.window = Some(window?);
    }
    if let Some(burst) = burst {
        rate.burst = Some(burst?);
    }
    Some(rate)
}

/// The message for `pro: {limit: 1000/minute}`.
fn without_limit(spot: &Spot, limit: &Node) -> String {
    let named = ["tiers.", "overrides."];
    let named = named.iter().find_map(|map| spot.path().split_once(map));
    let name = named.map_or("limit", |(_, name)| name);
    match &limit.value {
        Value::Scalar(scalar) => {
            format!(
                "the limit stands here itself; write `{name}: {}`",
                scalar.text
            )
        }
        _ => format!(
            "the limit stands here itself; write its value after `{name}:`, without `limit`"
        ),
    }
}

fn read_count(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<u64> {
    if matches!(&node.value, Value::Scalar(scalar) if scalar.text == "0") {
        let message = "with 0 nothing would ever pass; give 1 or more, or write `limit: blocked` if that is meant";
        return spot.refused(node, message, problems);
    }
    spot.integer(node, 1, MAX_COUNT, problems)
}

fn read_window(text: &str) -> Result<Window, String> {
    match text {
        "month" => return Ok(Window::Month),
        "year" => return Ok(Window::Year),
        _ => {}
    }
    if text.parse::<Micros>().is_ok() {
        let span = read_span("window", text).map_err(|error| error.to_string())?;
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
