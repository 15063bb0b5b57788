//! `ShouldRateLimit`: from the call to the reply.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use hyper::body::Incoming;
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate_codec::grpc::proto::rate_limit::RateLimitRequest;
use tidegate_codec::grpc::{self, RateLimitAnswer, RateLimitCall};
use tidegate_ratelimit::stats::CountedMethod;

use super::body::GrpcBody;
use super::status::{Code, Status};
use super::{access, message};
use crate::condition_steps::{MAX_CONDITION_STEPS, condition_steps};
use crate::decider::Decider;

/// Why a call fails by a limit with `on_store_failure: error`.
const STORE_UNAVAILABLE: &str =
    "the store cannot be reached, and `on_store_failure` of a limit is `error`";

pub(super) async fn answer(
    decider: &Arc<Decider>,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    let stats = decider.stats.as_ref();
    let _timer = stats.map(|stats| stats.call(CountedMethod::ShouldRateLimit));
    let answered = read_and_decide(decider, parts, body).await;
    count_failed(decider, &answered);
    answered
}

/// Counts a call that failed. One that fails for its store was decided, and is counted with its limits.
fn count_failed<T>(decider: &Decider, answered: &Result<T, Status>) {
    if let (Some(stats), Err(status)) = (&decider.stats, answered)
        && !status.says(STORE_UNAVAILABLE)
    {
        stats.failed();
    }
}

async fn read_and_decide(
    decider: &Arc<Decider>,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    access::may_check(decider, parts)?;
    need_rules(decider)?;
    let message = message::only(body, grpc::LARGEST, &decider.bodies.clients).await?;
    let decoded;
    let asked = if let Some(asked) = RateLimitCall::read(message.bytes()) {
        asked
    } else {
        decoded = decode(message.bytes())?;
        RateLimitCall::of(&decoded)
    };
    let answer = decide_known(decider, &asked).await?;
    Ok(message::with_body(GrpcBody::message(answer)))
}

/// The answer to a call that has not come over gRPC, as a message with its prefix.
pub(crate) async fn decide(decider: &Decider, asked: &RateLimitCall<'_>) -> Result<Bytes, Status> {
    let known = need_rules(decider);
    let answered = match known {
        Ok(()) => decide_known(decider, asked).await,
        Err(status) => Err(status),
    };
    count_failed(decider, &answered);
    answered
}

/// Refuses a call that cannot be decided because the rules are not known.
fn need_rules(decider: &Decider) -> Result<(), Status> {
    let needed = decider.need_rules();
    needed.map_err(|problem| Status::new(Code::Unavailable, problem))
}

async fn decide_known(decider: &Decider, asked: &RateLimitCall<'_>) -> Result<Bytes, Status> {
    let rules = decider.gate.rules();
    let mut parts = grpc::Parts::new();
    add_parts(&mut parts, asked, &rules)?;
    let deciding = decider.gate.decide_by(&rules, FrontEnd::Grpc, &parts[..]);
    let receipt = deciding.await;
    let answer = RateLimitAnswer {
        asked,
        rules: &rules,
        parts: &parts,
        decisions: receipt.decisions(),
    };
    if let Some(stats) = &decider.stats {
        stats.decided(&rules, &parts, answer.decisions, decider.answers.shadow);
    }
    if answer.decisions.fail_call() {
        return Err(Status::new(Code::Unavailable, STORE_UNAVAILABLE));
    }
    Ok(answer.framed(&decider.answers))
}

fn decode(message: &Bytes) -> Result<RateLimitRequest, Status> {
    Ok(grpc::decode(message.clone())?)
}

/// Adds the parts of a call, whose conditions take a bounded number of steps.
fn add_parts<'m>(
    parts: &mut grpc::Parts<'m>,
    asked: &RateLimitCall<'m>,
    rules: &RuleSet,
) -> Result<(), Status> {
    grpc::add_parts(parts, asked, rules.descriptor_units())?;
    if parts.len() > 1 {
        let steps = condition_steps(rules, parts.iter().map(|part| &part.attributes));
        if steps > MAX_CONDITION_STEPS {
            return Err(Status::invalid(format!(
                "the conditions of the rules could take {steps} steps for these descriptors, more than {MAX_CONDITION_STEPS}; send fewer descriptors at a time"
            )));
        }
    }
    Ok(())
}
