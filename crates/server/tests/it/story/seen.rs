//! What a front end answered, and whether that is what the story says.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use tidegate::gate::Decision;
use tidegate::headers::HeaderSettings;

use super::scenario::Expected;

/// How far a clock may have gone on since the story began, in seconds.
const TOLERANCE: f64 = 60.0;

/// By whose time a front end decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    /// By that of the story, so that all waits are exact.
    Exact,
    /// By a clock that goes on.
    Flowing,
}

/// What a front end answered. What it leaves out is `None`.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) allowed: bool,
    /// Whether nothing was decided, because the request could not be understood.
    pub(super) is_refused: bool,
    pub(super) rule: Option<Json>,
    pub(super) limit: Option<Json>,
    pub(super) remaining: Option<Json>,
    /// Seconds, or null for never.
    pub(super) retry_after: Option<Json>,
    pub(super) reason: Option<Json>,
    /// A list of names, or null.
    pub(super) missing: Option<Json>,
    pub(super) headers: Option<BTreeMap<String, String>>,
}

impl Seen {
    pub(super) fn refused() -> Self {
        Self {
            is_refused: true,
            ..Self::default()
        }
    }

    /// What a program sees that has the decision itself.
    pub(super) fn of_decision(decision: &Decision) -> Self {
        let headline = decision.headline();
        let outcome = headline.map(|answer| answer.outcome);
        let wait = outcome.and_then(|outcome| outcome.retry.wait());
        let seconds = wait.map(|wait| std::time::Duration::from(wait).as_secs_f64());
        let headers = decision.headers(&HeaderSettings::default());
        Self {
            allowed: decision.is_allowed(),
            is_refused: false,
            rule: Some(Json::from(decision.rule())),
            limit: Some(Json::from(outcome.map(|outcome| outcome.limit))),
            remaining: Some(Json::from(outcome.map(|outcome| outcome.remaining))),
            retry_after: Some(Json::from(seconds)),
            reason: Some(Json::from(decision.reason().map(tidegate::Reason::name))),
            missing: headline.map(|answer| {
                let missing: Vec<&str> = answer.missing().collect();
                if missing.is_empty() {
                    Json::Null
                } else {
                    Json::from(missing)
                }
            }),
            headers: Some(
                headers
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            ),
        }
    }

    /// What is not as the story says.
    pub(super) fn differs_from(&self, expected: &Expected, times: Times) -> Vec<String> {
        let mut differs = Vec::new();
        if self.is_refused {
            differs.push("it is refused".to_owned());
        }
        let mut compare = |what: &str, wanted: &Json, seen: Option<&Json>| {
            if let Some(seen) = seen
                && !same(
                    wanted,
                    seen,
                    times == Times::Flowing && what == "retry_after",
                )
            {
                differs.push(format!("{what} is {seen} and not {wanted}"));
            }
        };
        compare(
            "allowed",
            &Json::from(expected.allowed),
            Some(&Json::from(self.allowed)),
        );
        compare(
            "rule",
            &Json::from(expected.rule.clone()),
            self.rule.as_ref(),
        );
        compare("limit", &Json::from(expected.limit), self.limit.as_ref());
        compare(
            "remaining",
            &Json::from(expected.remaining),
            self.remaining.as_ref(),
        );
        let never = Json::from("never");
        let wait = expected.retry_after.clone().filter(|wait| *wait != never);
        compare("retry_after", &Json::from(wait), self.retry_after.as_ref());
        compare(
            "reason",
            &Json::from(expected.reason.clone()),
            self.reason.as_ref(),
        );
        let missing = match expected.missing.as_slice() {
            [] => Json::Null,
            missing => Json::from(missing),
        };
        compare("missing", &missing, self.missing.as_ref());
        let Some(headers) = &self.headers else {
            return differs;
        };
        for (name, wanted) in [
            ("x-ratelimit-limit", expected.limit),
            ("x-ratelimit-remaining", expected.remaining),
        ] {
            let seen = headers.get(name);
            if seen.map(String::as_str) != wanted.map(|wanted| wanted.to_string()).as_deref() {
                differs.push(format!("{name} is {seen:?} and not {wanted:?}"));
            }
        }
        for (name, wanted) in &expected.headers {
            let seen = headers.get(name).map_or("", String::as_str);
            if !same_header(name, wanted, seen, times) {
                differs.push(format!("{name} is `{seen}` and not `{wanted}`"));
            }
        }
        let has_wait = headers.contains_key("retry-after");
        let is_wait = expected
            .retry_after
            .as_ref()
            .is_some_and(|wait| *wait != never);
        if has_wait != (!expected.allowed && is_wait) {
            differs.push(format!("the headers are {headers:?}"));
        }
        differs
    }
}

/// Whether two values are the same; a time may have gone down a little.
fn same(wanted: &Json, seen: &Json, flows: bool) -> bool {
    match (wanted.as_f64(), seen.as_f64()) {
        (Some(wanted), Some(seen)) if flows && wanted > 0.0 => {
            (wanted - TOLERANCE..=wanted).contains(&seen)
        }
        (Some(wanted), Some(seen)) => (wanted - seen).abs() < 0.000_000_1,
        _ => wanted == seen,
    }
}

/// Whether two values of a header are the same, but for times that have gone down a little.
fn same_header(name: &str, wanted: &str, seen: &str, times: Times) -> bool {
    if times == Times::Exact {
        return wanted == seen;
    }
    let close = |wanted: &str, seen: &str| {
        let (Ok(wanted), Ok(seen)) = (wanted.parse::<f64>(), seen.parse::<f64>()) else {
            return false;
        };
        (wanted - TOLERANCE..=wanted).contains(&seen)
    };
    if name == "retry-after" {
        return close(wanted, seen);
    }
    let (mut wanted, mut seen) = (wanted.split(';'), seen.split(';'));
    loop {
        match (wanted.next(), seen.next()) {
            (None, None) => return true,
            (Some(wanted), Some(seen)) if wanted == seen => {}
            (Some(wanted), Some(seen)) => {
                match (wanted.strip_prefix("t="), seen.strip_prefix("t=")) {
                    (Some(wanted), Some(seen)) if close(wanted, seen) => {}
                    _ => return false,
                }
            }
            _ => return false,
        }
    }
}
