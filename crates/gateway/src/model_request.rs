//! Before a request to a language model is decided: who may send it, and what it may cost by its body, which
//! `tidegate-tower` reads.

use std::sync::Arc;

use http::{Request, Response, request};
use hyper::body::Incoming;
use tidegate_tower::{
    DescribedCall, HoldRefusal, ModelCall, ModelRoute, Protocol, RefusedCall, UsageReading,
    denied_with,
};
use tidegate_usage::UsageSetting;

use crate::Ingress;
use crate::body_start::{BodyStart, read_whole};
use crate::failure::GatewayFailure;
use crate::route::Route;
use crate::screen::Screened;

/// The attribute with the key of the client.
const API_KEY: &str = "api_key";

/// A request that is ready to be decided, and what its answer is read for.
pub(crate) type Prepared = (Request<Incoming>, Option<Box<ModelCall>>);

impl<L> Ingress<L> {
    /// The route of a request that has to be prepared. Most routes have nothing to prepare.
    pub(crate) fn usage_route<B>(&self, request: &Request<B>) -> Option<Arc<Route>> {
        let screened = request.extensions().get::<Screened>()?;
        let route = self.gateway.routes.get(screened.route?)?;
        route.config.reads_usage().then(|| Arc::clone(route))
    }

    /// Prepares a request to be decided.
    pub(crate) async fn prepare(
        &self,
        route: &Route,
        request: Request<Incoming>,
    ) -> Result<Prepared, RefusedCall> {
        let (mut head, mut body) = request.into_parts();
        let path = tidegate::path::normalise(head.uri.path(), self.gateway.screen.slashes());
        let path = path.unwrap_or_default().into_owned();
        let (reading, usage) = (&self.gateway.usage, &route.config.usage);
        reading.set_denial_form(usage, &path, &mut head);
        let described = self.layer.describe_call(&mut head).await;
        self.check_key(route, &head, described.as_ref())?;
        let Some(mut described) = described else {
            return Ok((Request::from_parts(head, body), None));
        };
        let mut call = None;
        if let Some(form) = reading.form(usage, &path, &head, &described) {
            let mut start = self.read_body(&head, &described, &mut body).await?;
            if start.is_whole {
                let route = ModelRoute {
                    form,
                    path: &path,
                    adds_usage: route.config.adds_usage,
                };
                call = reading.model_call(route, &mut start.bytes, &mut described, &mut head);
            }
            if let Some(screened) = head.extensions.get_mut::<Screened>() {
                screened.start = Some(Box::new(start));
            }
        }
        if call.is_none() && *usage != UsageSetting::Off {
            described.set_costs(UsageReading::unread_costs());
        }
        described.keep(&mut head);
        Ok((Request::from_parts(head, body), call))
    }

    /// Refuses requests without a known key where the gateway adds credentials of its own.
    fn check_key(
        &self,
        route: &Route,
        head: &request::Parts,
        described: Option<&DescribedCall>,
    ) -> Result<(), RefusedCall> {
        if route.config.set_headers.is_empty() {
            return Ok(());
        }
        let identity = &self.gateway.screen.identity;
        match described.and_then(|described| described.attribute(API_KEY)) {
            Some(key) if identity.knows_key(key) => Ok(()),
            _ => Err(refused(&GatewayFailure::UnknownKey, head)),
        }
    }

    /// Reads the body of a request, unless the request is denied whatever that says: then not more of it than has
    /// arrived.
    async fn read_body(
        &self,
        head: &request::Parts,
        described: &DescribedCall,
        body: &mut Incoming,
    ) -> Result<BodyStart, RefusedCall> {
        let known = (&self.layer, described);
        let mut held = match self.gateway.usage.hold(head, known, body).await {
            Ok(held) => held,
            Err(HoldRefusal::Denied(answer)) => return Err(answer),
            Err(HoldRefusal::NotRead(error)) => return Err(refused(&error.into(), head)),
            Err(HoldRefusal::Unread(bytes)) => return Ok(BodyStart::of(bytes)),
        };
        if !held.is_whole() {
            let pace = self.start_pace(head).ok_or(GatewayFailure::NoRoute);
            let reading = async { read_whole(body, pace?, &mut held).await };
            let read: Result<(), GatewayFailure> = reading.await;
            read.map_err(|failure| refused(&failure, head))?;
        }
        let (bytes, trailers) = held.into_parts();
        Ok(BodyStart {
            bytes,
            trailers,
            is_whole: true,
        })
    }
}

fn refused(failure: &GatewayFailure, head: &request::Parts) -> RefusedCall {
    let plain = failure.reply();
    let (mut parts, _) = plain.into_parts();
    let reply = denied_with(
        parts.status,
        "refused",
        &failure.to_string(),
        &Protocol::of_call(head),
    );
    let (made, body) = reply.into_parts();
    // Waiting helps where the plain answer says so.
    let is_final = !parts.headers.contains_key(http::header::RETRY_AFTER);
    for (name, value) in &made.headers {
        if is_final || name != "x-should-retry" {
            parts.headers.insert(name, value.clone());
        }
    }
    Box::new(Response::from_parts(parts, body))
}
