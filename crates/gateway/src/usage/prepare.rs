//! Before a request is decided: who may send it, and what it may cost by its body.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderValue, Method, Request, Response, StatusCode, request};
use hyper::body::Incoming;
use tidegate::Costs;
use tidegate_tower::{DenialForm, DescribedCall, Protocol, ReceiptSlot, denied_with};
use tidegate_usage::{ModelPrice, ModelRequest, TokenEstimate, UsageForm, UsageSetting, UsageUnit};

use super::{ModelCall, UsageReading};
use crate::Ingress;
use crate::body_start::BodyStart;
use crate::failure::GatewayFailure;
use crate::route::Route;
use crate::screen::Screened;

/// The attribute with the name of the model.
const MODEL: &str = "model";
/// The attribute with the key of the client.
const API_KEY: &str = "api_key";

/// The answer to a request that is not decided.
pub(crate) type RefusedCall = Box<Response<Bytes>>;

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
        let reading = &self.gateway.usage;
        if let Some(form) = reading.denial_form(&route.config.usage, &path) {
            head.extensions.insert(DenialForm(form));
        }
        let described = self.layer.describe_call(&mut head).await;
        self.check_key(route, &head, described.as_ref())?;
        let Some(mut described) = described else {
            return Ok((Request::from_parts(head, body), None));
        };
        let form = route.config.usage.form(&path);
        let form = form.filter(|_| head.method == Method::POST);
        let is_read = form.is_some()
            && described.may_count_units(MODEL)
            && !described.is_denied_outright(MODEL);
        let mut call = None;
        if let Some(form) = form.filter(|_| is_read) {
            let start = self.read_body(&mut head, &mut body).await;
            let mut start = start.map_err(|failure| refused(&failure, &head))?;
            if let Some(mut asked) = ModelRequest::read(form, &path, &start.bytes) {
                if !route.config.adds_usage {
                    asked.include_usage = None;
                }
                let made =
                    reading.model_call(form, asked, &mut described, &mut start, &mut head)?;
                call = Some(made);
            }
            if let Some(screened) = head.extensions.get_mut::<Screened>() {
                screened.start = Some(Box::new(start));
            }
        }
        if call.is_none() && route.config.usage != UsageSetting::Off {
            // A request like any other: it costs nothing but itself.
            described.set_costs(Costs::by_unit([]).unwrap_or(Costs::from(1)));
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

    async fn read_body(
        &self,
        head: &mut request::Parts,
        body: &mut Incoming,
    ) -> Result<BodyStart, GatewayFailure> {
        let encoding = head.headers.get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(GatewayFailure::EncodedBody);
        }
        let reading = &self.gateway.usage;
        let length = head.headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > reading.body_limit) {
            return Err(GatewayFailure::LongBody(reading.body_limit));
        }
        let pace = self.start_pace(head).ok_or(GatewayFailure::NoRoute)?;
        let start = reading.room.read_whole(body, pace, reading.body_limit);
        start.await
    }
}

impl UsageReading {
    /// Sets what a request costs, and changes it so that its answer can be read.
    fn model_call(
        &self,
        form: &UsageForm,
        mut asked: ModelRequest,
        described: &mut DescribedCall,
        start: &mut BodyStart,
        head: &mut request::Parts,
    ) -> Result<Box<ModelCall>, RefusedCall> {
        let model = asked.model.take();
        let prices = self.prices.load();
        let price = prices.price(model.as_deref().unwrap_or_default());
        if let Some(model) = model.clone()
            && described.attribute(MODEL).is_none()
        {
            // A name that cannot be an attribute is none.
            let _ = described.set(MODEL, model);
        }
        let mut estimate = asked.estimate(&self.estimate);
        for limit in described.unit_limits() {
            let unit = UsageUnit::named(limit.unit.as_str());
            if let (Some(unit), false) = (unit, limit.is_shadow) {
                if unit == UsageUnit::Money && price.is_none() {
                    return Err(unpriced(&limit.rule, model.as_deref(), head));
                }
                estimate.fit(unit, limit.most, price.as_ref());
            }
        }
        let costs = estimated_costs(&estimate, price.as_ref());
        let note = self.notes.as_ref().and_then(|notes| notes());
        if let Some(note) = &note {
            note.estimated(model.as_deref(), &costs);
        }
        described.set_costs(costs);
        let edit = asked.include_usage.as_ref();
        if let Some(edit) = edit {
            start.bytes = edit.apply(&start.bytes);
            let has_length = head.headers.contains_key(CONTENT_LENGTH);
            if has_length {
                let length = HeaderValue::from(start.bytes.len());
                head.headers.insert(CONTENT_LENGTH, length);
            }
        }
        let identity = HeaderValue::from_static("identity");
        head.headers.insert(ACCEPT_ENCODING, identity);
        let slot = ReceiptSlot::default();
        head.extensions.insert(slot.clone());
        Ok(Box::new(ModelCall {
            form: form.clone(),
            slot,
            times: asked.times,
            leaves_out_usage: edit.is_some(),
            estimate: estimate.counts(),
            price,
            results: Arc::clone(&self.results),
            note,
            is_open: true,
        }))
    }
}

fn estimated_costs(estimate: &TokenEstimate, price: Option<&ModelPrice>) -> Costs {
    let costs = UsageUnit::ALL.into_iter();
    let costs = costs.filter_map(|unit| Some((unit.name(), estimate.cost(unit, price)?)));
    // Costs of units that are all different, and none too large, are valid.
    Costs::by_unit(costs).unwrap_or(Costs::from(1))
}

/// The words in which a request is denied.
fn protocol(head: &request::Parts) -> Protocol {
    match head.extensions.get::<DenialForm>() {
        Some(DenialForm(form)) => Protocol::Model {
            form: *form,
            request_id: head.headers.get("x-request-id").cloned(),
        },
        None => Protocol::Http,
    }
}

fn unpriced(rule: &str, model: Option<&str>, head: &request::Parts) -> RefusedCall {
    let model = model.map_or_else(
        || "the request names no model".to_owned(),
        |model| format!("the model `{model}` has no price"),
    );
    let detail = format!("{model}, and the limit `{rule}` counts money");
    let reply = denied_with(StatusCode::FORBIDDEN, "unpriced", &detail, &protocol(head));
    Box::new(reply)
}

fn refused(failure: &GatewayFailure, head: &request::Parts) -> RefusedCall {
    let plain = failure.reply();
    let (mut parts, _) = plain.into_parts();
    let reply = denied_with(
        parts.status,
        "refused",
        &failure.to_string(),
        &protocol(head),
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
