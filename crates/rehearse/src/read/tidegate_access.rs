//! The access log of Tidegate's server.

use super::exact::ExactTime;
use super::format::{ReadTerms, other_message};
use super::json::{JsonObject, text_of};
use super::line::{LineProblem, LineRequest, NO_TIME};
use super::values::LineValues;

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    if !object.has("front_end") || !object.has("client") || !object.has("time") {
        return Err(other_message(&object));
    }
    let time = object.text("time").and_then(|text| terms.times.read(&text));
    let duration = object.text("duration");
    let mut read = LineRequest {
        time: Some(time.ok_or(NO_TIME)?),
        duration: duration.and_then(|text| ExactTime::decimal(&text, 0)),
        address: object.text("client"),
        method: object.text("method"),
        target: object.text("path"),
        ..LineRequest::default()
    };
    if let Some(headers) = object.object("headers") {
        for (name, raw) in headers.iter() {
            if let Some(value) = text_of(raw) {
                if name.eq_ignore_ascii_case("host") {
                    read.host = Some(value.clone());
                }
                read.push_header(name.clone(), value);
            }
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}
