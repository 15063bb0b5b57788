//! `TG.RESERVE`, `TG.SETTLE`, `TG.CANCEL`, `TG.EXTEND` of reservations, and `TG.RELEASE`, `TG.RENEW` of leases.

use tidegate::gate::{ExtendedReservation, ReservationRecord, ReservedDecision};
use tidegate::{Attributes, Costs, Micros, PermitId, ReservationId, Timestamp};

use super::arguments::RespCommand;
use super::check;
use super::replies::Replies;
use crate::CodecError;
use crate::json::question::read_timestamp;
use crate::json::question::{DEFAULT_TTL, checked_ttl};

/// A command about a reservation or a lease.
#[derive(Debug)]
pub enum ReservationCommand {
    /// `TG.RESERVE attribute value ... [COST n] [TTL seconds]`.
    Reserve(Box<Attributes<'static>>, Micros),
    /// `TG.SETTLE id n`.
    Settle(ReservationId, u64),
    /// `TG.CANCEL id`.
    Cancel(ReservationId),
    /// `TG.EXTEND id seconds`.
    Extend(ReservationId, Micros),
    /// `TG.RELEASE id`; none if no lease can have the id.
    Release(Option<PermitId>),
    /// `TG.RENEW id`; none if no lease can have the id.
    Renew(Option<PermitId>),
}

/// Why a command was not read.
#[derive(Debug)]
pub enum ReservationRefusal {
    /// Its arguments are malformed.
    Malformed(CodecError),
    /// Its id cannot be that of a reservation.
    Unknown,
}

impl From<CodecError> for ReservationRefusal {
    fn from(error: CodecError) -> Self {
        Self::Malformed(error)
    }
}

/// Whether a command is one of these.
pub fn is_one(command: RespCommand<'_>) -> bool {
    let names = [
        "TG.RESERVE",
        "TG.SETTLE",
        "TG.CANCEL",
        "TG.EXTEND",
        "TG.RELEASE",
        "TG.RENEW",
    ];
    names.iter().any(|name| command.is(0, name))
}

/// Reads a command, by its name in upper case. Borrows nothing: the buffer may be reused before the answer.
pub fn read(
    name: &[u8],
    command: RespCommand<'_>,
) -> Result<ReservationCommand, ReservationRefusal> {
    let takes = |count: usize, usage: &str| {
        if command.len() == count {
            return Ok(());
        }
        Err(CodecError::invalid(format!("write `{usage}`")))
    };
    match name {
        b"TG.SETTLE" => {
            takes(3, "TG.SETTLE id cost")?;
            let cost = check::whole("the cost", command.get(2))?;
            Ok(ReservationCommand::Settle(id(command)?, cost))
        }
        b"TG.CANCEL" => {
            takes(2, "TG.CANCEL id")?;
            Ok(ReservationCommand::Cancel(id(command)?))
        }
        b"TG.EXTEND" => {
            takes(3, "TG.EXTEND id seconds")?;
            let ttl = ttl(command.get(2))?;
            Ok(ReservationCommand::Extend(id(command)?, ttl))
        }
        b"TG.RELEASE" => {
            takes(2, "TG.RELEASE id")?;
            Ok(ReservationCommand::Release(lease(command)))
        }
        b"TG.RENEW" => {
            takes(2, "TG.RENEW id")?;
            Ok(ReservationCommand::Renew(lease(command)))
        }
        _ => {
            let (attributes, ttl) = reserve(command)?;
            Ok(ReservationCommand::Reserve(Box::new(attributes), ttl))
        }
    }
}

fn reserve(command: RespCommand<'_>) -> Result<(Attributes<'static>, Micros), CodecError> {
    if command.len().is_multiple_of(2) {
        return Err(CodecError::invalid(
            "TG.RESERVE takes `attribute value ... [COST n] [TTL seconds]`: each attribute needs a value",
        ));
    }
    let (mut end, mut cost, mut given_ttl) = (command.len(), None, None);
    // Only at the end, each once: elsewhere they can be names of attributes.
    while end > 2 {
        let value = command.get(end - 1);
        if cost.is_none() && command.is(end - 2, "COST") {
            cost = Some(check::whole("COST", value)?);
        } else if given_ttl.is_none() && command.is(end - 2, "TTL") {
            given_ttl = Some(ttl(value)?);
        } else {
            break;
        }
        end -= 2;
    }
    let cost = cost.unwrap_or(1);
    if cost == 0 {
        return Err(CodecError::invalid(
            "a reservation needs a COST above 0; to ask without taking, use TG.CHECK",
        ));
    }
    let attributes = check::attributes(command, end)?.with_cost(cost);
    Ok((attributes, given_ttl.unwrap_or(DEFAULT_TTL)))
}

fn id(command: RespCommand<'_>) -> Result<ReservationId, ReservationRefusal> {
    let text = std::str::from_utf8(command.get(1)).ok();
    let id = text.and_then(|text| text.parse().ok());
    id.ok_or(ReservationRefusal::Unknown)
}

/// The id of a lease. One that is malformed is like one that has ended.
fn lease(command: RespCommand<'_>) -> Option<PermitId> {
    id(command).ok().map(ReservationId::permit)
}

fn ttl(bytes: &[u8]) -> Result<Micros, CodecError> {
    let text = std::str::from_utf8(bytes).ok();
    let plain = |text: &&str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let end = text.filter(plain).and_then(read_timestamp);
    checked_ttl(end.map(|end| end.since(Timestamp::EPOCH))).ok_or_else(|| {
        let given = super::quoted(bytes);
        CodecError::invalid(format!("TTL must be 1 to 86400 seconds, not `{given}`"))
    })
}

/// Writes the answer to `TG.RESERVE`: the fields of `TG.CHECK`, then those of the reservation.
pub fn write_reserved(reserved: &ReservedDecision, replies: &mut Replies) {
    check::write_with(&reserved.decision, replies, 2, |replies| {
        replies.bulk(b"reservation");
        match &reserved.made {
            Some(made) => replies.bulk(made.id.to_string().as_bytes()),
            None => replies.null(),
        }
        replies.bulk(b"expires_at");
        match &reserved.made {
            Some(made) => replies.seconds(made.expires_at.as_micros()),
            None => replies.null(),
        }
    });
}

/// Writes the answer to `TG.SETTLE` and `TG.CANCEL`.
pub fn write_settled(record: &ReservationRecord, replies: &mut Replies) {
    let settlement = &record.settlement;
    replies.map(4);
    replies.bulk(b"reservation");
    replies.bulk(record.id.to_string().as_bytes());
    write_costs(b"settled", settlement.settled(), replies);
    write_costs(b"given_back", &settlement.given_back(), replies);
    write_costs(b"overrun", &settlement.overrun(), replies);
}

/// Writes the answer to `TG.EXTEND`.
pub fn write_extended(extended: &ExtendedReservation, replies: &mut Replies) {
    replies.map(2);
    replies.bulk(b"reservation");
    replies.bulk(extended.id.to_string().as_bytes());
    replies.bulk(b"expires_at");
    replies.seconds(extended.expires_at.as_micros());
}

/// A number; of a reservation that was made by unit, over HTTP, a map.
fn write_costs(name: &[u8], costs: &Costs, replies: &mut Replies) {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    replies.bulk(name);
    if let Some(cost) = costs.plain() {
        return replies.integer(whole(cost));
    }
    replies.map(costs.units().len());
    for (unit, cost) in costs.units() {
        replies.bulk(unit.as_str().as_bytes());
        replies.integer(whole(*cost));
    }
}
