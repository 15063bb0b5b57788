//! Reservations: an estimate is charged first and settled when the true cost is known.
//!
//! A caller that keeps the receipt in its process needs no record: it charges, and
//! [adjusts](crate::RemoteStore::adjust) what was charged. A *stored* reservation has a record in the store under an id,
//! so that any instance can settle it.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

use crate::costs::{CostUnit, Costs};
use crate::outcome::{Outcome, Outcomes};
use crate::permit::{InvalidPermitId, PermitId};
use crate::store::Charge;
use crate::time::{Micros, Timestamp};

/// How long the result of a settled reservation is remembered.
pub const RESULT_TTL: Micros = Micros::MINUTE;
/// How long a reservation can be extended after it was made.
pub const LONGEST_RESERVATION: Micros = Micros::DAY;

/// Changes what was charged to what it costs after all.
#[derive(Debug, Clone, Copy)]
pub struct Adjustment<'a> {
    /// The charges that were made. Each is adjusted on its own.
    pub charges: &'a [AdjustedCharge<'a>],
    /// The time of the adjustment, if the caller brings one; else the store's own.
    pub at: Option<Timestamp>,
    /// The permit that concurrency limits among the charges release. Without one they are left as they are.
    pub permit: Option<PermitId>,
}

/// A charge that was made, and what it costs after all.
#[derive(Debug, Clone, Copy)]
pub struct AdjustedCharge<'a> {
    /// The charge, with the cost that was charged.
    pub charge: Charge<'a>,
    /// When it was charged: `at` of its [`Outcome`].
    pub charged_at: Timestamp,
    /// How long it had to wait for its turn: `delay` of its [`Outcome`]. It flows back from then on.
    pub delay: Micros,
    /// What it costs after all.
    pub actual: u64,
}

impl<'a> AdjustedCharge<'a> {
    /// A charge that was allowed with this outcome and costs `actual` after all.
    pub fn new(charge: Charge<'a>, outcome: &Outcome, actual: u64) -> Self {
        Self {
            charge,
            charged_at: outcome.at,
            delay: outcome.delay,
            actual,
        }
    }
}

/// What an adjustment did in one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adjusted {
    /// What was given back, rounded up: less than the difference if some of it had flowed back, left its window, or was
    /// reset.
    pub given_back: u64,
    /// What was charged in addition, without asking.
    pub overrun: u64,
    /// What should have been charged in addition and found no room.
    pub uncharged: u64,
    /// The largest cost that would be allowed after that.
    pub remaining: u64,
}

/// What an adjustment did, in the order of its charges.
pub type AdjustedCharges = SmallVec<[Adjusted; 4]>;

/// The id of a stored reservation, and of the permits that it holds.
///
/// A caller that knows it can settle the reservation, so ids must not be guessable: 128 random bits, of which a store may
/// replace some. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(u128);

impl ReservationId {
    /// A new id that cannot be guessed, from the operating system.
    #[cfg(feature = "random-permits")]
    pub fn random() -> Self {
        Self(PermitId::random().as_u128())
    }

    /// The id with this number: 128 bits from a secure source of random numbers, or an id that was made before.
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// The number of this id.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The id of the permits that the reservation holds.
    pub const fn permit(self) -> PermitId {
        PermitId::from_u128(self.0)
    }

    /// The first 8 digits, for logs and traces: the whole id could be used to settle.
    pub fn short(self) -> String {
        format!("{:08x}", self.0 >> 96)
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Shortened, as [`short`](ReservationId::short) is.
impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReservationId({}…)", self.short())
    }
}

impl FromStr for ReservationId {
    type Err = InvalidReservationId;

    fn from_str(text: &str) -> Result<Self, InvalidReservationId> {
        let id: Result<PermitId, InvalidPermitId> = text.parse();
        id.map(|id| Self(id.as_u128()))
            .map_err(|_| InvalidReservationId)
    }
}

/// The text is not the id of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a reservation is 32 hexadecimal digits")]
pub struct InvalidReservationId;

/// A reservation to be made.
#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest<'a> {
    /// An id that cannot be guessed. The store may make another of it.
    pub id: ReservationId,
    /// Charges that are made together: all of a group or none. The first group decides whether there is a reservation;
    /// the others are charged on their own, and belong to it if they are allowed.
    pub groups: &'a [&'a [ReservedCharge<'a>]],
    /// What the caller asked for.
    pub estimate: &'a Costs,
    /// How long the reservation lasts unless it is settled.
    pub ttl: Micros,
    /// The time of the request, if it brings one; else the store's own.
    pub at: Option<Timestamp>,
}

