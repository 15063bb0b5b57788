//! Requests that continue without their client, because they hold a permit: a client that disconnects does not
//! stop the work that it has caused, and would otherwise escape a concurrency limit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::hold::RequestPermit;

/// The default bound.
const MOST: usize = 1_024;

/// The requests that continue without their client, bounded.
#[derive(Debug)]
pub struct BackgroundRequests {
    most: usize,
    /// Whether a request ends at the latest when its permit would have, were it not renewed.
    is_timed: bool,
    running: AtomicUsize,
    refused: AtomicU64,
    ended: Notify,
}

impl Default for BackgroundRequests {
    /// At most 1,024.
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl BackgroundRequests {
    /// Allows at most `most` requests. Each is dropped when the `lease_ttl` of its rule has passed.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            is_timed: true,
            running: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            ended: Notify::new(),
        }
    }

    /// Removes the time limit, for a service that bounds the time of its requests itself.
    #[must_use]
    pub fn untimed(self) -> Self {
        Self {
            is_timed: false,
            ..self
        }
    }

    /// How many there are.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Number of requests that were dropped because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Waits until there are none.
    pub async fn ended(&self) {
        loop {
            // Registered before the check: an end between the two is not missed.
            let ended = self.ended.notified();
            if self.running() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Continues the work of a request in a task, and holds its permit meanwhile. If there are too many, the
    /// work is dropped and the permit lasts for its whole `lease_ttl`: when the work ends is not known.
    pub fn carry<W>(self: &Arc<Self>, permit: RequestPermit, work: W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        // A request that already continues without its client has a slot.
        if permit.slot().get().is_none() {
            let Some(slot) = self.slot() else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                permit.leave();
                return;
            };
            let _ = permit.slot().set(slot);
        }
        let longest = self.is_timed.then_some(permit.lasts());
        permit.runtime().clone().spawn(async move {
            match longest {
                Some(longest) => drop(timeout(longest, work).await),
                None => work.await,
            }
            drop(permit);
        });
    }

    fn slot(self: &Arc<Self>) -> Option<BackgroundSlot> {
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        let slot = BackgroundSlot(Arc::clone(self));
        (before < self.most).then_some(slot)
    }
}

/// One of the requests, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct BackgroundSlot(Arc<BackgroundRequests>);

impl Drop for BackgroundSlot {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

/// A call of a service for a request that holds a permit. If it is dropped meanwhile, it continues in the
/// background.
pub(crate) struct CarriedCall<F: Future + Send + 'static> {
    /// Until it has returned.
    calling: Option<Pin<Box<F>>>,
    permit: RequestPermit,
    background: Arc<BackgroundRequests>,
}

impl<F: Future + Send + 'static> CarriedCall<F> {
    pub(crate) fn new(
        calling: F,
        permit: &RequestPermit,
        background: &Arc<BackgroundRequests>,
    ) -> Self {
        Self {
            calling: Some(Box::pin(calling)),
            permit: permit.clone(),
            background: Arc::clone(background),
        }
    }
}

impl<F: Future + Send + 'static> Future for CarriedCall<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out meanwhile: a call that panics does not continue.
        let Some(mut calling) = self.calling.take() else {
            return Poll::Pending;
        };
        let answered = calling.as_mut().poll(context);
        if answered.is_pending() {
            self.calling = Some(calling);
        }
        answered
    }
}

impl<F: Future + Send + 'static> Drop for CarriedCall<F> {
    fn drop(&mut self) {
        if let Some(calling) = self.calling.take() {
            let work = async move { drop(calling.await) };
            self.background.carry(self.permit.clone(), work);
        }
    }
}
