//! Answers of language models: the same in any pieces, passed on byte for byte, and numbers as `serde_json` reads them.

use bytes::Bytes;
use serde_json::Value;
use tidegate_usage::{AnswerEnd, AnswerKind, AnswerReader, TokenCounts, UsageForm, UsageResult};

/// The first byte chooses the form and the kind of the answer, the second the size of the pieces.
pub fn check(bytes: &[u8]) {
    let [choice, size, body @ ..] = bytes else {
        return;
    };
    let form = match choice % 4 {
        0 | 3 => UsageForm::openai(),
        1 => UsageForm::anthropic(),
        _ => UsageForm::gemini(),
    };
    let kind = match choice / 4 % 4 {
        0 | 3 => AnswerKind::Events,
        1 => AnswerKind::Json,
        _ => AnswerKind::Other,
    };
    let leaves_out = choice / 16 % 2 == 1;
    let whole = read(&form, kind, leaves_out, &[body]);
    let pieces: Vec<&[u8]> = body.chunks(usize::from(*size).max(1)).collect();
    assert_eq!(whole, read(&form, kind, leaves_out, &pieces));
    if leaves_out && kind == AnswerKind::Events {
        assert!(is_part(&whole.passed, body), "bytes were only left out");
    } else {
        assert_eq!(whole.passed, body);
    }
    if kind == AnswerKind::Json && choice % 4 == 0 {
        as_serde_reads_it(body, &whole);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ReadModelAnswer {
    passed: Vec<u8>,
    is_final: bool,
    cut: (UsageResult, TokenCounts),
    complete: (UsageResult, TokenCounts),
}

fn read(form: &UsageForm, kind: AnswerKind, leaves_out: bool, pieces: &[&[u8]]) -> ReadModelAnswer {
    let mut reader = AnswerReader::new(form, kind, 1);
    if leaves_out {
        reader = reader.leave_out_usage();
    }
    let (mut passed, mut given) = (Vec::new(), 0);
    for piece in pieces {
        given += piece.len();
        for bytes in reader.pass(Bytes::copy_from_slice(piece)) {
            passed.extend_from_slice(&bytes);
        }
        assert!(leaves_out || passed.len() == given, "nothing is held");
    }
    let estimate = TokenCounts::new(10, 1_000);
    let cut = reader.charge(AnswerEnd::Cut, &estimate);
    passed.extend(reader.end().unwrap_or_default());
    ReadModelAnswer {
        passed,
        is_final: reader.is_final(),
        cut,
        complete: reader.charge(AnswerEnd::Complete, &estimate),
    }
}

/// Whether a text is another one with parts left out.
fn is_part(part: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|byte| rest.any(|other| other == byte))
}

fn as_serde_reads_it(body: &[u8], read: &ReadModelAnswer) {
    let Ok(document) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    // Other names of the same number, and escapes in them, could come later in the text.
    let text = String::from_utf8_lossy(body);
    let names = [
        "input_tokens",
        "output_tokens",
        "_details",
        "response",
        "\\",
    ];
    if !document.is_object() || names.iter().any(|name| text.contains(name)) {
        return;
    }
    let number = |name: &str| document.get("usage")?.get(name)?.as_u64();
    let (Some(input), Some(output)) = (number("prompt_tokens"), number("completion_tokens")) else {
        return;
    };
    let expected = if input.saturating_add(output) < 1 << 53 {
        (UsageResult::Reported, TokenCounts::new(input, output))
    } else {
        (UsageResult::Unreadable, TokenCounts::new(10, 1_000))
    };
    assert_eq!(read.complete, expected);
}
