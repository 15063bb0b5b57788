//! The JSON access log of Traefik. Its text form is the combined format.

use std::borrow::Cow;

use super::exact::ExactTime;
use super::format::{ReadTerms, other_message};
use super::json::{JsonObject, text_of};
use super::line::{LineProblem, LineRequest, NO_TIME};
use super::values::LineValues;

/// The fields of request headers begin with this.
const HEADER: &str = "request_";

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    if !object.has("StartUTC") && !object.has("StartLocal") {
        return Err(other_message(&object));
    }
    let time = object
        .text("StartUTC")
        .or_else(|| object.text("StartLocal"));
    let time = time.and_then(|text| terms.times.read(&text));
    // In nanoseconds.
    let duration = object.text("Duration");
    let duration = duration.and_then(|text| ExactTime::decimal(&text, 9));
    let mut read = LineRequest {
        time: Some(time.ok_or(NO_TIME)?),
        duration,
        address: object.text("ClientHost"),
        method: object.text("RequestMethod"),
        target: object.text("RequestPath"),
        host: object.text("RequestHost"),
        ..LineRequest::default()
    };
    if terms.reads_headers {
        for (name, raw) in object.iter() {
            if let (Some(header), Some(value)) = (name.strip_prefix(HEADER), text_of(raw)) {
                read.push_header(Cow::Owned(header.to_owned()), value);
            }
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}
