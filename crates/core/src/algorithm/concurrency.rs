//! Concurrency: a maximum number of simultaneous holders, each with a permit that ends by itself if
//! it is neither released nor renewed.

use std::collections::VecDeque;

use super::{AlgorithmVerdict, set_back};
use crate::limit::MAX_COUNT;
use crate::outcome::Outcome;
use crate::permit::PermitId;
use crate::time::{Micros, Timestamp};

/// The parameters of a concurrency limit. Made by [`Limit::new`](crate::Limit::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    holders: u64,
    lease_ttl: Micros,
}

/// The permits of one key, in the order in which they end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldPermits {
    changed_at: Timestamp,
    permits: VecDeque<HeldPermit>,
    held: u64,
}

/// The permits that one request holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldPermit {
    /// Its name.
    pub id: PermitId,
    /// How many permits it takes.
    pub cost: u64,
    /// When it ends by itself.
    pub ends_at: Timestamp,
    /// How long it lasts when it is renewed.
    pub ttl: Micros,
}

impl Concurrency {
    pub(crate) fn new(holders: u64, lease_ttl: Micros) -> Self {
        Self { holders, lease_ttl }
    }

    /// How many permits may be held at the same time.
    pub fn holders(&self) -> u64 {
        self.holders
    }

    /// When a permit that is neither released nor renewed ends.
    pub fn lease_ttl(&self) -> Micros {
        self.lease_ttl
    }

    /// Decides one charge and changes nothing; [`charge`](Self::charge) applies an allowed one.
    pub fn decide(&self, permits: &HeldPermits, cost: u64, now: Timestamp) -> Outcome {
        let by = set_back(permits.changed_at, now, self.lease_ttl);
        let at = now.max(permits.changed_at - by);
        let ended = permits.ended(at, by);
        let held = permits.held
            - permits
                .permits
                .range(..ended)
                .map(|permit| permit.cost)
                .sum::<u64>();

        let verdict = if cost == 0 || held.saturating_add(cost) <= self.holders {
            AlgorithmVerdict::ALLOWED
        } else if cost > self.holders {
            AlgorithmVerdict::NEVER
        } else {
            let excess = held - (self.holders - cost);
            AlgorithmVerdict::denied_until(permits.frees(ended, excess) - by, now)
        };
        let taken = if verdict.allowed { cost } else { 0 };
        let last_end = permits
            .permits
            .back()
            .map_or(Timestamp::EPOCH, |permit| permit.ends_at - by);
        let reset_at = match (held, taken) {
            (0, 0) => now,
            (_, 0) => last_end,
            _ => last_end.max(at + self.lease_ttl),
        };
        verdict.outcome(self.holders, held.saturating_add(taken), reset_at, at)
    }

    /// Takes a permit that was allowed. Calls `on_end` with each permit that has ended.
    pub fn charge(
        &self,
        permits: &mut HeldPermits,
        id: PermitId,
        cost: u64,
        now: Timestamp,
        on_end: impl FnMut(PermitId),
    ) {
        self.rebase(permits, now);
        let at = now.max(permits.changed_at);
        permits.drop_ended(at, on_end);
        permits.changed_at = at;
        permits.insert(HeldPermit {
            id,
            cost,
            ends_at: at + self.lease_ttl,
            ttl: self.lease_ttl,
        });
    }

    /// Moves the permits to the present if their clock has been set back since.
    pub fn rebase(&self, permits: &mut HeldPermits, now: Timestamp) {
        permits.rebase(now, self.lease_ttl);
    }
}

impl HeldPermits {
    /// Ends a permit before its time. False if it has ended already or never was. Without a time,
    /// as of the last change.
    pub fn release(&mut self, id: PermitId, now: Option<Timestamp>) -> bool {
        let now = now.unwrap_or(self.changed_at);
        match self.take(id) {
            Some(permit) => permit.ends_at > now,
            None => false,
        }
    }

