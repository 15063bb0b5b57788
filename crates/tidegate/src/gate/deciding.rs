//! Makes the calls to the store that a decision needs: without waiting where all state is in memory,
//! asynchronously otherwise.

use futures_util::future::join_all;
use smallvec::SmallVec;
use tidegate_core::{MemoryStore, Outcomes, Store, StoreError};

use super::decision::Decision;
use super::group::StoreCall;
use super::matching::{MatchedRules, match_rules};
use super::parts::{Asked, pipelines_of};
use super::pipeline::Pipeline;
use super::{Gate, Observed, Receipt, RulesInForce};
use crate::rules::FrontEnd;

/// A request that is about to be decided; nothing is charged yet.
#[must_use = "nothing is decided before `now` or `wait` is called"]
pub struct Deciding<'g, 'a, 'b, S> {
    pub(super) gate: &'g Gate<S>,
    pub(super) rules: RulesInForce,
    pub(super) front_end: FrontEnd,
    pub(super) asked: Asked<'a, 'b>,
}

/// A request whose rules have matched, on its way to the decision.
struct InProgress<'g, 'a, 'b, S> {
    gate: &'g Gate<S>,
    front_end: FrontEnd,
    asked: Asked<'a, 'b>,
    /// The observer's clock when it began.
    began: u64,
    /// One for each part that is charged on its own; usually one.
    pipelines: SmallVec<[Pipeline<'a>; 1]>,
}

impl<'g, 'a, 'b, S: Store> Deciding<'g, 'a, 'b, S> {
    /// Decides without waiting, if the store keeps all state in memory. None, and nothing is charged, with
    /// a store that may have to wait.
    pub fn now(self) -> Option<Receipt<'a>> {
        let store = self.gate.store.memory()?;
        Some(self.run().decide_in(store))
    }

    /// Decides, and waits for the store where that is necessary.
    pub async fn wait(self) -> Receipt<'a> {
        match self.gate.store.memory() {
            Some(store) => self.run().decide_in(store),
            // In a box, so that decisions in memory do not carry what a call over the network needs.
            None => Box::pin(self.run().wait()).await,
        }
    }

    fn run(self) -> InProgress<'g, 'a, 'b, S> {
        let (gate, rules) = (self.gate, self.rules);
        let began = gate.begin();
        let pipelines = match self.asked {
            Asked::Request(attributes) => {
                let now = gate.time_of(attributes);
                let matched = match_rules(&rules, attributes, now);
                let permit = gate.new_permit(&rules, &matched);
                let times = (attributes.time(), now);
                std::iter::once(Pipeline::new(rules.0, matched, times, permit)).collect()
            }
            Asked::Parts(parts) => pipelines_of(gate, &rules, parts),
        };
        InProgress {
            gate,
            front_end: self.front_end,
            asked: self.asked,
            began,
            pipelines,
        }
    }
}

impl<'a, S: Store> InProgress<'_, 'a, '_, S> {
    fn decide_in(mut self, store: &MemoryStore) -> Receipt<'a> {
        for pipeline in &mut self.pipelines {
            run_in_memory(pipeline, store);
        }
        self.finish()
    }

    async fn wait(mut self) -> Receipt<'a> {
        let gate = self.gate;
        match &mut self.pipelines[..] {
            [pipeline] => gate.run(pipeline).await,
            pipelines => {
                let running = pipelines.iter_mut().map(|pipeline| gate.run(pipeline));
                join_all(running).await;
            }
        }
        self.finish()
    }

    /// Makes the decisions, and shows them to the observer.
    fn finish(self) -> Receipt<'a> {
        let mut decisions: SmallVec<[Decision; 1]> = SmallVec::new();
        let mut charged = MatchedRules::new();
        let at = self.pipelines.first().and_then(|pipeline| pipeline.at);
        for pipeline in self.pipelines {
            pipeline.finish(&mut decisions, &mut charged);
        }
        let receipt = Receipt::new(decisions, charged, at);
        if let Some(observer) = &self.gate.observer {
            observer.decided(&Observed {
                began: self.began,
                front_end: self.front_end,
                decisions: receipt.decisions(),
                asked: self.asked,
            });
        }
        receipt
    }
}

/// Makes the calls of a pipeline to a store in memory.
fn run_in_memory(pipeline: &mut Pipeline<'_>, store: &MemoryStore) {
    for index in 0..pipeline.groups.len() {
        let call = pipeline.call(index);
        if call.charges.is_empty() {
            continue;
        }
        let outcomes = if call.is_peek {
            store.peek(&call.request())
        } else {
            store.charge(&call.request())
        };
        drop(call);
        pipeline.groups[index].record(&outcomes);
    }
    let spent = pipeline.spent();
    if !spent.is_empty() {
        let outcomes = store.settle(&pipeline.settle_call(&spent).request());
        pipeline.record_settled(&spent, &outcomes);
    }
}

impl<S: Store> Gate<S> {
    /// Makes the calls of a pipeline, those that do not depend on each other at the same time.
    async fn run(&self, pipeline: &mut Pipeline<'_>) {
        loop {
            let groups = pipeline.next_groups();
            if groups.is_empty() {
                break;
            }
            let calls: SmallVec<[StoreCall<'_>; 1]> =
                groups.clone().map(|index| pipeline.call(index)).collect();
            let answers: SmallVec<[Result<Outcomes, StoreError>; 1]> = match &calls[..] {
                [call] => std::iter::once(self.ask(call).await).collect(),
                calls => join_all(calls.iter().map(|call| self.ask(call)))
                    .await
                    .into(),
            };
            drop(calls);
            for (index, answer) in groups.zip(answers) {
                match answer {
                    Ok(outcomes) => pipeline.groups[index].record(&outcomes),
                    Err(_) => self.decide_without_store(pipeline, index),
                }
            }
        }
        self.settle_spent(pipeline).await;
    }

    /// Calls the store, after it has heard of what the same keys were admitted without it.
    async fn ask(&self, call: &StoreCall<'_>) -> Result<Outcomes, StoreError> {
        let request = call.request();
        if request.charges.is_empty() {
            return Ok(Outcomes::new());
        }
        self.reconcile_keys(&request).await?;
        if call.is_peek {
            self.store.peek(&request).await
        } else {
            self.store.charge(&request).await
        }
    }
}
