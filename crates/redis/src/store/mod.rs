//! The store: requests are decided in Redis, and their outcomes remembered.
//!
//! `exact.rs` charges in Redis, `across.rs` in several slots of a cluster, `leased.rs` from units taken in
//! advance; `reserving.rs` makes stored reservations, `reservations.rs` settles them, `lent.rs` has what they took
//! from pools; `concurrency.rs` releases and renews permits, `heal.rs` repairs states, `scopes.rs` forgets whole scopes.

mod across;
mod concurrency;
mod exact;
mod heal;
mod leased;
mod lent;
mod reservations;
mod reserving;
mod scopes;
mod taken;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    AdjustedCharges, Adjustment, Charge, ExtendAnswer, Limit, Micros, Outcomes, PermitId,
    RemoteStore, Request, ReservationId, ReserveRequest, Reserved, Scope, SettleAnswer,
    SettleRequest, StoreError, StoreFuture, StoredReservation, Timestamp,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::activity::ActivityBoard;
use crate::damage::{Damage, Damages};
use crate::hints::Hints;
use crate::instances::{self, Instances, KnownInstances};
use crate::leases::{UnitPools, is_leasable};
use crate::monotonic::now;
use crate::router::Router;
use crate::settings::{CallObserver, RedisSettings, RedisTls};
use crate::stats::Stats;
use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};
use tidegate_redis_wire::namespace;
use tidegate_redis_wire::plan::{Plan, PlannedCharge};
use tidegate_redis_wire::script::SHA1;

/// Holds the state of every limit in Redis or Valkey, where all instances share it.
///
/// Opens without waiting for Redis. While Redis does not answer, every call fails immediately with
/// [`StoreError::Unreachable`]. Cheap to clone; the last clone closes the connections.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<StoreInner>,
    _chores: Arc<Chores>,
}

struct StoreInner {
    keys: RedisKeys,
    router: Router,
    hints: Hints,
    pools: UnitPools,
    lent: lent::LentUnits,
    instances: Instances,
    /// What all keys begin with.
    prefix: String,
    activity: ActivityBoard,
    /// Scopes that were charged together with others in other slots.
    across: parking_lot::RwLock<std::collections::HashSet<u64>>,
    stats: Arc<Stats>,
    damages: Damages,
    observe_calls: Option<CallObserver>,
    runtime: Handle,
}

/// Tasks that end with the store.
struct Chores(Vec<JoinHandle<()>>);

impl Drop for Chores {
    fn drop(&mut self) {
        for chore in &self.0 {
            chore.abort();
        }
    }
}

impl RedisStore {
    /// Begins to connect. Must be called within a runtime, which then does the work.
    pub fn open(settings: RedisSettings) -> Self {
        if matches!(settings.secret_from(), SecretFrom::Public) {
            tracing::warn!(
                "keys of clients are hashed in Redis with a public default secret; set `key_secret`, the same on every instance"
            );
        }
        // Computed here, and not by the first decision.
        std::sync::LazyLock::force(&SHA1);
        let settings = Arc::new(settings);
        let stats = Arc::new(Stats::default());
        let namespace = settings.namespace.as_ref();
        let keys = RedisKeys::new(namespace, KeySecret::new(settings.secret_from()));
        let inner = Arc::new(StoreInner {
            router: Router::open(&settings, &stats, &keys),
            keys,
            hints: Hints::new(),
            pools: UnitPools::default(),
            lent: lent::LentUnits::default(),
            instances: Instances::new(namespace, settings.known_instances.clone()),
            prefix: namespace::prefix(namespace),
            activity: ActivityBoard::new(namespace),
            across: parking_lot::RwLock::default(),
            stats,
            damages: Damages::default(),
            observe_calls: settings.observe_calls.clone(),
            runtime: Handle::current(),
        });
        let counting = instances::keep_counting(Arc::downgrade(&inner), |inner: &StoreInner| {
            (&inner.instances, &inner.router)
        });
        let returning = leased::keep_returning(Arc::downgrade(&inner));
        let chores = vec![tokio::spawn(counting), tokio::spawn(returning)];
        Self {
            inner,
            _chores: Arc::new(Chores(chores)),
        }
    }

