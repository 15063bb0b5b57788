//! The in-memory store: exact, shared by all threads of a process, and gone with it.
//!
//! Keys are spread over *stripes*, each under a lock of its own. A slot holds a keyed hash of the
//! key instead of the key, and the state itself where that fits into two words, so a decision on a
//! known key touches one stripe, one slot, and allocates nothing. Keys that have become like fresh
//! ones are swept out a few at a time, by the charges themselves or by whoever calls
//! [`MemoryStore::sweep`].

mod forms;
mod keys;
mod leases;
mod lock;
mod shared;
mod slot;
mod stripe;
mod table;

pub use shared::MemoryStats;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use crate::algorithm::Leases;
use crate::clock::{Clock, SystemClock};
use crate::lease::LeaseId;
use crate::limit::{Limit, MAX_WINDOW};
use crate::outcome::Outcome;
use crate::store::{Charge, Outcomes, Request, Scope, Store, StoreError};
use crate::time::{Micros, Timestamp};
use forms::{Step, Task};
use keys::KeyHasher;
use lock::{Guard, Lock};
use shared::Shared;
use slot::KeyHash;
use stripe::Stripe;

/// How many keys a store holds when nothing else is said: ten million, in about 450 MB.
pub const DEFAULT_MAX_KEYS: usize = 10_000_000;

/// About as many keys are in one stripe when the store is full. What is done under one lock, such
/// as growing, takes time in proportion to this and not to the size of the store.
const KEYS_PER_STRIPE: usize = 16_384;
/// A smaller store has fewer stripes, down to one, so that what it lets go is well chosen.
const KEYS_TO_CHOOSE_FROM: usize = 1_024;
const STRIPES_FOR_THREADS: usize = 64;
/// The hash has this many bits to choose a stripe by.
const MAX_STRIPES: usize = 1 << 16;
/// Threads that read the same clock tell times that differ by less than this.
const THREADS_DIFFER: Micros = Micros::from_millis(10);
/// The latest time at which anything is decided: every window that starts then has an end.
const LATEST: Timestamp = Timestamp::from_micros(Timestamp::MAX.as_micros() - 2 * MAX_WINDOW.get());
/// One out of so many charges on a stripe sweeps a little of some stripe.
const CHARGES_PER_SWEEP: u32 = 256;
/// How many places it sweeps then.
const PLACES_PER_SWEEP: usize = 32;

/// Holds the state of every limit in this process's memory.
///
/// ```
/// use tidegate_core::{Charge, Limit, MemoryStore, Request, Scope};
///
/// let store = MemoryStore::new();
/// let (scope, limit) = (Scope::new("per-user"), "2/minute".parse::<Limit>()?);
/// let charge = Charge { scope: &scope, limit: &limit, key: "user_42", cost: 1 };
///
/// assert!(store.charge_one(&charge).allowed);
/// assert!(store.charge_one(&charge).allowed);
/// assert!(!store.charge_one(&charge).allowed);
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
pub struct MemoryStore {
    stripes: Box<[Aligned<Lock<Stripe>>]>,
    hasher: KeyHasher,
    clock: Arc<dyn Clock>,
    shared: Aligned<Shared>,
    next_stripe: Aligned<AtomicUsize>,
}

/// On a cache line of its own, so that threads on different stripes do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Aligned<T>(T);

