//! The store contract: where the state of every limit lives, and the only place where it changes.

mod scope;

pub use scope::{ALWAYS_SECRET, Scope};

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::limit::Limit;
use crate::memory::MemoryStore;
use crate::outcome::{Outcome, Outcomes};
use crate::permit::PermitId;
use crate::reservation::{
    AdjustedCharge, AdjustedCharges, Adjustment, ExtendAnswer, ReservationId, ReserveRequest,
    Reserved, SettleAnswer, SettleRequest, StoredReservation,
};
use crate::time::{Micros, Timestamp};

/// A call to a [`RemoteStore`] that is under way.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Where the state of limits is kept: in the memory of this process, or elsewhere. Cheap to clone.
#[derive(Clone)]
pub enum Store {
    /// In memory: answers without waiting, and does not fail.
    Memory(Arc<MemoryStore>),
    /// Behind a network, shared by several instances.
    Remote(Arc<dyn RemoteStore>),
}

/// Holds the state of every limit where several instances share it, and is the only place where that state changes.
///
/// A store reads its own clock unless a request brings its time, so that all instances share its time. Being denied is
/// an outcome; an error means that the store could not decide.
pub trait RemoteStore: Send + Sync + 'static {
    /// Charges every limit of the request or none, in one atomic step.
    ///
    /// Outcomes come back in the order of the charges. If one limit denies, none is charged, and
    /// the outcomes of the others say what they would have answered, over their untouched state.
    fn charge<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes>;

    /// The answers to a request, if one of its charges is denied by what this instance remembers: then the store need
    /// not be called. None if that is not known.
    fn remembered_denial(&self, _request: &Request<'_>) -> Option<Outcomes> {
        None
    }

    /// Answers whether each charge would be allowed, and changes nothing.
    fn peek<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes>;

    /// Answers exactly as [`charge`](Self::charge) would, and changes nothing: for explanations. Concurrency
    /// limits answer as if the request held a permit.
    fn preview<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes>;

    /// Changes what was charged to what it costs after all, once and without asking. All charges may be in one call,
    /// whichever way they change.
    ///
    /// What is less is given back: of a bucket what has not flowed back since, of a window, a slot or a log what is
    /// still counted there, of concurrency the permit. Never returns more than was taken. What is more is charged as of
    /// now, as [`settle`](Self::settle) does. Nothing changes where a key was [forgotten](Self::forget) since it was
    /// charged: what it held was forgiven, and what is there now others were charged.
    fn adjust<'a>(&'a self, adjustment: &'a Adjustment<'a>) -> StoreFuture<'a, AdjustedCharges>;

    /// Charges costs that are known only afterwards, without asking: as much of each as fits into a
    /// full quota, or all of it where the scope is [charged in full](Scope::charged_in_full). `allowed` in an outcome says whether all of it fitted; if not, `retry` is how long the rest of it would
    /// have had to wait. Concurrency has nothing to settle and only answers.
    fn settle<'a>(&'a self, request: &'a Request<'a>) -> StoreFuture<'a, Outcomes>;

    /// Charges every group of the request as [`charge`](Self::charge) does, and in the same atomic step writes the
    /// record of the reservation: of all groups that are allowed, if the first is.
    ///
    /// When a reservation ends unsettled, the charges of scopes that [give back](Scope::gives_back) are given back as of
    /// that instant, and permits are released; the others stay charged. No timer has to run: any later call on such a
    /// counter sees it so.
    fn reserve<'a>(&'a self, request: &'a ReserveRequest<'a>) -> StoreFuture<'a, Reserved>;

    /// Settles a reservation: changes each of its charges to the true cost, as [`adjust`](Self::adjust) does, by the
    /// limits as they were. The result is remembered for a [minute](crate::reservation::RESULT_TTL), and a call that
    /// repeats it changes nothing. After an error the call may be repeated.
    fn settle_reservation<'a>(
        &'a self,
        request: &'a SettleRequest<'a>,
    ) -> StoreFuture<'a, SettleAnswer>;

    /// Lets an open reservation last for `ttl` from now on, but no longer than a
    /// [day](crate::reservation::LONGEST_RESERVATION) after it was made, and renews its permits.
    fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> StoreFuture<'_, ExtendAnswer>;

    /// A reservation that is open, or was settled within the last minute.
    fn look_at_reservation(&self, id: ReservationId) -> StoreFuture<'_, Option<StoredReservation>>;

    /// Forgets what a key has used of a limit, as if it had never been charged. What it was charged so far can no
    /// longer be given back.
    fn forget<'a>(
        &'a self,
        scope: &'a Scope,
        limit: &'a Limit,
        key: &'a str,
    ) -> StoreFuture<'a, ()>;

    /// Releases a permit. False if it is unknown or has ended.
    fn release(&self, permit: PermitId) -> StoreFuture<'_, bool>;

    /// Lets a permit last its whole time again. False if it is unknown or has ended.
    fn renew(&self, permit: PermitId) -> StoreFuture<'_, bool>;

    /// A new id for the permits that a request with these charges will hold.
    #[cfg(feature = "random-permits")]
    fn permit_for(&self, _charges: &[Charge<'_>]) -> PermitId {
        PermitId::random()
    }

    /// A new id for the permits that a request with these charges will hold. It must not be guessable.
    #[cfg(not(feature = "random-permits"))]
    fn permit_for(&self, charges: &[Charge<'_>]) -> PermitId;

    /// Whether the store is reachable, as far as is known. While it is not, calls fail immediately.
    fn is_up(&self) -> bool {
        true
    }

    /// How long a call may take at most; none if that is not bounded.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// How many instances share this store, as far as is known.
    fn instances(&self) -> Option<u64> {
        None
    }

    /// Usage last reported for this key, decayed to now. Consumed by the call; seeds the local fallback
    /// when the store is down.
    fn last_used(&self, _charge: &Charge<'_>) -> Option<u64> {
        None
    }

    /// Drops cached denials and units leased in advance, because the rules have changed.
    fn rules_changed(&self) {}
}

impl From<MemoryStore> for Store {
    fn from(store: MemoryStore) -> Self {
        Self::Memory(Arc::new(store))
    }
}

impl From<Arc<MemoryStore>> for Store {
    fn from(store: Arc<MemoryStore>) -> Self {
        Self::Memory(store)
    }
}

impl<R: RemoteStore> From<R> for Store {
    fn from(store: R) -> Self {
        Self::Remote(Arc::new(store))
    }
}

impl<R: RemoteStore> From<Arc<R>> for Store {
    fn from(store: Arc<R>) -> Self {
        Self::Remote(store)
    }
}

/// The calls of a [`RemoteStore`], on either kind of store: in memory they are ready at the first poll.
impl Store {
    /// [`RemoteStore::charge`].
    pub async fn charge(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.charge(request)),
            Self::Remote(store) => store.charge(request).await,
        }
    }

    /// [`RemoteStore::peek`].
    pub async fn peek(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.peek(request)),
            Self::Remote(store) => store.peek(request).await,
        }
    }

    /// [`RemoteStore::preview`].
    pub async fn preview(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.preview(request)),
            Self::Remote(store) => store.preview(request).await,
        }
    }

    /// [`RemoteStore::adjust`].
    pub async fn adjust(&self, adjustment: &Adjustment<'_>) -> Result<AdjustedCharges, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.adjust(adjustment)),
            Self::Remote(store) => store.adjust(adjustment).await,
        }
    }

    /// Takes back a request that was charged with these `outcomes`, once: [`RemoteStore::adjust`] to nothing. Nothing
    /// happens if one of them was denied.
    pub async fn give_back(
        &self,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        match request.given_back(outcomes) {
            Some(charges) => self.adjust(&request.adjusting(&charges)).await.map(drop),
            None => Ok(()),
        }
    }

    /// [`RemoteStore::reserve`].
    pub async fn reserve(&self, request: &ReserveRequest<'_>) -> Result<Reserved, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reserve(request)),
            Self::Remote(store) => store.reserve(request).await,
        }
    }

    /// [`RemoteStore::settle_reservation`].
    pub async fn settle_reservation(
        &self,
        request: &SettleRequest<'_>,
    ) -> Result<SettleAnswer, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.settle_reservation(request)),
            Self::Remote(store) => store.settle_reservation(request).await,
        }
    }

    /// [`RemoteStore::extend_reservation`].
    pub async fn extend_reservation(
        &self,
        id: ReservationId,
        ttl: Micros,
        at: Option<Timestamp>,
    ) -> Result<ExtendAnswer, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.extend_reservation(id, ttl, at)),
            Self::Remote(store) => store.extend_reservation(id, ttl, at).await,
        }
    }

    /// [`RemoteStore::look_at_reservation`].
    pub async fn look_at_reservation(
        &self,
        id: ReservationId,
    ) -> Result<Option<StoredReservation>, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.look_at_reservation(id)),
            Self::Remote(store) => store.look_at_reservation(id).await,
        }
    }

    /// [`RemoteStore::settle`].
    pub async fn settle(&self, request: &Request<'_>) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.settle(request)),
            Self::Remote(store) => store.settle(request).await,
        }
    }

    /// [`RemoteStore::forget`].
    pub async fn forget(&self, scope: &Scope, limit: &Limit, key: &str) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => {
                store.forget(scope, limit, key);
                Ok(())
            }
            Self::Remote(store) => store.forget(scope, limit, key).await,
        }
    }

    /// [`RemoteStore::release`].
    pub async fn release(&self, permit: PermitId) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.release(permit)),
            Self::Remote(store) => store.release(permit).await,
        }
    }

    /// [`RemoteStore::renew`].
    pub async fn renew(&self, permit: PermitId) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.renew(permit)),
            Self::Remote(store) => store.renew(permit).await,
        }
    }

    /// [`RemoteStore::permit_for`].
    #[cfg(feature = "random-permits")]
    pub fn permit_for(&self, charges: &[Charge<'_>]) -> PermitId {
        match self {
            Self::Memory(_) => PermitId::random(),
            Self::Remote(store) => store.permit_for(charges),
        }
    }

    /// The store, if it is a remote one.
    pub fn remote(&self) -> Option<&dyn RemoteStore> {
        match self {
            Self::Memory(_) => None,
            Self::Remote(store) => Some(&**store),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(store) => f.debug_tuple("Memory").field(store).finish(),
            Self::Remote(_) => f.write_str("Remote"),
        }
    }
}

