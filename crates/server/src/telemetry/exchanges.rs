//! Observes the requests of the API and the gateway from their arrival to the end of their answers, for the access
//! log. What is decided meanwhile is noted with the request.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use tidegate::gate::{Decision, Observed};
use tidegate::rules::FrontEnd;
use tidegate::{Clock as _, Reason, SystemClock};
use tidegate_listen::clock::Stopwatch;
use tidegate_listen::{ArrivedRequest, ExchangeObserver, ObservedExchange};

use super::access_log::{AccessEntry, AccessLog};

thread_local! {
    /// The request that this thread works on, if it is observed.
    static CURRENT: RefCell<Option<Arc<ExchangeState>>> = const { RefCell::new(None) };
}

/// Observes the requests of one front end.
#[derive(Debug)]
pub(crate) struct ServerExchanges {
    pub(crate) front_end: FrontEnd,
    pub(crate) log: Arc<AccessLog>,
}

/// What is known of a request while it is decided.
#[derive(Debug)]
pub(crate) struct ExchangeState {
    id: HeaderValue,
    decided: Mutex<Option<NotedDecision>>,
}

/// What was decided about a request.
#[derive(Debug, Clone)]
pub(crate) struct NotedDecision {
    /// The rule that decided, if one applies.
    pub(crate) rule: Option<String>,
    pub(crate) is_allowed: bool,
    pub(crate) reason: Option<Reason>,
    /// The address of the client, as rules see it.
    pub(crate) client: Option<IpAddr>,
    /// How many decisions the request has made, as a batch does.
    pub(crate) count: usize,
}

impl ExchangeObserver for ServerExchanges {
    fn begin(&self, request: &mut ArrivedRequest<'_>) -> Option<Box<dyn ObservedExchange>> {
        let state = Arc::new(ExchangeState {
            id: request.id.clone(),
            decided: Mutex::new(None),
        });
        Some(Box::new(ServerExchange {
            entry: AccessEntry {
                at: SystemClock.now(),
                front_end: self.front_end,
                method: request.head.method().clone(),
                path: request.head.uri().path().to_owned(),
                peer: request.peer.0.ip().to_canonical(),
                headers: self.log.chosen(request.head.headers()),
            },
            watch: Stopwatch::start(),
            status: None,
            log: Arc::clone(&self.log),
            state,
        }))
    }
}

/// A request on its way.
struct ServerExchange {
    entry: AccessEntry,
    watch: Stopwatch,
    status: Option<StatusCode>,
    log: Arc<AccessLog>,
    state: Arc<ExchangeState>,
}

impl ObservedExchange for ServerExchange {
    fn enter(&self) {
        CURRENT.set(Some(Arc::clone(&self.state)));
    }

    fn exit(&self) {
        CURRENT.set(None);
    }

    fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    fn ended(&mut self, bytes: u64) {
        let decided = self.state.decided.lock().take();
        let id = self.state.id.to_str().unwrap_or_default();
        let ended = super::access_log::Ended {
            id,
            status: self.status,
            bytes,
            took: self.watch.elapsed(),
            decided: decided.as_ref(),
        };
        self.log.write(&self.entry, &ended);
    }
}

/// The id of the request that this thread works on, if it is observed.
pub(crate) fn current_id() -> Option<HeaderValue> {
    CURRENT.with_borrow(|current| current.as_ref().map(|state| state.id.clone()))
}

/// Notes what was decided with the request that this thread works on, if it is observed.
pub(crate) fn note(observed: &Observed<'_, '_>) {
    CURRENT.with_borrow(|current| {
        if let Some(state) = current {
            let mut noted = state.decided.lock();
            for (decision, attributes) in observed.parts() {
                note_one(&mut noted, decision, attributes.ip());
            }
        }
    });
}

/// Of several decisions, the first that denies, else the first.
fn note_one(noted: &mut Option<NotedDecision>, decision: &Decision, client: Option<IpAddr>) {
    let count = noted.as_ref().map_or(0, |noted| noted.count) + 1;
    let is_first_denial = |noted: &NotedDecision| noted.is_allowed && decision.is_denied();
    if noted.as_ref().is_none_or(is_first_denial) {
        *noted = Some(NotedDecision {
            rule: decision.rule().map(str::to_owned),
            is_allowed: decision.is_allowed(),
            reason: decision.reason(),
            client,
            count,
        });
    } else if let Some(noted) = noted {
        noted.count = count;
    }
}
