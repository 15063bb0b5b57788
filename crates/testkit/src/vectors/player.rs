//! Plays the steps of one line on a store, and compares each answer with the known one.
//!
//! What our contract says for a known field is in `found`; the steps that are properties are in
//! `properties`. Both ask the store through the [`Player`].

use serde_json::Value;
use tidegate_core::{
    Algorithm, Anchor, Charge, Limit, LimitError, Micros, Outcome, Rate, Request, Retry, Scope,
    Store, StoreError, Timestamp,
};

use super::found::Found;
use super::known::{Count, Operation, Vector, VectorStep, micros};
use super::mismatch::VectorProblem;
use super::not_replayed::NotReplayed;

/// A count that no line reaches: on a limit this large, what was used can be made and read.
const ROOMY: u64 = 10_000_000;

/// One line on its way through a store.
pub(super) struct Player<'a> {
    store: &'a Store,
    pub(super) vector: &'a Vector,
    pub(super) algorithm: Algorithm,
    pub(super) window: Micros,
    scope: Scope,
}

impl<'a> Player<'a> {
    pub(super) fn new(store: &'a Store, vector: &'a Vector) -> Result<Self, VectorProblem> {
        let algorithm = match vector.algorithm.as_str() {
            "fixed_window_first_hit" | "headers" => Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            },
            "fixed_window_calendar" | "fixed_window_calendar_key" => Algorithm::FIXED_WINDOW,
            "gcra" | "gcra_emission_interval" => Algorithm::TOKEN_BUCKET,
            "sliding_log" => Algorithm::SlidingWindowLog,
            "sliding_window_counter" => Algorithm::SlidingWindowCounter,
            other => {
                return Err(VectorProblem::new(
                    "algorithm",
                    format!("`{other}` is not ours"),
                ));
            }
        };
        let window = vector.window_s.and_then(micros);
        Ok(Self {
            store,
            vector,
            algorithm,
            window: window.ok_or_else(|| VectorProblem::new("window_s", "is missing"))?,
            scope: Scope::new(&vector.id),
        })
    }

    pub(super) async fn play(
        &self,
        step: &VectorStep,
        race: &impl AsyncFn(&Store, &Request<'_>, u64) -> Result<u64, StoreError>,
    ) -> Result<(), VectorProblem> {
        if step.answers.contains_key("property") {
            return self.hold_property().await;
        }
        let limit = match self.own_limit() {
            Err(refusal) => {
                return self.compare_all(step, |field| {
                    (field == "error").then(|| Found::Refused(refusal.clone()))
                });
            }
            Ok(limit) => limit,
        };
        let at = instant(step.t)?;
        if let Some(used) = step.counter_before {
            self.fill(&step.key, used, at).await?;
        }
        if step.op == Operation::Clear {
            self.store.forget(&self.scope, &limit, &step.key).await?;
            return self.compare_all(step, |_| None);
        }
        if step.concurrent {
            let charge = self.asking(&limit, &step.key, step.cost);
            let request = Request::new(std::slice::from_ref(&charge)).at(at);
            let allowed = race(self.store, &request, step.repeat).await?;
            return self.compare_all(step, |field| {
                (field == "total_allowed").then_some(Found::Count(allowed))
            });
        }
        for _ in 0..step.repeat {
            let charge = self.asking(&limit, &step.key, step.cost);
            let outcome = match step.op {
                Operation::Peek => self.peek(charge, at).await?,
                _ => self.charge(charge, at).await?,
            };
            for (field, known) in &step.answers {
                let found = self.found(field, step, &limit, outcome).await?;
                self.compare(field, known, found)?;
            }
        }
        Ok(())
    }

    fn compare_all(
        &self,
        step: &VectorStep,
        found: impl Fn(&str) -> Option<Found>,
    ) -> Result<(), VectorProblem> {
        for (field, known) in &step.answers {
            self.compare(field, known, found(field))?;
        }
        Ok(())
    }

    pub(super) fn compare(
        &self,
        field: &str,
        known: &Value,
        found: Option<Found>,
    ) -> Result<(), VectorProblem> {
        let is_listed = NotReplayed::names(&self.vector.id, field);
        let text = match found {
            None if is_listed => return Ok(()),
            None => "is neither checked nor listed".into(),
            Some(found) => match (found.agrees_with(known), is_listed) {
                (true, false) | (false, true) => return Ok(()),
                (false, false) => format!("known is {known}, found is {found:?}"),
                (true, true) => "is listed as not replayed, but agrees".into(),
            },
        };
        Err(VectorProblem::new(field, text))
    }

    /// Charges what the line says was used before its first step.
    pub(super) async fn use_before(&self) -> Result<(), VectorProblem> {
        if let Some(state) = &self.vector.state {
            let start = instant(state.bucket_start)?;
            self.fill("", state.previous, start - self.window).await?;
            self.fill("", state.current, start).await?;
        }
        Ok(())
    }

    /// Uses so much of the window, on a larger limit: a changed limit keeps what was used.
    async fn fill(&self, key: &str, used: u64, at: Timestamp) -> Result<(), VectorProblem> {
        let roomy = self.limit(ROOMY, None)?;
        let filled = self.charge(self.asking(&roomy, key, used), at).await?;
        if filled.allowed {
            Ok(())
        } else {
            Err(VectorProblem::new(
                "state",
                format!("{used} do not fit into {roomy}"),
            ))
        }
    }

    /// What counts as used, above the limit too.
    pub(super) async fn used(&self, key: &str, at: Timestamp) -> Result<u64, VectorProblem> {
        let roomy = self.limit(ROOMY, None)?;
        let asked = self.peek(self.asking(&roomy, key, 0), at).await?;
        Ok(ROOMY.saturating_sub(asked.remaining))
    }

    fn own_limit(&self) -> Result<Limit, LimitError> {
        let count = match self.vector.limit {
            Some(Count::Exactly(count)) => count,
            Some(Count::AnyOf(_)) | None => 1,
        };
        self.limit(count, self.vector.burst)
    }

    pub(super) fn limit(&self, count: u64, burst: Option<u64>) -> Result<Limit, LimitError> {
        let mut rate = Rate::new(count, self.window);
        rate.burst = burst;
        Limit::new(rate, self.algorithm)
    }

    pub(super) fn is_sliding(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter
        )
    }

    pub(super) fn asking<'b>(&'b self, limit: &'b Limit, key: &'b str, cost: u64) -> Charge<'b> {
        Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        }
    }

    pub(super) async fn charge(
        &self,
        charge: Charge<'_>,
        at: Timestamp,
    ) -> Result<Outcome, VectorProblem> {
        let outcomes = self.store.charge(&Request::new(&[charge]).at(at)).await?;
        the_only(&outcomes)
    }

    pub(super) async fn peek(
        &self,
        charge: Charge<'_>,
        at: Timestamp,
    ) -> Result<Outcome, VectorProblem> {
        let outcomes = self.store.peek(&Request::new(&[charge]).at(at)).await?;
        the_only(&outcomes)
    }
}

pub(super) fn instant(seconds: f64) -> Result<Timestamp, VectorProblem> {
    let since = micros(seconds).ok_or_else(|| VectorProblem::new("t", "is not a time"))?;
    Ok(Timestamp::EPOCH + since)
}

/// How long a denied request has to wait.
pub(super) fn wait(outcome: Outcome) -> Result<Micros, VectorProblem> {
    match outcome.retry {
        Retry::After(wait) => Ok(wait),
        other => Err(VectorProblem::new(
            "retry_after",
            format!("is {other:?}, not a wait"),
        )),
    }
}

fn the_only(outcomes: &[Outcome]) -> Result<Outcome, VectorProblem> {
    match outcomes {
        [outcome] => Ok(*outcome),
        _ => Err(VectorProblem::new(
            "store",
            format!("{} outcomes to one charge", outcomes.len()),
        )),
    }
}
