//! One limiter for one program: limits, keys, and no rule files.

mod shared;

pub use shared::SharedLimiter;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    Algorithm, Charge, Clock, Limit, LimitError, MemoryStats, MemoryStore, Micros, PermitId, Rate,
    RemoteStore, Request, Scope, Store, StoreError, SystemClock,
};
use tokio::sync::Notify;

use crate::limiter_decision::LimiterDecision;

/// How long [`Limiter::acquire`] waits by default.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(10);

/// The charges of one request, one for each limit.
pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

/// Limits requests by key, in this process's memory.
///
/// Cheap to clone; clones share their counters. All methods but [`acquire`](Self::acquire) answer without waiting, and
/// a check of a known key allocates nothing, unless it adds to a log or a list of holders that has to grow, or there
/// are more than four limits. [`SharedLimiter`] counts in a store that several instances share.
#[derive(Clone)]
pub struct Limiter {
    memory: Arc<MemoryStore>,
    pub(crate) inner: Arc<LimiterInner>,
}

pub(crate) struct LimiterInner {
    pub(crate) store: Store,
    pub(crate) limits: Vec<Limit>,
    pub(crate) max_wait: Micros,
    pub(crate) clock: Arc<dyn Clock>,
    /// Wakes callers that wait for a permit when one was released.
    pub(crate) freed: Notify,
    /// Whether requests to a shared store bring the time of the clock.
    brings_time: bool,
    scope: Scope,
    has_concurrency: bool,
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limits", &self.inner.limits)
            .finish_non_exhaustive()
    }
}

/// What a limiter is built from.
enum GivenLimits {
    Written(Result<Vec<Rate>, LimitError>),
    Made(Vec<Limit>),
}

/// How a [`Limiter`] is set up. Begun by [`Limiter::builder`].
#[must_use]
pub struct LimiterBuilder {
    limits: GivenLimits,
    algorithm: Option<Algorithm>,
    max_wait: Duration,
    max_keys: Option<usize>,
    max_memory: Option<usize>,
    has_secret_keys: bool,
    brings_time: bool,
    clock: Arc<dyn Clock>,
}

impl LimiterBuilder {
    fn new(limits: GivenLimits) -> Self {
        Self {
            limits,
            algorithm: None,
            max_wait: DEFAULT_MAX_WAIT,
            max_keys: None,
            max_memory: None,
            has_secret_keys: false,
            brings_time: false,
            clock: Arc::new(SystemClock),
        }
    }

