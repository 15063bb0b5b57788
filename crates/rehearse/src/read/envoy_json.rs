//! JSON access logs of Envoy, with the fields named as in its examples, by Istio and by Envoy Gateway.

use super::envoy::last_forwarded;
use super::exact::ExactTime;
use super::format::{ReadTerms, other_message};
use super::json::JsonObject;
use super::line::{LineProblem, LineRequest, NO_TIME, without_port};
use super::values::LineValues;

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    if !object.has("start_time") {
        return Err(other_message(&object));
    }
    let time = object
        .text("start_time")
        .and_then(|text| terms.times.read(&text));
    let first = |names: &[&str]| names.iter().find_map(|name| object.text(name));
    let forwarded = first(&["x_forwarded_for", "x-forwarded-for"]);
    let peer = object.text("downstream_remote_address").map(without_port);
    let mut read = LineRequest {
        time: Some(time.ok_or(NO_TIME)?),
        // In milliseconds.
        duration: object
            .text("duration")
            .and_then(|text| ExactTime::decimal(&text, 3)),
        address: peer.or_else(|| forwarded.clone().and_then(last_forwarded)),
        method: first(&["method", ":method"]),
        target: first(&[
            "x-envoy-original-path",
            "x-envoy-origin-path",
            "path",
            ":path",
        ]),
        host: first(&["authority", ":authority"]),
        ..LineRequest::default()
    };
    let headers = [
        ("x-forwarded-for", forwarded),
        ("user-agent", first(&["user_agent", "user-agent"])),
        ("x-request-id", first(&["request_id", "x-request-id"])),
    ];
    for (name, value) in headers {
        if let Some(value) = value {
            read.push_header(name, value);
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}
