//! Units of `sync: leased` limits that this instance took in advance and serves from (`pool.rs`).

mod demand;
mod pool;
mod shortage;
mod span;

pub(crate) use pool::{AT_LEAST, LeaseGrant, LeaseKind, UnitLease, UnitPool, Unused};
pub(crate) use span::is_leasable;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use tidegate_redis_wire::keys::StateName;

/// How many pools there may be; Redis decides each request on states beyond that.
const MOST: usize = 65_536;

/// A pool for each state, made when it is first asked for.
#[derive(Default)]
pub(crate) struct UnitPools {
    pools: Mutex<HashMap<StateName, Arc<SharedPool>, foldhash::fast::RandomState>>,
}

/// A pool, which one request at a time fills while the others wait.
pub(crate) struct SharedPool {
    pub(crate) pool: Mutex<UnitPool>,
    is_filling: AtomicBool,
    filled: Notify,
    /// How many units all waiting requests want together.
    waiting: AtomicU64,
}

/// The right to fill a pool. When it is dropped, all waiting requests look into the pool again.
pub(crate) struct Filling {
    pub(crate) shared: Arc<SharedPool>,
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.shared.is_filling.store(false, Ordering::Release);
        self.shared.filled.notify_waiters();
    }
}

/// A request that waits for a pool to be filled, until it is dropped.
pub(crate) struct WaitingForFill<'p> {
    shared: &'p SharedPool,
    cost: u64,
}

impl SharedPool {
    /// Counts a request among those that wait.
    pub(crate) fn wait(&self, cost: u64) -> WaitingForFill<'_> {
        self.waiting.fetch_add(cost, Ordering::Relaxed);
        WaitingForFill { shared: self, cost }
    }

    /// The right to fill it; none if another request does.
    pub(crate) fn try_fill(self: &Arc<Self>) -> Option<Filling> {
        let is_filling = self.is_filling.swap(true, Ordering::Acquire);
        (!is_filling).then(|| Filling {
            shared: Arc::clone(self),
        })
    }

    /// Completes when the request that fills it now, or the next one, is done.
    pub(crate) fn filled(&self) -> Notified<'_> {
        self.filled.notified()
    }

    /// How many units all waiting requests want together.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for WaitingForFill<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(self.cost, Ordering::Relaxed);
    }
}

impl UnitPools {
    /// The pool of a state, made with `new` if there is none. None if there are too many.
    pub(crate) fn of(
        &self,
        name: StateName,
        new: impl FnOnce() -> UnitPool,
    ) -> Option<Arc<SharedPool>> {
        let mut pools = self.pools.lock();
        if pools.len() >= MOST && !pools.contains_key(&name) {
            return None;
        }
        let pool = pools.entry(name).or_insert_with(|| {
            Arc::new(SharedPool {
                pool: Mutex::new(new()),
                is_filling: AtomicBool::new(false),
                filled: Notify::new(),
                waiting: AtomicU64::new(0),
            })
        });
        Some(Arc::clone(pool))
    }

    /// The pool of a state, if there is one.
    pub(crate) fn get(&self, name: StateName) -> Option<Arc<SharedPool>> {
        self.pools.lock().get(&name).cloned()
    }

    /// Empties the pools that `chosen` picks, and drops pools that were not used for a while.
    pub(crate) fn drain(&self, chosen: impl Fn(&UnitPool) -> bool) -> Vec<Unused> {
        let mut unused = Vec::new();
        self.pools.lock().retain(|_, shared| {
            let mut pool = shared.pool.lock();
            if chosen(&pool) {
                unused.extend(pool.empty());
            }
            // A pool with another owner is about to be used.
            !pool.is_forgotten() || Arc::strong_count(shared) > 1
        });
        // The order of the map differs in every run.
        unused.sort_unstable_by(|one, other| one.state.state.key.cmp(&other.state.state.key));
        unused
    }

    /// How many units all pools hold.
    pub(crate) fn units(&self) -> u64 {
        let pools = self.pools.lock();
        pools
            .values()
            .map(|shared| shared.pool.lock().units())
            .sum()
    }
}