/// What one request asks of a store.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The limits to charge. Charges on one state are merged: their costs are added up.
    pub charges: &'a [Charge<'a>],
    /// The request's time, if it brings one; else the store's own. Once one request has brought its
    /// time, nothing expires by the store's clock any more: for replays and tests.
    pub at: Option<Timestamp>,
    /// The permit under which concurrency limits are held. Without one they are only asked.
    pub permit: Option<PermitId>,
}

impl<'a> Request<'a> {
    /// A request at the store's own time, without a permit.
    pub fn new(charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            at: None,
            permit: None,
        }
    }

    /// The same request at a time of its own.
    #[must_use]
    pub fn at(self, at: Timestamp) -> Self {
        Self {
            at: Some(at),
            ..self
        }
    }

    /// The same request, holding concurrency limits under `permit`.
    #[must_use]
    pub fn under(self, permit: PermitId) -> Self {
        Self {
            permit: Some(permit),
            ..self
        }
    }

    /// Its charges, all of which are to be given back; none if one of these outcomes was denied, as nothing was taken.
    pub fn given_back(&self, outcomes: &[Outcome]) -> Option<SmallVec<[AdjustedCharge<'a>; 4]>> {
        let charged = self.charges.iter().zip(outcomes);
        charged
            .map(|(charge, outcome)| {
                let to_nothing = AdjustedCharge::new(*charge, outcome, 0);
                outcome.allowed.then_some(to_nothing)
            })
            .collect()
    }

    /// The adjustment of some of its charges, at its time and with its permit.
    pub fn adjusting<'c>(&self, charges: &'c [AdjustedCharge<'c>]) -> Adjustment<'c> {
        Adjustment {
            charges,
            at: self.at,
            permit: self.permit,
        }
    }
}

