//! Observes requests from their arrival to the end of their answers, for the access log and for traces. Decisions are
//! recorded with the request.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use tidegate::gate::{Decision, Observed};
use tidegate::rules::FrontEnd;
use tidegate::{Clock as _, Costs, Reason, ReservationId, SystemClock};
use tidegate_listen::clock::Stopwatch;
use tidegate_listen::{ArrivedRequest, ExchangeObserver, Exchanges, ObservedExchange};
use tidegate_tower::UsageNote;
use tidegate_usage::UsageResult;

use super::access_log::{AccessEnd, AccessEntry, AccessLog};
use crate::otlp::proto::{AnyValueKind, KeyValue};
use crate::otlp::{SpanEnd, Trace, Tracer};

thread_local! {
    /// The request that this thread works on, if it is observed.
    static CURRENT: RefCell<Option<Arc<ExchangeState>>> = const { RefCell::new(None) };
}

/// The sinks of requests: access log and tracer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExchangeSinks {
    pub(crate) log: Option<Arc<AccessLog>>,
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl ExchangeSinks {
    pub(crate) fn is_any(&self) -> bool {
        self.log.is_some() || self.tracer.is_some()
    }

    /// Gives each request of the API or the gateway an id, and logs and traces it.
    pub(crate) fn exchanges(&self, front_end: FrontEnd) -> Exchanges {
        Exchanges {
            has_ids: true,
            is_forwarding: front_end == FrontEnd::Gateway,
            observer: self.clone().observer(front_end),
        }
    }

    /// Traces each request of gRPC, if there is a tracer.
    pub(crate) fn grpc_exchanges(&self) -> Option<Exchanges> {
        let sinks = Self {
            log: None,
            tracer: self.tracer.clone(),
        };
        let observer = Some(sinks.observer(FrontEnd::Grpc)?);
        Some(Exchanges {
            observer,
            ..Exchanges::default()
        })
    }

    /// An observer of requests, if there is anything to record.
    fn observer(self, front_end: FrontEnd) -> Option<Arc<dyn ExchangeObserver>> {
        let sinks = self.is_any().then_some(self)?;
        Some(Arc::new(ServerExchanges { front_end, sinks }))
    }
}

/// Observes the requests of one front end.
#[derive(Debug)]
struct ServerExchanges {
    front_end: FrontEnd,
    sinks: ExchangeSinks,
}

/// The state of a request while it is decided.
#[derive(Debug)]
pub(crate) struct ExchangeState {
    id: HeaderValue,
    decided: Mutex<Option<NotedDecision>>,
    usage: Mutex<Option<NotedUsage>>,
    /// The beginning of its id.
    reservation: Mutex<Option<String>>,
    trace: Option<Trace>,
}

/// The decision about a request.
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

/// The cost of a request to a language model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotedUsage {
    pub(crate) model: Option<String>,
    pub(crate) estimate: Costs,
    /// What it cost after all, and why.
    pub(crate) settled: Option<(UsageResult, Costs)>,
}

impl UsageNote for ExchangeState {
    fn estimated(&self, model: Option<&str>, estimate: &Costs) {
        *self.usage.lock() = Some(NotedUsage {
            model: model.map(str::to_owned),
            estimate: estimate.clone(),
            settled: None,
        });
    }

    fn settled(&self, result: UsageResult, costs: &Costs) {
        if let Some(usage) = &mut *self.usage.lock() {
            usage.settled = Some((result, costs.clone()));
        }
    }
}

/// Where the cost of the request is noted that this thread works on, if it is observed.
pub(crate) fn current_usage() -> Option<Arc<dyn UsageNote>> {
    CURRENT.with_borrow(|current| {
        let state = Arc::clone(current.as_ref()?);
        Some(state as Arc<dyn UsageNote>)
    })
}

impl ExchangeObserver for ServerExchanges {
    fn begin(&self, request: &mut ArrivedRequest<'_>) -> Option<Box<dyn ObservedExchange>> {
        let headers = request.head.headers();
        let tracer = self.sinks.tracer.as_ref();
        let trace = tracer.and_then(|tracer| tracer.begin(headers));
        if self.sinks.log.is_none() && trace.is_none() {
            return None;
        }
        let log = self.sinks.log.as_ref();
        let entry = AccessEntry {
            at: SystemClock.now(),
            front_end: self.front_end,
            method: request.head.method().clone(),
            path: shown_path(request.head.uri().path(), self.front_end),
            peer: request.peer.address.ip().to_canonical(),
            headers: log.map(|log| log.chosen(headers)).unwrap_or_default(),
        };
        if let (Some(trace), FrontEnd::Gateway) = (&trace, self.front_end) {
            let (name, value) = trace.traceparent();
            request.head.headers_mut().insert(name, value);
        }
        let state = Arc::new(ExchangeState {
            id: request.id.clone(),
            decided: Mutex::new(None),
            usage: Mutex::new(None),
            reservation: Mutex::new(None),
            trace,
        });
        Some(Box::new(ServerExchange {
            entry,
            watch: Stopwatch::start(),
            status: None,
            sinks: self.sinks.clone(),
            state,
        }))
    }
}

