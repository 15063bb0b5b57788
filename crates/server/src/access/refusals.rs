//! Refused tokens: counted, and logged at a bounded rate. The token itself is never logged.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate::Limiter;
use tidegate::rules::FrontEnd;

use tidegate_listen::Labels;

use crate::telemetry::counter;

/// The rate at which refusals are logged.
const LOGGED: &str = "1/second burst 10";

/// Why access is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessRefusal {
    /// No token was presented.
    Missing,
    /// The token is unknown.
    Unknown,
    /// The token lacks the scope; the message names it.
    OutOfScope(String),
}

impl AccessRefusal {
    /// The names in logs and metrics.
    const NAMES: [&str; 3] = ["missing", "unknown", "scope"];

    fn index(&self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Unknown => 1,
            Self::OutOfScope(_) => 2,
        }
    }
}

/// The front ends that read tokens.
const FRONT_ENDS: [FrontEnd; 4] = [
    FrontEnd::Http,
    FrontEnd::Grpc,
    FrontEnd::Resp,
    FrontEnd::Authorize,
];

/// Refusals since the start.
pub(crate) struct TokenRefusals {
    counts: [[AtomicU64; AccessRefusal::NAMES.len()]; FRONT_ENDS.len()],
    /// Connections that were closed because they failed to authenticate too often.
    guessing: AtomicU64,
    sample: Option<Limiter>,
}

impl TokenRefusals {
    pub(crate) fn new() -> Self {
        Self {
            counts: Default::default(),
            guessing: AtomicU64::new(0),
            sample: Limiter::new(LOGGED).ok(),
        }
    }

    /// Counts a refusal, and logs it unless many were logged recently.
    pub(crate) fn note(&self, refusal: &AccessRefusal, front_end: FrontEnd, peer: Option<IpAddr>) {
        let index = refusal.index();
        let all = FRONT_ENDS.into_iter().zip(&self.counts);
        for (_, counts) in all.filter(|(known, _)| *known == front_end) {
            counts[index].fetch_add(1, Ordering::Relaxed);
        }
        if self.is_logged("") {
            tracing::warn!(
                front_end = front_end.name(),
                reason = AccessRefusal::NAMES[index],
                peer = peer.map(tracing::field::display),
                "a token was refused"
            );
        }
    }

    /// Counts a connection of the Redis protocol that is closed because it failed to authenticate too often, and logs
    /// it unless many were logged recently.
    pub(crate) fn note_guessing(&self, peer: Option<IpAddr>) {
        self.guessing.fetch_add(1, Ordering::Relaxed);
        if self.is_logged("guessing") {
            tracing::warn!(
                peer = peer.map(tracing::field::display),
                "a connection was closed because AUTH failed too often"
            );
        }
    }

    fn is_logged(&self, what: &str) -> bool {
        let is_logged = |sample: &Limiter| !sample.check(what).is_denied();
        self.sample.as_ref().is_some_and(is_logged)
    }

    /// Front ends that are on export their series from zero.
    pub(crate) fn register(&self, registry: &mut Registry, front_ends: &[FrontEnd]) {
        let refused = Family::<Labels<2>, Counter>::default();
        for (front_end, counts) in FRONT_ENDS.into_iter().zip(&self.counts) {
            for (reason, count) in AccessRefusal::NAMES.into_iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 || front_ends.contains(&front_end) {
                    let labels = [
                        ("front_end", front_end.name().to_owned()),
                        ("reason", reason.to_owned()),
                    ];
                    refused.get_or_create(&labels).inc_by(count);
                }
            }
        }
        registry.register(
            "token_refused",
            "Calls refused for their token, by front end and reason",
            refused,
        );
        let guessing = self.guessing.load(Ordering::Relaxed);
        if guessing > 0 || front_ends.contains(&FrontEnd::Resp) {
            registry.register(
                "auth_closed",
                "Connections of the Redis protocol closed because AUTH failed too often",
                counter(guessing),
            );
        }
    }
}