/// One limit asked to pay for a request.
///
/// What it pays from is named by the scope, the limit's [shape](Limit::shape) and the key.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// The rule that the limit belongs to.
    pub scope: &'a Scope,
    /// The limit in force.
    pub limit: &'a Limit,
    /// Whose state it is.
    pub key: &'a str,
    /// How much the request takes; zero asks and takes nothing.
    pub cost: u64,
}

/// Why a store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, so nothing was charged; the same call may work later.
    #[error("the store cannot be reached")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// No answer came in time. The charge may have happened.
    #[error("the store did not answer within {0:?}")]
    TimedOut(Duration),
    /// The connection was lost on the way. The charge may have happened.
    #[error("the connection to the store was lost")]
    Lost(#[source] Box<dyn Error + Send + Sync>),
    /// The stored value is not the state of this limit, so nothing was charged.
    #[error("the store has a value that is not the state of this limit")]
    BadState(#[source] Box<dyn Error + Send + Sync>),
    /// The answer was not of the agreed form.
    #[error("the store gave an unreadable answer")]
    BadReply(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Whether it is certain that nothing was charged.
    pub fn left_nothing(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::BadState(_))
    }

    /// Whether trying again could help without any change by the operator.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::TimedOut(_) | Self::Lost(_)
        )
    }
}