    /// Lets a permit last its whole time again from `now`. False if it has ended already. Without a
    /// time, as of the last change.
    pub fn renew(&mut self, id: PermitId, now: Option<Timestamp>) -> bool {
        let now = now.unwrap_or(self.changed_at);
        let Some(permit) = self.permits.iter().find(|permit| permit.id == id) else {
            return false;
        };
        self.rebase(now, permit.ttl);
        let at = now.max(self.changed_at);
        match self.take(id) {
            Some(permit) if permit.ends_at > at => {
                self.changed_at = at;
                self.insert(HeldPermit {
                    ends_at: at + permit.ttl,
                    ..permit
                });
                true
            }
            _ => false,
        }
    }

    /// Lets a permit last for `ttl` from `now`. False if it has ended already.
    pub fn renew_for(&mut self, id: PermitId, ttl: Micros, now: Timestamp) -> bool {
        let at = now.max(self.changed_at);
        match self.take(id) {
            Some(permit) if permit.ends_at > at => {
                self.changed_at = at;
                let ends_at = at + ttl;
                self.insert(HeldPermit { ends_at, ..permit });
                true
            }
            _ => false,
        }
    }

    /// No permits yet, last changed at `changed_at`.
    pub(crate) fn changed(changed_at: Timestamp) -> Self {
        Self {
            changed_at,
            ..Self::default()
        }
    }

    /// When one was last taken or renewed.
    pub(crate) fn changed_at(&self) -> Timestamp {
        self.changed_at
    }

