//! Carries out the commands about reservations and leases, and writes their answers.

use std::time::Duration;

use tidegate::gate::{
    ExtendedReservation, ReservationError, ReservationRecord, ReserveError, ReservedDecision,
};
use tidegate::rules::FrontEnd;
use tidegate::{Micros, StoreError};
use tidegate_codec::resp::Replies;
use tidegate_codec::resp::reservation::{
    ReservationCommand, write_extended, write_reserved, write_settled,
};

use crate::decider::Decider;

/// The answer to a command.
pub(super) enum ReservationAnswer {
    Reserved(Box<Result<ReservedDecision, ReserveError>>),
    Settled(Box<Result<ReservationRecord, ReservationError>>),
    Extended(Result<ExtendedReservation, ReservationError>),
    /// Whether a lease was released or renewed.
    Lease(Result<bool, StoreError>),
}

/// Carries out a command.
pub(super) async fn answer(decider: &Decider, command: &ReservationCommand) -> ReservationAnswer {
    let gate = &decider.gate;
    match command {
        ReservationCommand::Reserve(attributes, ttl) => {
            let rules = gate.rules();
            let reserving = gate.reserve_stored(&rules, FrontEnd::Resp, attributes, span(*ttl));
            ReservationAnswer::Reserved(Box::new(reserving.await))
        }
        ReservationCommand::Settle(id, cost) => {
            let actual = (*cost).into();
            let settled = gate.settle_reservation(*id, Some(&actual), None).await;
            ReservationAnswer::Settled(Box::new(settled))
        }
        ReservationCommand::Cancel(id) => {
            let cancelled = gate.settle_reservation(*id, None, None).await;
            ReservationAnswer::Settled(Box::new(cancelled))
        }
        ReservationCommand::Extend(id, ttl) => {
            let extended = gate.extend_reservation(*id, span(*ttl), None).await;
            ReservationAnswer::Extended(extended)
        }
        ReservationCommand::Release(Some(lease)) => {
            ReservationAnswer::Lease(gate.release(*lease).await)
        }
        ReservationCommand::Renew(Some(lease)) => {
            ReservationAnswer::Lease(gate.renew(*lease).await)
        }
        ReservationCommand::Release(None) | ReservationCommand::Renew(None) => {
            ReservationAnswer::Lease(Ok(false))
        }
    }
}

fn span(ttl: Micros) -> Duration {
    Duration::from(ttl)
}

impl ReservationAnswer {
    pub(super) fn write(&self, replies: &mut Replies) {
        match self {
            Self::Reserved(reserved) => match &**reserved {
                Ok(reserved) => write_reserved(reserved, replies),
                Err(error @ ReserveError::TooMany) => {
                    replies.error("UNAVAILABLE", &error.to_string());
                }
                Err(error) => replies.error("ERR", &error.to_string()),
            },
            Self::Settled(settled) => match &**settled {
                Ok(record) => write_settled(record, replies),
                Err(error) => refuse(error, replies),
            },
            Self::Extended(extended) => match extended {
                Ok(extended) => write_extended(extended, replies),
                Err(error) => refuse(error, replies),
            },
            Self::Lease(Ok(is_known)) => replies.integer((*is_known).into()),
            Self::Lease(Err(error)) => replies.error("UNAVAILABLE", &error.to_string()),
        }
    }
}

fn refuse(error: &ReservationError, replies: &mut Replies) {
    let code = match error {
        ReservationError::Unknown => "NOTFOUND",
        ReservationError::OtherCost | ReservationError::Settled => "CONFLICT",
        ReservationError::Store(_) => "UNAVAILABLE",
        _ => "ERR",
    };
    replies.error(code, &error.to_string());
}
