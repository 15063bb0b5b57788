//! The layer: a gate, and how requests are put to it.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, request, response};
use tidegate::address::{ForwardedHeader, TrustedProxies};
use tidegate::headers::HeaderSettings;
use tidegate::path::EncodedSlashes;
use tidegate::rules::{DenialAnswer, FrontEnd};
use tidegate::{AttributeError, Attributes, Costs, Gate};
use tidegate_usage::UsageSetting;
use tower_layer::Layer;

use crate::admitted::AdmittedRequest;
use crate::background::BackgroundRequests;
use crate::described::DescribedCall;
use crate::error::RequestError;
use crate::future::{self, DescribedRequest, RequestHandler};
use crate::protocol::Protocol;
use crate::service::RateLimit;
use crate::settings::Settings;
use crate::twins::{self, UnderscoreHeaders};
use crate::usage::UsageLayer;

/// Puts a [`Gate`] in front of a service: a request is decided first, and goes on only if it is allowed.
///
/// What a request is known by, unless set otherwise: its `method`, `path`, `host`, `ip`, and the
/// attributes `header.*` that the rules ask about. A request that has [`RulesInForce`](tidegate::gate::RulesInForce) as
/// an extension is decided by those. Cheap to clone. Needs a Tokio runtime with time.
#[derive(Clone)]
pub struct RateLimitLayer {
    gate: Arc<Gate>,
    settings: Arc<Settings>,
}

impl RateLimitLayer {
    /// A layer that asks `gate`.
    pub fn new(gate: Arc<Gate>) -> Self {
        Self {
            gate,
            settings: Arc::default(),
        }
    }

    /// Which headers are put on answers. By default all.
    #[must_use]
    pub fn headers(self, headers: HeaderSettings) -> Self {
        self.with(|settings| settings.denial.headers = headers)
    }

    /// What denied clients get that is different from the usual answer, unless the rule that denies them says
    /// it itself.
    #[must_use]
    pub fn denied(self, answer: DenialAnswer) -> Self {
        self.with(|settings| settings.denial.answer = Some(answer))
    }

    /// The attributes that identify clients, with the `WWW-Authenticate` that asks for each, such as
    /// `Bearer realm="shop"`. A client that is denied for lack of one gets 401 and that header; for lack of any
    /// other attribute 400. `header.authorization` is known.
    #[must_use]
    pub fn challenges(self, challenges: impl IntoIterator<Item = (String, HeaderValue)>) -> Self {
        self.with(|settings| settings.denial.challenges.extend(challenges))
    }

    /// What `%2f` in a path means when it is matched. By default a slash like any other in the attribute
    /// `path`, and both with and without it in `match`; keep it if the service takes it for a part of its
    /// segment.
    #[must_use]
    pub fn encoded_slashes(self, slashes: EncodedSlashes) -> Self {
        self.with(|settings| settings.encoded_slashes = slashes)
    }

    /// Decides requests without a host also if a rule asks for one, which then does not apply. By default
    /// their client gets 400, because leaving out `Host` would be a way around such a rule.
    #[must_use]
    pub fn allow_missing_host(self) -> Self {
        self.with(|settings| settings.allows_missing_host = true)
    }

    /// The proxies whose `X-Forwarded-For` or `Forwarded` is believed. By default none: then `ip` is the
    /// address of the peer, whatever a client writes.
    #[must_use]
    pub fn trusted_proxies(self, proxies: TrustedProxies) -> Self {
        self.with(|settings| settings.trusted_proxies = proxies)
    }

    /// In which header trusted proxies name the client. By default either: if both are there and name
    /// different clients, the client gets 400. With one of them, the other is not read, and is removed
    /// from the request.
    #[must_use]
    pub fn forwarded_header(self, header: ForwardedHeader) -> Self {
        self.with(|settings| settings.forwarded_header = header)
    }

    /// What happens to a request with a header that differs from one that is read only in characters that are
    /// neither letters nor digits, such as `X_Api_Key` or `X.Api.Key` where a rule asks about
    /// `header.x-api-key`: some services take them for the same. By default that header is removed before the request is decided and the service is
    /// called. Headers that the rules ask about are read, those of the framing, those in which proxies
    /// describe the client, and those named by [`reads_headers`](Self::reads_headers).
    #[must_use]
    pub fn underscore_headers(self, action: UnderscoreHeaders) -> Self {
        self.with(|settings| settings.underscore_headers = action)
    }

