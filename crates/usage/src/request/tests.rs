use bytes::Bytes;

use super::*;

const CHAT: &str = "/v1/chat/completions";

fn read_at(form: &UsageForm, path: &str, body: &str) -> ModelRequest {
    ModelRequest::read(form, path, body.as_bytes()).unwrap()
}

fn read(body: &str) -> ModelRequest {
    read_at(&UsageForm::openai(), CHAT, body)
}

/// The body as it is forwarded.
fn with_usage(path: &str, body: &str) -> String {
    let request = read_at(&UsageForm::openai(), path, body);
    let body = Bytes::from(body.to_owned());
    let edited = match &request.include_usage {
        Some(edit) => edit.apply(&body),
        None => body,
    };
    String::from_utf8(edited.to_vec()).unwrap()
}

#[test]
fn the_first_maximum_present_counts_and_of_duplicates_the_largest() {
    for (body, maximum) in [
        ("{}", None),
        (r#"{"max_tokens": 5}"#, Some(5)),
        (
            r#"{"max_tokens": 500, "max_completion_tokens": 5}"#,
            Some(5),
        ),
        (
            r#"{"max_output_tokens": 6, "max_completion_tokens": null}"#,
            Some(6),
        ),
        (r#"{"max_tokens": 7, "max_completion_tokens": 0}"#, Some(7)),
        (r#"{"max_tokens": 7, "max_completion_tokens": -3}"#, Some(7)),
        (
            r#"{"max_tokens": 7, "max_completion_tokens": "9"}"#,
            Some(7),
        ),
        (r#"{"max_tokens": 7.5}"#, None),
        (r#"{"max_tokens": 1e2}"#, Some(100)),
        (r#"{"max_tokens": 1, "max_tokens": 90}"#, Some(90)),
        (r#"{"max_tokens": 90, "max_tokens": 1}"#, Some(90)),
        (r#"{"max_\u0074okens": 90}"#, Some(90)),
        (r#"{"max_tokens": 1e300}"#, Some(MAX_NUMBER)),
        (r#"{"messages": [{"max_tokens": 5}]}"#, None),
        (r#"{"x": {"max_tokens": 5}}"#, None),
    ] {
        assert_eq!(read(body).maximum, maximum, "{body}");
    }
}

#[test]
fn times_are_the_largest() {
    for (body, times) in [
        ("{}", 1),
        (r#"{"n": 3}"#, 3),
        (r#"{"n": 3, "best_of": 5}"#, 5),
        (r#"{"n": 0, "best_of": null}"#, 1),
        (r#"{"n": 2, "n": 1}"#, 2),
    ] {
        assert_eq!(read(body).times, times, "{body}");
    }
}

#[test]
fn each_form_has_its_own_paths() {
    let gemini = r#"{"generationConfig": {"maxOutputTokens": 30, "candidateCount": 2}}"#;
    let path = "/v1beta/models/gemini-2.5-flash:generateContent";
    let request = read_at(&UsageForm::gemini(), path, gemini);
    assert_eq!((request.maximum, request.times), (Some(30), 2));
    assert_eq!(request.model.as_deref(), Some("gemini-2.5-flash"));

    let anthropic = r#"{"model": "claude-sonnet-4-5", "max_tokens": 1024, "n": 7}"#;
    let request = read_at(&UsageForm::anthropic(), "/v1/messages", anthropic);
    assert_eq!((request.maximum, request.times), (Some(1_024), 1));
    assert_eq!(request.model.as_deref(), Some("claude-sonnet-4-5"));

    let form = crate::OwnForm {
        maximum: vec!["opts.limit|opts.max".to_owned(), "max".to_owned()],
        times: vec!["count".to_owned()],
        input: vec!["in".to_owned()],
        ..crate::OwnForm::default()
    };
    let own = r#"{"max": 1, "opts": {"max": 4, "limit": 3}, "count": 6, "model": "m"}"#;
    let request = read_at(&UsageForm::own(&form), "/generate", own);
    assert_eq!((request.maximum, request.times), (Some(4), 6));
    assert_eq!(request.model.as_deref(), Some("m"));
}

#[test]
fn the_model_is_that_of_the_body_unless_the_provider_goes_by_the_path() {
    for (path, body, model) in [
        (CHAT, r#"{"model": "gpt-5"}"#, Some("gpt-5")),
        (CHAT, r#"{"model": "a", "model": "b"}"#, Some("b")),
        (CHAT, r#"{"model": 7}"#, None),
        (CHAT, r#"{"model": ""}"#, None),
        (
            "/openai/deployments/my-gpt/chat/completions",
            r#"{"model": "cheap"}"#,
            Some("my-gpt"),
        ),
        ("/x/foo:bar", r#"{"model": "gpt-5"}"#, Some("gpt-5")),
        ("/x/foo:bar", "{}", Some("foo")),
    ] {
        let request = read_at(&UsageForm::openai(), path, body);
        assert_eq!(request.model.as_deref(), model, "{path} {body}");
    }
    let body = r#"{"model": "models/gemini-2.5-flash-lite"}"#;
    for (path, model) in [
        (
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "gemini-2.5-pro",
        ),
        ("/x/foo:generateContent", "gemini-2.5-flash-lite"),
    ] {
        let request = read_at(&UsageForm::gemini(), path, body);
        assert_eq!(request.model.as_deref(), Some(model), "{path}");
    }
    let body = r#"{"model": "models/embedding-001"}"#;
    let request = read_at(&UsageForm::gemini(), "/embed", body);
    assert_eq!(request.model.as_deref(), Some("embedding-001"));
}

#[test]
fn input_is_estimated_by_bytes_and_media() {
    let settings = EstimateSettings::default();
    assert_eq!(read("{}").estimate(&settings).input(), 1);
    assert_eq!(read(r#"{"a":1}"#).estimate(&settings).input(), 2);
    let picture = "A".repeat(40_000);
    let body = format!(r#"{{"image":"data:image/png;base64,{picture}","text":"hello"}}"#);
    let rest = body.len() - "data:image/png;base64,".len() - 40_000;
    let estimate = read(&body).estimate(&settings);
    assert_eq!(estimate.input(), 1_000 + (rest as u64).div_ceil(4));
    // Not JSON: nothing is taken as media.
    let broken = format!("{body}]");
    let estimate = read(&broken).estimate(&settings);
    assert_eq!(estimate.input(), (broken.len() as u64).div_ceil(4));
}

#[test]
fn output_is_estimated_by_the_maximum() {
    let settings = EstimateSettings {
        output_cap: Some(800),
        ..EstimateSettings::default()
    };
    for (body, output) in [
        ("{}", 1_000),
        (r#"{"n": 3}"#, 3_000),
        (r#"{"max_tokens": 50}"#, 50),
        (r#"{"max_tokens": 50, "n": 4}"#, 200),
        (r#"{"max_tokens": 32000}"#, 800),
        (r#"{"max_tokens": 1e300, "n": 1e300}"#, MAX_NUMBER),
    ] {
        assert_eq!(read(body).estimate(&settings).output(), output, "{body}");
    }
    let embedding = read_at(&UsageForm::openai(), "/v1/embeddings", "{}");
    assert_eq!(embedding.estimate(&settings).output(), 0);
    let path = "/v1beta/models/e:batchEmbedContents";
    let embedding = read_at(&UsageForm::gemini(), path, "{}");
    assert_eq!(embedding.estimate(&settings).output(), 0);
}

#[test]
fn usage_is_asked_for_byte_by_byte() {
    for (body, forwarded) in [
        // Nothing to add.
        ("{}", "{}"),
        (r#"{"stream":false}"#, r#"{"stream":false}"#),
        (r#"{"stream":"true"}"#, r#"{"stream":"true"}"#),
        (
            r#"{"stream":true,"stream":false}"#,
            r#"{"stream":true,"stream":false}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (r#"{"stream":true"#, r#"{"stream":true"#),
        (
            r#"{"stream":true,"stream_options":[]}"#,
            r#"{"stream":true,"stream_options":[]}"#,
        ),
        // No options.
        (
            " {\n  \"stream\" : true }\n",
            " {\"stream_options\":{\"include_usage\":true},\n  \"stream\" : true }\n",
        ),
        (
            r#"{"stream":true,"stream_options":null}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        // Other options.
        (
            r#"{"stream_options":{ },"stream":true}"#,
            r#"{"stream_options":{"include_usage":true },"stream":true}"#,
        ),
        (
            r#"{"stream_options":{"x": [{}]},"stream":true}"#,
            r#"{"stream_options":{"include_usage":true,"x": [{}]},"stream":true}"#,
        ),
        // It says no.
        (
            r#"{"stream_options":{"include_usage": false },"stream":true}"#,
            r#"{"stream_options":{"include_usage": true },"stream":true}"#,
        ),
        (
            r#"{"stream_options":{"include_usage":null},"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"stream":true}"#,
        ),
        (
            r#"{"stream_options":{"include\u005fusage":0},"stream":true}"#,
            r#"{"stream_options":{"include\u005fusage":true},"stream":true}"#,
        ),
        // The last one counts.
        (
            r#"{"stream_options":{"include_usage":true},"stream_options":{},"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true},"stream":true}"#,
        ),
        // Names below are others.
        (
            r#"{"stream":true,"a":{"stream_options":{"include_usage":true}}}"#,
            r#"{"stream_options":{"include_usage":true},"stream":true,"a":{"stream_options":{"include_usage":true}}}"#,
        ),
        (
            "\u{feff}{\"stream\":true}",
            "\u{feff}{\"stream_options\":{\"include_usage\":true},\"stream\":true}",
        ),
    ] {
        for path in [CHAT, "/v1/completions"] {
            assert_eq!(with_usage(path, body), forwarded);
        }
        assert_eq!(with_usage("/v1/responses", body), body);
    }
    let stream = r#"{"stream":true}"#;
    let request = read_at(&UsageForm::anthropic(), "/v1/messages", stream);
    assert!(request.is_stream && request.include_usage.is_none());
}

#[test]
fn a_body_that_is_no_object_is_not_read() {
    for body in ["", "  ", "[1]", "text", "--boundary", "\"a\"", "1"] {
        let read = ModelRequest::read(&UsageForm::openai(), CHAT, body.as_bytes());
        assert!(read.is_none(), "{body}");
    }
}

#[test]
fn a_body_in_another_encoding_is_estimated_by_its_length() {
    let text = r#"{"max_tokens": 1}"#;
    for marked in ["", "\u{feff}"] {
        let units = || marked.encode_utf16().chain(text.encode_utf16());
        let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
        for body in [little, big] {
            let request = ModelRequest::read(&UsageForm::openai(), CHAT, &body).unwrap();
            let estimate = request.estimate(&EstimateSettings::default());
            assert_eq!(estimate.output(), 1_000);
            assert_eq!(estimate.input(), (body.len() as u64).div_ceil(4));
        }
    }
}
