//! Entries of Google Cloud's load balancers, as Cloud Logging exports them.

use super::exact::ExactTime;
use super::format::ReadTerms;
use super::json::JsonObject;
use super::line::{LineProblem, LineRequest, NO_TIME};
use super::values::LineValues;

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let Some(request) = object.object("httpRequest") else {
        return Err(if object.has("timestamp") && object.has("logName") {
            LineProblem::Ignored
        } else {
            LineProblem::Malformed("it has no `httpRequest`")
        });
    };
    let time = object
        .text("timestamp")
        .and_then(|text| terms.times.read(&text));
    // Such as `0.012s`.
    let latency = request.text("latency");
    let latency = latency.and_then(|text| ExactTime::decimal(text.strip_suffix(b"s")?, 0));
    let mut read = LineRequest {
        time: Some(time.ok_or(NO_TIME)?),
        duration: latency,
        address: request.text("remoteIp"),
        method: request.text("requestMethod"),
        target: request.text("requestUrl"),
        ..LineRequest::default()
    };
    for (header, name) in [("user-agent", "userAgent"), ("referer", "referer")] {
        if let Some(value) = request.text(name) {
            read.push_header(header, value);
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}