    /// Counts limits that were written as text by this algorithm instead of the
    /// [default](Algorithm::default_for) of each.
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        Self {
            algorithm: Some(algorithm),
            ..self
        }
    }

    /// Lets [`Limiter::acquire`] wait for so long at the most: 10 seconds unless said.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Keeps the counters of so many keys at the most: ten million unless said. When there are
    /// more, those that matter least are forgotten; [`Limiter::stats`] counts them.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self {
            max_keys: Some(max_keys),
            ..self
        }
    }

    /// Lets counters take about so many bytes at the most, those of `sliding_window_log` and the like included.
    /// Unbounded unless said. When it is full, counters are forgotten as with [`max_keys`](Self::max_keys).
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// let limiter = Limiter::builder("5/minute").max_memory(64 << 10).build()?;
    /// for key in 0..3_000 {
    ///     limiter.check(&key.to_string());
    /// }
    /// assert!(limiter.stats().memory <= 65 << 10);
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    pub fn max_memory(self, bytes: usize) -> Self {
        Self {
            max_memory: Some(bytes),
            ..self
        }
    }

    /// Keeps keys unreadable in a shared store, which hashes them: for credentials.
    pub fn secret_keys(self) -> Self {
        Self {
            has_secret_keys: true,
            ..self
        }
    }

    /// Reads the time from `clock`: a [`ManualClock`](crate::ManualClock) in tests, or a
    /// [`TokioClock`](crate::TokioClock) where they wait. A shared store has a clock of its own; there it is used for
    /// waits alone.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            ..self
        }
    }

    /// Lets the limiter's clock decide in a shared store too: each request brings its time. For replays and tests; in
    /// memory the store's clock decides.
    pub fn bring_time(self) -> Self {
        Self {
            brings_time: true,
            ..self
        }
    }

    /// The limiter in memory, or what is wrong with its limits.
    pub fn build(self) -> Result<Limiter, LimitError> {
        let mut store = MemoryStore::builder().clock(Arc::clone(&self.clock));
        if let Some(max_keys) = self.max_keys {
            store = store.max_keys(max_keys);
        }
        if let Some(bytes) = self.max_memory {
            store = store.max_memory(bytes);
        }
        let memory = Arc::new(store.build());
        self.build_in("limiter", memory)
    }

    /// The limiter in a store in memory that others may use, or what is wrong with its limits. Limiters with the same
    /// name, limits and store share their counters. The store's own clock decides, and its own bounds hold.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Limiter, MemoryStore};
    ///
    /// let store = Arc::new(MemoryStore::new());
    /// let reads = Limiter::builder("100/minute").build_in("reads", Arc::clone(&store))?;
    /// let writes = Limiter::builder("1/minute").build_in("writes", store)?;
    /// assert!(reads.check("user_42").is_allowed());
    /// assert_eq!(writes.check("user_42").remaining(), 0);
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    pub fn build_in(self, name: &str, store: Arc<MemoryStore>) -> Result<Limiter, LimitError> {
        let inner = self.build_inner(name, Arc::clone(&store).into())?;
        let memory = store;
        Ok(Limiter { memory, inner })
    }

    /// The limiter over a store that instances share, or what is wrong with its limits. Limiters with the same name,
    /// limits and store share their counters, whatever process they are in.
    pub fn build_shared(
        self,
        name: &str,
        store: impl RemoteStore,
    ) -> Result<SharedLimiter, LimitError> {
        let inner = self.build_inner(name, store.into())?;
        Ok(SharedLimiter { inner })
    }

    fn build_inner(self, name: &str, store: Store) -> Result<Arc<LimiterInner>, LimitError> {
        let limit = |rate: Rate| {
            let algorithm = self
                .algorithm
                .unwrap_or_else(|| Algorithm::default_for(&rate));
            Limit::new(rate, algorithm)
        };
        let limits: Vec<Limit> = match self.limits {
            GivenLimits::Written(rates) => {
                rates?.into_iter().map(limit).collect::<Result<_, _>>()?
            }
            GivenLimits::Made(limits) => limits,
        };
        if limits.is_empty() {
            return Err(LimitError::NoLimit);
        }
        for (index, limit) in limits.iter().enumerate() {
            if limits[..index]
                .iter()
                .any(|earlier| earlier.shape() == limit.shape())
            {
                return Err(LimitError::SameShapeTwice { rate: limit.rate() });
            }
        }
        let store_is_remote = store.remote().is_some();
        let inner = LimiterInner {
            store,
            has_concurrency: limits.iter().any(Limit::is_concurrency),
            limits,
            max_wait: Micros::from(self.max_wait).min(tidegate_core::limit::MAX_WINDOW),
            clock: self.clock,
            freed: Notify::new(),
            brings_time: self.brings_time && store_is_remote,
            scope: if self.has_secret_keys {
                Scope::new(name).with_secret_keys()
            } else {
                Scope::new(name)
            },
        };
        Ok(Arc::new(inner))
    }
}

impl Limiter {
    /// A limiter for `limits`, such as `100/minute burst 20` or `10/minute; 2/second`.
    pub fn new(limits: &str) -> Result<Self, LimitError> {
        Self::builder(limits).build()
    }

    /// Begins to set up a limiter for `limits`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Limiter};
    ///
    /// let limiter = Limiter::builder("1000/hour; 50/minute")
    ///     .algorithm(Algorithm::SlidingWindowLog)
    ///     .max_wait(Duration::from_secs(2))
    ///     .build()?;
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    pub fn builder(limits: &str) -> LimiterBuilder {
        LimiterBuilder::new(GivenLimits::Written(Rate::parse_all(limits)))
    }

    /// Begins to set up a limiter for limits of any algorithms, which must all agree.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limits = vec!["100/minute".parse()?, Limit::concurrent(5)?];
    /// let limiter = Limiter::builder_for(limits).build()?;
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    pub fn builder_for(limits: Vec<Limit>) -> LimiterBuilder {
        LimiterBuilder::new(GivenLimits::Made(limits))
    }

