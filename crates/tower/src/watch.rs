//! Reports how long a service takes for a request to rules with adaptive limits.
//!
//! The time goes from the call of the service to the head of its answer: a body lasts as long as its reader
//! likes. A request that is given up is not measured.

use http::{HeaderMap, Response, StatusCode};
use tidegate::gate::Decision;
use tidegate::{Ended, Micros};
use tokio::time::Instant;

/// An extension of an answer that a service gives without having worked for it, such as the 404 of a
/// proxy: how fast it is says nothing about how much the service can bear.
#[derive(Debug, Clone, Copy)]
pub struct Unmeasured;

/// An extension of an answer: since when the service had all that it needs for it, if that was later than
/// its call, such as the end of a body that the client was slow to send.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredFrom(pub Instant);

/// A request that a service has been asked.
pub(crate) struct Watch {
    /// None if no rule wants to know.
    began: Option<Instant>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it takes, as tokio's timers see it"
)]
impl Watch {
    pub(crate) fn begin(decision: &Decision) -> Self {
        let began = decision.is_observed().then(Instant::now);
        Self { began }
    }

    /// Reports how it ended, and passes it on.
    pub(crate) fn end<B, E>(
        self,
        decision: &Decision,
        answered: Result<Response<B>, E>,
    ) -> Result<Response<B>, E> {
        self.report(decision, answered.as_ref().ok());
        answered
    }

    /// Reports how it ended; none if the service failed.
    pub(crate) fn report<B>(self, decision: &Decision, answer: Option<&Response<B>>) {
        if let Some(began) = self.began
            && let Some(ended) = ended(answer, began)
        {
            decision.observe(ended);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it took, as tokio's timers see it"
)]
fn ended<B>(answer: Option<&Response<B>>, began: Instant) -> Option<Ended> {
    let Some(answer) = answer else {
        return Some(Ended::Dropped);
    };
    if is_overloaded(answer.status(), answer.headers()) {
        return Some(Ended::Dropped);
    }
    // What fails for another reason may fail in no time, and says nothing about the load.
    if answer.status().is_server_error() || answer.extensions().get::<Unmeasured>().is_some() {
        return None;
    }
    let ready = answer.extensions().get::<MeasuredFrom>();
    let began = ready.map_or(began, |MeasuredFrom(ready)| began.max(*ready));
    let took = Instant::now().saturating_duration_since(began);
    Some(Ended::Answered(Micros::from(took)))
}

/// Whether an answer says that there was no room or no time: 503 and 504, what gRPC has for them, and 502,
/// which is what a gateway makes of a server that takes no connection.
fn is_overloaded(status: StatusCode, headers: &HeaderMap) -> bool {
    const DEADLINE_EXCEEDED: &str = "4";
    const UNAVAILABLE: &str = "14";
    let grpc_status = headers.get("grpc-status");
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    ) || grpc_status.is_some_and(|status| status == DEADLINE_EXCEEDED || status == UNAVAILABLE)
}
