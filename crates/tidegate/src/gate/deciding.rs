//! A decision from its beginning to its end, and the calls to the store that it needs: ready at the first poll in
//! memory, awaited over a network.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tidegate_core::{Costs, MemoryStore, Outcomes, RemoteStore, Request, Store, StoreError};

use super::matching::match_rules;
use super::parts::{Asked, pipelines_of};
use super::pipeline::{Pipeline, Step, StoreCall, Verb};
use super::{Decision, Gate, Observed, Receipt, RulesInForce};
use crate::attributes::Attributes;
use crate::rules::FrontEnd;

/// The store is remote: what is asked of it cannot be answered without waiting. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store is remote, and its answer has to be awaited")]
pub struct StoreIsRemote;

impl Gate {
    /// Decides a request: charges every limit that applies to it, or none. Ready at the first poll if the store is in
    /// memory.
    pub async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let rules = self.rules();
        // Not by `decide_by`, whose future would move the decision once more.
        if let Ok(receipt) = self.try_decide_by(&rules, FrontEnd::Library, attributes) {
            return receipt.into_decision();
        }
        let deciding = self.decide_remotely(&rules, FrontEnd::Library, attributes.into());
        Box::pin(deciding).await.into_decision()
    }

    /// [`decide`](Self::decide) for callers without a runtime. An error, before anything is sent, if the store is
    /// remote.
    ///
    /// ```
    /// use tidegate::rules::RuleSet;
    /// use tidegate::{Attributes, Gate, MemoryStore};
    ///
    /// let rules = RuleSet::from_yaml("rules: [{id: all, per: [], limit: 1/minute}]")?;
    /// let gate = Gate::new(MemoryStore::new(), rules);
    /// assert!(gate.try_decide(&Attributes::new())?.is_allowed());
    /// assert!(gate.try_decide(&Attributes::new())?.is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_decide(&self, attributes: &Attributes<'_>) -> Result<Decision, StoreIsRemote> {
        let rules = self.rules();
        let receipt = self.try_decide_by(&rules, FrontEnd::Library, attributes)?;
        Ok(receipt.into_decision())
    }

    /// Decides a request of a front end by [rules](Self::rules) that were loaded for it. The receipt can be given back
    /// or settled later.
    pub async fn decide_by<'a, 'b: 'a>(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: impl Into<Asked<'a, 'b>>,
    ) -> Receipt {
        let asked = asked.into();
        match self.try_decide_by(rules, front_end, asked) {
            Ok(receipt) => receipt,
            // In a box, so that decisions in memory do not carry what a call over the network needs.
            Err(StoreIsRemote) => Box::pin(self.decide_remotely(rules, front_end, asked)).await,
        }
    }

    /// [`decide_by`](Self::decide_by) without waiting. An error, before anything is sent, if the store is remote.
    pub fn try_decide_by<'a, 'b: 'a>(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: impl Into<Asked<'a, 'b>>,
    ) -> Result<Receipt, StoreIsRemote> {
        let Store::Memory(store) = &self.store else {
            return Err(StoreIsRemote);
        };
        let (began, asked) = (self.begin(), asked.into());
        let receipt = self.decide_in_memory(store, rules, asked);
        self.observe(began, front_end, asked, &receipt);
        Ok(receipt)
    }

    /// Decides without showing it to the observer.
    #[expect(
        clippy::inline_always,
        reason = "a receipt is large, and is made where it is returned"
    )]
    #[inline(always)]
    pub(super) fn decide_in_memory(
        &self,
        store: &MemoryStore,
        rules: &RulesInForce,
        asked: Asked<'_, '_>,
    ) -> Receipt {
        match asked {
            Asked::Request(attributes) => {
                let mut pipeline = self.pipeline(rules, attributes, attributes.costs());
                run_in_memory(&mut pipeline, store);
                pipeline.into_receipt(attributes.costs().clone())
            }
            Asked::Costing(attributes, costs) => {
                let mut pipeline = self.pipeline(rules, attributes, costs);
                run_in_memory(&mut pipeline, store);
                pipeline.into_receipt(costs.clone())
            }
            Asked::Parts(parts) => {
                let mut pipelines = pipelines_of(self, rules, parts);
                for pipeline in &mut pipelines {
                    run_in_memory(pipeline, store);
                }
                Receipt::from_pipelines(pipelines, asked.costs())
            }
        }
    }

    async fn decide_remotely(
        &self,
        rules: &RulesInForce,
        front_end: FrontEnd,
        asked: Asked<'_, '_>,
    ) -> Receipt {
        let began = self.begin();
        let receipt = self.decide_over_network(rules, asked).await;
        self.observe(began, front_end, asked, &receipt);
        receipt
    }

    /// Decides without showing it to the observer.
    pub(super) async fn decide_over_network(
        &self,
        rules: &RulesInForce,
        asked: Asked<'_, '_>,
    ) -> Receipt {
        let mut pipelines = match asked {
            Asked::Request(attributes) => {
                vec![self.pipeline(rules, attributes, attributes.costs())]
            }
            Asked::Costing(attributes, costs) => vec![self.pipeline(rules, attributes, costs)],
            Asked::Parts(parts) => pipelines_of(self, rules, parts),
        };
        self.run(&mut pipelines).await;
        Receipt::from_pipelines(pipelines, asked.costs())
    }

    #[inline]
    pub(super) fn observe(
        &self,
        began: u64,
        front_end: FrontEnd,
        asked: Asked<'_, '_>,
        receipt: &Receipt,
    ) {
        if let Some(observer) = &self.observer {
            observer.decided(&Observed {
                began,
                front_end,
                decisions: receipt.decisions(),
                asked,
            });
            self.warn_of_charges(receipt);
        }
    }

    /// The pipeline of a request, whose rules have matched.
    pub(super) fn pipeline(
        &self,
        rules: &RulesInForce,
        attributes: &Attributes<'_>,
        costs: &Costs,
    ) -> Pipeline {
        let now = self.time_of(attributes);
        let mut pipeline = Pipeline::new(Arc::clone(&rules.0), (attributes.time(), now));
        let terms = self.terms(now);
        match_rules(&rules.0, attributes, costs, terms, &mut pipeline.rules);
        pipeline.permit = self.new_permit(&rules.0, &pipeline.rules);
        pipeline.order();
        pipeline
    }

    /// Makes the calls of pipelines, over a network those of all of them at the same time.
    pub(super) async fn run(&self, pipelines: &mut [Pipeline]) {
        match &self.store {
            Store::Memory(store) => {
                for pipeline in pipelines {
                    run_in_memory(pipeline, store);
                }
            }
            Store::Remote(store) => {
                let running = pipelines.iter_mut();
                join_all(running.map(|pipeline| self.run_remotely(&**store, pipeline))).await;
            }
        }
    }

    /// Makes the calls of a pipeline, those that do not depend on each other at the same time.
    async fn run_remotely(&self, store: &dyn RemoteStore, pipeline: &mut Pipeline) {
        let steps = pipeline.steps();
        let first_shadow = steps
            .iter()
            .position(|step| matches!(step, Step::Shadow(_)));
        let first_shadow = first_shadow.unwrap_or(steps.len());
        // What only counts waits to know whether the request holds permits; without any it is sent with the rest.
        let last = match pipeline.permit {
            None if !pipeline.is_together => first_shadow.saturating_sub(1),
            _ => first_shadow,
        };
        let (before, last) = steps.split_at(last);
        for step in before {
            let step = std::slice::from_ref(step);
            self.run_steps(store, pipeline, step).await;
        }
        if !last.is_empty() {
            self.run_steps(store, pipeline, last).await;
        }
        self.settle_spent(store, pipeline).await;
    }

    /// Makes the calls of steps that do not depend on each other.
    pub(super) async fn run_steps(
        &self,
        store: &dyn RemoteStore,
        pipeline: &mut Pipeline,
        steps: &[Step],
    ) {
        let calls: SmallVec<[StoreCall<'_>; 1]> =
            steps.iter().map(|step| pipeline.call(*step)).collect();
        let answers: SmallVec<[Result<Outcomes, StoreError>; 1]> = match &calls[..] {
            [call] => std::iter::once(self.ask(store, call).await).collect(),
            calls => join_all(calls.iter().map(|call| self.ask(store, call)))
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

    /// Calls the store.
    async fn ask(
        &self,
        store: &dyn RemoteStore,
        call: &StoreCall<'_>,
    ) -> Result<Outcomes, StoreError> {
        let request = call.request();
        if request.charges.is_empty() {
            return Ok(Outcomes::new());
        }
        let asking = match call.verb {
            Verb::Charge => store.charge(&request),
            Verb::Take => store.settle(&request),
            Verb::Peek => store.peek(&request),
            Verb::Preview => store.preview(&request),
        };
        self.ask_reconciled(&request, asking).await
    }

    /// Reconciles the keys of a request, then awaits a call to the store about it.
    pub(super) async fn ask_reconciled<T>(
        &self,
        request: &Request<'_>,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = self.clock.now();
        let has_owed = self.reconcile_keys(request).await?;
        let timeout = self.store.remote().and_then(RemoteStore::timeout);
        let Some(timeout) = timeout.filter(|_| has_owed) else {
            return asking.await;
        };
        // Both calls together may take as long as one.
        let used = Duration::from(self.clock.now().since(began));
        let asked = tokio::time::timeout(timeout.saturating_sub(used), asking).await;
        asked.unwrap_or_else(|_| Err(StoreError::TimedOut(timeout)))
    }
}

/// Makes the calls of a pipeline to a store in memory.
pub(super) fn run_in_memory(pipeline: &mut Pipeline, store: &MemoryStore) {
    for step in pipeline.steps() {
        run_step_in_memory(pipeline, store, step);
    }
    if pipeline.mark_spent() {
        let call = pipeline.settle_call();
        store.settle(&call.request());
        let outcomes = store.peek(&call.request());
        drop(call);
        pipeline.record_settled(&outcomes);
    }
}

/// Makes the call of one step to a store in memory.
#[inline]
pub(super) fn run_step_in_memory(pipeline: &mut Pipeline, store: &MemoryStore, step: Step) {
    let call = pipeline.call(step);
    if call.charges.is_empty() {
        return;
    }
    let request = call.request();
    if call.verb == Verb::Charge
        && let Some(refused) = store.without_room(&request)
    {
        drop(call);
        pipeline.record(step, &refused);
        pipeline.refuse_permits(step);
        return;
    }
    let outcomes = match call.verb {
        Verb::Charge => store.charge_regardless(&request),
        Verb::Take => store.settle(&request),
        Verb::Peek => store.peek(&request),
        Verb::Preview => store.preview(&request),
    };
    drop(call);
    pipeline.record(step, &outcomes);
}
