//! Requests to language models: the one change to a body asks for usage, and leaves every other value as it was.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_usage::{EstimateSettings, ModelRequest, UsageForm, UsageUnit};

/// The first byte chooses the form.
pub fn check(bytes: &[u8]) {
    let [choice, body @ ..] = bytes else {
        return;
    };
    let (form, path) = match choice % 4 {
        0 => (UsageForm::openai(), "/v1/chat/completions"),
        1 => (UsageForm::anthropic(), "/v1/messages"),
        2 => (UsageForm::gemini(), "/v1beta/models/m:generateContent"),
        _ => (UsageForm::openai(), "/v1/embeddings"),
    };
    let Some(request) = ModelRequest::read(&form, path, body) else {
        return;
    };
    let mut estimate = request.estimate(&EstimateSettings::default());
    assert!(estimate.input() >= 1, "a body has input");
    let asked = estimate.output();
    estimate.fit(UsageUnit::Tokens, 100, None);
    assert!(estimate.output() <= asked, "fitting only reduces");
    if let Some(edit) = &request.include_usage {
        let edited = edit.apply(&Bytes::copy_from_slice(body));
        asks_for_usage(body, &edited);
        let again = ModelRequest::read(&form, path, &edited);
        assert_eq!(again.and_then(|again| again.include_usage), None);
    }
}

fn asks_for_usage(body: &[u8], edited: &[u8]) {
    let Ok(before) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    // `null` if it is no longer JSON, which then does not ask for usage.
    let mut after: Value = serde_json::from_slice(edited).unwrap_or_default();
    assert_eq!(after["stream_options"]["include_usage"], json!(true));
    match before.get("stream_options") {
        None => {
            after
                .as_object_mut()
                .and_then(|it| it.remove("stream_options"));
        }
        Some(Value::Object(options)) => {
            if let Some(old) = options.get("include_usage") {
                after["stream_options"]["include_usage"] = old.clone();
            } else if let Some(options) = after["stream_options"].as_object_mut() {
                options.remove("include_usage");
            }
        }
        Some(old) => after["stream_options"] = old.clone(),
    }
    assert_eq!(before, after);
}
