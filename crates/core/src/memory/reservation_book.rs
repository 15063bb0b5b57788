//! The stored reservations of a memory store, and when they end.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::slot::KeyHash;
use super::stripes::LATEST;
use crate::costs::{CostUnit, Costs};
use crate::limit::Limit;
use crate::reservation::{Adjusted, ReservationId};
use crate::time::{Micros, Timestamp};

/// When the next one is due if there is none. Not later than any time at which something is decided, so that one
/// comparison finds that nothing is due and that the time is not too late.
const NEVER: u64 = LATEST.as_micros();
/// How many limits are looked through for one that is the same.
const SHARED: usize = 64;

/// Every reservation that is open, or was settled a short time ago. Locked before stripes, never after.
#[derive(Debug)]
pub(super) struct ReservationBook {
    kept: Mutex<BookedReservations>,
    /// When the next one ends: by the store's clock, of those that change a counter then; and by the times that requests
    /// bring, of all, because only the request whose time is past its end can know of that.
    due: [AtomicU64; 2],
    open: AtomicUsize,
    expired: AtomicU64,
    max: usize,
}

#[derive(Debug, Default)]
pub(super) struct BookedReservations {
    by_id: HashMap<ReservationId, BookedReservation>,
    /// By the store's clock, and by the times that requests bring.
    queues: [EndQueue; 2],
    limits: Vec<Arc<Limit>>,
}

/// When reservations end.
#[derive(Debug, Default)]
struct EndQueue {
    /// Those that change a counter when they end.
    urgent: BTreeSet<(Timestamp, ReservationId)>,
    /// Those that are only forgotten.
    others: BTreeSet<(Timestamp, ReservationId)>,
}

/// One reservation.
#[derive(Debug, Clone)]
pub(super) struct BookedReservation {
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// Whether its time was supplied, so that the store's clock says nothing about it.
    pub(super) is_supplied: bool,
    pub(super) estimate: Costs,
    /// What it cost and until when that is remembered, once it is settled.
    pub(super) settled: Option<(Costs, Timestamp)>,
    pub(super) parts: Box<[BookedPart]>,
}

/// One counter of a reservation.
#[derive(Debug, Clone)]
pub(super) struct BookedPart {
    pub(super) hash: KeyHash,
    pub(super) limit: Arc<Limit>,
    pub(super) cost: u64,
    pub(super) charged_at: Timestamp,
    pub(super) delay: Micros,
    /// Whether it is given back if it is never settled.
    pub(super) gives_back: bool,
    pub(super) unit: CostUnit,
    pub(super) unit_cost: u64,
    pub(super) label: Box<str>,
    /// What it cost, and what was done for that.
    pub(super) settled: u64,
    pub(super) adjusted: Adjusted,
}

impl BookedReservation {
    /// When it ends or is forgotten.
    pub(super) fn ends_at(&self) -> Timestamp {
        self.settled
            .as_ref()
            .map_or(self.expires_at, |(_, until)| *until)
    }

    fn is_urgent(&self) -> bool {
        let changes = |part: &BookedPart| part.gives_back || part.limit.is_concurrency();
        self.settled.is_none() && self.parts.iter().any(changes)
    }

    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let units = |costs: &Costs| size_of_val(costs.units());
        let labels = self.parts.iter().map(|part| part.label.len() + 16);
        let settled = self.settled.as_ref().map_or(0, |(cost, _)| units(cost));
        // The entry in the map with its free neighbours, and that in a queue.
        size_of::<Self>() * 3 / 2
            + 64
            + size_of_val(&*self.parts)
            + labels.sum::<usize>()
            + units(&self.estimate)
            + settled
    }
}

impl ReservationBook {
    pub(super) fn new(max: usize) -> Self {
        Self {
            kept: Mutex::default(),
            due: [NEVER, NEVER].map(AtomicU64::new),
            open: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
            max,
        }
    }

