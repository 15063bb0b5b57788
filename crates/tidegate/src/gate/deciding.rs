//! Makes the calls to the store that a decision needs: without waiting where all state is in memory,
//! asynchronously otherwise.

use std::sync::Arc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tidegate_core::{MemoryStore, Micros, Outcomes, SharedStore, Store, StoreError};

use super::matching::match_rules;
use super::parts::{Asked, pipelines_of};
use super::pipeline::{Pipeline, Step, StoreCall, Verb};
use super::{Gate, Observed, Receipt, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::FrontEnd;

/// A request that is about to be decided; nothing is charged yet.
#[must_use = "nothing is decided before `now` or `wait` is called"]
pub struct Deciding<'g, 'a, 'b, S> {
    pub(super) gate: &'g Gate<S>,
    pub(super) rules: RulesInForce,
    pub(super) front_end: FrontEnd,
    pub(super) asked: Asked<'a, 'b>,
}

impl<S: Store> Deciding<'_, '_, '_, S> {
    /// Decides without waiting, if the store keeps all state in memory. None, and nothing is charged, with
    /// a store that may have to wait.
    pub fn now(self) -> Option<Receipt> {
        let store = self.gate.store.memory()?;
        Some(self.decide_in(store))
    }

    /// Decides, and waits for the store where that is necessary.
    pub async fn wait(self) -> Receipt {
        match self.gate.store.memory() {
            Some(store) => self.decide_in(store),
            // In a box, so that decisions in memory do not carry what a call over the network needs.
            None => Box::pin(self.wait_for_store()).await,
        }
    }

    fn decide_in(self, store: &MemoryStore) -> Receipt {
        let began = self.gate.begin();
        let receipt = match self.asked {
            Asked::Request(attributes) => {
                let mut pipeline = self.gate.pipeline(&self.rules, attributes);
                run_in_memory(&mut pipeline, store);
                pipeline.into_receipt()
            }
            Asked::Parts(parts) => {
                let mut pipelines = pipelines_of(self.gate, &self.rules, parts);
                for pipeline in &mut pipelines {
                    run_in_memory(pipeline, store);
                }
                Receipt::of_parts(pipelines)
            }
        };
        self.observe(began, &receipt);
        receipt
    }

    async fn wait_for_store(self) -> Receipt {
        let (gate, began) = (self.gate, self.gate.begin());
        let receipt = match self.asked {
            Asked::Request(attributes) => {
                let mut pipeline = gate.pipeline(&self.rules, attributes);
                gate.run(&mut pipeline).await;
                pipeline.into_receipt()
            }
            Asked::Parts(parts) => {
                let mut pipelines = pipelines_of(gate, &self.rules, parts);
                join_all(pipelines.iter_mut().map(|pipeline| gate.run(pipeline))).await;
                Receipt::of_parts(pipelines)
            }
        };
        self.observe(began, &receipt);
        receipt
    }

    fn observe(&self, began: u64, receipt: &Receipt) {
        if let Some(observer) = &self.gate.observer {
            observer.decided(&Observed {
                began,
                front_end: self.front_end,
                decisions: receipt.decisions(),
                asked: self.asked,
            });
        }
    }
}

/// Makes the calls of a pipeline to a store in memory.
pub(super) fn run_in_memory(pipeline: &mut Pipeline, store: &MemoryStore) {
    for step in pipeline.steps() {
        let call = pipeline.call(step);
        if call.charges.is_empty() {
            continue;
        }
        let request = call.request();
        if call.verb == Verb::Charge
            && let Some(refused) = store.without_room(&request)
        {
            drop(call);
            pipeline.record(step, &refused);
            pipeline.refuse_permits(step);
            continue;
        }
        let outcomes = match call.verb {
            Verb::Charge => store.charge_regardless(&request),
            Verb::Peek => store.peek(&request),
            Verb::Preview => store.preview(&request),
        };
        drop(call);
        pipeline.record(step, &outcomes);
    }
    if pipeline.mark_spent() {
        let call = pipeline.settle_call();
        store.settle(&call.request());
        let outcomes = store.peek(&call.request());
        drop(call);
        pipeline.record_settled(&outcomes);
    }
}

impl<S: Store> Gate<S> {
    /// The pipeline of a request, whose rules have matched.
    fn pipeline(&self, rules: &RulesInForce, attributes: &Attributes<'_>) -> Pipeline {
        let now = self.time_of(attributes);
        let matched = match_rules(&rules.0, attributes, self.terms(now));
        let permit = self.new_permit(&rules.0, &matched);
        let times = (attributes.time(), now);
        Pipeline::new(Arc::clone(&rules.0), matched, times, permit)
    }

    /// Makes the calls of a pipeline, those that do not depend on each other at the same time.
    pub(super) async fn run(&self, pipeline: &mut Pipeline) {
        let steps = pipeline.steps();
        let first_shadow = steps
            .iter()
            .position(|step| matches!(step, Step::Shadow(_)));
        let (together, shadows) = steps.split_at(first_shadow.unwrap_or(steps.len()));
        for step in together {
            self.run_steps(pipeline, std::slice::from_ref(step)).await;
        }
        if !shadows.is_empty() {
            self.run_steps(pipeline, shadows).await;
        }
        self.settle_spent(pipeline).await;
    }

    /// Makes the calls of steps that do not depend on each other.
    async fn run_steps(&self, pipeline: &mut Pipeline, steps: &[Step]) {
        let calls: SmallVec<[StoreCall<'_>; 1]> =
            steps.iter().map(|step| pipeline.call(*step)).collect();
        let answers: SmallVec<[Result<Outcomes, StoreError>; 1]> = match &calls[..] {
            [call] => std::iter::once(self.ask(call).await).collect(),
            calls => join_all(calls.iter().map(|call| self.ask(call)))
                .await
                .into(),
        };
        drop(calls);
        for (step, answer) in steps.iter().zip(answers) {
            match answer {
                Ok(outcomes) => pipeline.record(*step, &outcomes),
                Err(_) => self.decide_without_store(pipeline, *step),
            }
        }
    }

    /// Reconciles the request's keys, then calls the store.
    async fn ask(&self, call: &StoreCall<'_>) -> Result<Outcomes, StoreError> {
        let request = call.request();
        if request.charges.is_empty() {
            return Ok(Outcomes::new());
        }
        let began = self.clock.now();
        let has_owed = self.reconcile_keys(&request).await?;
        let asking = async {
            match call.verb {
                Verb::Charge => self.store.charge(&request).await,
                Verb::Peek => self.store.peek(&request).await,
                Verb::Preview => self.store.preview(&request).await,
            }
        };
        let shared = self.store.shared().filter(|_| has_owed);
        let Some(deadline) = shared.and_then(SharedStore::deadline) else {
            return asking.await;
        };
        // Both calls together may take as long as one.
        let used = self.clock.now().since(began);
        let left = Micros::new(deadline.get().saturating_sub(used.get()));
        let asked = tokio::time::timeout(left.into(), asking).await;
        asked.unwrap_or_else(|_| Err(StoreError::TimedOut(deadline.into())))
    }
}
