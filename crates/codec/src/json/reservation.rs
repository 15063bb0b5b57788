//! Reservations: the bodies of calls about one reservation, and the answers. `question.rs` reads `POST /v1/reserve`.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate::gate::{ExtendedReservation, ReservationRecord, ReservedDecision, SettledLimit};
use tidegate::{Costs, Micros, Timestamp};

use super::answer::{self, integer, text};
use super::costs::{JsonCosts, cost, costs_of};
use super::question::{given, read_ttl, time};
use crate::{CodecError, write_seconds};

/// The body of `POST /v1/reservations/{id}/settle`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub struct SettleBody<'b> {
    #[serde(default, deserialize_with = "cost")]
    cost: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    costs: Option<JsonCosts>,
    #[serde(default, borrow)]
    timestamp: Option<&'b RawValue>,
}

impl SettleBody<'_> {
    /// What was spent, and when it is settled, if the caller may say so.
    pub fn read(self, trust_timestamps: bool) -> Result<(Costs, Option<Timestamp>), CodecError> {
        if self.cost.is_none() && self.costs.is_none() {
            return Err(CodecError::invalid(
                "give the true cost: `cost`, or `costs` by unit, as in the reservation",
            ));
        }
        let costs = costs_of(self.cost, self.costs)?;
        Ok((costs, time(self.timestamp, trust_timestamps)?))
    }
}

/// The body of `PUT /v1/reservations/{id}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub struct ExtendBody<'b> {
    #[serde(borrow)]
    ttl: &'b RawValue,
    #[serde(default, borrow)]
    timestamp: Option<&'b RawValue>,
}

impl ExtendBody<'_> {
    /// How long the reservation lasts from now on, and the time of now, if the caller may say so.
    pub fn read(self, trust_timestamps: bool) -> Result<(Micros, Option<Timestamp>), CodecError> {
        Ok((read_ttl(self.ttl)?, time(self.timestamp, trust_timestamps)?))
    }
}

/// The body of `DELETE /v1/reservations/{id}`, which may be left out.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, bound(deserialize = "'b: 'de"))]
pub struct CancelBody<'b> {
    #[serde(default, borrow)]
    timestamp: Option<&'b RawValue>,
}

impl CancelBody<'_> {
    /// The time of now, if the caller may say so.
    pub fn read(self, trust_timestamps: bool) -> Result<Option<Timestamp>, CodecError> {
        time(self.timestamp, trust_timestamps)
    }
}

/// Writes the answer to a reserve: the decision, with the reservation that was made.
pub fn write_reserved(out: &mut Vec<u8>, reserved: &ReservedDecision) {
    answer::write(out, &reserved.decision);
    // Its last byte ends the object.
    out.pop();
    match &reserved.made {
        Some(made) => {
            text(out, br#","reservation":""#, &made.id.to_string());
            out.extend_from_slice(br#","expires_at":"#);
            write_seconds(out, made.expires_at.as_micros());
        }
        None => out.extend_from_slice(br#","reservation":null,"expires_at":null"#),
    }
    out.push(b'}');
}

/// Writes the answer to a settle or a cancel.
pub fn write_settled(out: &mut Vec<u8>, record: &ReservationRecord) {
    let settlement = &record.settlement;
    text(out, br#"{"reservation":""#, &record.id.to_string());
    write_costs(out, br#","settled":"#, settlement.settled());
    write_costs(out, br#","given_back":"#, &settlement.given_back());
    write_costs(out, br#","overrun":"#, &settlement.overrun());
    if record.is_degraded {
        out.extend_from_slice(br#","degraded":true"#);
    }
    write_limits(out, record, |_, _| {});
    out.push(b'}');
}

/// Writes the answer to an extension.
pub fn write_extended(out: &mut Vec<u8>, extended: &ExtendedReservation) {
    text(out, br#"{"reservation":""#, &extended.id.to_string());
    out.extend_from_slice(br#","expires_at":"#);
    write_seconds(out, extended.expires_at.as_micros());
    if extended.is_degraded {
        out.extend_from_slice(br#","degraded":true"#);
    }
    out.push(b'}');
}

/// Writes a reservation as it is looked at: the keys of its counters as digests.
pub fn write_record(out: &mut Vec<u8>, record: &ReservationRecord) {
    let settlement = &record.settlement;
    text(out, br#"{"reservation":""#, &record.id.to_string());
    let state = if record.is_settled { "settled" } else { "open" };
    text(out, br#","state":""#, state);
    out.extend_from_slice(br#","created_at":"#);
    write_seconds(out, record.created_at.as_micros());
    out.extend_from_slice(br#","expires_at":"#);
    write_seconds(out, record.expires_at.as_micros());
    write_costs(out, br#","reserved":"#, settlement.estimate());
    if record.is_settled {
        write_costs(out, br#","settled":"#, settlement.settled());
    } else {
        out.extend_from_slice(br#","settled":null"#);
    }
    if record.is_degraded {
        out.extend_from_slice(br#","degraded":true"#);
    }
    write_limits(out, record, |out, limit| {
        text(out, br#","unit":""#, limit.unit.as_str());
        out.extend_from_slice(br#","key":"#);
        let key: serde_json::Map<String, serde_json::Value> = limit
            .key
            .iter()
            .map(|(name, digest)| (name.clone(), digest.as_str().into()))
            .collect();
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(out, &key);
    });
    out.push(b'}');
}

/// What happened in each counter, with `more` members for each. Of one that is open, nothing yet.
fn write_limits(
    out: &mut Vec<u8>,
    record: &ReservationRecord,
    more: impl Fn(&mut Vec<u8>, &SettledLimit),
) {
    out.extend_from_slice(br#","limits":["#);
    for (index, limit) in record.settlement.limits().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // The id of a rule needs no escaping.
        text(out, br#"{"rule":""#, limit.rule());
        for (name, number) in [
            (&br#","limit":"#[..], Some(limit.limit)),
            (br#","reserved":"#, Some(limit.reserved)),
            (
                br#","settled":"#,
                record.is_settled.then_some(limit.settled),
            ),
            (br#","given_back":"#, Some(limit.given_back)),
            (br#","overrun":"#, Some(limit.overrun)),
            (br#","uncharged":"#, Some(limit.uncharged)),
        ] {
            out.extend_from_slice(name);
            match number {
                Some(number) => integer(out, number),
                None => out.extend_from_slice(b"null"),
            }
        }
        more(out, limit);
        if limit.is_candidate {
            out.extend_from_slice(br#","candidate":true"#);
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// One number, or an object of numbers by unit, after `before`.
fn write_costs(out: &mut Vec<u8>, before: &[u8], costs: &Costs) {
    out.extend_from_slice(before);
    if let Some(cost) = costs.plain() {
        return integer(out, cost);
    }
    out.push(b'{');
    for (index, (unit, cost)) in costs.units().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // The name of a unit needs no escaping: it has letters, digits and `_` only.
        text(out, b"\"", unit.as_str());
        out.push(b':');
        integer(out, *cost);
    }
    out.push(b'}');
}
