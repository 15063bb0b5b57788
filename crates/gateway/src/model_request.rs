//! Before a request to a language model is decided: who may send it, and what it may cost by its body, which
//! `tidegate-tower` reads.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, request};
use hyper::body::Incoming;
use tidegate_tower::{
    DescribedCall, HoldRefusal, ModelBody, ModelCall, ModelRoute, Protocol, RefusedCall,
    UsageReading, denied_with,
};
use tidegate_usage::UsageSetting;

use crate::Ingress;
use crate::body_start::{BodyStart, read_whole};
use crate::failure::GatewayFailure;
use crate::route::Route;
use crate::screen::Screened;

/// The attribute with the key of the client.
const API_KEY: &str = "api_key";

impl<L> Ingress<L> {
    /// The route of a request that has to be prepared. Most routes have nothing to prepare.
    pub(crate) fn usage_route<B>(&self, request: &Request<B>) -> Option<Arc<Route>> {
        let screened = request.extensions().get::<Screened>()?;
        let route = self.gateway.routes.get(screened.route?)?;
        route.config.reads_usage().then(|| Arc::clone(route))
    }

    /// Prepares a request to be decided. Returns what its answer is read for.
    pub(crate) async fn prepare(
        &self,
        route: &Route,
        head: &mut request::Parts,
        body: &mut Incoming,
    ) -> Result<Option<Box<ModelCall>>, RefusedCall> {
        let path = tidegate::path::normalise(head.uri.path(), self.gateway.screen.slashes());
        let path = path.unwrap_or_default().into_owned();
        let (reading, usage) = (&self.gateway.usage, &route.config.usage);
        reading.set_denial_form(usage, &path, head);
        let described = self.layer.describe_call(head).await;
        self.check_key(route, head, described.as_ref())?;
        let Some(mut described) = described else {
            return Ok(None);
        };
        let mut call = None;
        if let Some(form) = reading.form(usage, &path, head, &described) {
            let start = match self.read_body(head, &described, body).await? {
                Ok(mut whole) => {
                    let route = ModelRoute {
                        form,
                        path: &path,
                        adds_usage: route.config.adds_usage,
                    };
                    call = reading.model_call(route, &mut whole, &mut described, head);
                    BodyStart::whole(whole)
                }
                Err(unread) => BodyStart::part(unread),
            };
            if let Some(screened) = head.extensions.get_mut::<Screened>() {
                screened.start = Some(Box::new(start));
            }
        }
        if call.is_none() && *usage != UsageSetting::Off {
            described.set_costs(UsageReading::unread_costs());
        }
        described.keep(head);
        Ok(call)
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

    /// Reads the body of a request. If the request is denied whatever that says, not more of it than has arrived.
    async fn read_body(
        &self,
        head: &request::Parts,
        described: &DescribedCall,
        body: &mut Incoming,
    ) -> Result<Result<ModelBody, Bytes>, RefusedCall> {
        let known = (&self.layer, described);
        let mut whole = match self.gateway.usage.hold(head, known, body).await {
            Ok(whole) => whole,
            Err(HoldRefusal::Denied(answer)) => return Err(answer),
            Err(HoldRefusal::NotRead(error)) => return Err(refused(&error.into(), head)),
            Err(HoldRefusal::Unread(bytes)) => return Ok(Err(bytes)),
        };
        if !whole.is_whole() {
            let pace = self.start_pace(head).ok_or(GatewayFailure::NoRoute);
            // Boxed, because most bodies come with their heads.
            let reading = Box::pin(async { read_whole(body, pace?, &mut whole).await });
            reading.await.map_err(|failure| refused(&failure, head))?;
        }
        Ok(Ok(whole))
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
