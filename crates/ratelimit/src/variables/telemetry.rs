//! Logs and traces.

use tidegate::document::Node;

use super::go;
use super::reader::{MapOfSetting, Reader};
use super::table::NoteLevel;

pub(super) fn read(reader: &mut Reader<'_>) {
    log(reader);
    if !reader.is_true("TRACING_ENABLED") {
        return;
    }
    match reader.text_or_default("TRACING_EXPORTER_PROTOCOL").as_str() {
        "http" => {}
        "grpc" => {
            let text = "`TRACING_EXPORTER_PROTOCOL` is `grpc`: there are no traces, because they are sent over HTTP only; set it to `http`, and `OTEL_EXPORTER_OTLP_ENDPOINT` to a port for it";
            return reader.note(NoteLevel::Warn, text);
        }
        other => {
            let problem = format!("`{other}` is unknown; expected `http`");
            return reader.refuse("TRACING_EXPORTER_PROTOCOL", problem);
        }
    }
    let endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let given = reader.text_or_default(endpoint);
    let url = if given.contains("://") {
        given
    } else {
        format!("http://{given}")
    };
    reader.set("otlp", Node::setting(endpoint, &url), &["TRACING_ENABLED"]);
    let name = "TRACING_SAMPLING_RATE";
    if let Ok(share) = go::number(&reader.text_or_default(name)) {
        let share = Node::setting(name, &share.clamp(0.0, 1.0).to_string());
        reader.set("otlp_sampling", share, &["TRACING_ENABLED"]);
    }
    let mut service = MapOfSetting::of("TRACING_SERVICE_NAME");
    for (key, name) in [
        ("name", "TRACING_SERVICE_NAME"),
        ("namespace", "TRACING_SERVICE_NAMESPACE"),
        ("instance", "TRACING_SERVICE_INSTANCE_ID"),
    ] {
        let text = reader.text_or_default(name);
        if !text.is_empty() {
            service.put_text(key, name, &text);
        }
    }
    reader.set("otlp_service", service.into_node(), &["TRACING_ENABLED"]);
}

fn log(reader: &mut Reader<'_>) {
    let name = "LOG_LEVEL";
    let level = reader.text_or_default(name).to_lowercase();
    let level = match level.as_str() {
        "panic" | "fatal" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" | "debug" | "trace" => &level,
        other => {
            let problem = format!(
                "`{other}` is not a log level; expected one of `panic`, `fatal`, `error`, `warn`, `warning`, `info`, `debug` and `trace`"
            );
            return reader.refuse(name, problem);
        }
    };
    reader.set("log_level", Node::setting(name, level), &[name]);
    let name = "LOG_FORMAT";
    // Anything else is text there, too.
    let is_json = reader.text_or_default(name).eq_ignore_ascii_case("json");
    let format = if is_json { "json" } else { "text" };
    reader.set("log_format", Node::setting(name, format), &[name]);
}