    /// Uses these certificates for new connections, in place of those of the settings. Open connections stay.
    pub fn set_tls(&self, tls: RedisTls) {
        self.inner.router.set_tls(tls);
    }

    /// Waits until Redis answers, but no longer than `patience`. Returns the problem if it does not.
    pub async fn connected(&self, patience: Duration) -> Result<(), String> {
        let end = now() + patience;
        loop {
            match self.problem() {
                None => return Ok(()),
                Some(problem) if now() >= end => return Err(problem),
                Some(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// What keeps Redis from answering, if anything does.
    pub fn problem(&self) -> Option<String> {
        self.inner.router.problem()
    }

    /// Whether Redis has neither answered nor refused yet.
    pub fn is_slow(&self) -> bool {
        self.inner.router.is_slow()
    }

    /// What is counted since the store was opened.
    pub fn stats(&self) -> &Stats {
        &self.inner.stats
    }

    /// Values in Redis that decisions met within the last minute and that are not valid states.
    pub fn damage(&self) -> Vec<Damage> {
        self.inner.damages.current()
    }

    /// How many calls wait to be sent.
    pub fn waiting(&self) -> usize {
        self.inner.router.waiting()
    }

    /// How many units this instance has taken in advance and not used.
    pub fn units_on_lease(&self) -> u64 {
        self.inner.pools.units()
    }

    /// What to keep of the instances for the next run of this one, and how many announcements Redis has
    /// answered so far.
    pub fn known_instances(&self) -> (KnownInstances, u64) {
        self.inner.instances.known()
    }

    /// Gives back units taken in advance, and records that this instance has left. For the end of a program;
    /// the store keeps working.
    pub async fn leave(&self) {
        self.inner.return_leases(|_| true).await;
        self.inner.instances.leave(&self.inner.router).await;
    }

    async fn charge_watched(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        let inner = &self.inner;
        let (plan, deadline) = (inner.plan(request), inner.router.deadline());
        // A request with a time of its own is a replay: nothing that is remembered holds for it.
        if plan.at.is_some() {
            return inner.charge_exact(&plan, deadline).await;
        }
        let is_leased = plan.charges.iter().any(|planned| inner.is_leased(planned));
        // A pool knows more about a limit that is alone.
        if is_leased && plan.charges.len() == 1 {
            return inner.charge_leased(&plan, deadline).await;
        }
        if let Some(outcomes) = inner.remembered_denial(&plan) {
            inner.stats.add(&inner.stats.remembered_denials);
            inner.count_denials(&plan, &outcomes);
            return Ok(outcomes);
        }
        if is_leased {
            return inner.charge_leased(&plan, deadline).await;
        }
        inner.charge_exact(&plan, deadline).await
    }

    pub(crate) fn router(&self) -> &Router {
        &self.inner.router
    }

    pub(crate) fn keys(&self) -> &RedisKeys {
        &self.inner.keys
    }

    pub(crate) fn activity_board(&self) -> &ActivityBoard {
        &self.inner.activity
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.inner.prefix
    }
}

impl StoreInner {
    fn plan<'a>(&self, request: &Request<'a>) -> Plan<'a> {
        Plan::new(&self.keys, request)
    }

    /// Whether a charge is served from units that are taken in advance.
    fn is_leased(&self, planned: &PlannedCharge<'_>) -> bool {
        let instances = || self.instances.present().unwrap_or(1);
        planned.charge.scope.is_leased() && is_leasable(planned.charge.limit, instances())
    }
}

impl RedisStore {
    /// Makes a call, and shows it to the observer of calls if there is one.
    fn call<'a, T>(
        &'a self,
        calling: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let Some(observe) = &self.inner.observe_calls else {
                return calling.await;
            };
            let began = now();
            let answer = calling.await;
            observe(now() - began, answer.is_err());
            answer
        })
    }
}

