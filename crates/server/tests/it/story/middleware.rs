//! The layer in front of a service that accepts everything. It answers by status and headers, as all front ends do that
//! carry the request itself.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value as Json;
use tidegate::{Gate, MemoryStore};
use tidegate_tower::{PeerAddress, RateLimitLayer};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::Ask;
use super::carried::status_of;
use super::scenario::{PEER, Scenario, Step};
use super::seen::{Seen, Times};

type Body = Full<bytes::Bytes>;

pub(super) struct Middleware {
    layer: RateLimitLayer,
    runtime: Runtime,
}

impl Middleware {
    pub(super) fn open(scenario: &Scenario) -> Self {
        let gate = Gate::new(MemoryStore::new(), scenario.rules());
        let cost = |request: &http::request::Parts| request.extensions.get().copied().unwrap_or(1);
        Self {
            layer: RateLimitLayer::new(Arc::new(gate)).cost(cost),
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
        }
    }
}

impl Ask for Middleware {
    fn times(&self) -> Times {
        Times::Flowing
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let mut request = Request::builder()
            .method(step.get("method").unwrap())
            .uri(step.get("path").unwrap())
            .header("host", step.host())
            .extension(PeerAddress(PEER.parse().unwrap()));
        if let Some(cost) = step.cost {
            request = request.extension(cost);
        }
        for (name, value) in step.headers() {
            request = request.header(name, value);
        }
        let request = request.body(Body::default()).unwrap();
        let service = service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Body::from("served")))
        });
        let service = self.layer.layer(service);
        self.runtime.block_on(async {
            let (head, body) = service.oneshot(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            seen(&head, &body)
        })
    }
}

/// What a client sees: the status, the headers, and the problem of one that is denied.
fn seen(head: &http::response::Parts, body: &[u8]) -> Seen {
    let allowed = head.status == 200;
    let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
    };
    let mut seen = Seen {
        allowed,
        headers: Some(head.headers.iter().map(pair).collect()),
        ..Seen::default()
    };
    if allowed {
        assert_eq!(body, b"served");
        return seen;
    }
    let problem: Json = serde_json::from_slice(body).unwrap();
    if head.status == 400 && problem["reason"].is_null() {
        return Seen::refused();
    }
    assert_eq!(head.status, status_of(&problem));
    // Where one limit of a rule is violated, it is named after the rule.
    seen.rule = Some(problem["violated-policies"][0].clone());
    seen.reason = Some(problem["reason"].clone());
    seen.missing = Some(problem["missing"].clone());
    seen
}
