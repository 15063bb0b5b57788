//! The in-memory store: exact, shared by all threads of a process, and gone with it unless a
//! [snapshot](MemoryStore::snapshot) is kept.
//!
//! Keys are spread over *stripes*, each under a lock of its own. A slot holds a keyed hash of the
//! key instead of the key, and the state itself where that fits into two words, so a decision on a
//! known key touches one stripe, one slot, and allocates nothing. Keys that have become like fresh
//! ones are swept out a few at a time, by the charges themselves or by
//! [`MemoryStore::sweep`].

mod adjusting;
mod forms;
mod keys;
mod lock;
mod permits;
mod reservation_book;
mod reservations;
mod resets;
mod shared;
mod slot;
mod snapshot;
mod stripe;
mod stripes;
mod table;

pub use shared::MemoryStats;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use snapshot::fuzzing;
pub use snapshot::{Restored, Snapshot, SnapshotError};

use std::num::NonZeroUsize;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::HeldPermits;
use crate::clock::Clock;
use crate::limit::Limit;
use crate::outcome::{Outcome, Outcomes};
use crate::permit::PermitId;
use crate::store::{Charge, Request, Scope};
use crate::time::Timestamp;
use forms::{StateStep, Task};
use keys::{HashSecret, KeyHasher};
use lock::Guard;
use reservation_book::ReservationBook;
use slot::KeyHash;
use stripe::Stripe;
use stripes::{LATEST, Stripes};

/// How many keys a store holds by default: ten million, in about 450 MB.
pub const DEFAULT_MAX_KEYS: usize = 10_000_000;
/// How many open reservations a store holds by default.
pub const DEFAULT_MAX_RESERVATIONS: usize = 100_000;

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
    stripes: Stripes,
    hasher: KeyHasher,
    reservations: ReservationBook,
}

/// How a [`MemoryStore`] is set up.
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_memory: usize,
    max_reservations: usize,
    clock: Arc<dyn Clock>,
    is_clock_of_requests: bool,
    secret: HashSecret,
}

impl MemoryStoreBuilder {
    fn new(clock: impl Clock, secret: HashSecret) -> Self {
        Self {
            max_keys: DEFAULT_MAX_KEYS,
            max_memory: usize::MAX,
            max_reservations: DEFAULT_MAX_RESERVATIONS,
            clock: Arc::new(clock),
            is_clock_of_requests: false,
            secret,
        }
    }

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

    /// Lets states take no more than about this many bytes, those of `sliding_window_log`, `sliding_window_slots` and
    /// `concurrency` included, which take more than a key does elsewhere. Unbounded if not set. When it is full, new
    /// keys take the place of others as with [`max_keys`](Self::max_keys). Permits that are held are never removed for
    /// that: if they take 15 of 16 parts of it, new ones are denied, and [`MemoryStore::has_room_for_permit`] is false.
    #[must_use]
    pub fn max_memory(self, bytes: usize) -> Self {
        Self {
            max_memory: bytes,
            ..self
        }
    }

    /// Holds no more than this many open reservations, [`DEFAULT_MAX_RESERVATIONS`] if not set. None is removed to make
    /// room for another: beyond, [`MemoryStore::reserve`] refuses. They count against
    /// [`max_memory`](Self::max_memory), too, as permits do.
    #[must_use]
    pub fn max_reservations(self, max_reservations: usize) -> Self {
        Self {
            max_reservations,
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
        MemoryStore {
            stripes: Stripes::new(
                self.max_keys,
                self.max_memory,
                self.clock,
                self.is_clock_of_requests,
            ),
            hasher: KeyHasher::new(self.secret),
            reservations: ReservationBook::new(self.max_reservations),
        }
    }
}

#[cfg(all(feature = "system-clock", feature = "random-permits"))]
impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(feature = "system-clock", feature = "random-permits"))]
impl MemoryStore {
    /// A store for up to [`DEFAULT_MAX_KEYS`] keys that reads the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins to set up a store that reads the system's clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new(crate::clock::SystemClock, keys::random_secret())
    }
}

impl MemoryStore {
    /// Begins to set up a store without the operating system. Keys are hashed under `secret`: 32 random bytes that
    /// no client knows, else clients can choose keys that share a counter.
    ///
    /// ```
    /// use tidegate_core::{Charge, Limit, ManualClock, MemoryStore, Scope, Timestamp};
    ///
    /// let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    /// # let secret_from_the_host = || [7; 32];
    /// let store = MemoryStore::builder_with(clock, secret_from_the_host()).build();
    /// let (scope, limit) = (Scope::new("per-user"), "2/minute".parse::<Limit>()?);
    /// let charge = Charge { scope: &scope, limit: &limit, key: "user_42", cost: 2 };
    /// assert!(store.charge_one(&charge).allowed);
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn builder_with(clock: impl Clock, secret: [u8; 32]) -> MemoryStoreBuilder {
        MemoryStoreBuilder::new(clock, keys::secret_from_bytes(secret))
    }

