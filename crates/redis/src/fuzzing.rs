//! The replies of Redis, for the fuzzers. Not a part of the API.

use redis::{RedisResult, Value, from_redis_value, parse_redis_value};
use tidegate_core::{Algorithm, Charge, Limit, Micros, Outcome, PermitId, Rate, Request, Scope};

use crate::call::CallError;
use crate::cluster;
use crate::url::RedisNode;
use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};
use tidegate_redis_wire::plan::Plan;
use tidegate_redis_wire::wire::{LeaseRequest, LuaStep, StepOutcome, decode};

/// A reply, decoded for each kind of step.
#[derive(Debug)]
pub struct DecodedReply {
    /// The name of the steps.
    pub asked: &'static str,
    /// The capacities of the limits of each step. Empty for a step without outcomes.
    pub capacities: Vec<Vec<u64>>,
    /// The outcomes of each step, or `None` if it failed; `None` if the reply is refused.
    pub answers: Option<Vec<Option<Vec<Outcome>>>>,
}

/// Decodes these bytes as the reply to each call of the store. Empty if they are not one value of the Redis protocol.
pub fn decode_replies(bytes: &[u8]) -> Vec<DecodedReply> {
    let Ok(value) = parse_redis_value(bytes) else {
        return Vec::new();
    };
    let keys = RedisKeys::new(None, KeySecret::new(SecretFrom::Public));
    let scope = Scope::new("rule");
    let holders = Rate::concurrent(3);
    let limits = [
        Limit::new(Rate::new(5, Micros::MINUTE), Algorithm::TOKEN_BUCKET),
        Limit::new(holders, Algorithm::CONCURRENCY),
        Limit::new(Rate::new(100, Micros::HOUR), Algorithm::FIXED_WINDOW),
    ];
    let limits: Vec<Limit> = limits.into_iter().flatten().collect();
    let charge = |limit| Charge {
        scope: &scope,
        limit,
        key: "key",
        cost: 1,
    };
    let all: Vec<Charge<'_>> = limits.iter().map(charge).collect();
    let id = PermitId::from_u128(7);
    let request = |charges| Request {
        permit: Some(id),
        ..Request::new(charges)
    };
    let (one, three) = (
        Plan::new(&keys, &request(&all[..1])),
        Plan::new(&keys, &request(&all)),
    );
    let want = LeaseRequest {
        id,
        units: 3,
        lasts: Micros::SECOND,
        previous: None,
    };
    let step = |asked, steps: Vec<(LuaStep, Vec<u64>)>| {
        let (steps, capacities): (Vec<LuaStep>, Vec<Vec<u64>>) = steps.into_iter().unzip();
        let steps: Vec<&LuaStep> = steps.iter().collect();
        let decoded = decode(&steps, &value).ok();
        DecodedReply {
            asked,
            capacities,
            answers: decoded.map(|(_, answers)| {
                let answers = answers.into_iter();
                answers.map(|answer| answer.ok().map(outcomes)).collect()
            }),
        }
    };
    let few = vec![5];
    let many = vec![5, 3, 100];
    let charging = || (LuaStep::charge(&keys, &one), few.clone());
    vec![
        step("charge", vec![charging()]),
        step("two charges", vec![charging(), charging()]),
        step(
            "charge of three",
            vec![(LuaStep::charge(&keys, &three), many.clone())],
        ),
        step("peek", vec![(LuaStep::peek(&one), few.clone())]),
        step("preview", vec![(LuaStep::preview(&three), many.clone())]),
        step("settle", vec![(LuaStep::settle(&three), many)]),
        step("lease", vec![(LuaStep::lease(&one, want), few)]),
        step("return", vec![(LuaStep::return_lease(&one, id), vec![])]),
        step("release", vec![(LuaStep::release(&keys, id), vec![])]),
        step("renew", vec![(LuaStep::renew(&keys, id), vec![])]),
        step("heal", vec![(LuaStep::heal(&three), vec![])]),
        step("unregister", vec![(LuaStep::unregister(&keys, id), vec![])]),
    ]
}

fn outcomes(answer: StepOutcome) -> Vec<Outcome> {
    match answer {
        StepOutcome::Outcomes(outcomes) => outcomes.to_vec(),
        StepOutcome::Leased(leased) => vec![leased.outcome],
        StepOutcome::Hold(_)
        | StepOutcome::Adjusted(_)
        | StepOutcome::Held { .. }
        | StepOutcome::Healed(_)
        | StepOutcome::Done => Vec::new(),
    }
}

/// Decodes these bytes as the reply to `CLUSTER SLOTS`: first and last slot, host, port.
pub fn slot_ranges(bytes: &[u8]) -> Vec<(u16, u16, String, u16)> {
    let Ok(value) = parse_redis_value(bytes) else {
        return Vec::new();
    };
    let asked = RedisNode::Tcp {
        host: "asked".to_owned(),
        port: 6379,
    };
    let ranges = cluster::ranges(&value, &asked).into_iter();
    let tcp = ranges.filter_map(|(first, last, node)| match node {
        RedisNode::Tcp { host, port } => Some((first, last, host, port)),
        RedisNode::Unix(_) => None,
    });
    tcp.collect()
}

/// The failure that these bytes mean as a reply, in words, and where the call is redirected to.
pub fn failure(bytes: &[u8]) -> Option<(String, Option<(String, u16)>)> {
    let value = parse_redis_value(bytes).ok()?;
    let read: RedisResult<Value> = value.extract_error().and_then(|value| {
        // Any other value is a reply.
        Ok(from_redis_value(value)?)
    });
    let failure = CallError::from(&read.err()?);
    let node = match &failure {
        CallError::Moved(RedisNode::Tcp { host, port })
        | CallError::Ask(RedisNode::Tcp { host, port }) => Some((host.clone(), *port)),
        _ => None,
    };
    Some((failure.to_string(), node))
}
