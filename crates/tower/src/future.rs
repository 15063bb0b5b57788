//! The path of a request through the middleware: decided, held if it must wait, answered, settled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, request, response};
use http_body::Body;
use tidegate::gate::{Decision, Receipt, RulesInForce, SettleError, Settlement};
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Costs, Gate};
use tokio::runtime::Handle;
use tower_service::Service;

use crate::background::CarriedCall;
use crate::body::{ResponseBody, Tail};
use crate::described::ReceiptSlot;
use crate::error::RequestError;
use crate::hold::RequestPermit;
use crate::protocol::Protocol;
use crate::question;
use crate::reply;
use crate::settings::Settings;
use crate::undo::{Cancellable, Waiting};
use crate::watch::Watch;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The future of an answer. Dropped before the service was called, it gives back what was charged; dropped
/// later, it continues in the background if the request holds a permit.
pub struct ResponseFuture<R, E>(Boxed<Result<Response<ResponseBody<R>>, E>>);

impl<R, E> ResponseFuture<R, E> {
    pub(crate) fn new(
        handler: impl Future<Output = Result<Response<ResponseBody<R>>, E>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(handler))
    }
}

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<R, E> std::fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Handles the requests of all services that one layer made.
pub(crate) struct RequestHandler {
    pub(crate) gate: Arc<Gate>,
    pub(crate) settings: Arc<Settings>,
}

impl RequestHandler {
    pub(crate) async fn handle<Inner, B, R>(
        self: Arc<Self>,
        mut inner: Inner,
        request: Request<B>,
    ) -> Result<Response<ResponseBody<R>>, Inner::Error>
    where
        Inner: Service<Request<B>, Response = Response<R>>,
        Inner::Future: Send + 'static,
        R: Body,
        R::Data: From<Bytes>,
    {
        let (parts, body) = request.into_parts();
        let (mut parts, decided) = self.decide(parts).await;
        let mut receipt = match self.answer(&parts, decided) {
            Ok(receipt) => receipt,
            Err(reply) => return Ok(reply.map(ResponseBody::of_bytes)),
        };
        let decision = receipt.decision();
        let (hold, left) = self.hold(decision);
        let delay = decision.delay();
        if !delay.is_zero() {
            // In a box like all that few requests need, so that the others do not carry it with them.
            receipt = Box::pin(Waiting::new(&self.gate, receipt, delay)).await;
        }

        let slot = parts.extensions.remove::<ReceiptSlot>();
        if let Some(slot) = &slot {
            slot.admit();
        }
        let watch = Watch::begin(receipt.decision());
        if let Some(permit) = &hold {
            parts.extensions.insert(permit.clone());
        }
        let calling = inner.call(Request::from_parts(parts, body));
        let answered = match (&hold, &self.settings.background) {
            (Some(permit), Some(background)) => CarriedCall::new(calling, permit, background).await,
            _ => calling.await,
        };
        let response = watch.end(receipt.decision(), answered)?;
        let (mut head, body) = response.into_parts();
        // Replaces headers that the service has set.
        reply::insert_headers(
            &mut head.headers,
            receipt.decision(),
            self.settings.denial.headers,
        );
        head.headers
            .extend(left.map(|permit| (reply::PERMIT, permit)));
        let tail = if let Some(slot) = slot {
            slot.answer(receipt);
            Tail::new(hold, None)
        } else if self.settings.is_settled() {
            Box::pin(self.settle(*receipt, &head, hold)).await
        } else {
            Tail::new(hold, None)
        };
        Ok(Response::from_parts(head, ResponseBody::new(body, tail)))
    }

    /// The receipt of a request that may go on; the answer to any other.
    pub(crate) fn answer(
        &self,
        parts: &request::Parts,
        decided: Result<Box<Receipt>, RequestError>,
    ) -> Result<Box<Receipt>, Box<Response<Bytes>>> {
        match decided {
            Ok(receipt) if receipt.decision().is_denied() => {
                let (decision, denial) = (receipt.decision(), &self.settings.denial);
                let reply = reply::denied(decision, denial, &self.protocol(parts));
                Err(Box::new(reply))
            }
            Ok(receipt) => Ok(receipt),
            Err(error) => Err(Box::new(reply::refused(&error, &self.protocol(parts)))),
        }
    }

    fn protocol(&self, parts: &request::Parts) -> Protocol {
        if let Some(protocol) = &self.settings.protocol {
            return protocol.clone();
        }
        match Protocol::of(&parts.headers) {
            Protocol::Http => Protocol::of_call(parts),
            protocol => protocol,
        }
    }