/// A request on its way.
struct ServerExchange {
    entry: AccessEntry,
    watch: Stopwatch,
    status: Option<StatusCode>,
    sinks: ExchangeSinks,
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
        let took = self.watch.elapsed();
        if let (Some(tracer), Some(trace)) = (&self.sinks.tracer, &self.state.trace) {
            let name = self.entry.method.as_str().to_owned();
            tracer.end(trace, name, self.span_end(took));
        }
        if let Some(log) = &self.sinks.log {
            let decided = self.state.decided.lock().take();
            log.write(
                &self.entry,
                &AccessEnd {
                    id: self.state.id.to_str().unwrap_or_default(),
                    status: self.status,
                    bytes,
                    took,
                    decided: decided.as_ref(),
                    usage: self.state.usage.lock().take(),
                    reservation: self.state.reservation.lock().take(),
                },
            );
        }
    }
}

impl ServerExchange {
    /// The span of the request, by the names of OpenTelemetry's conventions.
    fn span_end(&self, took: Duration) -> SpanEnd {
        let entry = &self.entry;
        let mut attributes = vec![
            KeyValue::text("http.request.method", entry.method.as_str()),
            KeyValue::text("url.path", entry.path.as_str()),
            KeyValue::text("client.address", entry.peer.to_string()),
            KeyValue::text("tidegate.front_end", entry.front_end.name()),
        ];
        if let Ok(id) = self.state.id.to_str() {
            attributes.push(KeyValue::text("tidegate.request_id", id));
        }
        if let Some(status) = self.status {
            let status = AnyValueKind::Int(i64::from(status.as_u16()));
            attributes.push(KeyValue::new("http.response.status_code", status));
        }
        SpanEnd {
            took,
            is_error: self.status.is_none_or(|status| status.is_server_error()),
            attributes,
        }
    }
}

/// The id of the request that this thread works on, if it is observed.
pub(crate) fn current_id() -> Option<HeaderValue> {
    CURRENT.with_borrow(|current| current.as_ref().map(|state| state.id.clone()))
}

/// Records the reservation that a request makes, or is about, with the request that this thread works on, if it is
/// observed.
pub(crate) fn note_reservation(id: ReservationId) {
    CURRENT.with_borrow(|current| {
        if let Some(state) = current {
            *state.reservation.lock() = Some(shown_id(&id.to_string()));
        }
    });
}

/// The beginning of the id of a reservation: a reader of the whole id could settle it.
pub(crate) fn shown_id(id: &str) -> String {
    id.chars().take(8).collect()
}

/// Records the decision and its duration with the request that this thread works on, if it is observed.
pub(crate) fn note(observed: &Observed<'_, '_>, took: Duration) {
    CURRENT.with_borrow(|current| {
        let Some(state) = current else { return };
        let mut noted = state.decided.lock();
        for part in observed.parts() {
            note_one(&mut noted, part.decision, part.attributes.ip());
            if let Some(trace) = &state.trace {
                trace.decided(decision_end(observed.front_end, part.decision, took));
            }
        }
    });
}

fn decision_end(front_end: FrontEnd, decision: &Decision, took: Duration) -> SpanEnd {
    let verdict = if decision.is_allowed() {
        "allowed"
    } else {
        "denied"
    };
    let mut attributes = vec![
        KeyValue::text("tidegate.front_end", front_end.name()),
        KeyValue::text("tidegate.verdict", verdict),
        KeyValue::new(
            "tidegate.degraded",
            AnyValueKind::Bool(decision.is_degraded()),
        ),
    ];
    let rule = decision
        .rule()
        .map(|rule| KeyValue::text("tidegate.rule", rule));
    let reason = decision.reason().map(Reason::name);
    attributes.extend(rule);
    attributes.extend(reason.map(|reason| KeyValue::text("tidegate.reason", reason)));
    SpanEnd {
        took,
        is_error: decision.is_failed(),
        attributes,
    }
}

/// Notes a call to the store with the request that this thread works on, if it is traced.
pub(crate) fn note_store_call(took: Duration, has_failed: bool) {
    CURRENT.with_borrow(|current| {
        if let Some(trace) = current.as_ref().and_then(|state| state.trace.as_ref()) {
            trace.called_store(SpanEnd {
                took,
                is_error: has_failed,
                attributes: vec![KeyValue::text("db.system.name", "redis")],
            });
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

/// A path as logs and traces show it. The id of a reservation is shortened.
fn shown_path(path: &str, front_end: FrontEnd) -> String {
    const BEFORE: &str = "/v1/reservations/";
    let id = path.strip_prefix(BEFORE);
    let Some(id) = id.filter(|_| front_end == FrontEnd::Http) else {
        return path.to_owned();
    };
    let (id, rest) = match id.split_once('/') {
        Some((id, rest)) => (id, format!("/{rest}")),
        None => (id, String::new()),
    };
    let shown = shown_id(id);
    let more = if shown.len() < id.len() { "…" } else { "" };
    format!("{BEFORE}{shown}{more}{rest}")
}
