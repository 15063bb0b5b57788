//! Reading the usage of language models: a stream of events, as it passes, and a request.

use bytes::Bytes;
use tidegate_instructions::{count, run};
use tidegate_usage::{AnswerKind, AnswerReader, ModelRequest, UsageForm};

const EVENTS: usize = 1_000;

fn main() {
    run(&[
        ("stream", stream),
        ("stream.leaving_out", stream_leaving_out),
        ("request", request),
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
