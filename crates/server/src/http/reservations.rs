//! `POST /v1/reserve`, and the calls about one reservation: settle, cancel, extend, look.

use std::time::Duration;

use http::StatusCode;
use tidegate::ReservationId;
use tidegate::gate::{ReservationError, ReserveError};
use tidegate::rules::FrontEnd;

use super::call::ApiCall;
use super::check::decision_reply;
use super::question::CheckRequest;
use super::reservation::{
    CancelBody, ExtendBody, SettleBody, write_extended, write_record, write_reserved, write_settled,
};
use super::{body, need_rules};
use crate::problem::{ApiReply, HttpProblem};
use crate::telemetry::{note_reservation, shown_id};

/// `POST /v1/reserve`: decides as a check does, charges the estimate, and keeps a record of it.
pub(super) async fn reserve(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let decider = &call.api.decider;
    need_rules(decider)?;
    let body = call.body.read(&decider.bodies).await?;
    let asked = CheckRequest::parse(&body)?;
    let (attributes, ttl) = asked.reservation(decider.trust_timestamps)?;
    let rules = decider.gate.rules();
    let reserving =
        decider
            .gate
            .reserve_stored(&rules, FrontEnd::Http, &attributes, Duration::from(ttl));
    let reserved = reserving.await?;
    if let Some(made) = &reserved.made {
        note_reservation(made.id);
    }
    Ok(decision_reply(decider.headers, &reserved.decision, |out| {
        write_reserved(out, &reserved);
    }))
}

/// `POST /v1/reservations/{id}/settle`: replaces the estimate by the true cost.
pub(super) async fn settle(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (decider, [id, _]) = (&call.api.decider, &call.names);
    let body = call.body.read(&decider.bodies).await?;
    let asked: SettleBody<'_> = body::parse(&body)?;
    let (actual, at) = asked.read(decider.trust_timestamps)?;
    let settling = decider
        .gate
        .settle_reservation(parsed(id)?, Some(&actual), at);
    let record = settling.await.map_err(|error| problem(id, error))?;
    Ok(json(|out| write_settled(out, &record)))
}

/// `DELETE /v1/reservations/{id}`: settles it as if nothing had been spent.
pub(super) async fn cancel(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (decider, [id, _]) = (&call.api.decider, &call.names);
    let body = call.body.read(&decider.bodies).await?;
    let asked: CancelBody<'_> = match body.trim_ascii() {
        b"" => CancelBody::default(),
        body => body::parse(body)?,
    };
    let at = asked.read(decider.trust_timestamps)?;
    let cancelling = decider.gate.settle_reservation(parsed(id)?, None, at);
    let record = cancelling.await.map_err(|error| problem(id, error))?;
    Ok(json(|out| write_settled(out, &record)))
}

/// `PUT /v1/reservations/{id}`: lets it last longer.
pub(super) async fn extend(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (decider, [id, _]) = (&call.api.decider, &call.names);
    let body = call.body.read(&decider.bodies).await?;
    let asked: ExtendBody<'_> = body::parse(&body)?;
    let (ttl, at) = asked.read(decider.trust_timestamps)?;
    let reservation = parsed(id)?;
    let extending = decider
        .gate
        .extend_reservation(reservation, Duration::from(ttl), at);
    let extended = extending.await.map_err(|error| problem(id, error))?;
    Ok(json(|out| write_extended(out, &extended)))
}

/// `GET /v1/reservations/{id}`: what it holds, or what became of it.
pub(super) async fn look(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let (decider, [id, _]) = (&call.api.decider, &call.names);
    let [] = super::query::parameters(&call.parts, [])?;
    let looking = decider.gate.look_at_reservation(parsed(id)?);
    let record = looking.await.map_err(|error| problem(id, error))?;
    Ok(json(|out| write_record(out, &record)))
}

fn json(write: impl FnOnce(&mut Vec<u8>)) -> ApiReply {
    let mut out = Vec::with_capacity(512);
    write(&mut out);
    super::json(StatusCode::OK, out)
}

fn parsed(id: &str) -> Result<ReservationId, HttpProblem> {
    let parsed: ReservationId = id
        .parse()
        .map_err(|_| problem(id, ReservationError::Unknown))?;
    note_reservation(parsed);
    Ok(parsed)
}

/// The id is shortened: a reader of the whole id could settle the reservation.
fn problem(id: &str, error: ReservationError) -> HttpProblem {
    let shown = shown_id(id);
    let status = match error {
        ReservationError::Unknown => StatusCode::NOT_FOUND,
        ReservationError::OtherCost | ReservationError::Settled => StatusCode::CONFLICT,
        ReservationError::OtherKind => StatusCode::UNPROCESSABLE_ENTITY,
        ReservationError::Store(error) => return HttpProblem::from(error),
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    HttpProblem::new(status, format!("reservation `{shown}…`: {error}"))
}

impl From<ReserveError> for HttpProblem {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::TooMany => Self::busy_for("too_many_reservations", error.to_string()),
            _ => Self::bad_request(error.to_string()),
        }
    }
}
