//! Format strings of Envoy's access logs: which operator means what. Its times are those of the arrival.

use jiff::fmt::strtime;

use super::envoy::last_forwarded;
use super::exact::ExactTime;
use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, LineValue, present, without_port};
use super::template::{TemplateError, TemplateParts, TemplateValues};
use super::values::LineValues;

/// Whether a text has operators of Envoy.
pub(super) fn is_written(text: &str) -> bool {
    let mut operators = text.match_indices('%').map(|(at, _)| &text[at + 1..]);
    operators.any(|rest| {
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii_uppercase() || *c == '_')
            .collect();
        name.len() > 2 && rest[name.len()..].starts_with(['%', '(', ':'])
    })
}

/// Whether an operator is a time.
pub(super) fn is_time(operator: &str) -> bool {
    operator.starts_with("START_TIME")
}

/// The text before the first operator, and each operator without its percent signs, with the text after it.
pub(super) fn parts_of(text: &str) -> Result<TemplateParts, TemplateError> {
    let mut start = Vec::new();
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let literal = parts.last_mut().map_or(&mut start, |(_, literal)| literal);
        literal.extend_from_slice(&rest.as_bytes()[..at]);
        let inner = &rest[at + 1..];
        if let Some(after) = inner.strip_prefix('%') {
            literal.push(b'%');
            rest = after;
            continue;
        }
        let unfinished = || TemplateError::Unfinished {
            start: rest[at..].chars().take(20).collect(),
        };
        // An argument may have percent signs of its own.
        let head = inner.find(['%', '(']).ok_or_else(unfinished)?;
        let argument_end = if inner[head..].starts_with('(') {
            head + inner[head..]
                .find(")%")
                .or_else(|| inner[head..].find(')'))
                .ok_or_else(unfinished)?
        } else {
            head
        };
        let end = argument_end + inner[argument_end..].find('%').ok_or_else(unfinished)?;
        parts.push((inner[..end].to_owned(), Vec::new()));
        rest = &inner[end + 1..];
    }
    let literal = parts.last_mut().map_or(&mut start, |(_, literal)| literal);
    literal.extend_from_slice(rest.as_bytes());
    Ok((start, parts))
}

/// The name and the argument of an operator, without the length at which it is cut.
fn operator_of(text: &str) -> (&str, &str) {
    match text.split_once('(') {
        Some((name, argument)) => (
            name,
            argument
                .rsplit_once(')')
                .map_or("", |(argument, _)| argument),
        ),
        None => (text.split(':').next().unwrap_or_default(), ""),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as for nginx, where it can fail")]
pub(super) fn describe<'l>(
    values: TemplateValues<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let mut read = LineRequest::default();
    let mut addresses: [Option<LineValue<'l>>; 2] = [None, None];
    for (operator, value) in &values {
        let Some(value) = present(value.clone()) else {
            continue;
        };
        match operator_of(operator) {
            ("START_TIME", "") => read.time = terms.times.read(&value),
            ("START_TIME", pattern) => read.time = start_time(pattern, &value, terms),
            ("DURATION", _) => read.duration = ExactTime::decimal(&value, 3),
            ("REQ", names) => header(names, value, &mut read),
            ("REQUEST_METHOD", _) => read.method = Some(value),
            ("PATH", _) => read.target = Some(value),
            ("DOWNSTREAM_REMOTE_ADDRESS" | "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", _) => {
                addresses[0] = Some(without_port(value));
            }
            (name, _) if name.starts_with("DOWNSTREAM_DIRECT_REMOTE_ADDRESS") => {
                addresses[1] = Some(without_port(value));
            }
            _ => {}
        }
    }
    let [remote, direct] = addresses;
    let forwarded = || {
        let mut headers = read.headers.iter();
        let header = headers.find(|(name, _)| name.eq_ignore_ascii_case("x-forwarded-for"));
        header.and_then(|(_, value)| last_forwarded(value.clone()))
    };
    read.address = remote.or_else(forwarded).or(direct);
    read.values = LineValues::Variables(values);
    Ok(read)
}

/// A time by the pattern that its operator has.
fn start_time(pattern: &str, value: &[u8], terms: &mut ReadTerms) -> Option<ExactTime> {
    // Seconds with a fraction are a number like others.
    if pattern.starts_with("%s") {
        return terms.times.read(value);
    }
    let broken = strtime::parse(pattern.replace("%3f", "%f").replace("%6f", "%f"), value).ok()?;
    let time = broken.to_timestamp().ok().or_else(|| {
        let local = broken.to_datetime().ok()?;
        // Envoy writes UTC.
        jiff::tz::TimeZone::UTC.to_timestamp(local).ok()
    })?;
    Some(ExactTime::from_nanos(time.as_nanosecond()))
}

/// A header of the request, or one of its pseudo-headers; of two names the value is that of either.
fn header<'l>(names: &str, value: LineValue<'l>, read: &mut LineRequest<'l>) {
    let mut names = names.split('?');
    let first = names.next().unwrap_or_default();
    let is = |name: &str| {
        first.eq_ignore_ascii_case(name)
            || names.clone().any(|other| other.eq_ignore_ascii_case(name))
    };
    if is(":path") || is("x-envoy-original-path") {
        read.target = Some(value);
    } else if is(":method") {
        read.method = Some(value);
    } else if is(":authority") || is("host") {
        read.host = Some(value);
    } else {
        read.push_header(first.to_owned(), value);
    }
}