    /// The memory that it takes next to itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.permits.capacity() * size_of::<HeldPermit>()
    }

    /// How many permits there are.
    pub(crate) fn len(&self) -> usize {
        self.permits.len()
    }

    /// Appends a permit. False if it ends before the last one, or its cost is out of range.
    pub(crate) fn append(&mut self, permit: HeldPermit) -> bool {
        let is_possible =
            (1..=MAX_COUNT).contains(&permit.cost) && permit.ends_at >= self.last_end();
        if is_possible {
            self.insert(permit);
        }
        is_possible
    }

    /// When the last permit ends; the epoch if there is none.
    pub fn last_end(&self) -> Timestamp {
        self.permits
            .back()
            .map_or(Timestamp::EPOCH, |permit| permit.ends_at)
    }

    /// The permits, in the order in which they end.
    pub fn iter(&self) -> impl Iterator<Item = &HeldPermit> {
        self.permits.iter()
    }

    fn rebase(&mut self, now: Timestamp, ttl: Micros) {
        let by = set_back(self.changed_at, now, ttl);
        if !by.is_zero() {
            self.changed_at = self.changed_at - by;
            for permit in &mut self.permits {
                permit.ends_at = permit.ends_at - by;
            }
        }
    }

    /// How many permits have ended by `at`, with every end moved back `by`.
    fn ended(&self, at: Timestamp, by: Micros) -> usize {
        self.permits
            .partition_point(|permit| permit.ends_at - by <= at)
    }

    /// The end of the permit with which `excess` permits will have become free.
    fn frees(&self, ended: usize, excess: u64) -> Timestamp {
        let mut freed: u64 = 0;
        for permit in self.permits.range(ended..) {
            freed = freed.saturating_add(permit.cost);
            if freed >= excess {
                return permit.ends_at;
            }
        }
        self.last_end()
    }

    fn drop_ended(&mut self, at: Timestamp, mut on_end: impl FnMut(PermitId)) {
        let ended = self.ended(at, Micros::ZERO);
        for permit in self.permits.drain(..ended) {
            self.held -= permit.cost;
            on_end(permit.id);
        }
    }

    fn insert(&mut self, permit: HeldPermit) {
        let index = self
            .permits
            .partition_point(|other| other.ends_at <= permit.ends_at);
        if self.permits.capacity() == 0 {
            // Most keys have one, and the first allocation would have room for four.
            self.permits.reserve_exact(1);
        }
        self.permits.insert(index, permit);
        self.held += permit.cost;
    }

    fn take(&mut self, id: PermitId) -> Option<HeldPermit> {
        let index = self.permits.iter().position(|permit| permit.id == id)?;
        let permit = self.permits.remove(index)?;
        self.held -= permit.cost;
        Some(permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Retry;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn concurrency_by_hand() {
        let limit = Concurrency::new(3, Micros::MINUTE);
        let mut permits = HeldPermits::default();
        let (first, second) = (PermitId::from_u128(1), PermitId::from_u128(2));
        limit.charge(&mut permits, first, 1, seconds(100), |_| ());
        limit.charge(&mut permits, second, 2, seconds(110), |_| ());
        let after = |s| Retry::After(Micros::from_seconds(s));
        #[rustfmt::skip]
        let table = [
            // name                            cost at   allowed left retry         reset
            ("all permits held",                1,   120, false,  0,   after(40),    170),
            ("two permits need both to end",    2,   120, false,  0,   after(50),    170),
            ("the first permit has ended",      1,   160, true,   0,   Retry::Now,   220),
            ("more than there are",            4,   120, false,  0,   Retry::Never, 170),
            ("all of them wait for the last",  3,   120, false,  0,   after(50),    170),
            ("no permit is held any more",     0,   171, true,   3,   Retry::Now,   171),
        ];
        for (name, cost, at, allowed, left, retry, reset) in table {
            let got = limit.decide(&permits, cost, seconds(at));
            let wanted = (allowed, left, retry, seconds(reset));
            assert_eq!(
                (got.allowed, got.remaining, got.retry, got.reset_at),
                wanted,
                "{name}"
            );
        }
    }

    #[test]
    fn a_permit_is_released_once_and_renewed_while_it_lasts() {
        let limit = Concurrency::new(2, Micros::MINUTE);
        let mut permits = HeldPermits::default();
        let (first, second) = (PermitId::from_u128(1), PermitId::from_u128(2));
        limit.charge(&mut permits, first, 1, seconds(100), |_| ());
        limit.charge(&mut permits, second, 1, seconds(100), |_| ());
        assert!(permits.release(first, Some(seconds(101))));
        assert!(!permits.release(first, Some(seconds(101))));
        assert!(permits.renew(second, Some(seconds(150))));
        assert_eq!(limit.decide(&permits, 0, seconds(200)).remaining, 1);
        assert!(
            !permits.renew(second, Some(seconds(210))),
            "it ended at 210"
        );

        limit.charge(&mut permits, first, 1, seconds(300), |_| ());
        let mut ended = Vec::new();
        limit.charge(&mut permits, second, 1, seconds(360), |id| ended.push(id));
        assert_eq!(ended, [first]);
        assert_eq!(limit.decide(&permits, 0, seconds(360)).remaining, 1);
    }

    #[test]
    fn a_limit_of_permits_says_what_it_was_made_of() {
        let limit = Concurrency::new(3, Micros::MINUTE);
        assert_eq!((limit.holders(), limit.lease_ttl()), (3, Micros::MINUTE));
        let permits = HeldPermits::changed(seconds(100));
        assert_eq!((permits.changed_at(), permits.len()), (seconds(100), 0));
        assert_eq!(permits.last_end(), Timestamp::EPOCH);
    }

    #[test]
    fn only_permits_that_can_be_are_appended_in_the_order_of_their_ends() {
        let permit = |cost: u64, ends_at| HeldPermit {
            id: PermitId::from_u128(cost.into()),
            cost,
            ends_at: seconds(ends_at),
            ttl: Micros::MINUTE,
        };
        let mut permits = HeldPermits::default();
        assert!(!permits.append(permit(0, 100)), "no permit costs nothing");
        assert!(!permits.append(permit(MAX_COUNT + 1, 100)), "nor that much");
        assert!(permits.append(permit(2, 100)));
        assert!(permits.append(permit(3, 100)), "they may end together");
        assert!(!permits.append(permit(4, 99)), "not before the others");
        let costs: Vec<u64> = permits.iter().map(|permit| permit.cost).collect();
        assert_eq!((costs, permits.len()), (vec![2, 3], 2));
        assert_eq!(permits.last_end(), seconds(100));
        let limit = Concurrency::new(9, Micros::MINUTE);
        assert_eq!(limit.decide(&permits, 0, seconds(99)).remaining, 4);
        assert_eq!(limit.decide(&permits, 0, seconds(100)).remaining, 9);
    }

    #[test]
    fn permits_of_a_clock_that_was_set_back_are_moved_to_now() {
        let limit = Concurrency::new(3, Micros::MINUTE);
        let mut permits = HeldPermits::default();
        let (first, second) = (PermitId::from_u128(1), PermitId::from_u128(2));
        limit.charge(&mut permits, first, 1, seconds(990), |_| ());
        limit.charge(&mut permits, second, 2, seconds(1_000), |_| ());
        let got = limit.decide(&permits, 1, seconds(100));
        let wait = Retry::After(Micros::from_seconds(50));
        assert_eq!((got.retry, got.remaining, got.at), (wait, 0, seconds(100)));
        assert_eq!(got.reset_at, seconds(160));
        limit.rebase(&mut permits, seconds(100));
        let ends: Vec<_> = permits.iter().map(|permit| permit.ends_at).collect();
        assert_eq!(ends, [seconds(150), seconds(160)]);
        assert_eq!(permits.changed_at(), seconds(100));
        assert!(permits.renew(first, Some(seconds(120))));
        assert_eq!(permits.last_end(), seconds(180));
        assert_eq!(permits.changed_at(), seconds(120));
    }

    #[test]
    fn without_a_time_a_permit_is_released_and_renewed_as_of_the_last_change() {
        let limit = Concurrency::new(3, Micros::MINUTE);
        let mut permits = HeldPermits::default();
        let (first, second) = (PermitId::from_u128(1), PermitId::from_u128(2));
        limit.charge(&mut permits, first, 1, seconds(100), |_| ());
        limit.charge(&mut permits, second, 1, seconds(110), |_| ());
        assert!(permits.renew(first, None));
        assert_eq!(permits.last_end(), seconds(170));
        assert!(permits.release(second, None));
        assert!(!permits.renew(second, None), "it is gone");
        assert!(
            !permits.release(first, Some(seconds(170))),
            "it has ended then"
        );
        assert_eq!(permits.len(), 0);
    }

    #[test]
    fn a_denied_charge_waits_for_as_many_permits_as_it_lacks() {
        let limit = Concurrency::new(5, Micros::MINUTE);
        let mut permits = HeldPermits::default();
        for (id, cost, at) in [(1, 1, 100), (2, 2, 110), (3, 2, 120)] {
            let id = PermitId::from_u128(id);
            limit.charge(&mut permits, id, cost, seconds(at), |_| ());
        }
        for (cost, wait) in [(1, 30), (2, 40), (3, 40), (4, 50), (5, 50)] {
            let got = limit.decide(&permits, cost, seconds(130));
            let wait = Retry::After(Micros::from_seconds(wait));
            assert_eq!((got.retry, got.remaining), (wait, 0), "{cost}");
        }
    }

    #[test]
    fn a_permit_that_had_ended_stays_ended_when_the_clock_is_set_back() {
        let limit = Concurrency::new(5, Micros::MINUTE);
        let mut permits = HeldPermits::default();
        let (first, second) = (PermitId::from_u128(1), PermitId::from_u128(2));
        limit.charge(&mut permits, first, 1, seconds(900), |_| ());
        limit.charge(&mut permits, second, 2, seconds(950), |_| ());
        assert!(permits.renew(second, Some(seconds(1_000))));
        let got = limit.decide(&permits, 0, seconds(100));
        assert_eq!((got.remaining, got.reset_at), (3, seconds(160)));
    }
}
