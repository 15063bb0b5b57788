//! What is known of each reservation from the answers to its caller, and what follows from that.

use tidegate_core::ReservationId;

/// A reservation that was asked for. Times are true ones, in microseconds.
#[derive(Debug)]
pub(super) struct SeedReservation {
    pub(super) estimate: u64,
    pub(super) made: MadeOrNot,
    /// The costs it was settled with, in the order of the calls.
    pub(super) settlements: Vec<AskedSettlement>,
    /// The earliest that it may have been extended to end at.
    pub(super) earliest_end: u64,
}

/// Whether a reservation was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeOrNot {
    /// There was no answer, or one without Redis: it may have been made.
    Unknown,
    Denied,
    Made {
        id: ReservationId,
        answered_at: u64,
    },
}

/// A call that settles.
#[derive(Debug)]
pub(super) struct AskedSettlement {
    pub(super) cost: u64,
    pub(super) asked_at: u64,
    pub(super) answer: SettledOrNot,
}

/// What a call that settles was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettledOrNot {
    /// There was no answer: it may have been settled.
    Unknown,
    /// Settled with the cost of the call, of which so much found no room.
    Settled {
        uncharged: u64,
    },
    OtherCost,
    /// There is no such reservation any more.
    Ended,
}

impl SeedReservation {
    pub(super) fn new(estimate: u64) -> Self {
        Self {
            estimate,
            made: MadeOrNot::Unknown,
            settlements: Vec::new(),
            earliest_end: u64::MAX,
        }
    }

    pub(super) fn id(&self) -> Option<ReservationId> {
        match self.made {
            MadeOrNot::Made { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The cost it was settled with, as far as the answers say, and how much of that found no room.
    pub(super) fn settled(&self) -> Option<(u64, u64)> {
        self.settlements
            .iter()
            .find_map(|asked| match asked.answer {
                SettledOrNot::Settled { uncharged } => Some((asked.cost, uncharged)),
                _ => None,
            })
    }

    /// The least that it has held at a time.
    pub(super) fn least_held(&self, at: u64, gives_back: bool) -> u64 {
        let MadeOrNot::Made { answered_at, .. } = self.made else {
            return 0;
        };
        if at < answered_at {
            return 0;
        }
        let open = self.estimate;
        let ended = if gives_back && at >= self.earliest_end {
            0
        } else {
            open
        };
        let asked = self.settlements.iter().filter(|asked| asked.asked_at <= at);
        let settled = match self.settled() {
            Some((cost, _)) => asked.map(|_| cost).min(),
            None => asked
                .filter(|asked| asked.answer == SettledOrNot::Unknown)
                .map(|asked| asked.cost)
                .min(),
        };
        // It does not end once it is settled.
        match self.settled() {
            Some((cost, _)) => settled.map_or(open, |_| cost.min(open)),
            None => settled.unwrap_or(open).min(open).min(ended),
        }
    }

    /// The least and the most that it holds when it has ended. `left` is the cost it is settled with, if it is.
    pub(super) fn in_the_end(&self, left: Option<u64>, gives_back: bool) -> (u64, u64) {
        let kept = if gives_back { 0 } else { self.estimate };
        match (self.made, left, self.settled()) {
            (MadeOrNot::Denied, ..) => (0, 0),
            (MadeOrNot::Unknown, ..) => (0, kept),
            (MadeOrNot::Made { .. }, _, Some((cost, uncharged))) => {
                (cost - uncharged, cost - uncharged)
            }
            // What was charged of an excess was not answered.
            (MadeOrNot::Made { .. }, Some(cost), None) => (cost.min(self.estimate), cost),
            (MadeOrNot::Made { .. }, None, None) => (kept, kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(estimate: u64) -> SeedReservation {
        let (id, answered_at) = (ReservationId::from_u128(1), 100);
        SeedReservation {
            made: MadeOrNot::Made { id, answered_at },
            earliest_end: 1_000,
            ..SeedReservation::new(estimate)
        }
    }

    #[test]
    fn the_least_that_is_held_follows_from_the_answers() {
        let mut booked = made(60);
        let held =
            |booked: &SeedReservation| [99, 100, 500, 1_000].map(|at| booked.least_held(at, true));
        assert_eq!(held(&booked), [0, 60, 60, 0]);
        assert_eq!(booked.least_held(1_000, false), 60);
        booked.settlements.push(AskedSettlement {
            cost: 25,
            asked_at: 500,
            answer: SettledOrNot::Unknown,
        });
        assert_eq!(held(&booked), [0, 60, 25, 0]);
        booked.settlements[0].answer = SettledOrNot::Settled { uncharged: 0 };
        assert_eq!(held(&booked), [0, 60, 25, 25]);
        assert_eq!(booked.in_the_end(None, true), (25, 25));
        booked.settlements[0].answer = SettledOrNot::Ended;
        assert_eq!(held(&booked), [0, 60, 60, 0]);
        assert_eq!(booked.in_the_end(None, true), (0, 0));
        assert_eq!(booked.in_the_end(None, false), (60, 60));
    }
}
