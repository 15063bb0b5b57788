//! Calls about a client that another instance has seen: that instance is asked over Redis, and does it. Only it knows
//! the values of the digests that it published. Questions and answers have no secret in clear.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate::rules::ValueDigest;

use super::{counters, explain};
use crate::admin::Admin;
use crate::meant::SeenElsewhere;
use crate::problem::{ApiReply, HttpProblem};

/// The length of the status in front of an answer, with a space.
const STATUS: usize = 4;

/// A call that may be about a client of another instance.
#[derive(Clone, Copy)]
pub(super) struct ClientCall<'c> {
    pub(super) admin: &'c Arc<Admin>,
    /// The name of the caller's token.
    pub(super) by: &'c str,
    /// Whether another instance may be asked: not by one that is asked itself.
    pub(super) may_ask: bool,
}

/// What another instance is asked to do. The caller holds the scope for it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AskedCall {
    Explain,
    Reset,
}

/// A question as it is written to Redis.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedQuestion {
    call: AskedCall,
    by: String,
    /// The body of the call.
    body: String,
}

impl ClientCall<'_> {
    /// The value of an attribute as the reply shows it.
    pub(super) fn shown(&self, attribute: &str, value: &str) -> String {
        self.published(value, self.admin.shown_of_client(attribute, value))
    }

    /// What is shown of a value, for this reply. The reply to another instance is written to Redis: of a digest it has
    /// the digits alone.
    pub(super) fn published(&self, value: &str, shown: String) -> String {
        let digits = ValueDigest::read(&shown).filter(|_| !self.may_ask);
        match digits.filter(|digits| *digits == self.admin.digest.of(value)) {
            Some(digits) => digits.to_owned(),
            None => shown,
        }
    }

    /// The reply of the instance that has seen the client. None if it does not answer.
    pub(super) async fn ask(
        &self,
        call: AskedCall,
        seen: &SeenElsewhere,
        body: &str,
    ) -> Option<ApiReply> {
        let redis = self.admin.store.redis().filter(|_| self.may_ask)?;
        let question = AskedQuestion {
            call,
            by: self.by.to_owned(),
            body: body.to_owned(),
        };
        let question = serde_json::to_vec(&question).ok()?;
        let answer = redis.ask_instance(&seen.instance, &question).await;
        let answer = match answer {
            Ok(answer) => answer?,
            Err(error) => {
                tracing::debug!(%error, "another instance cannot be asked");
                return None;
            }
        };
        // Anything may be in Redis.
        let (status, body) = answer.split_at_checked(STATUS)?;
        let status = StatusCode::from_bytes(status.strip_suffix(b" ")?).ok()?;
        let is_answer = match status.as_u16() {
            200 | 400 | 404 | 409 | 422 | 503 => {
                serde_json::from_slice::<Map<String, Value>>(body).is_ok()
            }
            _ => false,
        };
        if !is_answer {
            return None;
        }
        let mut reply = super::json(status, body.to_vec());
        if status != StatusCode::OK {
            let problem = HeaderValue::from_static("application/problem+json");
            reply.headers_mut().insert(CONTENT_TYPE, problem);
        }
        Some(reply)
    }
}

/// The instance that has seen a client does not answer.
pub(super) fn unanswered(seen: &SeenElsewhere) -> HttpProblem {
    HttpProblem::busy(format!(
        "only the server with the instance {} has seen this client, and it does not answer; repeat the call there, or give the key itself",
        seen.instance
    ))
}

/// Answers the questions of other instances, for as long as the server runs.
pub(crate) async fn answer_others(admin: Arc<Admin>) {
    let (Some(activity), Some(redis)) = (&admin.activity, admin.store.redis()) else {
        return;
    };
    let answer = |question: Vec<u8>| answer(Arc::clone(&admin), question);
    redis.answer_questions(&activity.instance, answer).await;
}

async fn answer(admin: Arc<Admin>, question: Vec<u8>) -> Vec<u8> {
    let reply = match serde_json::from_slice(&question) {
        Ok(question) => carry_out(&admin, question).await,
        Err(_) => Err(HttpProblem::bad_request("the question cannot be read")),
    };
    let (head, body) = reply.unwrap_or_else(HttpProblem::reply).into_parts();
    let mut answer = format!("{} ", head.status.as_u16()).into_bytes();
    let Ok(body) = body.collect().await;
    answer.extend_from_slice(&body.to_bytes());
    answer
}

async fn carry_out(admin: &Arc<Admin>, question: AskedQuestion) -> Result<ApiReply, HttpProblem> {
    super::need_rules(&admin.decider)?;
    let call = ClientCall {
        admin,
        by: &question.by,
        may_ask: false,
    };
    let body = question.body.as_bytes();
    match question.call {
        AskedCall::Explain => explain::explain_client(call, body).await,
        AskedCall::Reset => counters::reset_client(call, body).await,
    }
}
