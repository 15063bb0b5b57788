//! `ShouldRateLimit`: the whole road of a decision.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use hyper::body::Incoming;
use tidegate::rules::FrontEnd;
use tidegate_listen::clock::Stopwatch;

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
    need_rules(server)?;
    let asked = message::decode(message::only(body).await?)?;
    let rules = server.gate.rules();
    let parts = question::parts(&asked, rules.is_by_descriptors())?;

    if parts.len() > 1 {
        let steps = condition_steps(&rules, parts.iter().map(|part| &part.attributes));
        if steps > MAX_CONDITION_STEPS {
            return Err(Status::invalid(format!(
                "the conditions of the rules could take {steps} steps for these descriptors, and {MAX_CONDITION_STEPS} are the most; send fewer descriptors at a time"
            )));
        }
    }

    let start = Stopwatch::start();
    let decisions = server.gate.decide_parts(&rules, &parts).await;
    server.metrics.decided(start.elapsed());
    decisions.count(FrontEnd::Grpc);
    for (decision, part) in decisions.iter().zip(&parts) {
        server.observe(decision, &part.attributes);
    }
    let answer = answers::Answer {
        asked: &asked,
        rules: &rules,
        parts: &parts,
        decisions: &decisions,
    };
    Ok(message::reply(&answer.message(server.headers)))
}

/// Refuses what cannot be answered by a server that does not know which rules there are.
fn need_rules(server: &Server) -> Result<(), Status> {
    if server.book.has_rules() {
        return Ok(());
    }
    let problem = server.book.problem();
    let problem = problem.as_deref().unwrap_or("they were not read yet");
    let message = format!("the rules are not known: {problem}");
    Err(Status::new(Code::Unavailable, message))
}
