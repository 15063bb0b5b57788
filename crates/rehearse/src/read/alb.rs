//! Access logs of AWS Application Load Balancers.

use smallvec::SmallVec;

use super::combined::quoted;
use super::exact::ExactTime;
use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, NO_TIME, before_port, present};
use super::values::LineValues;

const NOT_ALB: LineProblem =
    LineProblem::Malformed("it has not the fields of an Application Load Balancer");

/// The fields that are of use, by their positions.
#[rustfmt::skip]
const NAMES: [&str; 22] = [
    "type", "time", "elb", "client", "target", "request_processing_time", "target_processing_time",
    "response_processing_time", "elb_status_code", "target_status_code", "received_bytes", "sent_bytes", "request",
    "user_agent", "ssl_cipher", "ssl_protocol", "target_group_arn", "trace_id", "domain_name", "chosen_cert_arn",
    "matched_rule_priority", "request_creation_time",
];

pub(super) fn read<'l>(
    line: &'l [u8],
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let mut fields: SmallVec<[&[u8]; 32]> = SmallVec::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        rest = match rest {
            [b' ', after @ ..] => after,
            [b'"', after @ ..] => {
                let (value, after) = quoted(after).ok_or(NOT_ALB)?;
                fields.push(value);
                after
            }
            _ => {
                let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
                fields.push(&rest[..end]);
                &rest[end..]
            }
        };
    }
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let is_type = matches!(
        field(0),
        b"http" | b"https" | b"h2" | b"grpcs" | b"ws" | b"wss"
    );
    if !is_type || fields.len() < 13 {
        return Err(NOT_ALB);
    }
    let created = terms.times.read(field(21));
    let time = created
        .or_else(|| terms.times.read(field(1)))
        .ok_or(NO_TIME)?;
    let mut read = LineRequest {
        time: Some(time),
        duration: duration(&fields),
        address: present(before_port(field(3)).into()),
        ..LineRequest::default()
    };
    read.push_header("user-agent", field(13).into());
    if terms.keeps_values {
        let named = NAMES.into_iter().zip(&fields);
        read.values =
            LineValues::Variables(named.map(|(name, value)| (name, (*value).into())).collect());
    }
    read.take_request(field(12).into())?;
    Ok(read)
}

/// The three times of a request that was answered.
fn duration(fields: &[&[u8]]) -> Option<ExactTime> {
    let nothing = ExactTime::from_nanos(0);
    fields.get(5..8)?.iter().try_fold(nothing, |sum, text| {
        let part = ExactTime::decimal(text, 0).filter(|part| *part >= nothing)?;
        Some(sum.minus(nothing.minus(part)))
    })
}
