//! Questions to gates, and their answers with the true times of both.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::{Attributes, Micros};

use crate::clocks::TrueTime;
use crate::instance::SimulatedGate;

/// A request to be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Its attributes.
    pub attributes: Vec<(&'static str, String)>,
    /// How much it takes.
    pub cost: u64,
}

impl Question {
    /// A request of cost 1 with one attribute.
    pub fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            attributes: vec![(name, value.into())],
            cost: 1,
        }
    }

    /// The same request with another cost.
    #[must_use]
    pub fn with_cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }
}

/// How a request was decided. Times are true ones, in microseconds since the begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAnswer {
    /// The instance that was asked.
    pub instance: usize,
    /// Which of its lives: the first is 1, and each start begins another.
    pub life: u64,
    /// What it was asked.
    pub question: Question,
    /// When it began to decide.
    pub asked_at: u64,
    /// When it had decided.
    pub answered_at: u64,
    /// Whether the request was admitted.
    pub is_allowed: bool,
    /// Whether it was decided without Redis.
    pub is_degraded: bool,
    /// What remained.
    pub remaining: Option<u64>,
    /// If it was denied, after how many microseconds the same request is allowed.
    pub retry_after: Option<u64>,
}

/// The answers of all instances, in the order in which they were given.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerLog(Arc<Mutex<Vec<GateAnswer>>>);

impl AnswerLog {
    pub(crate) fn take(&self) -> Vec<GateAnswer> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Asks, and records the answer.
    pub(crate) async fn ask(
        self,
        gate: Arc<SimulatedGate>,
        (instance, life): (usize, u64),
        question: Question,
        time: TrueTime,
    ) {
        let asked_at = time.now();
        let mut attributes = Attributes::new().with_cost(question.cost);
        for (name, value) in &question.attributes {
            #[expect(clippy::expect_used, reason = "questions are part of a test")]
            attributes
                .insert(*name, value.as_str())
                .expect("attributes are valid");
        }
        let decision = gate.decide(&attributes).await;
        drop(attributes);
        let answer = GateAnswer {
            instance,
            life,
            asked_at,
            answered_at: time.now(),
            is_allowed: decision.is_allowed(),
            is_degraded: decision.is_degraded(),
            remaining: decision.remaining(),
            retry_after: decision.retry_after().map(|wait| Micros::from(wait).get()),
            question,
        };
        self.0.lock().push(answer);
    }
}
