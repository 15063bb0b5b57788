//! Messages of gRPC: the same in any pieces, read as they are written, and answered part by part.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Gate, ManualClock, MemoryStore, Timestamp};
use tidegate_codec::CodecError;
use tidegate_codec::grpc::proto::health::HealthCheckRequest;
use tidegate_codec::grpc::proto::rate_limit::{LimitCode, RateLimitRequest, RateLimitResponse};
use tidegate_codec::grpc::proto::reflection::ServerReflectionRequest;
use tidegate_codec::grpc::{
    AnswerSettings, MessageBuffer, RateLimitAnswer, RateLimitCall, decode, parts,
};

/// How many keys the store of a check holds.
const KEYS: usize = 1_024;

const RULES: &str = "
rules:
  - {id: per-address, match: {path: /v1/**}, per: [ip], limit: 3/minute}
  - {id: per-user, per: [user_id], limit: {requests: 2, window: 1s}, algorithm: sliding_window_log}
  - {id: generic, match: {attributes: {generic_key: slow}}, per: [generic_key.2], limit: 1/hour, settle: true}
  - {id: hosts, match: {host: '*.example.com'}, limit: 5/day}
";

const DESCRIPTORS: &str = "
domain: edge
descriptors:
  - key: generic_key
    value: slow
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 2}
    descriptors:
      - {key: path, value: /v1*, rate_limit: {unlimited: true}}
";

/// Messages are the same in any pieces; each, and the whole input as one, is answered or refused.
pub fn check(bytes: &[u8]) {
    let messages = taken(bytes, bytes.len());
    for step in [1, 3, 64] {
        assert_eq!(messages, taken(bytes, step), "in pieces of {step}");
    }
    for message in messages.0.iter().take(4) {
        answer(message);
    }
    answer(&Bytes::copy_from_slice(bytes));
}

/// The messages in a stream that arrives in pieces of `step` bytes, and the error that ends it.
fn taken(bytes: &[u8], step: usize) -> (Vec<Bytes>, Option<String>) {
    let (mut buffer, mut messages) = (MessageBuffer::default(), Vec::new());
    for piece in bytes.chunks(step.max(1)) {
        buffer.put(Bytes::copy_from_slice(piece));
        loop {
            match buffer.take() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error.to_string())),
            }
        }
    }
    (messages, None)
}

fn answer(message: &Bytes) {
    reads_as_written::<HealthCheckRequest>(message);
    reads_as_written::<ServerReflectionRequest>(message);
    let Some(decoded) = reads_as_written::<RateLimitRequest>(message) else {
        let read = RateLimitCall::read(message);
        assert_eq!(read, None, "read although it is not a message");
        return;
    };
    let asked = RateLimitCall::of(&decoded);
    let read = RateLimitCall::read(message);
    assert!(
        read.is_none_or(|read| read == asked),
        "read as another call"
    );
    for rules in [RULES, DESCRIPTORS] {
        if let Ok(rules) = RuleSet::from_yaml(rules) {
            decide(&asked, rules);
        }
    }
}

fn reads_as_written<M: Message + Default + PartialEq + Debug>(bytes: &Bytes) -> Option<M> {
    let message: M = decode(bytes.clone()).ok()?;
    let again: Result<M, CodecError> = decode(message.encode_to_vec().into());
    assert!(again.is_ok_and(|again| again == message), "{message:?}");
    Some(message)
}

/// The answer is a message of Envoy with a status for each descriptor, and allows what was decided.
fn decide(asked: &RateLimitCall<'_>, rules: RuleSet) {
    let Ok(parts) = parts(asked, rules.descriptor_units()) else {
        return;
    };
    assert_eq!(parts.len(), asked.descriptors());
    let clock = ManualClock::new(Timestamp::from_micros(1_794_770_000_000_000));
    let store = MemoryStore::builder().max_keys(KEYS).clock(clock.clone());
    let gate = Gate::with_clock(store.build(), rules, clock);
    let rules = gate.rules();
    let decided = gate.try_decide_by(&rules, FrontEnd::Grpc, &parts[..]);
    let Ok(receipt) = decided else {
        unreachable!("a store in memory does not wait");
    };
    let decisions = receipt.decisions();
    let answer = RateLimitAnswer {
        asked,
        rules: &rules,
        parts: &parts,
        decisions,
    };
    let framed = answer.framed(&AnswerSettings::default());
    let (messages, error) = taken(&framed, framed.len());
    assert_eq!((messages.len(), error), (1, None));
    let response: Result<RateLimitResponse, CodecError> = decode(messages[0].clone());
    let Ok(response) = response else {
        unreachable!("the answer is not a message: {framed:?}");
    };
    let is_allowed = response.overall_code == i32::from(LimitCode::Ok);
    assert_eq!(is_allowed, decisions.is_allowed());
    assert_eq!(response.statuses.len(), asked.descriptors());
    assert_eq!(
        response.encode_to_vec(),
        messages[0],
        "written as prost writes it"
    );
}
