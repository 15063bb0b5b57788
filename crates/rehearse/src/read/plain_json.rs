//! JSON objects of any program: known names are taken, every other text or number is an attribute of its name.

use std::borrow::Cow;

use super::format::ReadTerms;
use super::json::{JsonObject, text_of};
use super::line::{LineProblem, LineRequest, LineValue, present};
use super::values::LineValues;

/// The names of times, addresses and paths, in the order in which they are looked for.
const TIMES: [&str; 4] = ["time", "timestamp", "ts", "@timestamp"];
const ADDRESSES: [&str; 3] = ["ip", "client_ip", "remote_addr"];
const PATHS: [&str; 3] = ["path", "uri", "url"];

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let fields = object.iter();
    let fields = fields.filter_map(|(name, raw)| Some((name.clone(), text_of_scalar(raw)?)));
    let mut read = from_fields(fields.collect(), terms)?;
    read.values = LineValues::Json(object);
    Ok(read)
}

/// Lists and objects are no attributes.
fn text_of_scalar(raw: &serde_json::value::RawValue) -> Option<LineValue<'_>> {
    (!raw.get().starts_with('['))
        .then(|| text_of(raw))
        .flatten()
}

/// What named fields say of a request. The time may still come from `--map`.
pub(super) fn from_fields<'l>(
    fields: Vec<(Cow<'l, str>, LineValue<'l>)>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let first = |names: &[&str]| {
        let value = |name: &&str| fields.iter().find(|(known, _)| known == name);
        let present = |value: LineValue<'l>| present(value);
        names
            .iter()
            .find_map(|name| present(value(name)?.1.clone()))
    };
    let mut read = LineRequest {
        time: first(&TIMES).and_then(|text| terms.times.read(&text)),
        address: first(&ADDRESSES),
        host: first(&["host"]),
        ..LineRequest::default()
    };
    if let Some(request) = first(&["request"]) {
        read.take_request(request)?;
    }
    read.method = first(&["method"]).or(read.method);
    read.target = first(&PATHS).or(read.target);
    let is_known = |name: &str| {
        TIMES.contains(&name)
            || ADDRESSES.contains(&name)
            || PATHS.contains(&name)
            || matches!(name, "method" | "host" | "request")
    };
    for (name, value) in fields {
        if is_known(&name) {
            continue;
        }
        if let Some(value) = present(value) {
            read.attributes.push((name, value));
        }
    }
    Ok(read)
}
