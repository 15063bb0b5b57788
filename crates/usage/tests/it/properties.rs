//! What must hold for any stream, however it is cut into pieces.

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_usage::{AnswerEnd, AnswerKind, AnswerReader, ModelRequest, TokenCounts, UsageResult};

use crate::wire::{SAMPLES, form};

const FORMS: [&str; 3] = ["openai", "anthropic", "gemini"];
const KINDS: [AnswerKind; 3] = [AnswerKind::Events, AnswerKind::Json, AnswerKind::Other];

/// What passed on, and what is charged when the answer is complete and when it is cut.
type Read = (Vec<u8>, bool, [(UsageResult, TokenCounts); 2]);

fn read(name: &str, kind: AnswerKind, leaves_out: bool, pieces: &[&[u8]]) -> Read {
    let mut reader = AnswerReader::new(&form(name), kind, 1);
    if leaves_out {
        reader = reader.leave_out_usage();
    }
    let mut passed = Vec::new();
    for piece in pieces {
        for bytes in reader.pass(Bytes::copy_from_slice(piece)) {
            passed.extend_from_slice(&bytes);
        }
    }
    let estimate = TokenCounts::new(10, 1_000);
    let cut = reader.charge(AnswerEnd::Cut, &estimate);
    passed.extend(reader.end().unwrap_or_default());
    let complete = reader.charge(AnswerEnd::Complete, &estimate);
    (passed, reader.is_final(), [cut, complete])
}

fn cut<'b>(body: &'b [u8], sizes: &[usize]) -> Vec<&'b [u8]> {
    let mut rest = body;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Parts of streams that are likely to meet special cases.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let texts = [
        "data: ",
        "data:",
        "data",
        "event: x",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\n\r\n",
        "[DONE]",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"usage\"",
        "\"us\\u0061ge\"",
        "\"choices\":[]",
        "\"choices\":[{}]",
        "\"prompt_tokens\":5",
        "\"completion_tokens\":7",
        "\"type\":\"message_delta\"",
        "\"usage\":{\"input_tokens\":3,\"output_tokens\":4}",
        "\"finishReason\":\"STOP\"",
        "\"candidates\":[",
        "\"usageMetadata\":{\"promptTokenCount\":9}",
        "null",
        "-1",
        "1e9",
        "99999999999999999999",
        "\"a\\\\\"",
        "\u{feff}",
        "ä😀",
        " ",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\n",
    ];
    prop_oneof![
        8 => prop::sample::select(texts.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..6),
        1 => prop::sample::select(SAMPLES.to_vec()).prop_map(|sample| sample.2.as_bytes().to_vec()),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(part(), 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        body in stream(),
        sizes in prop::collection::vec(1_usize..40, 1..8),
        name in prop::sample::select(FORMS.to_vec()),
        kind in prop::sample::select(KINDS.to_vec()),
        leaves_out: bool,
    ) {
        let whole = read(name, kind, leaves_out, &[&body]);
        let pieces = read(name, kind, leaves_out, &cut(&body, &sizes));
        prop_assert_eq!(&whole, &pieces);
    }

    #[test]
    fn bytes_pass_on_as_they_come(
        body in stream(),
        sizes in prop::collection::vec(1_usize..40, 1..8),
        name in prop::sample::select(FORMS.to_vec()),
        kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let (passed, ..) = read(name, kind, false, &cut(&body, &sizes));
        prop_assert!(passed == body);
        // Only whole events are left out, and only of OpenAI's streams.
        let (passed, ..) = read(name, kind, true, &cut(&body, &sizes));
        if name != "openai" || kind != AnswerKind::Events {
            prop_assert!(passed == body);
        }
        prop_assert!(passed.len() <= body.len());
    }

    #[test]
    fn requests_of_any_bytes_are_read(body in stream(), path in "(/[a-z:]{0,12}){1,3}") {
        for name in FORMS {
            let request = ModelRequest::read(&form(name), &path, &body);
            if let Some(edit) = request.and_then(|request| request.include_usage) {
                let body = Bytes::from(body.clone());
                let edited = edit.apply(&body);
                prop_assert!(edited.starts_with(&body[..edit.range.start]));
                prop_assert!(edited.ends_with(&body[edit.range.end..]));
            }
        }
    }
}