/// How a [`MemoryStore`] is set up.
pub struct MemoryStoreBuilder {
    max_keys: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// Holds no more than `max_keys` keys, at least one: when it is full, a new key takes the place of
    /// an idle one, else of the one nearest to fresh among some hundreds, and only at last of one that
    /// is being denied. [`MemoryStats`] counts what had to go. Threads that add keys at the same
    /// instant may exceed it, each by one and for that instant.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self {
            max_keys: max_keys.max(1),
            ..self
        }
    }

    /// Reads the time from `clock`.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            ..self
        }
    }

    /// The store. Memory is taken as keys come.
    pub fn build(self) -> MemoryStore {
        // Enough for threads not to meet, as long as each stripe has keys to choose from when one has
        // to go; and for large stores, enough to keep the stripes small.
        let for_threads = (self.max_keys / KEYS_TO_CHOOSE_FROM).min(STRIPES_FOR_THREADS);
        let for_size = self.max_keys / KEYS_PER_STRIPE;
        let stripes = for_threads
            .max(for_size)
            .next_power_of_two()
            .min(MAX_STRIPES);
        // The first reading of the clock takes longer than the others: not on a request's time.
        self.clock.now();
        MemoryStore {
            stripes: std::iter::repeat_with(Aligned::default)
                .take(stripes)
                .collect(),
            hasher: KeyHasher::random(),
            clock: self.clock,
            shared: Aligned(Shared::new(self.max_keys)),
            next_stripe: Aligned::default(),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// A store for up to [`DEFAULT_MAX_KEYS`] keys that reads the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins to set up a store.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            max_keys: DEFAULT_MAX_KEYS,
            clock: Arc::new(SystemClock),
        }
    }

    /// The time as this store sees it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Charges one limit, at once, at the store's own time and without a lease.
    #[inline]
    pub fn charge_one(&self, charge: &Charge<'_>) -> Outcome {
        self.apply(Step::Charge, charge, None, None)
    }

    #[inline]
    fn apply(
        &self,
        step: Step,
        charge: &Charge<'_>,
        at: Option<Timestamp>,
        lease: Option<LeaseId>,
    ) -> Outcome {
        let now = self.time(at);
        let hash = self.hasher.hash(charge);
        let (mut stripe, now) = self.lock(hash, at, now);
        let task = Task {
            hash,
            limit: charge.limit,
            cost: charge.cost,
            now,
            lease,
        };
        let outcome = stripe.apply(step, &task, &self.shared.0);
        self.finish(stripe);
        outcome
    }

    /// Charges every limit of the request or none, at once: [`Store::charge`] without the future.
    pub fn charge(&self, request: &Request<'_>) -> Outcomes {
        if let [charge] = request.charges {
            let outcome = self.apply(Step::Charge, charge, request.at, request.lease);
            return SmallVec::from_slice(&[outcome]);
        }
        let mut tasks = self.merged(request);
        let mut stripes = self.lock_all(&mut tasks, request.at);
        let mut outcomes: Outcomes = tasks
            .iter()
            .map(|task| stripes.get_mut(task).ask(task))
            .collect();
        let allowed = outcomes.iter().all(|outcome| outcome.allowed);
        for (index, task) in tasks.iter().enumerate() {
            let outcome = &mut outcomes[index];
            if allowed {
                // The state of a merged charge is taken once, and answers for all of its parts.
                let first = tasks.iter().position(|other| other.hash == task.hash);
                if first == Some(index) {
                    *outcome = stripes
                        .get_mut(task)
                        .apply(Step::Charge, task, &self.shared.0);
                }
            } else if outcome.allowed {
                *outcome = outcome.over(stripes.get_mut(task).ask(&Task { cost: 0, ..*task }));
            } else {
                *outcome = stripes
                    .get_mut(task)
                    .apply(Step::Charge, task, &self.shared.0);
            }
        }
        stripes.finish();
        outcomes
    }

    /// Answers whether each charge would be allowed: [`Store::peek`] without the future.
    pub fn peek(&self, request: &Request<'_>) -> Outcomes {
        let mut tasks = self.merged(request);
        let stripes = self.lock_all(&mut tasks, request.at);
        let asked = tasks.iter().map(|task| {
            let untouched = stripes.get(task).ask(&Task { cost: 0, ..*task });
            stripes.get(task).ask(task).over(untouched)
        });
        asked.collect()
    }

    /// Takes back a request that was charged: [`Store::give_back`] without the future.
    pub fn give_back(&self, request: &Request<'_>, outcomes: &[Outcome]) {
        if outcomes.iter().any(|outcome| !outcome.allowed) {
            return;
        }
        for (charge, outcome) in request.charges.iter().zip(outcomes) {
            // What waits in line flows back only when its turn has come.
            self.apply(
                Step::GiveBack(outcome.at + outcome.delay),
                charge,
                request.at,
                request.lease,
            );
        }
    }

    /// Charges what is known only afterwards: [`Store::settle`] without the future.
    pub fn settle(&self, request: &Request<'_>) -> Outcomes {
        let settled = request
            .charges
            .iter()
            .map(|charge| self.apply(Step::Settle, charge, request.at, None));
        settled.collect()
    }

    /// Forgets what a key has used: [`Store::forget`] without the future.
    pub fn forget(&self, scope: &Scope, limit: &Limit, key: &str) {
        let hash = self.hasher.hash(&Charge {
            scope,
            limit,
            key,
            cost: 0,
        });
        self.stripe(hash).lock().forget(hash, &self.shared.0);
    }

    /// Releases a lease: [`Store::release`] without the future.
    pub fn release(&self, lease: LeaseId) -> bool {
        let now = self.shared.0.idle_at(self.clock.now());
        let mut released = false;
        for key in self.shared.0.leases.keys(lease) {
            released |= self
                .stripe(key)
                .lock()
                .with_leases(key, |leases| leases.release(lease, now));
            self.shared.0.leases.remove(lease, key);
        }
        released
    }

    /// Renews a lease: [`Store::renew`] without the future.
    pub fn renew(&self, lease: LeaseId) -> bool {
        let now = self.shared.0.idle_at(self.clock.now());
        let keys = self.shared.0.leases.keys(lease);
        let mut renewed = !keys.is_empty();
        for key in keys {
            let renew = |leases: &mut Leases| leases.renew(lease, now);
            if !self.stripe(key).lock().with_leases(key, renew) {
                self.shared.0.leases.remove(lease, key);
                renewed = false;
            }
        }
        renewed
    }

    /// Removes every key that has become like a fresh one, one stripe at a time.
    ///
    /// Charges do this by themselves, a little at a time; this is for times without any. No lock is
    /// held for longer than it takes to look at one stripe.
    pub fn sweep(&self) {
        if let Some(now) = self.shared.0.idle_at(self.clock.now()) {
            for stripe in &self.stripes {
                let mut stripe = stripe.0.lock();
                // One look for each place, and one more for each key that is removed.
                let looks = stripe.places().saturating_mul(2);
                stripe.sweep(looks, now, &self.shared.0);
            }
        }
    }

    /// What the store holds, and what it had to let go.
    pub fn stats(&self) -> MemoryStats {
        self.shared.0.stats()
    }

    #[inline]
    fn time(&self, given: Option<Timestamp>) -> Timestamp {
        if let Some(now) = given {
            self.shared.0.stop_expiring();
            return now.min(LATEST);
        }
        self.clock.now().min(LATEST)
    }

    /// The request's tasks, those on one state with the sum of their costs.
    fn merged<'a>(&self, request: &Request<'a>) -> SmallVec<[Task<'a>; 4]> {
        let mut tasks: SmallVec<[Task<'a>; 4]> = request
            .charges
            .iter()
            .map(|charge| Task {
                hash: self.hasher.hash(charge),
                limit: charge.limit,
                cost: charge.cost,
                now: Timestamp::EPOCH,
                lease: request.lease,
            })
            .collect();
        for index in 1..tasks.len() {
            let (earlier, later) = tasks.split_at_mut(index);
            let cost = later[0].cost;
            let same = earlier.iter_mut().filter(|task| task.hash == later[0].hash);
            let mut sum = None;
            for task in same {
                task.cost = task.cost.saturating_add(cost);
                sum = Some(task.cost);
            }
            later[0].cost = sum.unwrap_or(cost);
        }
        tasks
    }

    fn stripe_index(&self, hash: KeyHash) -> usize {
        // The number of stripes is a power of two.
        usize::try_from(hash.stripe_bits()).unwrap_or(0) & (self.stripes.len() - 1)
    }

    #[inline]
    fn stripe(&self, hash: KeyHash) -> &Lock<Stripe> {
        &self.stripes[self.stripe_index(hash)].0
    }

    /// Locks the stripe of `hash` at `now`; or later, if others have used it at a later time.
    ///
    /// The clock is read long before the lock is taken, so that the two do not wait for each other.
    #[inline]
    fn lock(
        &self,
        hash: KeyHash,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> (Guard<'_, Stripe>, Timestamp) {
        let mut stripe = self.stripe(hash).lock();
        if given.is_some() {
            return (stripe, now);
        }
        let now = if stripe.used_at > now {
            self.catch_up(stripe.used_at)
        } else {
            now
        };
        stripe.used_at = now;
        (stripe, now)
    }

    /// The time for one who comes to a stripe with an earlier time than it was `used_at`.
    ///
    /// He had to wait, for the lock or for the processor, and the time that he brought is old; so he
    /// reads the clock again. What is still missing is the difference between the clocks of two
    /// threads, and is made up: to a small bucket it would look like a clock that was set back. A
    /// clock that really was is further behind.
    #[cold]
    fn catch_up(&self, used_at: Timestamp) -> Timestamp {
        let now = self.clock.now();
        if used_at.since(now) < THREADS_DIFFER {
            now.max(used_at)
        } else {
            now
        }
    }

    /// Locks the stripes of all tasks, in their order: whoever does so cannot wait for another who
    /// waits for him. Then tells the tasks the time.
    fn lock_all(&self, tasks: &mut [Task<'_>], at: Option<Timestamp>) -> LockedStripes<'_> {
        let mut indexes: SmallVec<[usize; 4]> = tasks
            .iter()
            .map(|task| self.stripe_index(task.hash))
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        let lock = |index: &usize| (*index, self.stripes[*index].0.lock());
        let mut locked: SmallVec<[_; 4]> = indexes.iter().map(lock).collect();
        let mut now = self.time(at);
        if at.is_none() {
            let used_at = locked
                .iter()
                .map(|(_, stripe)| stripe.used_at)
                .max()
                .unwrap_or_default();
            now = if used_at > now {
                self.catch_up(used_at)
            } else {
                now
            };
            for (_, stripe) in &mut locked {
                stripe.used_at = now;
            }
        }
        for task in tasks {
            task.now = now;
        }
        LockedStripes {
            locked,
            store: self,
        }
    }

    /// Lets go of a stripe after a charge, and does a little of the sweeping if it is due.
    #[inline]
    fn finish(&self, mut stripe: Guard<'_, Stripe>) {
        let is_due = stripe.count_charge(CHARGES_PER_SWEEP);
        drop(stripe);
        if is_due {
            self.tidy();
        }
    }

    #[cold]
    fn tidy(&self) {
        let idle_at = self.shared.0.idle_at(self.clock.now());
        if let Some(now) = idle_at
            && let Some(mut stripe) = self.next_stripe().try_lock()
        {
            stripe.sweep(PLACES_PER_SWEEP, now, &self.shared.0);
        }
        // A new key takes the place of one in its own stripe. Where there was none, one in another
        // has to go.
        for _ in 0..self.stripes.len() {
            if !self.shared.0.is_over() {
                break;
            }
            self.next_stripe().lock().evict(idle_at, &self.shared.0);
        }
    }

    fn next_stripe(&self) -> &Lock<Stripe> {
        let next = self.next_stripe.0.fetch_add(1, Ordering::Relaxed);
        &self.stripes[next & (self.stripes.len() - 1)].0
    }
}

/// The stripes of one request, locked together.
struct LockedStripes<'a> {
    locked: SmallVec<[(usize, Guard<'a, Stripe>); 4]>,
    store: &'a MemoryStore,
}

impl LockedStripes<'_> {
    fn get(&self, task: &Task<'_>) -> &Stripe {
        &self.locked[self.position(task)].1
    }

    fn get_mut(&mut self, task: &Task<'_>) -> &mut Stripe {
        let position = self.position(task);
        &mut self.locked[position].1
    }

    fn position(&self, task: &Task<'_>) -> usize {
        let index = self.store.stripe_index(task.hash);
        self.locked.partition_point(|(locked, _)| *locked < index)
    }

    fn finish(mut self) {
        let mut is_due = false;
        for (_, stripe) in &mut self.locked {
            is_due |= stripe.count_charge(CHARGES_PER_SWEEP);
        }
        let store = self.store;
        drop(self);
        if is_due {
            store.tidy();
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    async fn charge(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        Ok(self.charge(request))
    }

    async fn peek(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        Ok(self.peek(request))
    }

    async fn give_back(
        &self,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        self.give_back(request, outcomes);
        Ok(())
    }

    async fn settle(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        Ok(self.settle(request))
    }

    async fn forget(&self, scope: &Scope, limit: &Limit, key: &str) -> Result<(), StoreError> {
        self.forget(scope, limit, key);
        Ok(())
    }

    async fn release(&self, lease: LeaseId) -> Result<bool, StoreError> {
        Ok(self.release(lease))
    }

    async fn renew(&self, lease: LeaseId) -> Result<bool, StoreError> {
        Ok(self.renew(lease))
    }
}
