//! `ShouldRateLimit`: from the call to the reply.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use hyper::body::Incoming;
use tidegate::rules::FrontEnd;

use super::body::GrpcBody;
use super::status::{Code, Status};
use super::{access, answer as answers, message, question};
use crate::condition_steps::{MAX_CONDITION_STEPS, condition_steps};
use crate::server::Server;

pub(super) async fn answer(
    server: &Arc<Server>,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<GrpcBody>, Status> {
    access::may_check(server, parts)?;
    let needed = server.book.need_rules();
    needed.map_err(|problem| Status::new(Code::Unavailable, problem))?;
    let asked = message::decode(message::only(body).await?)?;
    let rules = server.gate.rules();
    let parts = question::parts(&asked, rules.is_by_descriptors())?;

    if parts.len() > 1 {
        let steps = condition_steps(&rules, parts.iter().map(|part| &part.attributes));
        if steps > MAX_CONDITION_STEPS {
            return Err(Status::invalid(format!(
                "the conditions of the rules could take {steps} steps for these descriptors, more than {MAX_CONDITION_STEPS}; send fewer descriptors at a time"
            )));
        }
    }

    let deciding = server
        .gate
        .decide_by(rules.clone(), FrontEnd::Grpc, &parts[..]);
    let decisions = deciding.wait().await.into_decisions();
    let answer = answers::RateLimitAnswer {
        asked: &asked,
        rules: &rules,
        parts: &parts,
        decisions: &decisions,
    };
    Ok(message::reply(&answer.message(server.headers)))
}