    /// Names headers that [`attributes`](Self::attributes) reads, for
    /// [`underscore_headers`](Self::underscore_headers). May be given several times.
    #[must_use]
    pub fn reads_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.with(|settings| settings.read_headers.extend(names))
    }

    /// Where the client's address is found, in place of the peer and what trusted proxies say. If it
    /// fails, the client gets 400.
    #[must_use]
    pub fn client_address(
        self,
        client: impl Fn(&request::Parts) -> Result<Option<IpAddr>, AttributeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.with(|settings| settings.client = Some(Arc::new(client)))
    }

    /// Where the address of the peer is found, by default in the extension
    /// [`PeerAddress`](crate::PeerAddress). With axum:
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::extract::ConnectInfo;
    /// use tidegate_tower::RateLimitLayer;
    ///
    /// fn by_peer(layer: RateLimitLayer) -> RateLimitLayer {
    ///     layer.peer_address(|request| {
    ///         let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
    ///         Some(peer.0.ip())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn peer_address(
        self,
        peer: impl Fn(&request::Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.peer = Arc::new(peer))
    }

    /// Adds to what a request is known by, or replaces some of it: `user_id`, `api_key`, `tier`, its
    /// cost. If it fails, the client gets 400. May be given several times; they are called in order.
    #[must_use]
    pub fn attributes(
        self,
        describe: impl for<'r> Fn(&'r request::Parts, &mut Attributes<'r>) -> Result<(), AttributeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.with(|settings| settings.describe.push(Arc::new(describe)))
    }

    /// What a request waits for whose attributes [await a key](Attributes::await_key). It is then described
    /// again, and decided. By default it is decided without waiting.
    #[must_use]
    pub fn next_keys<F>(self, wait: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let wait = Arc::new(move || Box::pin(wait()) as Pin<Box<dyn Future<Output = ()> + Send>>);
        self.with(|settings| settings.next_keys = Some(wait))
    }

    /// Replaces all that a request is known by: there is nothing but what this adds.
    #[must_use]
    pub fn only_attributes(
        self,
        describe: impl for<'r> Fn(&'r request::Parts, &mut Attributes<'r>) -> Result<(), AttributeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let bare = self.with(|settings| {
            settings.is_bare = true;
            settings.describe.clear();
        });
        bare.attributes(describe)
    }

    /// The cost that a request comes with. By default 1; zero asks and takes nothing.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&request::Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.attributes(move |request, attributes| {
            attributes.set_cost(cost(request));
            Ok(())
        })
    }

    /// The costs by unit that a request comes with, such as an estimate that is [settled](Self::settle_costs) by the
    /// answer.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tidegate::Costs;
    /// use tidegate_tower::RateLimitLayer;
    ///
    /// fn tokens(headers: &HeaderMap, name: &str) -> Option<Costs> {
    ///     let tokens = headers.get(name)?.to_str().ok()?.parse().ok()?;
    ///     Costs::by_unit([("tokens", tokens)]).ok()
    /// }
    ///
    /// fn by_tokens(layer: RateLimitLayer) -> RateLimitLayer {
    ///     layer
    ///         .costs(|request| tokens(&request.headers, "x-max-tokens").unwrap_or(Costs::from(1)))
    ///         .settle_costs(|head| tokens(&head.headers, "x-tokens-used"))
    /// }
    /// ```
    #[must_use]
    pub fn costs(self, costs: impl Fn(&request::Parts) -> Costs + Send + Sync + 'static) -> Self {
        self.attributes(move |request, attributes| {
            attributes.set_cost(costs(request));
            Ok(())
        })
    }

    /// What a request turned out to cost, by the head of its answer, in place of the cost that it came
    /// with. What is more is taken without asking, up to a full quota; what is less is given back. With
    /// `None` it costs what it was charged.
    #[must_use]
    pub fn settle(
        self,
        cost: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.settle_costs(move |head| cost(head).map(Costs::from))
    }

    /// The same for requests with [costs by unit](Self::costs), in place of [`settle`](Self::settle). A unit that is
    /// not named costs what it was charged.
    #[must_use]
    pub fn settle_costs(
        self,
        costs: impl Fn(&response::Parts) -> Option<Costs> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.settle = Some(Arc::new(costs)))
    }

    /// The same by the bytes of the answer's body that were sent, once it has ended or was given up;
    /// unless the head named the cost already.
    #[must_use]
    pub fn settle_bytes(self, cost: impl Fn(u64) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.settle_bytes = Some(Arc::new(cost)))
    }

    /// Reads what requests to language models cost, as the gateway does: requests in this form are charged what their
    /// bodies estimate, and settled with what their answers report, before the end of the answer passes on. Their
    /// clients are denied in the words of the form, and rules may count by the attribute `model`. Units: `tokens`,
    /// `input_tokens`, `output_tokens`, `uncached_tokens`, and with prices `money`.
    ///
    /// A body is read only if a rule that counts such a unit may apply; the service gets it whole. How slowly it may
    /// arrive, the server in front of the service decides. In place of [`settle`](Self::settle) and the like.
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tidegate_tower::RateLimitLayer;
    /// use tidegate_usage::UsageForm;
    ///
    /// async fn complete(_request: String) -> &'static str {
    ///     r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 12}}"#
    /// }
    ///
    /// fn app(limits: RateLimitLayer) -> Router {
    ///     Router::new()
    ///         .route("/v1/chat/completions", post(complete))
    ///         .layer(limits.usage(UsageForm::openai()))
    /// }
    /// ```
    #[must_use]
    pub fn usage(self, usage: impl Into<UsageSetting>) -> UsageLayer {
        UsageLayer::new(self, usage.into())
    }

    /// The path of a request as rules match it; empty if it has no normal form.
    pub(crate) fn normal_path(&self, request: &request::Parts) -> String {
        let path = tidegate::path::normalise(request.uri.path(), self.settings.encoded_slashes);
        path.unwrap_or_default().into_owned()
    }

    /// Under which name decisions are counted. By default [`FrontEnd::Library`].
    #[must_use]
    pub fn front_end(self, front_end: FrontEnd) -> Self {
        self.with(|settings| settings.front_end = front_end)
    }

    /// The protocol of replies to all clients. By default the content type of each request decides.
    #[must_use]
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.with(|settings| settings.protocol = Some(protocol))
    }

    /// Leaves the permit of a concurrency limit to the client that gets the answer, instead of holding it as
    /// long as the body of the answer lasts: the answer names the permit in `X-Tidegate-Lease`. It ends by
    /// [`Gate::release`], or when its time is over.
    #[must_use]
    pub fn leave_permits(self) -> Self {
        self.with(|settings| settings.leaves_permits = true)
    }

    /// Where a request that holds a permit of a concurrency limit continues when its client has left: the
    /// service is called to its end, so that a client that disconnects does not escape the limit while the
    /// service works on. By default up to 1,024 requests of this layer, each for the `lease_ttl` of its rule
    /// at most.
    #[must_use]
    pub fn background(self, background: Arc<BackgroundRequests>) -> Self {
        self.with(|settings| settings.background = Some(background))
    }

    /// For a service that stops working when its future is dropped: a permit is released when the client
    /// leaves, and nothing continues in the [background](Self::background).
    #[must_use]
    pub fn stops_with_client(self) -> Self {
        self.with(|settings| settings.background = None)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Decides a request by its head, for a server that calls its service itself: the request without the headers that
    /// the service must not see, and either what is left to do for it or the answer to its client. Ready at the first
    /// poll if the store is in memory. Dropped before, it gives back what was charged.
    ///
    /// ```
    /// # async fn call(layer: tidegate_tower::RateLimitLayer, request: http::request::Parts) {
    /// let (request, decided) = layer.decide(request).await;
    /// match decided {
    ///     Ok(mut admitted) => {
    ///         let permit = admitted.hold();
    ///         tokio::time::sleep(admitted.decision().delay()).await;
    ///         admitted.begin();
    ///         let answer = http::Response::new(format!("called for {}", request.uri));
    ///         admitted.answered(Some(&answer));
    ///         for (name, value) in admitted.headers() {
    ///             println!("{name}: {value}");
    ///         }
    ///         drop(permit);
    ///     }
    ///     Err(reply) => println!("{}", reply.status()),
    /// }
    /// # }
    /// ```
    pub async fn decide(
        &self,
        request: request::Parts,
    ) -> (
        request::Parts,
        Result<AdmittedRequest, Box<Response<Bytes>>>,
    ) {
        let handler = Arc::new(RequestHandler {
            gate: Arc::clone(&self.gate),
            settings: Arc::clone(&self.settings),
        });
        let (request, decided) = handler.decide(request).await;
        let answered = handler.answer(&request, decided);
        let admitted = answered.map(|receipt| AdmittedRequest::new(handler, receipt));
        (request, admitted)
    }

    /// What a request is known by, as it would be decided: to explain it. Removes the headers that the service must
    /// not see.
    pub async fn describe(
        &self,
        request: &mut request::Parts,
    ) -> Result<Attributes<'static>, RequestError> {
        let rules = self.gate.rules();
        let known = future::attributes(&self.settings, request, &rules)?.into_owned();
        match &self.settings.next_keys {
            Some(next_keys) if known.awaits_key() => next_keys().await,
            _ => return Ok(known),
        }
        Ok(future::attributes(&self.settings, request, &rules)?.into_owned())
    }

    /// Describes a request that is decided later, once its cost is known. Removes the headers that the service must
    /// not see. `None` for a request that cannot be described: it is refused when it is decided.
    pub async fn describe_call(&self, request: &mut request::Parts) -> Option<DescribedCall> {
        let rules = self.gate.rules();
        let mut attributes = future::attributes(&self.settings, request, &rules)
            .ok()?
            .into_owned();
        if attributes.awaits_key()
            && let Some(next_keys) = &self.settings.next_keys
        {
            next_keys().await;
            attributes = future::attributes(&self.settings, request, &rules)
                .ok()?
                .into_owned();
        }
        Some(DescribedCall {
            gate: Arc::clone(&self.gate),
            attributes,
            rules,
        })
    }

    /// The answer to a request whose body need not be read, because it is denied whatever that says: by what is known
    /// without a call of a remote store. `unknown` is an attribute that its body will give.
    pub fn deny_unread(
        &self,
        described: &DescribedCall,
        request: &request::Parts,
        unknown: &str,
    ) -> Option<Box<Response<Bytes>>> {
        let (rules, front_end) = (&described.rules, self.settings.front_end);
        let receipt = self
            .gate
            .denied_already(rules, front_end, &described.attributes, unknown)?;
        let handler = RequestHandler {
            gate: Arc::clone(&self.gate),
            settings: Arc::clone(&self.settings),
        };
        handler.answer(request, Ok(Box::new(receipt))).err()
    }

    /// The gate that decides.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Whether any rule has permits that clients share.
    pub fn has_shared_permits(&self) -> bool {
        self.gate.has_shared_permits()
    }

    /// Whether a request would take a permit that clients share, by `per: []` or `missing: share`. A program
    /// that can wait for the body of such a request calls the service afterwards: a client that sends slowly
    /// would hold the permit meanwhile. Removes the headers that the service must not see, and keeps what the
    /// request is known by in its extensions.
    pub fn takes_shared_permit(&self, request: &mut request::Parts) -> bool {
        let pinned = DescribedRequest::pinned(request);
        let is_pinned = pinned.is_some();
        let rules = pinned.unwrap_or_else(|| self.gate.rules());
        if !rules.has_shared_permits() {
            return false;
        }
        let Ok(attributes) = future::attributes(&self.settings, request, &rules) else {
            return false;
        };
        let takes = self.gate.takes_shared_permit(&rules, &attributes);
        let attributes = attributes.into_owned();
        if is_pinned || !attributes.awaits_key() {
            request.extensions.insert(DescribedRequest {
                attributes,
                rules,
                is_pinned,
            });
        }
        takes
    }

    /// Whether a trailer of this name must not reach the service: it is that of a header that is read, or a
    /// twin of one. Some services merge trailers into headers, and no rule has seen them.
    pub fn refuses_trailer(&self, name: &HeaderName) -> bool {
        twins::is_read_or_twin(name.as_str(), &self.settings, &self.gate.rules())
    }
}

impl<Inner> Layer<Inner> for RateLimitLayer {
    type Service = RateLimit<Inner>;

    fn layer(&self, inner: Inner) -> Self::Service {
        RateLimit::new(Arc::clone(&self.gate), Arc::clone(&self.settings), inner)
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("headers", &self.settings.denial.headers)
            .field("trusted_proxies", &self.settings.trusted_proxies)
            .finish_non_exhaustive()
    }
}