    /// Decides a request by its head. A client that goes away meanwhile gives back what was charged.
    pub(crate) fn decide(self: &Arc<Self>, mut parts: request::Parts) -> Cancellable {
        let handler = Arc::clone(self);
        // Boxed where it is made: passed on by value it would be moved as a whole.
        let deciding = Box::pin(async move {
            let decided = decide(&handler.gate, &handler.settings, &mut parts).await;
            (parts, decided)
        });
        Cancellable::new(&self.gate, deciding)
    }

    /// Holds a permit of a concurrency limit, or leaves it to the client that gets its id.
    fn hold(&self, decision: &Decision) -> (Option<RequestPermit>, Option<HeaderValue>) {
        if !self.settings.leaves_permits {
            return (RequestPermit::of(&self.gate, decision), None);
        }
        let permit = decision.permit().map(|permit| permit.to_string());
        (
            None,
            permit.and_then(|permit| HeaderValue::try_from(permit).ok()),
        )
    }

    /// Settles the cost that the head of the answer names; otherwise it is settled at the end of the body.
    async fn settle(
        &self,
        receipt: Receipt,
        head: &response::Parts,
        hold: Option<RequestPermit>,
    ) -> Tail {
        let costs = self.settings.settle.as_ref().and_then(|costs| costs(head));
        if let Some(costs) = costs {
            let gate = Arc::clone(&self.gate);
            let settling = async move { settled(&gate.settle(receipt, costs).await) };
            // In a task of its own, so that it is done even if the client goes away.
            if let Ok(runtime) = Handle::try_current() {
                let _ = runtime.spawn(settling).await;
            }
            return Tail::new(hold, None);
        }
        let Some(cost) = self.settings.settle_bytes.clone() else {
            // It costs what it was charged, so that the store is not called.
            let estimate = receipt.estimate().clone();
            settled(&self.gate.settle(receipt, estimate).await);
            return Tail::new(hold, None);
        };
        let (gate, runtime) = (Arc::clone(&self.gate), Handle::try_current());
        let at_the_end = move |bytes| {
            let costs = cost(bytes).map_or_else(|| receipt.estimate().clone(), Costs::from);
            if let Ok(runtime) = runtime {
                runtime.spawn(async move { settled(&gate.settle(receipt, costs).await) });
            }
        };
        Tail::new(hold, Some(Box::new(at_the_end)))
    }
}

async fn decide(
    gate: &Gate,
    settings: &Settings,
    parts: &mut request::Parts,
) -> Result<Box<Receipt>, RequestError> {
    let is_estimated = parts.extensions.get::<ReceiptSlot>().is_some();
    let rules = DescribedRequest::pinned(parts).unwrap_or_else(|| gate.rules());
    let mut known = attributes(settings, parts, &rules)?;
    if known.awaits_key()
        && let Some(next_keys) = &settings.next_keys
    {
        drop(known);
        next_keys().await;
        known = attributes(settings, parts, &rules)?;
    }
    let is_reserved = settings.is_settled() || is_estimated;
    let receipt = if is_reserved {
        gate.reserve_by(&rules, settings.front_end, &known).await?
    } else {
        gate.decide_by(&rules, settings.front_end, &known).await
    };
    Ok(Box::new(receipt))
}

/// What a request is known by, as an extension of one that was described before it is decided: to describe it may be
/// costly, and is counted.
#[derive(Clone)]
pub(crate) struct DescribedRequest {
    pub(crate) attributes: Attributes<'static>,
    /// The rules that it was described for.
    pub(crate) rules: RulesInForce,
    /// Whether it is decided by these rules, even if others are in force by then.
    pub(crate) is_pinned: bool,
}

impl DescribedRequest {
    /// The rules that a request is decided by, if it was described for them.
    pub(crate) fn pinned(parts: &request::Parts) -> Option<RulesInForce> {
        let described = parts.extensions.get::<Self>()?;
        described.is_pinned.then(|| described.rules.clone())
    }
}

/// The attributes of a request, without the headers that the service must not see.
pub(crate) fn attributes<'r>(
    settings: &Settings,
    parts: &'r mut request::Parts,
    rules: &RuleSet,
) -> Result<Attributes<'r>, RequestError> {
    if let Some(described) = parts.extensions.remove::<DescribedRequest>()
        && std::ptr::eq(&raw const *described.rules, rules)
    {
        return Ok(described.attributes.into_owned());
    }
    settings.screen(&mut parts.headers, rules)?;
    question::of(parts, settings, rules)
}

fn settled(ended: &Result<Settlement, SettleError>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "what a request cost could not be settled");
    }
}
