//! Whether Redis answers: every server is asked in the way that a decision asks it.

use futures_util::future::join_all;
use tidegate_core::{Algorithm, Charge, Limit, Micros, Rate, Request, Scope, StoreError};

use crate::RedisStore;
use crate::keys::tag_of;
use crate::plan::Plan;
use crate::wire::LuaStep;

/// How much of Redis answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All of it.
    Whole,
    /// Some masters of a Cluster do not answer, or some slots have no master; their keys are decided without
    /// Redis. Contains the problem.
    Part(String),
    /// Nothing. Contains the problem.
    Down(String),
}

impl RedisStore {
    /// Asks every server, and waits for the answers as long as a decision does.
    pub async fn health(&self) -> Health {
        let (slots, is_covered) = self.router().slots_by_server();
        let asked = join_all(slots.into_iter().map(|slot| self.ask_in(slot))).await;
        let is_any = asked.iter().any(Result::is_ok);
        let error = asked.into_iter().find_map(Result::err);
        let problem = match error {
            Some(error) => self.problem().unwrap_or_else(|| {
                // The connection has just been lost.
                let is_part = self.router().is_cluster();
                let what = if is_part {
                    "one of its masters is unreachable: "
                } else {
                    ""
                };
                format!("{what}{error}")
            }),
            None if !is_covered => {
                let uncovered = || "some of its slots have no master".to_owned();
                self.problem().unwrap_or_else(uncovered)
            }
            None => return Health::Whole,
        };
        if is_any {
            return Health::Part(problem);
        }
        Health::Down(problem)
    }

    /// Asks for a counter in this slot, which is left as it is.
    async fn ask_in(&self, slot: u16) -> Result<(), StoreError> {
        let scope = Scope::new("probe");
        let limit = Limit::new(Rate::new(1, Micros::DAY), Algorithm::TOKEN_BUCKET);
        let limit = limit.map_err(|error| StoreError::BadReply(error.into()))?;
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: tag_of(slot),
            cost: 0,
        }];
        let plan = Plan::new(self.keys(), &Request::new(&charges));
        let deadline = self.router().deadline();
        self.router()
            .step(LuaStep::peek(&plan), deadline)
            .await
            .map(drop)
    }
}