impl RemoteStore for RedisStore {
    fn charge<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(async {
            let unresolved = self.inner.watch_permits(request);
            let answer = self.charge_watched(request).await;
            // The caller does not release permits of a request that failed, though they may have been taken.
            if !matches!(answer, Err(StoreError::TimedOut(_) | StoreError::Lost(_))) {
                unresolved.resolve();
            }
            answer
        })
    }

    fn remembered_denial(&self, request: &Request<'_>) -> Option<Outcomes> {
        self.inner.denial_for(&self.inner.plan(request))
    }

    fn peek<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(async {
            let deadline = self.inner.router.deadline();
            self.inner.peek(&self.inner.plan(request), deadline).await
        })
    }

    fn preview<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(async {
            let inner = &self.inner;
            let (plan, deadline) = (inner.plan(request), inner.router.deadline());
            if let Some(outcomes) = inner.denial_for(&plan) {
                return Ok(outcomes);
            }
            if plan.at.is_none() && inner.has_leased(&plan) {
                return inner.preview_leased(&plan, deadline).await;
            }
            inner.preview_exact(&plan, deadline).await
        })
    }

    fn adjust<'a>(&'a self, adjustment: &'a Adjustment<'a>) -> StoreFuture<'a, AdjustedCharges> {
        self.call(self.inner.adjust(adjustment))
    }

    fn reserve<'a>(&'a self, request: &'a ReserveRequest<'a>) -> StoreFuture<'a, Reserved> {
        self.call(self.inner.reserve(request))
    }

    fn settle_reservation<'a>(
        &'a self,
        request: &'a SettleRequest<'a>,
    ) -> StoreFuture<'a, SettleAnswer> {
        self.call(self.inner.settle_reservation(request))
    }

    fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> StoreFuture<'_, ExtendAnswer> {
        self.call(self.inner.extend_reservation(id, ttl, at))
    }

    fn look_at_reservation(&self, id: ReservationId) -> StoreFuture<'_, Option<StoredReservation>> {
        self.call(self.inner.look_at_reservation(id))
    }

    fn settle<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(async { self.inner.settle(&self.inner.plan(request)).await })
    }

    fn forget<'a>(
        &'a self,
        scope: &'a Scope,
        limit: &'a Limit,
        key: &'a str,
    ) -> StoreFuture<'a, ()> {
        self.call(async move {
            let charges = [Charge {
                scope,
                limit,
                key,
                cost: 0,
            }];
            let plan = self.inner.plan(&Request::new(&charges));
            self.inner.forget(&plan).await
        })
    }

    fn release(&self, permit: PermitId) -> StoreFuture<'_, bool> {
        self.call(self.inner.release(permit))
    }

    fn renew(&self, permit: PermitId) -> StoreFuture<'_, bool> {
        self.call(self.inner.renew(permit))
    }

    fn permit_for(&self, charges: &[Charge<'_>]) -> PermitId {
        self.inner.permit_for(charges)
    }

    fn is_up(&self) -> bool {
        self.inner.router.is_up()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.inner.router.patience())
    }

    fn instances(&self) -> Option<u64> {
        self.inner.instances.count()
    }

    fn last_used(&self, charge: &Charge<'_>) -> Option<u64> {
        let state = self.inner.keys.state_key(charge);
        self.inner.hints.take_used(state.name)
    }

    fn rules_changed(&self) {
        self.inner.hints.forget_denials();
        let inner = Arc::clone(&self.inner);
        let returning = async move { inner.return_leases(|_| true).await };
        self.inner.runtime.spawn(returning);
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("problem", &self.problem())
            .finish_non_exhaustive()
    }
}
