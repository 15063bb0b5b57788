//! Reservations of the histories.

use std::time::Duration;

use tidegate_core::{
    Charge, CostUnit, Costs, Micros, Outcome, RemoteStore as _, ReservationId, ReserveRequest,
    Reserved, ReservedCharge, SettleAnswer, SettleRequest, StoreError,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::linearizability::HistorySettlement;

use super::wall_clock;

/// Longer than a run with every fault takes.
const TTL: Micros = Micros::from_seconds(3_600);

/// Reserves all of the charges or none, and the id of what was made.
pub(super) async fn reserve(
    store: &RedisStore,
    charges: &[Charge<'_>],
) -> Result<(Vec<Outcome>, Option<ReservationId>), StoreError> {
    let group = charges.iter().map(|charge| ReservedCharge {
        charge: *charge,
        unit: &CostUnit::REQUESTS,
        unit_cost: 1,
        label: "",
    });
    let group: Vec<_> = group.collect();
    let request = ReserveRequest {
        id: ReservationId::random(),
        groups: &[&group],
        estimate: &Costs::from(1_u64),
        ttl: TTL,
        at: None,
    };
    match store.reserve(&request).await? {
        Reserved::Decided { outcomes, made } => {
            let outcomes = outcomes[0].to_vec();
            Ok((outcomes, made.map(|made| made.id)))
        }
        Reserved::TooMany => unreachable!("Redis has no bound"),
    }
}

/// Settles what was reserved, and repeats that until there is an answer.
pub(super) async fn settle(
    store: &RedisStore,
    id: ReservationId,
    actual: u64,
) -> HistorySettlement {
    let cost = Costs::from(actual);
    let request = SettleRequest {
        id,
        actual: Some(&cost),
        at: None,
    };
    let began = wall_clock();
    loop {
        match store.settle_reservation(&request).await {
            Ok(SettleAnswer::Settled { reservation, .. }) => {
                let parts = reservation.parts.iter();
                return HistorySettlement {
                    began,
                    ended: wall_clock(),
                    actual,
                    adjusted: parts.map(|part| part.adjusted).collect(),
                };
            }
            Ok(other) => unreachable!("it is open: {other:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}
