//! The default text of Envoy's access log, and that of Istio, which has three more fields.

use std::borrow::Cow;

use smallvec::{SmallVec, smallvec};

use super::exact::ExactTime;
use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, LineValue, NO_TIME, present};
use super::values::LineValues;

const NOT_ENVOY: LineProblem =
    LineProblem::Malformed("it is not `[START] \"METHOD PATH PROTOCOL\" CODE FLAGS …` of Envoy");

pub(super) fn read<'l>(
    line: &'l [u8],
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let rest = line.strip_prefix(b"[").ok_or(NOT_ENVOY)?;
    let end = memchr::memchr(b']', rest).ok_or(NOT_ENVOY)?;
    let (start, rest) = (&rest[..end], &rest[end + 1..]);
    let rest = rest.strip_prefix(b" \"").ok_or(NOT_ENVOY)?;
    let (request, rest) = in_quotes(rest).ok_or(NOT_ENVOY)?;
    let fields = fields_of(rest).ok_or(NOT_ENVOY)?;
    // Istio writes why the answer came, how the connection ended, and in quotes why the upstream failed.
    let shift = match fields.get(4) {
        Some((_, true)) => 3,
        _ => 0,
    };
    let field = |index: usize| fields.get(index).map(|(value, _)| *value);
    let named = |index: usize| field(index + shift).map_or(&b""[..], |value| value);
    let code = field(0).ok_or(NOT_ENVOY)?;
    if !code.iter().all(u8::is_ascii_digit) || fields.len() < 11 + shift {
        return Err(NOT_ENVOY);
    }
    let forwarded: LineValue<'l> = named(6).into();
    let mut read = LineRequest {
        time: Some(terms.times.read(start).ok_or(NO_TIME)?),
        duration: ExactTime::decimal(named(4), 3),
        address: present(forwarded.clone()).and_then(last_forwarded),
        host: present(named(9).into()),
        ..LineRequest::default()
    };
    for (name, index) in [
        ("x-forwarded-for", 6),
        ("user-agent", 7),
        ("x-request-id", 8),
    ] {
        read.push_header(name, named(index).into());
    }
    if terms.keeps_values {
        read.values = LineValues::Variables(smallvec![
            ("start_time", start.into()),
            ("request", request.into()),
            ("response_code", code.into()),
            ("duration", named(4).into()),
            ("x_forwarded_for", forwarded),
            ("user_agent", named(7).into()),
            ("request_id", named(8).into()),
            ("authority", named(9).into()),
            ("upstream_host", named(10).into()),
        ]);
    }
    read.take_request(request.into())?;
    Ok(read)
}

/// Fields, and whether each is in quotes.
type EnvoyFields<'l> = SmallVec<[(&'l [u8], bool); 16]>;

/// The fields after the request.
fn fields_of(mut rest: &[u8]) -> Option<EnvoyFields<'_>> {
    let mut fields = SmallVec::new();
    loop {
        rest = match rest {
            [] => return Some(fields),
            [b' ', after @ ..] => after,
            [b'"', after @ ..] => {
                let (value, after) = in_quotes(after)?;
                fields.push((value, true));
                after
            }
            _ => {
                let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
                fields.push((&rest[..end], false));
                &rest[end..]
            }
        };
    }
}

/// A text up to the first `"` before a space or the end: Envoy does not escape quotes.
fn in_quotes(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut quotes = memchr::memchr_iter(b'"', text);
    let end = quotes.find(|at| matches!(text.get(at + 1), None | Some(b' ')))?;
    Some((&text[..end], &text[end + 1..]))
}

/// The last address of `X-Forwarded-For`: the one that the nearest proxy wrote.
pub(super) fn last_forwarded(header: LineValue<'_>) -> Option<LineValue<'_>> {
    let start = memchr::memrchr(b',', &header).map_or(0, |at| at + 1);
    let last = match header {
        Cow::Borrowed(bytes) => Cow::Borrowed(bytes[start..].trim_ascii()),
        Cow::Owned(bytes) => Cow::Owned(bytes[start..].trim_ascii().to_vec()),
    };
    present(last)
}
