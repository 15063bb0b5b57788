use super::*;

const ESTIMATE: TokenCounts = TokenCounts {
    input: 10,
    cached: 0,
    cache_write: 0,
    output: 1_000,
};

fn form(name: &str) -> UsageForm {
    let setting = crate::UsageSetting::named(name).unwrap();
    setting.form("/").unwrap().clone()
}

/// What is charged for a body that is fed in one piece.
fn charged(
    name: &str,
    kind: AnswerKind,
    body: &str,
    end: AnswerEnd,
) -> (UsageResult, u64, u64, u64) {
    let mut reader = AnswerReader::new(&form(name), kind, 1);
    reader.pass(Bytes::from(body.to_owned()));
    if end == AnswerEnd::Complete {
        reader.end();
    }
    let (result, counts) = reader.charge(end, &ESTIMATE);
    (result, counts.input, counts.cached, counts.output)
}

fn json(body: &str) -> (UsageResult, u64, u64, u64) {
    charged("openai", AnswerKind::Json, body, AnswerEnd::Complete)
}

const KEPT: (UsageResult, u64, u64, u64) = (UsageResult::Unreadable, 10, 0, 1_000);

#[test]
fn numbers_that_are_no_counts_leave_the_estimate() {
    for number in [
        "-1",
        "1.5",
        "1e400",
        "99999999999999999999",
        "\"25\"",
        "true",
        "[25]",
        "{}",
        "9007199254740992",
    ] {
        let body = format!(r#"{{"usage": {{"prompt_tokens": {number}, "completion_tokens": 5}}}}"#);
        assert_eq!(json(&body), KEPT, "{number}");
    }
    let digits = "9".repeat(100_000);
    let body = format!(r#"{{"usage": {{"prompt_tokens": {digits}}}}}"#);
    assert_eq!(json(&body), KEPT);
    // Their sum is too large.
    let body = r#"{"usage": {"prompt_tokens": 9007199254740991, "completion_tokens": 1}}"#;
    assert_eq!(json(body), KEPT);
}

#[test]
fn the_last_value_wins_and_null_is_none() {
    for (body, counts) in [
        (
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens":3}}"#,
            (3, 2),
        ),
        (
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":2},"usage":{"prompt_tokens":3}}"#,
            (3, 2),
        ),
        (
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":2},"usage":null}"#,
            (1, 2),
        ),
        (
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens":null}}"#,
            (1, 2),
        ),
        (
            r#"{"usage":{"prompt_tokens":-1,"completion_tokens":2,"prompt_tokens":4}}"#,
            (4, 2),
        ),
        (
            r#"{"us\u0061ge":{"prompt\u005Ftokens":8,"completion_tokens":2}}"#,
            (8, 2),
        ),
        (
            r#"{"usage":{"input_tokens":8,"output_tokens":25.0}}"#,
            (8, 25),
        ),
        // Output that is not reported is none, input is as estimated.
        (r#"{"usage":{"prompt_tokens":8}}"#, (8, 0)),
        (r#"{"usage":{"completion_tokens":8}}"#, (10, 8)),
    ] {
        let expected = (UsageResult::Reported, counts.0, 0, counts.1);
        assert_eq!(json(body), expected, "{body}");
    }
}

#[test]
fn what_is_not_json_is_unreadable_and_without_usage_it_is_missing() {
    let deep = "[".repeat(100_000);
    for body in [
        r#"{"usage": {"prompt_tokens": 5}"#,
        r#"{"usage": {"prompt_tokens": 5}}}"#,
        r#"{"usage": {"prompt_tokens": 5,}}"#,
        r#"{"usage": {"prompt_tokens" 5}}"#,
        r#"{"usage": {"prompt_tokens": 5], "x": 1}"#,
        r#"{"usage": nul}"#,
        "{'usage': 1}",
        r#"{"a": "\x"}"#,
        r#"{"a": "\u12g4"}"#,
        "not json",
        "{\"usage\": {\"prompt_tokens\": 5}",
        &deep,
    ] {
        let (result, ..) = json(body);
        // A whole object may be settled before the rest comes.
        let is_early = body.ends_with("}}}");
        assert_eq!(result == UsageResult::Unreadable, !is_early, "{body:.60}");
    }
    for body in [
        "",
        "  \n",
        "{}",
        "[]",
        r#"{"usage": null}"#,
        r#"{"usage": {}}"#,
    ] {
        assert_eq!(json(body), (UsageResult::Missing, 10, 0, 1_000), "{body}");
    }
    let sound = charged("openai", AnswerKind::Other, "ID3\x04", AnswerEnd::Complete);
    assert_eq!(sound.0, UsageResult::Missing);
    let broken = charged("openai", AnswerKind::Other, "{\"a\": ", AnswerEnd::Complete);
    assert_eq!(broken.0, UsageResult::Unreadable);
}

#[test]
fn a_cut_keeps_the_reported_input_and_the_larger_output() {
    use AnswerEnd::Cut;
    let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n";
    let events = |body: &str| charged("anthropic", AnswerKind::Events, body, Cut);
    assert_eq!(events(start), (UsageResult::Cut, 25, 0, 1_000));
    assert_eq!(events(""), (UsageResult::Cut, 10, 0, 1_000));
    let more = format!("{start}data: {{\"type\":\"x\",\"usage\":{{\"output_tokens\":5000}}}}\n\n");
    assert_eq!(events(&more), (UsageResult::Cut, 25, 0, 5_000));
    let last = format!(
        "{start}data: {{\"type\":\"message_delta\",\"usage\":{{\"output_tokens\":15}}}}\n\n"
    );
    assert_eq!(events(&last), (UsageResult::Reported, 25, 0, 15));
    // In the middle of an object, and of a number.
    let json = |body: &str| charged("openai", AnswerKind::Json, body, Cut);
    let cut = r#"{"usage":{"prompt_tokens":20,"completion_tokens":12"#;
    assert_eq!(json(cut), (UsageResult::Cut, 20, 0, 1_000));
    let whole = r#"{"usage":{"prompt_tokens":20,"completion_tokens":12}}"#;
    assert_eq!(json(whole), (UsageResult::Reported, 20, 0, 12));
}

#[test]
fn an_event_that_cannot_be_read_is_skipped() {
    let events = |body: &str| charged("openai", AnswerKind::Events, body, AnswerEnd::Complete);
    let usage = "data: {\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":5}}\n\n";
    let broken = "data: {\"usage\":{\"prompt_tokens\":99,\n\n";
    let reported = (UsageResult::Reported, 4, 0, 5);
    assert_eq!(events(&format!("{usage}{broken}")), reported);
    assert_eq!(events(&format!("{broken}{usage}")), reported);
    assert_eq!(events(broken), KEPT);
    assert_eq!(events("data: ping\n\n"), KEPT);
    assert_eq!(events(": ping\n\ndata:\n\n").0, UsageResult::Missing);
    assert_eq!(events("data: [DONE]\n\n").0, UsageResult::Missing);
    // Over two lines, and without the empty line at the end.
    let lines = "data: {\"usage\":\ndata: {\"prompt_tokens\":4,\"completion_tokens\":5}}";
    assert_eq!(events(lines), reported);
}

#[test]
fn every_candidate_must_have_ended() {
    let chunk = |count: u64| {
        let text = format!(
            "data: {{\"candidates\":[{{\"finishReason\":\"STOP\"}}],\"usageMetadata\":{{\"promptTokenCount\":9,\"candidatesTokenCount\":{count}}}}}\n\n"
        );
        Bytes::from(text)
    };
    let mut reader = AnswerReader::new(&form("gemini"), AnswerKind::Events, 2);
    reader.pass(chunk(5));
    assert!(!reader.is_final());
    reader.pass(chunk(11));
    assert!(reader.is_final());
    let (_, counts) = reader.charge(AnswerEnd::Cut, &ESTIMATE);
    assert_eq!(counts, TokenCounts::new(9, 11));
}

#[test]
fn the_kind_of_an_answer_is_its_content_type() {
    for (text, kind) in [
        (&b"text/event-stream"[..], AnswerKind::Events),
        (b"Text/Event-Stream; charset=utf-8", AnswerKind::Events),
        (b"application/json", AnswerKind::Json),
        (b"application/problem+json;x=1", AnswerKind::Json),
        (b"audio/mpeg", AnswerKind::Other),
    ] {
        assert_eq!(AnswerKind::of(Some(text)), kind);
    }
    assert_eq!(AnswerKind::of(None), AnswerKind::Json);
}

#[test]
fn only_the_extra_event_is_left_out() {
    let stream = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\ndata: {\"choices\":[{}],\"usage\":null}\n\n";
    let extra = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4}}\n\n";
    let done = "data: [DONE]\n\n";
    for (ends, count) in [("\n", 1), ("\r\n", 2), ("\r", 1)] {
        let [stream, extra, done] = [stream, extra, done].map(|text| text.replace('\n', ends));
        let body = format!("{stream}{extra}{done}{extra}");
        for size in 1..body.len() {
            let mut reader = AnswerReader::new(&form("openai"), AnswerKind::Events, 1);
            reader = reader.leave_out_usage();
            let mut passed = Vec::new();
            for piece in body.as_bytes().chunks(size) {
                let bytes = reader.pass(Bytes::copy_from_slice(piece));
                bytes
                    .iter()
                    .for_each(|bytes| passed.extend_from_slice(bytes));
            }
            passed.extend(reader.end().unwrap_or_default());
            let passed = String::from_utf8(passed).unwrap();
            assert_eq!(passed, format!("{stream}{done}"), "{size} {count}");
            assert!(reader.is_final());
        }
    }
}

#[test]
fn an_event_is_held_until_it_is_whole_or_too_long() {
    let mut reader = AnswerReader::new(&form("openai"), AnswerKind::Events, 1).leave_out_usage();
    let mut pass = |text: &str| {
        let passed = reader.pass(Bytes::from(text.to_owned()));
        passed.iter().map(Bytes::len).sum::<usize>()
    };
    assert_eq!(pass("data: {\"id\":"), 0);
    assert_eq!(pass("1}\n\n"), 16);
    // Known not to be the extra one as soon as it has a choice.
    assert_eq!(pass("data: {\"choices\":[{\"a\":"), 23);
    assert_eq!(pass("1}]}\n\n"), 6);
    // Two events, the second one open.
    assert_eq!(pass("data: 1\n\ndata: {\"a\":\""), 9);
    let long = "x".repeat(30 * 1_024);
    assert_eq!(pass(&long), 0);
    assert_eq!(pass(&long), 0);
    assert_eq!(pass(&long), 3 * long.len() + 12);
    assert_eq!(pass("\"}\n"), 3);
    assert_eq!(pass("\ndata: 1"), 1);
}
