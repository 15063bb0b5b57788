//! What our contract says where a source names an answer, and whether the two agree.
//!
//! This is for answers that come with an outcome. A field that has no arm here is not checked, and
//! has to be listed in `not_replayed`.

use serde_json::Value;
use tidegate_core::{Algorithm, Limit, LimitError, Micros, Outcome, Retry, Timestamp};

use super::known::{VectorStep, micros};
use super::mismatch::VectorProblem;
use super::player::{Player, instant, wait};

/// What our contract says, in the form in which the file writes it.
#[derive(Debug)]
pub(super) enum Found {
    Flag(bool),
    Count(u64),
    Text(String),
    Span(Micros),
    /// Right to the millisecond.
    About(Micros),
    /// Minus one where there is nothing to wait for: it was allowed, or never will be.
    Retry(Outcome),
    Refused(LimitError),
}

impl Found {
    pub(super) fn agrees_with(&self, known: &Value) -> bool {
        let span = known.as_f64().and_then(micros);
        match self {
            Self::Flag(found) => known.as_bool() == Some(*found),
            Self::Count(found) => known.as_u64() == Some(*found),
            Self::Text(found) => known.as_str() == Some(found),
            Self::Span(found) => span == Some(*found),
            Self::About(found) => span.is_some_and(|known| {
                found.get().abs_diff(known.get()) <= Micros::MILLISECOND.get()
            }),
            Self::Retry(outcome) => match outcome.retry {
                Retry::After(wait) => !outcome.allowed && span == Some(wait),
                Retry::Now => outcome.allowed && known.as_i64() == Some(-1),
                Retry::Never => !outcome.allowed && known.as_i64() == Some(-1),
            },
            Self::Refused(refusal) => {
                let for_zero = known.as_str().is_some_and(|text| text.starts_with("zero"));
                for_zero && matches!(refusal, LimitError::Zero { .. })
            }
        }
    }
}

impl Player<'_> {
    /// What our contract says where the source says `field`. None where it says nothing.
    pub(super) async fn found(
        &self,
        field: &str,
        step: &VectorStep,
        limit: &Limit,
        outcome: Outcome,
    ) -> Result<Option<Found>, VectorProblem> {
        let at = instant(step.t)?;
        let to_reset = outcome.reset_at.since(at);
        let found = match field {
            "allowed" => Found::Flag(outcome.allowed),
            "code" if outcome.allowed => Found::Text("OK".into()),
            "code" => Found::Text("OVER_LIMIT".into()),
            "status" => Found::Count(if outcome.allowed { 200 } else { 429 }),
            "limit" | "capacity" => Found::Count(outcome.limit),
            "remaining" => Found::Count(outcome.remaining),
            "never" => Found::Flag(outcome.retry == Retry::Never),
            "retry_after" => Found::Retry(outcome),
            "retry-after" => Found::Text(whole_seconds(outcome.retry)),
            "reset_at" | "window_end" => Found::Span(since_epoch(outcome.reset_at)),
            "reset_in" | "reset_in_approx"
                if self.is_sliding() && outcome.remaining < outcome.limit =>
            {
                // `limits` reports when one more comes back, and not when all has.
                let one_more = self.asking(limit, &step.key, outcome.remaining + 1);
                let wait = wait(self.peek(one_more, at).await?)?;
                match self.algorithm {
                    // It rounds the share of the window before, and is known to the millisecond.
                    Algorithm::SlidingWindowCounter => Found::About(wait),
                    _ => Found::Span(wait),
                }
            }
            "reset_in" | "reset_after" | "duration_until_reset" => Found::Span(to_reset),
            "counter_after" => Found::Count(self.used(&step.key, at).await?),
            "weighted" => {
                let taken = if outcome.allowed { step.cost } else { 0 };
                Found::Count(self.used(&step.key, at).await?.saturating_sub(taken))
            }
            "emission_interval_s" => {
                let rest = self.asking(limit, &step.key, outcome.remaining);
                self.charge(rest, at).await?;
                let one_more = self.asking(limit, &step.key, 1);
                Found::Span(wait(self.charge(one_more, at).await?)?)
            }
            "window_start" => {
                // The window before the right one ends where that starts.
                let before = window_start(step)? - Micros::new(1);
                let charge = self.asking(limit, "the window before", 1);
                Found::Span(since_epoch(self.charge(charge, before).await?.reset_at))
            }
            "ttl_s" => Found::Span(outcome.reset_at.since(window_start(step)?)),
            _ => return Ok(None),
        };
        Ok(Some(found))
    }
}

fn since_epoch(at: Timestamp) -> Micros {
    at.since(Timestamp::EPOCH)
}

fn window_start(step: &VectorStep) -> Result<Timestamp, VectorProblem> {
    let known = step.answers.get("window_start").and_then(Value::as_f64);
    instant(known.ok_or_else(|| VectorProblem::new("window_start", "is missing"))?)
}

fn whole_seconds(retry: Retry) -> String {
    retry
        .wait()
        .map_or_else(String::new, |wait| wait.ceil_seconds().to_string())
}
