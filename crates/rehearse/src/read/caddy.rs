//! The JSON access log of Caddy. Its time is that of the end, from which the duration is subtracted.

use super::exact::ExactTime;
use super::format::ReadTerms;
use super::json::{JsonObject, texts_of};
use super::line::{LineProblem, LineRequest, NO_TIME};
use super::values::LineValues;

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    // Everything else that Caddy logs goes to the same place by default.
    let Some(request) = object.object("request") else {
        return Err(if object.has("ts") || object.has("msg") {
            LineProblem::Ignored
        } else {
            LineProblem::Malformed("it has neither `request` nor `ts`")
        });
    };
    let end = object.text("ts").and_then(|text| terms.times.read(&text));
    let end = end.ok_or(NO_TIME)?;
    let duration = object.text("duration");
    let duration = duration.and_then(|text| ExactTime::decimal(&text, 0));
    let mut read = LineRequest {
        time: Some(duration.map_or(end, |duration| end.minus(duration))),
        duration,
        address: request
            .text("client_ip")
            .or_else(|| request.text("remote_ip")),
        method: request.text("method"),
        target: request.text("uri"),
        host: request.text("host"),
        ..LineRequest::default()
    };
    if let Some(headers) = request.object("headers").filter(|_| terms.reads_headers) {
        for (name, raw) in headers.iter() {
            for value in texts_of(raw) {
                read.push_header(name.clone(), value);
            }
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}
