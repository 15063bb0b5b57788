//! The whole script on a real Redis: every step encoded, run and decoded.

mod cells;
mod failures;
mod fast_path;
mod leased;
mod random;
mod replies;
mod server;
mod states;

use tidegate_core::{Charge, Limit, Outcomes, PermitId, Request, Scope, Timestamp};

use super::*;
use crate::keys::{KeySecret, SecretFrom};
use server::ScriptServer;

fn keys() -> RedisKeys {
    RedisKeys::new(None, KeySecret::new(SecretFrom::Public))
}

fn plan<'a>(request: &Request<'a>) -> Plan<'a> {
    Plan::new(&keys(), request)
}

/// A plan of one charge.
fn plan_at<'a>(charge: &'a Charge<'a>, at: Option<Timestamp>) -> Plan<'a> {
    let request = Request::new(std::slice::from_ref(charge));
    plan(&Request { at, ..request })
}

fn charging<'a>(scope: &'a Scope, limit: &'a Limit, key: &'a str, cost: u64) -> Charge<'a> {
    Charge {
        scope,
        limit,
        key,
        cost,
    }
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn outcomes(answer: Result<StepOutcome, StepError>) -> Outcomes {
    match answer.unwrap() {
        StepOutcome::Outcomes(outcomes) => outcomes,
        other => panic!("outcomes and not {other:?}"),
    }
}

fn was_live(answer: Result<StepOutcome, StepError>) -> bool {
    match answer.unwrap() {
        StepOutcome::Held { was_live, there } if there.is_empty() => was_live,
        other => panic!("{other:?}"),
    }
}