    /// The time as this store sees it.
    pub fn now(&self) -> Timestamp {
        self.stripes.now()
    }

    /// Charges one limit without waiting, at the store's own time and without a permit.
    #[inline]
    pub fn charge_one(&self, charge: &Charge<'_>) -> Outcome {
        self.charge_one_into(charge, |outcome| outcome)
    }

    /// Like `charge_one`, but builds the caller's result in place: saves one copy of the outcome.
    #[inline]
    pub fn charge_one_into<T>(&self, charge: &Charge<'_>, make: impl Fn(Outcome) -> T) -> T {
        // The clock is read first, so that it and the lock do not wait for each other.
        let now = self.time(None);
        let hash = self.hasher.hash(charge);
        let (mut stripe, now) = self.stripes.lock(hash, None, now);
        if let Some(outcome) = stripe.admit(hash, charge.limit, charge.cost, now) {
            self.stripes.finish(stripe);
            return make(outcome);
        }
        make(self.charge_locked(stripe, hash, charge, now))
    }

    /// The slow path of `charge_one`, out of line; the stripe is locked.
    #[inline(never)]
    fn charge_locked(
        &self,
        mut stripe: Guard<'_, Stripe>,
        hash: KeyHash,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Outcome {
        let task = Task {
            hash,
            limit: charge.limit,
            cost: charge.cost,
            now,
            permit: None,
        };
        let outcome = stripe.apply(StateStep::Charge, &task, self.stripes.shared());
        self.stripes.finish(stripe);
        outcome
    }

    /// The time that was given, or the clock's. What has ended until then ends first: see `end_due`.
    #[inline]
    fn time(&self, at: Option<Timestamp>) -> Timestamp {
        let now = self.stripes.time(at);
        if self.reservations.is_due(at.is_some(), now) {
            return self.end_due(at.is_some(), now.min(LATEST));
        }
        now
    }

    fn apply(
        &self,
        step: StateStep,
        charge: &Charge<'_>,
        at: Option<Timestamp>,
        permit: Option<PermitId>,
    ) -> Outcome {
        let now = self.time(at);
        let hash = self.hasher.hash(charge);
        let (mut stripe, now) = self.stripes.lock(hash, at, now);
        let task = Task {
            hash,
            limit: charge.limit,
            cost: charge.cost,
            now,
            permit,
        };
        let outcome = stripe.apply(step, &task, self.stripes.shared());
        self.stripes.finish(stripe);
        outcome
    }

    /// Charges every limit of the request or none: [`RemoteStore::charge`](crate::RemoteStore::charge) without the future.
    pub fn charge(&self, request: &Request<'_>) -> Outcomes {
        match self.without_room(request) {
            Some(refused) => refused,
            None => self.charge_regardless(request),
        }
    }

    /// The same for a request that was asked about with [`without_room`](Self::without_room), which is not asked
    /// again.
    pub fn charge_regardless(&self, request: &Request<'_>) -> Outcomes {
        if let [charge] = request.charges {
            if request.at.is_none() && request.permit.is_none() {
                return self.charge_one_into(charge, Outcomes::one);
            }
            let charged = self.apply(StateStep::Charge, charge, request.at, request.permit);
            return Outcomes::one(charged);
        }
        let mut tasks = self.merged(request);
        let mut stripes = self.stripes.lock_all(&mut tasks, request.at);
        let mut outcomes: Outcomes = tasks
            .iter()
            .map(|task| stripes.get(task).ask(task))
            .collect();
        let allowed = outcomes.iter().all(|outcome| outcome.allowed);
        for (index, task) in tasks.iter().enumerate() {
            let outcome = &mut outcomes[index];
            if allowed {
                // The state of a merged charge is taken once, and answers for all of its parts.
                let first = tasks.iter().position(|other| other.hash == task.hash);
                if first == Some(index) {
                    *outcome = stripes.charge(task);
                }
            } else if outcome.allowed {
                *outcome =
                    outcome.with_remaining_of(stripes.get(task).ask(&Task { cost: 0, ..*task }));
            } else {
                *outcome = stripes.charge(task);
            }
        }
        stripes.finish();
        outcomes
    }

    /// Whether there is memory for another permit. Counters make room for it until permits take 15 of 16 parts of
    /// what may be held; permits that are held do not.
    pub fn has_room_for_permit(&self) -> bool {
        self.stripes.shared().has_room_for_permit() || self.stripes.makes_room_for_permit()
    }

    /// The answer to a request that would be allowed if there were memory for its permits: they are denied, and
    /// nothing is charged. None if there is memory, if it asks for no permit, and if it is denied anyway.
    #[inline]
    pub fn without_room(&self, request: &Request<'_>) -> Option<Outcomes> {
        request.permit?;
        self.denied_permits(request)
    }

    /// Answers whether each charge would be allowed: [`RemoteStore::peek`](crate::RemoteStore::peek) without the future.
    pub fn peek(&self, request: &Request<'_>) -> Outcomes {
        let mut tasks = self.merged(request);
        let stripes = self.stripes.lock_all(&mut tasks, request.at);
        let asked = tasks.iter().map(|task| {
            let untouched = stripes.get(task).ask(&Task { cost: 0, ..*task });
            stripes.get(task).ask(task).with_remaining_of(untouched)
        });
        asked.collect()
    }

    /// Answers exactly as a charge would: [`RemoteStore::preview`](crate::RemoteStore::preview) without the future.
    pub fn preview(&self, request: &Request<'_>) -> Outcomes {
        let mut tasks = self.merged(request);
        let stripes = self.stripes.lock_all(&mut tasks, request.at);
        let asked = tasks.iter().map(|task| stripes.get(task).ask(task));
        let mut outcomes: Outcomes = asked.collect();
        if outcomes.iter().all(|outcome| outcome.allowed) {
            return outcomes;
        }
        let taking_nothing = outcomes.iter_mut().zip(&tasks);
        for (outcome, task) in taking_nothing.filter(|(outcome, _)| outcome.allowed) {
            let untouched = stripes.get(task).ask(&Task { cost: 0, ..*task });
            *outcome = outcome.with_remaining_of(untouched);
        }
        outcomes
    }

    /// Charges what is known only afterwards: [`RemoteStore::settle`](crate::RemoteStore::settle) without the future.
    pub fn settle(&self, request: &Request<'_>) -> Outcomes {
        let settled = request.charges.iter().map(|charge| {
            let step = if charge.scope.is_charged_in_full() {
                StateStep::SettleInFull
            } else {
                StateStep::Settle
            };
            self.apply(step, charge, request.at, None)
        });
        settled.collect()
    }

    /// Forgets what a key has used: [`RemoteStore::forget`](crate::RemoteStore::forget) without the future.
    ///
    /// The last 16,384 keys that were reset are known by name. Once there are more, nothing that was charged up to the
    /// oldest of these resets is given back to any key: it counts until it flows back or leaves its window.
    pub fn forget(&self, scope: &Scope, limit: &Limit, key: &str) {
        let hash = self.hasher.hash(&Charge {
            scope,
            limit,
            key,
            cost: 0,
        });
        let shared = self.stripes.shared();
        if !self.stripes.of(hash).lock().forget(hash, limit, shared) {
            // Reservations may still say that it was charged.
            self.void_parts(hash);
        }
    }

    /// Releases a permit: [`RemoteStore::release`](crate::RemoteStore::release) without the future.
    pub fn release(&self, permit: PermitId) -> bool {
        let now = self.stripes.idle_at();
        let mut released = false;
        if self.is_reserved(permit) {
            return false;
        }
        for key in self.stripes.shared().permits.keys(permit) {
            let release = |permits: &mut HeldPermits| permits.release(permit, now);
            released |=
                self.stripes
                    .of(key)
                    .lock()
                    .with_permits(key, release, self.stripes.shared());
            self.stripes.shared().permits.remove(permit, key);
        }
        released
    }

    /// Renews a permit: [`RemoteStore::renew`](crate::RemoteStore::renew) without the future.
    pub fn renew(&self, permit: PermitId) -> bool {
        let now = self.stripes.idle_at();
        if self.is_reserved(permit) {
            return false;
        }
        let keys = self.stripes.shared().permits.keys(permit);
        let mut renewed = !keys.is_empty();
        for key in keys {
            let renew = |permits: &mut HeldPermits| permits.renew(permit, now);
            if !self
                .stripes
                .of(key)
                .lock()
                .with_permits(key, renew, self.stripes.shared())
            {
                self.stripes.shared().permits.remove(permit, key);
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
        self.sweep_part(NonZeroUsize::MIN);
    }

    /// Removes idle keys of one in `parts` of the store, and of the next part when it is called again: what
    /// [`sweep`](Self::sweep) does, in short steps.
    pub fn sweep_part(&self, parts: NonZeroUsize) {
        if self.stripes.idle_at().is_some() {
            self.forget_ended(false, self.stripes.now(), usize::MAX);
        }
        self.stripes.sweep_part(parts.get());
    }

    /// What the store holds, and what it had to let go.
    pub fn stats(&self) -> MemoryStats {
        let (reservations, max_reservations, expired_reservations) = self.reservations.counts();
        MemoryStats {
            reservations,
            max_reservations,
            expired_reservations,
            ..self.stripes.shared().stats()
        }
    }

    /// The request's tasks, those on one state with the sum of their costs.
    fn merged<'a>(&self, request: &Request<'a>) -> SmallVec<[Task<'a>; 4]> {
        // Before any stripe is locked.
        if self.reservations.awaits_end(request.at.is_some()) {
            self.time(request.at);
        }
        let mut tasks: SmallVec<[Task<'a>; 4]> = request
            .charges
            .iter()
            .map(|charge| Task {
                hash: self.hasher.hash(charge),
                limit: charge.limit,
                cost: charge.cost,
                now: Timestamp::EPOCH,
                permit: request.permit,
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
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
