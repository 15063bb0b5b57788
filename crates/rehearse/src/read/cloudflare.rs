//! HTTP requests of Cloudflare's Logpush.

use super::exact::ExactTime;
use super::format::{ReadTerms, other_message};
use super::json::{JsonObject, text_of};
use super::line::{LineProblem, LineRequest, NO_TIME};
use super::values::LineValues;

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    if !object.has("EdgeStartTimestamp") {
        return Err(other_message(&object));
    }
    let mut time = |name: &str| -> Option<ExactTime> {
        object.text(name).and_then(|text| terms.times.read(&text))
    };
    let start = time("EdgeStartTimestamp").ok_or(NO_TIME)?;
    let end = time("EdgeEndTimestamp");
    let target = object.text("ClientRequestURI");
    let mut read = LineRequest {
        time: Some(start),
        duration: end.filter(|end| *end >= start).map(|end| end.minus(start)),
        address: object.text("ClientIP"),
        method: object.text("ClientRequestMethod"),
        target: target.or_else(|| object.text("ClientRequestPath")),
        host: object.text("ClientRequestHost"),
        ..LineRequest::default()
    };
    let named = [
        ("user-agent", "ClientRequestUserAgent"),
        ("referer", "ClientRequestReferer"),
    ];
    for (header, name) in named {
        if let Some(value) = object.text(name) {
            read.push_header(header, value);
        }
    }
    if let Some(headers) = object.object("RequestHeaders") {
        for (name, raw) in headers.iter() {
            if let Some(value) = text_of(raw) {
                read.push_header(name.clone(), value);
            }
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}
