//! The codecs: the question that most clients send, and its answer, as bytes of each front end.

#![expect(clippy::unwrap_used, reason = "a benchmark may")]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use tidegate::gate::{Charged, Decision, Decisions, Observed, Observer, Part};
use tidegate::rules::{FrontEnd, RuleSet, RuleSettings, ValueDigest};
use tidegate::store::{Charge, Scope};
use tidegate::{Gate, ManualClock, MemoryStore, Timestamp};
use tidegate_codec::grpc::proto::rate_limit::{
    DescriptorEntry, RateLimitDescriptor, RateLimitRequest,
};
use tidegate_codec::grpc::{self, AnswerSettings, MessageBuffer, RateLimitAnswer, RateLimitCall};
use tidegate_codec::json::answer;
use tidegate_codec::json::question::CheckRequest;
use tidegate_codec::record::{self, RecordedAttributes};
use tidegate_codec::resp::throttle::{self, ThrottleLimits};
use tidegate_codec::resp::{Arguments, Replies};
use tidegate_instructions::{count, run};

/// How many questions or answers one benchmark reads or writes.
const TIMES: usize = 1_000;

const RULES: &str = "rules: [{id: per-user, per: [user_id], limit: 1000000/second}]";
const CHECK: &[u8] =
    br#"{"attributes":{"user_id":"u17","path":"/v1/users","ip":"203.0.113.7","method":"GET"}}"#;
const THROTTLE: &[u8] =
    b"*5\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser:17\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n";

/// A gate whose time does not change, so that answers have the same digits in every run.
fn gate() -> Gate {
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    Gate::with_clock(store, RuleSet::from_yaml(RULES).unwrap(), clock)
}

/// A decision about the check, with room for its answer.
fn http_decided() -> (Decision, Vec<u8>) {
    let gate = gate();
    let attributes = CheckRequest::parse(CHECK).unwrap().attributes(false);
    let attributes = attributes.unwrap();
    let decided = gate.try_decide_by(&gate.rules(), FrontEnd::Http, &attributes);
    let decision = decided.unwrap().into_decision();
    (decision, Vec::with_capacity(512))
}

fn http_decode(body: &[u8]) {
    for _ in 0..TIMES {
        let request = CheckRequest::parse(black_box(body)).unwrap();
        black_box(request.attributes(false).unwrap());
    }
}

fn http_encode((decision, mut out): (Decision, Vec<u8>)) -> (Decision, Vec<u8>) {
    for _ in 0..TIMES {
        out.clear();
        answer::write(&mut out, black_box(&decision));
        black_box(&out);
    }
    (decision, out)
}

/// A connection that has parsed the same command before.
fn resp_connection() -> (Arguments, ThrottleLimits) {
    let (mut arguments, mut limits) = (Arguments::default(), ThrottleLimits::default());
    arguments.read(THROTTLE).unwrap();
    throttle::read(arguments.of(THROTTLE), &mut limits).unwrap();
    (arguments, limits)
}

/// The outcome of the command, and replies with room for it.
fn resp_charged() -> (Charged, Replies) {
    let (arguments, mut limits) = resp_connection();
    let asked = throttle::read(arguments.of(THROTTLE), &mut limits).unwrap();
    let (gate, scope) = (gate(), Scope::new("cl.throttle"));
    let charge = Charge {
        scope: &scope,
        limit: asked.limit,
        key: &asked.key,
        cost: asked.cost,
    };
    let charged = gate.try_charge(&charge).unwrap();
    let mut replies = Replies::default();
    throttle::write(&charged, &mut replies);
    replies.clear(1_024);
    (charged, replies)
}

fn resp_decode(
    (mut arguments, mut limits): (Arguments, ThrottleLimits),
) -> (Arguments, ThrottleLimits) {
    for _ in 0..TIMES {
        arguments.read(black_box(THROTTLE)).unwrap();
        let asked = throttle::read(arguments.of(THROTTLE), &mut limits).unwrap();
        black_box((&*asked.key, asked.cost));
    }
    (arguments, limits)
}

