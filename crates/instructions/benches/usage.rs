//! Reading the usage of language models: a stream of events, as it passes; a request; and a call up to the first bytes of
//! its answer, with and without reading.

#![expect(clippy::expect_used, reason = "a benchmark may")]

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tidegate::rules::RuleSet;
use tidegate::{Gate, ManualClock, MemoryStore, Timestamp};
use tidegate_instructions::{count, run};
use tidegate_tower::{PeerAddress, RateLimitLayer};
use tidegate_usage::{AnswerKind, AnswerReader, ModelRequest, UsageForm};
use tower::{Layer as _, Service, service_fn};

const EVENTS: usize = 1_000;
const CALLS: usize = 1_000;

fn main() {
    run(&[
        ("stream", stream),
        ("stream.leaving_out", stream_leaving_out),
        ("request", request),
        ("call", call),
        ("call.unread", call_unread),
    ]);
}

fn events() -> Vec<Bytes> {
    let event = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1789000000,\"model\":\"gpt-5-mini-2025-08-07\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],\"usage\":null}\n\n";
    vec![Bytes::from_static(event.as_bytes()); EVENTS]
}

fn read(mut reader: AnswerReader, events: Vec<Bytes>) -> AnswerReader {
    for event in events {
        reader.pass(event);
    }
    reader
}

fn stream() {
    let reader = AnswerReader::new(&UsageForm::openai(), AnswerKind::Events, 1);
    count((reader, events()), |(reader, events)| read(reader, events));
}

fn stream_leaving_out() {
    let reader = AnswerReader::new(&UsageForm::openai(), AnswerKind::Events, 1).leave_out_usage();
    count((reader, events()), |(reader, events)| read(reader, events));
}

fn request() {
    let words = "lorem ipsum dolor sit amet ".repeat(400);
    let body = format!(
        "{{\"model\":\"gpt-5-mini\",\"max_tokens\":500,\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"{words}\"}}]}}"
    );
    count((UsageForm::openai(), body), |(form, body)| {
        ModelRequest::read(&form, "/v1/chat/completions", body.as_bytes())
    });
}

fn limits() -> RateLimitLayer {
    let rules = "rules:
- {id: requests, per: [], limit: 1000000000/day}
- {id: tokens, per: [], unit: tokens, limit: 1000000000/day}
";
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let rules = RuleSet::from_yaml(rules).expect("rules that are sound");
    RateLimitLayer::new(Arc::new(Gate::with_clock(store, rules, clock)))
}

fn calls() -> Vec<Request<Full<Bytes>>> {
    let words = "tide ".repeat(200);
    let body = format!(
        "{{\"stream\":true,\"max_tokens\":50,\"messages\":[{{\"role\":\"user\",\"content\":\"{words}\"}}]}}"
    );
    let body = Bytes::from(body);
    let call = || {
        Request::post("/v1/chat/completions")
            .header("host", "a")
            .header("content-type", "application/json")
            .header("content-length", body.len())
            .extension(PeerAddress([127, 0, 0, 1].into()))
            .body(Full::new(body.clone()))
            .expect("a sound request")
    };
    (0..CALLS).map(|_| call()).collect()
}

/// The first event of a stream, after which nothing comes yet.
struct FirstEvent(Option<Bytes>);

impl Body for FirstEvent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.take();
        event.map_or(Poll::Pending, |event| {
            Poll::Ready(Some(Ok(Frame::data(event))))
        })
    }
}

async fn model<B>(request: Request<B>) -> Result<Response<FirstEvent>, Infallible> {
    drop(request);
    let event =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word 0\"}}],\"usage\":null}\n\n";
    let body = FirstEvent(Some(Bytes::from_static(event.as_bytes())));
    let answer = Response::builder().header("content-type", "text/event-stream");
    Ok(answer.body(body).expect("a sound answer"))
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(ready) => ready,
        Poll::Pending => unreachable!("nothing waits"),
    }
}

/// Calls a service, and takes the first bytes of each answer.
fn call_all<S, B>((mut service, calls): (S, Vec<Request<Full<Bytes>>>)) -> (S, Vec<Response<B>>)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
    B: Body + Unpin,
{
    let answers = calls.into_iter().map(|call| {
        let Ok(mut answer) = ready(service.call(call));
        assert!(ready(answer.body_mut().frame()).is_some(), "no first byte");
        answer
    });
    let answers = answers.collect();
    (service, answers)
}

fn call() {
    let service = limits().usage(UsageForm::openai()).layer(service_fn(model));
    count((service, calls()), call_all);
}

fn call_unread() {
    let service = limits().layer(service_fn(model));
    count((service, calls()), call_all);
}
