//! Middleware for services that speak as language models do: their requests are limited by tokens and money.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, request};
use http_body::Body;
use tidegate_usage::UsageSetting;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    HoldRefusal, ModelBody, ModelCall, ModelRequestBody, ModelRoute, RefusedCall, UsageBody,
    UsageReading, UsageResults, UsageSettings,
};
use crate::body::ResponseBody;
use crate::described::DescribedCall;
use crate::layer::RateLimitLayer;
use crate::service::RateLimit;

/// A [`RateLimitLayer`] that reads what requests to language models cost: made by
/// [`RateLimitLayer::usage`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct UsageLayer {
    limits: RateLimitLayer,
    usage: Arc<UsageSetting>,
    reading: Arc<UsageReading>,
    adds_usage: bool,
}

impl UsageLayer {
    pub(crate) fn new(limits: RateLimitLayer, usage: UsageSetting) -> Self {
        Self {
            limits,
            usage: Arc::new(usage),
            reading: Arc::new(UsageReading::new(UsageSettings::default())),
            adds_usage: true,
        }
    }

    /// How requests are estimated, which bodies are read, and what models cost.
    #[must_use]
    pub fn settings(self, settings: UsageSettings) -> Self {
        Self {
            reading: Arc::new(UsageReading::new(settings)),
            ..self
        }
    }

    /// Leaves `stream_options` as clients send it, for services that refuse it. By default streams of chat completions
    /// are asked to include their usage, and an event that the client did not ask for is left out of what it gets.
    #[must_use]
    pub fn leave_stream_options(self) -> Self {
        Self {
            adds_usage: false,
            ..self
        }
    }

    /// What became of the usage of requests.
    pub fn results(&self) -> &Arc<UsageResults> {
        self.reading.results()
    }

    /// Describes a request, and reads what it may cost.
    async fn prepare<B>(
        &self,
        head: &mut request::Parts,
        mut body: B,
    ) -> Result<(ModelRequestBody<B>, Option<Box<ModelCall>>), RefusedCall>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let path = self.limits.normal_path(head);
        self.reading.set_denial_form(&self.usage, &path, head);
        let Some(mut described) = self.limits.describe_call(head).await else {
            return Ok((ModelRequestBody::arriving(Bytes::new(), body), None));
        };
        let Some(form) = self.reading.form(&self.usage, &path, head, &described) else {
            described.set_costs(UsageReading::unread_costs());
            described.keep(head);
            return Ok((ModelRequestBody::arriving(Bytes::new(), body), None));
        };
        let mut whole = match self.hold(head, &described, &mut body).await {
            Ok(whole) => whole,
            Err(HoldRefusal::Denied(answer)) => return Err(answer),
            Err(HoldRefusal::NotRead(error)) => return Err(UsageReading::refuse(error, head)),
            Err(HoldRefusal::Unread(read)) => {
                described.set_costs(UsageReading::unread_costs());
                described.keep(head);
                return Ok((ModelRequestBody::arriving(read, body), None));
            }
        };
        let route = ModelRoute {
            form,
            path: &path,
            adds_usage: self.adds_usage,
        };
        let call = self
            .reading
            .model_call(route, &mut whole, &mut described, head);
        if call.is_none() {
            described.set_costs(UsageReading::unread_costs());
        }
        described.keep(head);
        Ok((ModelRequestBody::held(whole), call))
    }

    /// Reads a whole body.
    async fn hold<B>(
        &self,
        head: &request::Parts,
        described: &DescribedCall,
        body: &mut B,
    ) -> Result<ModelBody, HoldRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let known = (&self.limits, described);
        let mut whole = self.reading.hold(head, known, body).await?;
        while !whole.is_whole() {
            poll_fn(|cx| whole.poll_part(body, cx)).await?;
        }
        Ok(whole)
    }
}

impl<Inner> Layer<Inner> for UsageLayer {
    type Service = UsageLimit<Inner>;

    fn layer(&self, inner: Inner) -> Self::Service {
        UsageLimit {
            layer: self.clone(),
            limited: self.limits.layer(inner),
        }
    }
}

/// A service whose requests cost what their answers report. Made by [`UsageLayer`].
#[derive(Clone)]
pub struct UsageLimit<Inner> {
    layer: UsageLayer,
    limited: RateLimit<Inner>,
}

impl<Inner, B, R> Service<Request<B>> for UsageLimit<Inner>
where
    Inner: Service<Request<ModelRequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    Inner::Future: Send,
    Inner::Error: Send,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    R: Body<Data = Bytes, Error: Unpin + Send> + Unpin + Send + 'static,
{
    type Response = Response<UsageBody<ResponseBody<R>>>;
    type Error = Inner::Error;
    type Future = UsageFuture<R, Inner::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.limited.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled is ready; its clone waits for the next call.
        let clone = self.limited.clone();
        let mut limited = std::mem::replace(&mut self.limited, clone);
        let layer = self.layer.clone();
        UsageFuture(Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let (body, call) = match layer.prepare(&mut head, body).await {
                Ok(prepared) => prepared,
                Err(refused) => {
                    return Ok(refused.map(|body| UsageBody::plain(ResponseBody::of_bytes(body))));
                }
            };
            let answer = limited.call(Request::from_parts(head, body)).await?;
            Ok(match call {
                Some(call) => call.attend(layer.limits.gate(), answer).await,
                None => answer.map(UsageBody::plain),
            })
        }))
    }
}

impl<Inner: fmt::Debug> fmt::Debug for UsageLimit<Inner> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limited.fmt(f)
    }
}

/// The future of an answer of a [`UsageLimit`].
pub struct UsageFuture<R: Body<Data: From<Bytes>>, E>(UsageAnswering<R, E>);

type UsageAnswering<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<UsageBody<ResponseBody<R>>>, E>> + Send>>;

impl<R: Body<Data: From<Bytes>>, E> Future for UsageFuture<R, E> {
    type Output = Result<Response<UsageBody<ResponseBody<R>>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<R: Body<Data: From<Bytes>>, E> fmt::Debug for UsageFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageFuture").finish_non_exhaustive()
    }
}