    /// Charges one request to `key`, if all limits allow it.
    pub fn check(&self, key: &str) -> LimiterDecision {
        self.check_cost(key, 1)
    }

    /// Charges a request of this cost to `key`, if all limits allow it. Zero asks and takes nothing.
    ///
    /// Under a concurrency limit the decision names a [permit](LimiterDecision::permit), to be
    /// [released](Self::release) when the request is done; [`acquire`](Self::acquire) does that by
    /// itself.
    pub fn check_cost(&self, key: &str, cost: u64) -> LimiterDecision {
        if let Some(charge) = self.inner.only_charge(key, cost) {
            return self
                .memory
                .charge_one_into(&charge, LimiterDecision::of_one);
        }
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let request = self.inner.request(&charges);
        LimiterDecision::new(self.memory.charge(&request), request.permit)
    }

    /// What [`check`](Self::check) would say, without charging anything.
    pub fn peek(&self, key: &str) -> LimiterDecision {
        self.peek_cost(key, 1)
    }

    /// What [`check_cost`](Self::check_cost) would say, without charging anything.
    pub fn peek_cost(&self, key: &str, cost: u64) -> LimiterDecision {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        LimiterDecision::new(self.memory.peek(&Request::new(&charges)), None)
    }

    /// Charges a cost that is known only afterwards, without asking: as much of it as fits into a
    /// full quota.
    pub fn settle(&self, key: &str, cost: u64) -> LimiterDecision {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        LimiterDecision::new(self.memory.settle(&Request::new(&charges)), None)
    }

    /// Forgets what `key` has used.
    pub fn reset(&self, key: &str) {
        for limit in &self.inner.limits {
            self.memory.forget(&self.inner.scope, limit, key);
        }
        self.inner.freed.notify_waiters();
    }

    /// Releases a permit. False if it is unknown or has ended.
    pub fn release(&self, permit: PermitId) -> bool {
        let was_held = self.memory.release(permit);
        self.inner.freed.notify_waiters();
        was_held
    }

    /// Lets a permit last its whole time again. False if it is unknown or has ended.
    pub fn renew(&self, permit: PermitId) -> bool {
        self.memory.renew(permit)
    }

    /// The limits, in their order.
    pub fn limits(&self) -> &[Limit] {
        &self.inner.limits
    }

    /// How many keys there are, and what had to be forgotten.
    pub fn stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    /// Frees the memory of idle keys. Checks do this by themselves, a little at a
    /// time; call it now and then if they may stop coming.
    pub fn sweep(&self) {
        self.memory.sweep();
    }
}

impl LimiterInner {
    /// The charge of a request, if it needs no other and no permit.
    #[inline]
    fn only_charge<'a>(&'a self, key: &'a str, cost: u64) -> Option<Charge<'a>> {
        match &self.limits[..] {
            [limit] if !self.has_concurrency => Some(Charge {
                scope: &self.scope,
                limit,
                key,
                cost,
            }),
            _ => None,
        }
    }

    pub(crate) fn charges<'a>(
        &'a self,
        limits: &'a [Limit],
        key: &'a str,
        cost: u64,
    ) -> Charges<'a> {
        let charge = |limit| Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        };
        limits.iter().map(charge).collect()
    }

    /// What a check would say, without charging anything.
    pub(crate) async fn peek(&self, key: &str, cost: u64) -> Result<LimiterDecision, StoreError> {
        let charges = self.charges(&self.limits, key, cost);
        let outcomes = self
            .store
            .peek(&self.request_without_permit(&charges))
            .await?;
        Ok(LimiterDecision::new(outcomes, None))
    }

    /// A request for these charges, without a permit.
    pub(crate) fn request_without_permit<'a>(&self, charges: &'a [Charge<'a>]) -> Request<'a> {
        Request {
            charges,
            at: self.brings_time.then(|| self.clock.now()),
            permit: None,
        }
    }

    /// A request for these charges, with a new permit if a limit wants one.
    pub(crate) fn request<'a>(&self, charges: &'a [Charge<'a>]) -> Request<'a> {
        let new_permit = || self.store.permit_for(charges);
        Request {
            permit: self.has_concurrency.then(new_permit),
            ..self.request_without_permit(charges)
        }
    }
}
