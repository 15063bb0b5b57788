//! What must hold of a seed with reservations, by what its callers were answered.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::ReservationId;

use super::books::{MadeOrNot, SeedReservation, SettledOrNot};
use super::play::{LIMIT, PATIENCE, ReservationRun};
use crate::question::Question;

/// What flows back of a bucket during a run, and is lost to rounding.
const BUCKET_SLACK: u64 = 2;

impl ReservationRun {
    /// At no time is more held than the limit. It only grows when a reservation is made.
    pub(super) fn check_never_over(&mut self) {
        let books = self.books.lock();
        let made = books.iter().filter_map(|booked| match booked.made {
            MadeOrNot::Made { answered_at, .. } => Some(answered_at),
            _ => None,
        });
        let most = LIMIT + self.slack();
        for at in made {
            let held = books
                .iter()
                .map(|booked| booked.least_held(at, self.plan.gives_back));
            let held: u64 = held.sum();
            if held > most {
                self.broken
                    .push(format!("{held} of {LIMIT} are held at {at} µs"));
                return;
            }
        }
    }

    fn slack(&self) -> u64 {
        if self.plan.algorithm == "token_bucket" {
            BUCKET_SLACK
        } else {
            0
        }
    }

    /// What is charged in the end is what was spent.
    pub(super) fn check_in_the_end(&mut self) {
        let (mut least, mut most) = (0, 0);
        let left = self.look_at_all();
        for (number, booked) in self.books.lock().iter().enumerate() {
            let left = left.get(number).copied().flatten();
            let (from, to) = booked.in_the_end(left, self.plan.gives_back);
            (least, most) = (least + from, most + to);
            let costs: Vec<u64> = booked
                .settlements
                .iter()
                .filter(|asked| matches!(asked.answer, SettledOrNot::Settled { .. }))
                .map(|asked| asked.cost)
                .collect();
            if costs.windows(2).any(|pair| pair[0] != pair[1]) {
                self.broken
                    .push(format!("reservation {number} was settled with {costs:?}"));
            }
        }
        if self.plan.is_leased && self.has_lost_leases {
            most = LIMIT;
        }
        let Some(used) = self.used() else {
            self.broken.push("nothing is decided in the end".to_owned());
            return;
        };
        let slack = self.slack();
        if used + slack < least.min(LIMIT) || used > most.min(LIMIT) + slack {
            let mut text = format!("{used} are charged in the end, and not {least}");
            if most != least {
                let _ = write!(text, " to {most}");
            }
            self.broken.push(text);
        }
    }

    /// What each reservation was settled with, if it was.
    fn look_at_all(&mut self) -> Vec<Option<u64>> {
        let ids: Vec<Option<ReservationId>> = {
            let books = self.books.lock();
            books.iter().map(SeedReservation::id).collect()
        };
        let found = Arc::new(Mutex::new(vec![None; ids.len()]));
        for (number, id) in ids.into_iter().enumerate() {
            if let (Some(id), Some(gate)) = (id, self.world.gate(0).cloned()) {
                let found = Arc::clone(&found);
                self.world.spawn(0, async move {
                    if let Ok(record) = gate.look_at_reservation(id).await
                        && record.is_settled
                    {
                        found.lock()[number] = record.settlement.settled().plain();
                    }
                });
            }
        }
        self.world.run_for(Duration::from_millis(100));
        let found = found.lock();
        found.clone()
    }

    /// How much of the limit is charged.
    fn used(&mut self) -> Option<u64> {
        for _ in 0..PATIENCE {
            self.world.take_answers();
            self.world.ask(0, Question::new("user_id", "u1"));
            self.world.run_for(Duration::from_millis(40));
            let answer = self.world.take_answers().pop();
            if let Some(answer) = answer.filter(|answer| !answer.is_degraded) {
                let own = u64::from(answer.is_allowed);
                return Some(LIMIT - answer.remaining.unwrap_or(0) - own);
            }
        }
        None
    }
}
