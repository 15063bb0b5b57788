//! Answers as providers write them: what is read, and what passes on.

use bytes::Bytes;
use tidegate_usage::{
    AnswerEnd, AnswerKind, AnswerReader, TokenCounts, UsageForm, UsageResult, UsageSetting,
};

/// A sample, its form, and the usage that it reports: input, cached, written to the cache, output.
pub(crate) const SAMPLES: [(&str, &str, &str, [u64; 4]); 11] = [
    (
        "openai_chat.sse",
        "openai",
        include_str!("../wire/openai_chat.sse"),
        [20, 12, 0, 7],
    ),
    (
        "openai_chat.json",
        "openai",
        include_str!("../wire/openai_chat.json"),
        [19, 0, 0, 10],
    ),
    (
        "openai_responses.sse",
        "openai",
        include_str!("../wire/openai_responses.sse"),
        [37, 30, 0, 11],
    ),
    (
        "openai_embeddings.json",
        "openai",
        include_str!("../wire/openai_embeddings.json"),
        [8, 0, 0, 0],
    ),
    (
        "azure_chat.sse",
        "openai",
        include_str!("../wire/azure_chat.sse"),
        [14, 0, 0, 9],
    ),
    (
        "vllm_continuous.sse",
        "openai",
        include_str!("../wire/vllm_continuous.sse"),
        [5, 0, 0, 2],
    ),
    (
        "anthropic_messages.sse",
        "anthropic",
        include_str!("../wire/anthropic_messages.sse"),
        [2_125, 2_000, 100, 15],
    ),
    (
        "anthropic_messages.json",
        "anthropic",
        include_str!("../wire/anthropic_messages.json"),
        [11, 0, 0, 6],
    ),
    (
        "gemini.sse",
        "gemini",
        include_str!("../wire/gemini.sse"),
        [14, 4, 0, 154],
    ),
    (
        "gemini_array.json",
        "gemini",
        include_str!("../wire/gemini_array.json"),
        [9, 0, 0, 33],
    ),
    (
        "gemini_blocked.json",
        "gemini",
        include_str!("../wire/gemini_blocked.json"),
        [7, 0, 0, 0],
    ),
];

pub(crate) fn form(name: &str) -> UsageForm {
    let setting = UsageSetting::named(name).unwrap();
    setting.form("/").unwrap().clone()
}

pub(crate) fn kind(name: &str) -> AnswerKind {
    if name.contains(".sse") {
        AnswerKind::Events
    } else {
        AnswerKind::Json
    }
}

fn numbers(counts: TokenCounts) -> [u64; 4] {
    [
        counts.input,
        counts.cached,
        counts.cache_write,
        counts.output,
    ]
}

#[test]
fn every_provider_is_read_in_pieces_of_any_size() {
    let estimate = TokenCounts::new(1, 1_000);
    for (name, form_name, body, expected) in SAMPLES {
        for size in (1..100).chain([body.len()]) {
            let mut reader = AnswerReader::new(&form(form_name), kind(name), 1);
            let mut passed = Vec::new();
            for piece in body.as_bytes().chunks(size) {
                for bytes in reader.pass(Bytes::copy_from_slice(piece)) {
                    passed.extend_from_slice(&bytes);
                }
            }
            assert_eq!(reader.end(), None);
            assert!(passed == body.as_bytes(), "{name} in pieces of {size}");
            assert!(reader.is_final(), "{name} in pieces of {size}");
            for end in [AnswerEnd::Complete, AnswerEnd::Cut] {
                let (result, counts) = reader.charge(end, &estimate);
                assert_eq!(result, UsageResult::Reported, "{name}");
                assert_eq!(numbers(counts), expected, "{name} in pieces of {size}");
            }
        }
    }
}

#[test]
fn usage_is_final_before_the_last_event_passes() {
    for (name, last) in [
        ("openai_chat.sse", "data: [DONE]\n\n"),
        ("openai_responses.sse", ""),
        ("vllm_continuous.sse", ""),
        (
            "anthropic_messages.sse",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        ("gemini.sse", ""),
    ] {
        let sample = SAMPLES.iter().find(|sample| sample.0 == name).unwrap();
        let before = sample.2.strip_suffix(last).unwrap();
        let mut reader = AnswerReader::new(&form(sample.1), kind(name), 1);
        let events = before.split_inclusive("\n\n").collect::<Vec<_>>();
        for (index, event) in events.iter().enumerate() {
            assert!(!reader.is_final(), "{name} before event {index}");
            reader.pass(Bytes::copy_from_slice(event.as_bytes()));
        }
        assert!(reader.is_final(), "{name}");
    }
}

#[test]
fn azures_filter_event_passes_and_its_usage_event_does_not() {
    let body = include_str!("../wire/azure_chat.sse");
    let mut reader = AnswerReader::new(&form("openai"), AnswerKind::Events, 1).leave_out_usage();
    let passed = reader.pass(Bytes::from_static(body.as_bytes())).concat();
    let passed = String::from_utf8(passed).unwrap();
    assert!(passed.contains("prompt_filter_results"));
    assert!(!passed.contains("completion_tokens"));
    assert!(passed.ends_with("data: [DONE]\n\n"));
}
