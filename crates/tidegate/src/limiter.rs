//! One limiter for one program: limits, keys, and no rule files.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    Algorithm, Charge, Clock, Limit, LimitError, MemoryStats, MemoryStore, Micros, Outcomes,
    PermitId, Rate, Request, Scope, Timestamp,
};
use tokio::sync::Notify;

use crate::limiter_decision::LimiterDecision;

/// How long [`Limiter::acquire`] waits at the most when nothing else is said.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(10);

/// The charges of one request, one for each limit.
pub(crate) type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

/// Limits requests by key, in this process's memory.
///
/// Cheap to clone; clones share their counters. All methods but [`acquire`](Self::acquire) answer
/// at once. A check of a known key allocates nothing, unless it adds to a log or a list of holders
/// that has to grow, or there are more than four limits.
#[derive(Debug, Clone)]
pub struct Limiter {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: MemoryStore,
    pub(crate) limits: Vec<Limit>,
    pub(crate) max_wait: Micros,
    /// Tells those who wait for a place that one was freed.
    pub(crate) freed: Notify,
    scope: Scope,
    takes_permits: bool,
}

/// What a limiter is built from.
enum Limits {
    Written(Result<Vec<Rate>, LimitError>),
    Made(Vec<Limit>),
}

/// How a [`Limiter`] is set up. Begun by [`Limiter::builder`].
#[must_use]
pub struct LimiterBuilder {
    limits: Limits,
    algorithm: Option<Algorithm>,
    max_wait: Duration,
    max_keys: Option<usize>,
    clock: Option<Arc<dyn Clock>>,
}

impl LimiterBuilder {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            algorithm: None,
            max_wait: DEFAULT_MAX_WAIT,
            max_keys: None,
            clock: None,
        }
    }

    /// Counts limits that were written as text by this algorithm instead of the default: a token
    /// bucket, or a fixed window for months and years.
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

    /// Reads the time from `clock`: a [`ManualClock`](crate::ManualClock) in tests, or a
    /// [`TokioClock`](crate::TokioClock) where they wait.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Some(Arc::new(clock)),
            ..self
        }
    }

    /// The limiter, or what is wrong with its limits.
    pub fn build(self) -> Result<Limiter, LimitError> {
        let max_wait = Micros::from(self.max_wait).min(tidegate_core::limit::MAX_WINDOW);
        let limit = |rate: Rate| {
            let algorithm = self
                .algorithm
                .unwrap_or_else(|| Algorithm::default_for(&rate));
            Limit::new(rate, algorithm)
        };
        let limits: Vec<Limit> = match self.limits {
            Limits::Written(rates) => rates?.into_iter().map(limit).collect::<Result<_, _>>()?,
            Limits::Made(limits) => limits,
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
        let mut store = MemoryStore::builder();
        if let Some(max_keys) = self.max_keys {
            store = store.max_keys(max_keys);
        }
        if let Some(clock) = self.clock {
            store = store.clock(clock);
        }
        let takes_permits = limits
            .iter()
            .any(|limit| matches!(limit.algorithm(), Algorithm::Concurrency { .. }));
        let inner = Inner {
            store: store.build(),
            limits,
            max_wait,
            freed: Notify::new(),
            scope: Scope::new("limiter"),
            takes_permits,
        };
        Ok(Limiter {
            inner: Arc::new(inner),
        })
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
        LimiterBuilder::new(Limits::Written(Rate::parse_all(limits)))
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
        LimiterBuilder::new(Limits::Made(limits))
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
        let permit = self.inner.new_permit();
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        let request = Request {
            charges: &charges,
            at: None,
            permit,
        };
        LimiterDecision::new(self.inner.store.charge(&request), permit)
    }

    /// What [`check`](Self::check) would say, without charging anything.
    pub fn peek(&self, key: &str) -> LimiterDecision {
        self.peek_cost(key, 1)
    }

    /// What [`check_cost`](Self::check_cost) would say, without charging anything.
    pub fn peek_cost(&self, key: &str, cost: u64) -> LimiterDecision {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        LimiterDecision::new(self.inner.store.peek(&Request::new(&charges)), None)
    }

    /// Charges a cost that is known only afterwards, without asking: as much of it as fits into a
    /// full quota.
    pub fn settle(&self, key: &str, cost: u64) -> LimiterDecision {
        let charges = self.inner.charges(&self.inner.limits, key, cost);
        LimiterDecision::new(self.inner.store.settle(&Request::new(&charges)), None)
    }

    /// Forgets what `key` has used.
    pub fn reset(&self, key: &str) {
        for limit in &self.inner.limits {
            self.inner.store.forget(&self.inner.scope, limit, key);
        }
        self.inner.freed.notify_waiters();
    }

    /// Releases a permit. False if it is unknown or has ended.
    pub fn release(&self, permit: PermitId) -> bool {
        let was_held = self.inner.store.release(permit);
        self.inner.freed.notify_waiters();
        was_held
    }

    /// Lets a permit last its whole time again. False if it is unknown or has ended.
    pub fn renew(&self, permit: PermitId) -> bool {
        self.inner.store.renew(permit)
    }

    /// The limits, in their order.
    pub fn limits(&self) -> &[Limit] {
        &self.inner.limits
    }

    /// How many keys there are, and what had to be forgotten.
    pub fn stats(&self) -> MemoryStats {
        self.inner.store.stats()
    }

    /// Frees the memory of idle keys. Checks do this by themselves, a little at a
    /// time; call it now and then if they may stop coming.
    pub fn sweep(&self) {
        self.inner.store.sweep();
    }
}

impl Inner {
    /// A name for what this request holds, if a limit wants one.
    pub(crate) fn new_permit(&self) -> Option<PermitId> {
        self.takes_permits.then(PermitId::random)
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

    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// Takes back what `outcomes` took.
    pub(crate) fn give_back(
        &self,
        key: &str,
        cost: u64,
        outcomes: &Outcomes,
        permit: Option<PermitId>,
    ) {
        let charges = self.charges(&self.limits, key, cost);
        self.store.give_back(
            &Request {
                charges: &charges,
                at: None,
                permit,
            },
            outcomes,
        );
    }
}
