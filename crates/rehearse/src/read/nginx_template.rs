//! `log_format` of nginx: which variable means what. Its lines are written at the end of a request.

use super::exact::ExactTime;
use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, present};
use super::template::{TemplateParts, TemplateValues};
use super::values::LineValues;

/// The variables that are times, the most exact first.
pub(super) const TIMES: [&str; 3] = ["msec", "time_iso8601", "time_local"];

/// The text before the first variable, and each variable with the text after it.
pub(super) fn parts_of(text: &str) -> TemplateParts {
    let mut start = Vec::new();
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let variable = (c == '$').then(|| variable_of(after)).flatten();
        if let Some((name, after)) = variable {
            parts.push((name.to_owned(), Vec::new()));
            rest = after;
        } else {
            let literal = parts.last_mut().map_or(&mut start, |(_, literal)| literal);
            literal.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
            rest = after;
        }
    }
    (start, parts)
}

fn variable_of(text: &str) -> Option<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(inner) = text.strip_prefix('{') {
        return inner
            .split_once('}')
            .filter(|(name, _)| !name.is_empty() && name.chars().all(is_name));
    }
    let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

pub(super) fn describe<'l>(
    values: TemplateValues<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let value = |name: &str| {
        let found = values.iter().find(|(known, _)| *known == name);
        found.and_then(|(_, value)| present(value.clone()))
    };
    let end = TIMES
        .into_iter()
        .find_map(|name| terms.times.read(&value(name)?));
    let duration = value("request_time").and_then(|text| ExactTime::decimal(&text, 0));
    let mut read = LineRequest {
        time: end.map(|end| duration.map_or(end, |duration| end.minus(duration))),
        duration,
        address: value("remote_addr"),
        host: value("host")
            .or_else(|| value("http_host"))
            .or_else(|| value("server_name")),
        ..LineRequest::default()
    };
    // `-` and empty requests are those of connections without one.
    if let Some((_, request)) = values.iter().find(|(name, _)| *name == "request") {
        read.take_request(request.clone())?;
    }
    read.method = value("request_method").or(read.method);
    read.target = value("request_uri")
        .or(read.target)
        .or_else(|| value("uri"));
    for (name, value) in &values {
        if let Some(header) = name.strip_prefix("http_") {
            read.push_header(header.replace('_', "-"), value.clone());
        }
    }
    read.values = LineValues::Variables(values);
    Ok(read)
}