    /// Whether a reservation may have ended that is to be ended now, or the time is [`LATEST`] or later.
    #[inline]
    pub(super) fn is_due(&self, is_supplied: bool, now: Timestamp) -> bool {
        now.as_micros() >= self.due[usize::from(is_supplied)].load(Ordering::Relaxed)
    }

    /// Whether a reservation is open that is to be ended when its time comes.
    #[inline]
    pub(super) fn awaits_end(&self, is_supplied: bool) -> bool {
        self.due[usize::from(is_supplied)].load(Ordering::Relaxed) != NEVER
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BookedReservations> {
        self.kept.lock()
    }

    /// Counts one more, if there may be one more.
    pub(super) fn take_room(&self) -> bool {
        let has_room = |open: usize| (open < self.max).then_some(open + 1);
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room);
        taken.is_ok()
    }

    /// Counts one less.
    pub(super) fn leave_room(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one that ended unsettled.
    pub(super) fn count_expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
        self.leave_room();
    }

    /// Counts one from a snapshot, which may be more than there should be.
    pub(super) fn count_restored(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// How many are open, how many may be, and how many have ended unsettled.
    pub(super) fn counts(&self) -> (usize, usize, u64) {
        let open = self.open.load(Ordering::Relaxed);
        (open, self.max, self.expired.load(Ordering::Relaxed))
    }

    /// Takes over when the next one ends, after a change.
    pub(super) fn note_due(&self, kept: &BookedReservations) {
        for (is_supplied, (due, queue)) in
            [false, true].iter().zip(self.due.iter().zip(&kept.queues))
        {
            let others = queue.others.first().filter(|_| *is_supplied);
            let next = queue.urgent.first().into_iter().chain(others).min();
            let next = next.map_or(NEVER, |(at, _)| at.as_micros().min(NEVER - 1));
            if due.load(Ordering::Relaxed) != next {
                due.store(next, Ordering::Relaxed);
            }
        }
    }
}

impl BookedReservations {
    pub(super) fn insert(&mut self, id: ReservationId, booked: BookedReservation) {
        self.queue_of(&booked).insert((booked.ends_at(), id));
        self.by_id.insert(id, booked);
    }

    pub(super) fn get(&self, id: ReservationId) -> Option<&BookedReservation> {
        self.by_id.get(&id)
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, id: ReservationId) -> Option<BookedReservation> {
        let booked = self.by_id.remove(&id)?;
        self.queue_of(&booked).remove(&(booked.ends_at(), id));
        Some(booked)
    }

    /// Takes out the next one that has ended at `now`: the urgent ones first, in the order of their ends.
    pub(super) fn pop_ended(
        &mut self,
        is_supplied: bool,
        now: Timestamp,
        only_urgent: bool,
    ) -> Option<(ReservationId, BookedReservation)> {
        let queue = &self.queues[usize::from(is_supplied)];
        let ended = |queue: &BTreeSet<(Timestamp, ReservationId)>| {
            let first = queue.first().filter(|(at, _)| *at <= now);
            first.map(|(_, id)| *id)
        };
        let urgent = ended(&queue.urgent);
        let others = || ended(&queue.others).filter(|_| !only_urgent);
        let id = urgent.or_else(others)?;
        Some((id, self.remove(id)?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ReservationId, &BookedReservation)> {
        self.by_id.iter().map(|(id, booked)| (*id, booked))
    }

    /// The limit, in memory that equal ones share.
    pub(super) fn limit(&mut self, limit: &Limit) -> Arc<Limit> {
        if let Some(same) = self.limits.iter().find(|known| ***known == *limit) {
            return Arc::clone(same);
        }
        if self.limits.len() >= SHARED {
            self.limits.clear();
        }
        let new = Arc::new(limit.clone());
        self.limits.push(Arc::clone(&new));
        new
    }

    fn queue_of(
        &mut self,
        booked: &BookedReservation,
    ) -> &mut BTreeSet<(Timestamp, ReservationId)> {
        let queue = &mut self.queues[usize::from(booked.is_supplied)];
        if booked.is_urgent() {
            &mut queue.urgent
        } else {
            &mut queue.others
        }
    }
}