/// A charge of a reservation, and what it takes to settle it.
#[derive(Debug, Clone, Copy)]
pub struct ReservedCharge<'a> {
    /// The charge, with its estimate. What becomes of it if it is never settled, its [scope](crate::Scope::gives_back)
    /// says.
    pub charge: Charge<'a>,
    /// The unit that the limit counts.
    pub unit: &'a CostUnit,
    /// What the limit charges for each of them.
    pub unit_cost: u64,
    /// Kept for the caller.
    pub label: &'a str,
}

/// The answer to a [`ReserveRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub enum Reserved {
    /// The outcomes of each group, as of [`charge`](crate::RemoteStore::charge).
    Decided {
        /// In the order of the groups.
        outcomes: SmallVec<[Outcomes; 1]>,
        /// The reservation: none if the first group was denied, and if nothing was charged.
        made: Option<MadeReservation>,
    },
    /// There are as many open ones as the store may have. Nothing was charged.
    TooMany,
}

/// A reservation that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeReservation {
    /// Its id.
    pub id: ReservationId,
    /// When it ends unless it is settled or extended.
    pub expires_at: Timestamp,
}

/// The true cost of a stored reservation.
#[derive(Debug, Clone, Copy)]
pub struct SettleRequest<'a> {
    /// Which one.
    pub id: ReservationId,
    /// What was spent; none to cancel it, as if nothing was.
    pub actual: Option<&'a Costs>,
    /// The time, if the caller brings one. Else the store's own, or of a reservation that brought its time, that.
    pub at: Option<Timestamp>,
}

/// The answer to a [`SettleRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettleAnswer {
    /// It is settled.
    Settled {
        /// With what happened in each of its counters.
        reservation: StoredReservation,
        /// Whether an earlier call with the same cost did that. Nothing has changed since.
        is_repeated: bool,
    },
    /// It was settled with another cost.
    OtherCost,
    /// It was made with one cost, and this names units; or the reverse. Nothing has changed.
    OtherKind,
    /// It has expired, or is not known.
    Unknown,
}

/// The answer to a reservation that is to last longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendAnswer {
    /// It lasts until then.
    Until(Timestamp),
    /// It is settled.
    Settled,
    /// It has expired, or is not known.
    Unknown,
}

/// A reservation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReservation {
    /// Its id.
    pub id: ReservationId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends, or would have ended.
    pub expires_at: Timestamp,
    /// What the caller asked for.
    pub estimate: Costs,
    /// What it cost, if it is settled.
    pub settled: Option<Costs>,
    /// Its counters, in the order in which they were charged.
    pub parts: Vec<ReservationPart>,
}

/// One counter of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationPart {
    /// As it was [given](ReservedCharge::label).
    pub label: Box<str>,
    /// The unit that is counted.
    pub unit: CostUnit,
    /// What the limit grants, as of then.
    pub limit: u64,
    /// The estimate that was charged.
    pub reserved: u64,
    /// What it cost; the estimate while it is open.
    pub settled: u64,
    /// What happened when it was settled.
    pub adjusted: Adjusted,
}

/// What a part costs after all: `reserved` if nothing is said about its unit, nothing if the reservation is cancelled.
pub fn cost_of_part(
    (unit, unit_cost): (&CostUnit, u64),
    reserved: u64,
    actual: Option<&Costs>,
) -> u64 {
    let Some(actual) = actual else {
        return 0;
    };
    actual
        .named(unit)
        .map_or(reserved, |cost| cost.saturating_mul(unit_cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_shown_shortened() {
        let id = ReservationId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.to_string(), "0123456789abcdef0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.short(), "01234567");
        assert_eq!(format!("{id:?}"), "ReservationId(01234567…)");
        for bad in ["", "1", &"g".repeat(32), &"0".repeat(33)] {
            assert_eq!(bad.parse::<ReservationId>(), Err(InvalidReservationId));
        }
    }

    #[test]
    fn a_part_costs_its_estimate_if_nothing_is_said_about_its_unit() {
        let actual: Costs = "money=3 tokens=25".parse().unwrap();
        let part = |unit: &str, actual| {
            let unit = CostUnit::new(unit).unwrap();
            cost_of_part((&unit, 2), 40, actual)
        };
        assert_eq!(part("tokens", Some(&actual)), 50);
        assert_eq!(part("requests", Some(&actual)), 40);
        assert_eq!(part("requests", None), 0);
        assert_eq!(part("requests", Some(&Costs::from(7))), 14);
    }
}