fn resp_encode((charged, mut replies): (Charged, Replies)) -> Replies {
    for _ in 0..TIMES {
        replies.clear(1_024);
        throttle::write(black_box(&charged), &mut replies);
        black_box(replies.bytes());
    }
    replies
}

fn call() -> RateLimitRequest {
    let entry = |key: &str, value: &'static str| DescriptorEntry {
        key: key.to_owned(),
        value: Bytes::from_static(value.as_bytes()),
    };
    RateLimitRequest {
        domain: "web".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry("user_id", "u17"), entry("path", "/v1/users")],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

fn grpc_decode(frame: Bytes) -> Bytes {
    for _ in 0..TIMES {
        let mut arrived = MessageBuffer::default();
        arrived.put(black_box(frame.clone()));
        let message = arrived.take().unwrap().unwrap();
        let asked = RateLimitCall::read(&message).unwrap();
        let mut parts = grpc::Parts::new();
        grpc::add_parts(&mut parts, &asked, None).unwrap();
        black_box(&parts);
    }
    frame
}

/// A call that was decided.
struct DecidedCall {
    gate: Gate,
    asked: RateLimitCall<'static>,
    parts: Vec<Part<'static>>,
    decisions: Decisions,
}

fn grpc_decided() -> DecidedCall {
    let (gate, asked) = (gate(), RateLimitCall::of(Box::leak(Box::new(call()))));
    let parts = grpc::parts(&asked, None).unwrap().into_vec();
    let decided = gate.try_decide_by(&gate.rules(), FrontEnd::Grpc, &parts[..]);
    let decisions = decided.unwrap().into_decisions();
    DecidedCall {
        gate,
        asked,
        parts,
        decisions,
    }
}

fn grpc_encode(call: DecidedCall) -> DecidedCall {
    let rules = call.gate.rules();
    let answer = RateLimitAnswer {
        asked: &call.asked,
        rules: &rules,
        parts: &call.parts,
        decisions: &call.decisions,
    };
    let settings = AnswerSettings::default();
    for _ in 0..TIMES {
        black_box(black_box(&answer).framed(&settings));
    }
    drop(rules);
    call
}

/// Writes the line of a decision many times.
struct RepeatedLine(RecordedAttributes);

impl Observer for RepeatedLine {
    fn decided(&self, observed: &Observed<'_, '_>) {
        for _ in 0..TIMES {
            let observed = black_box(observed);
            let at = record::decided_at(observed).filter(|_| record::is_recorded(observed));
            let mut line = Vec::with_capacity(512);
            record::write_decision(&mut line, observed, at.unwrap(), &self.0);
            black_box(&line);
        }
    }
}

/// A gate that records, with these secret attributes.
fn recording(secret: &[&str]) -> Gate {
    let gate = gate();
    let mut settings = RuleSettings::default();
    settings.secret_attributes = secret.iter().map(|name| (*name).to_owned()).collect();
    let digest = Arc::new(ValueDigest::new(b"secret"));
    let recorded = RecordedAttributes::new(&gate.rules(), &settings, &digest);
    gate.with_observer(Arc::new(RepeatedLine(recorded)))
}

fn record_lines(gate: Gate) -> Gate {
    let attributes = CheckRequest::parse(CHECK).unwrap().attributes(false);
    let attributes = attributes.unwrap();
    let decided = gate.try_decide_by(&gate.rules(), FrontEnd::Http, &attributes);
    drop(decided.unwrap());
    gate
}

fn main() {
    run(&[
        ("http_decode", || count(CHECK, http_decode)),
        ("http_encode", || count(http_decided(), http_encode)),
        ("resp_decode", || count(resp_connection(), resp_decode)),
        ("resp_encode", || count(resp_charged(), resp_encode)),
        ("grpc_decode", || count(grpc::framed(&call()), grpc_decode)),
        ("grpc_encode", || count(grpc_decided(), grpc_encode)),
        ("record_line", || count(recording(&[]), record_lines)),
        ("record_line.secret", || {
            count(recording(&["user_id"]), record_lines);
        }),
    ]);
}
