//! A store of your own: here it counts its calls and keeps the states in memory, where another would ask a server.
//!
//! Run it with `cargo run -p tidegate-core --features conformance --example own_store`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use tidegate_core::store::StoreFuture;
use tidegate_core::{
    AdjustedCharges, Adjustment, ExtendAnswer, Limit, MemoryStore, Micros, Outcomes, PermitId,
    RemoteStore, Request, ReservationId, ReserveRequest, Reserved, Scope, SettleAnswer,
    SettleRequest, StoredReservation, Timestamp, conformance,
};

#[derive(Default)]
struct CountingStore {
    calls: AtomicU64,
    states: MemoryStore,
}

impl CountingStore {
    /// Makes a call. What fails here would be a `StoreError`; being denied is an outcome.
    fn call<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&MemoryStore) -> T + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(call(&self.states)) })
    }
}

impl RemoteStore for CountingStore {
    fn charge<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(|states| states.charge(request))
    }
    fn peek<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(|states| states.peek(request))
    }
    fn preview<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(|states| states.preview(request))
    }
    fn adjust<'a>(&'a self, adjustment: &'a Adjustment<'a>) -> StoreFuture<'a, AdjustedCharges> {
        self.call(|states| states.adjust(adjustment))
    }
    fn settle<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes> {
        self.call(|states| states.settle(request))
    }
    fn reserve<'a>(&'a self, request: &'a ReserveRequest<'a>) -> StoreFuture<'a, Reserved> {
        self.call(|states| states.reserve(request))
    }
    fn settle_reservation<'a>(
        &'a self,
        request: &'a SettleRequest<'a>,
    ) -> StoreFuture<'a, SettleAnswer> {
        self.call(|states| states.settle_reservation(request))
    }
    fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> StoreFuture<'_, ExtendAnswer> {
        self.call(move |states| states.extend_reservation(id, ttl, at))
    }
    fn look_at_reservation(&self, id: ReservationId) -> StoreFuture<'_, Option<StoredReservation>> {
        self.call(move |states| states.look_at_reservation(id))
    }
    fn forget<'a>(
        &'a self,
        scope: &'a Scope,
        limit: &'a Limit,
        key: &'a str,
    ) -> StoreFuture<'a, ()> {
        self.call(|states| states.forget(scope, limit, key))
    }
    fn release(&self, permit: PermitId) -> StoreFuture<'_, bool> {
        self.call(move |states| states.release(permit))
    }
    fn renew(&self, permit: PermitId) -> StoreFuture<'_, bool> {
        self.call(move |states| states.renew(permit))
    }
}

fn main() {
    // The tests that the stores of Tidegate pass, too.
    let store = Arc::new(CountingStore::default());
    let test = pin!(conformance::run_all(Arc::clone(&store)));
    // This store never waits; with one that does, a runtime would run it.
    let done = test.poll(&mut Context::from_waker(Waker::noop()));
    assert!(done.is_ready());
    println!(
        "{} calls, as the contract says",
        store.calls.load(Ordering::Relaxed)
    );
}
