//! The line of a decision, and the lines that mark a change of the rules and a gap.

use tidegate::gate::{LimitOutcome, Observed, ObservedPart};
use tidegate::{CostUnit, Costs, Decision, Micros, Timestamp};

use super::attributes::RecordedAttributes;
use super::text::{list, quoted};
use crate::json::answer::integer;

/// What stands for the front end of a request that was only simulated.
const SIMULATION: &str = "simulate";

/// Whether a decision belongs in a recording: it could charge something. One that only asks does not.
pub fn is_recorded(observed: &Observed<'_, '_>) -> bool {
    let takes = |costs: &Costs| !costs.is_zero() || costs.of(&CostUnit::REQUESTS) > 0;
    observed.parts().any(|part| takes(part.costs))
}

/// The time as of which a request was decided: the latest of its limits. None if no limit applies and the request has
/// no time of its own.
pub fn decided_at(observed: &Observed<'_, '_>) -> Option<Timestamp> {
    let limits = observed.decisions.iter().flat_map(Decision::limits);
    let decided = limits.map(|limit| limit.outcome.at).max();
    decided.or_else(|| observed.parts().find_map(|part| part.attributes.time()))
}

/// Writes the line of a decision at this time.
pub fn write_decision(
    out: &mut Vec<u8>,
    observed: &Observed<'_, '_>,
    at: Timestamp,
    recorded: &RecordedAttributes,
) {
    out.extend_from_slice(br#"{"t":"#);
    write_time(out, at);
    out.extend_from_slice(br#","front_end":""#);
    let front_end = if recorded.is_simulated() {
        SIMULATION
    } else {
        observed.front_end.name()
    };
    out.extend_from_slice(front_end.as_bytes());
    out.extend_from_slice(br#"","#);
    let mut parts = observed.parts();
    if let (Some(part), None) = (parts.next(), parts.next()) {
        write_part(out, &part, recorded);
    } else {
        out.extend_from_slice(br#""parts":"#);
        list(out, *b"[]", observed.parts(), |out, part| {
            out.push(b'{');
            write_part(out, &part, recorded);
            out.push(b'}');
        });
    }
    let headline = observed.decisions.headline();
    let headline = headline.as_ref();
    let is_allowed = observed.decisions.is_allowed();
    out.extend_from_slice(if is_allowed {
        br#","allowed":true,"rule":"#
    } else {
        br#","allowed":false,"rule":"#
    });
    quoted_or_null(out, headline.map(|limit| limit.rule.id()));
    out.extend_from_slice(br#","reason":"#);
    let reason = headline
        .and_then(|limit| limit.reason)
        .filter(|_| !is_allowed);
    quoted_or_null(out, reason.map(tidegate::Reason::name));
    out.extend_from_slice(br#","limits":"#);
    let limits = observed.decisions.iter().flat_map(Decision::limits);
    list(out, *b"[]", limits, |out, limit| write_limit(out, &limit));
    out.extend_from_slice(b"}\n");
}

/// Writes the line that marks a change of the rules.
pub fn write_rules_version(out: &mut Vec<u8>, version: u64) {
    out.extend_from_slice(br#"{"rules_version":"#);
    integer(out, version);
    out.extend_from_slice(b"}\n");
}

/// Writes the line that marks a gap of so many lines.
pub fn write_lost(out: &mut Vec<u8>, lines: u64) {
    out.extend_from_slice(br#"{"lost":"#);
    integer(out, lines);
    out.extend_from_slice(b"}\n");
}

/// The attributes and the cost of a part, without the braces around them.
fn write_part(out: &mut Vec<u8>, part: &ObservedPart<'_, '_>, recorded: &RecordedAttributes) {
    out.extend_from_slice(br#""attributes":"#);
    recorded.write(out, part.attributes);
    if let Some(cost) = part.costs.plain() {
        out.extend_from_slice(br#","cost":"#);
        integer(out, cost);
    } else {
        out.extend_from_slice(br#","costs":"#);
        let units = part.costs.units().iter();
        list(out, *b"{}", units, |out, (unit, cost)| {
            quoted(out, unit.as_str());
            out.push(b':');
            integer(out, *cost);
        });
    }
}

fn write_limit(out: &mut Vec<u8>, limit: &LimitOutcome<'_>) {
    out.extend_from_slice(br#"{"rule":"#);
    quoted(out, limit.rule.id());
    out.extend_from_slice(if limit.outcome.allowed {
        br#","allowed":true"#
    } else {
        br#","allowed":false"#
    });
    if limit.is_candidate() {
        out.extend_from_slice(br#","candidate":true"#);
    }
    if limit.is_shadow {
        out.extend_from_slice(br#","shadow":true"#);
    }
    out.push(b'}');
}

/// Seconds with all six decimals.
pub(super) fn write_time(out: &mut Vec<u8>, at: Timestamp) {
    let second = Micros::SECOND.get();
    let (whole, fraction) = (at.as_micros() / second, at.as_micros() % second);
    integer(out, whole);
    let point = out.len();
    // A second more, so that zeros after the point are written too; its digit becomes the point.
    integer(out, second + fraction);
    if let Some(digit) = out.get_mut(point) {
        *digit = b'.';
    }
}

fn quoted_or_null(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => quoted(out, text),
        None => out.extend_from_slice(b"null"),
    }
}
