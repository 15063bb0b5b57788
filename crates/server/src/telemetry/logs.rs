//! Logs on stderr, as text or as JSON; denied requests among them, a few of them and with hashed keys.

use std::hash::{BuildHasher as _, RandomState};
use std::io::IsTerminal as _;

use tidegate::gate::Decision;
use tidegate::{Attributes, Limiter, Micros};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogSettings;

/// How many denied requests are logged.
const DENIALS: &str = "10/second burst 20";

/// Begins to log. Only the first call in a process has an effect.
pub fn start(settings: &LogSettings) {
    // The configuration was checked to be readable.
    let filter: Targets = settings.level.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let _ = if settings.json {
        registry
            .with(lines.json().flatten_event(true).with_current_span(false))
            .try_init()
    } else {
        registry
            .with(lines.with_ansi(std::io::stderr().is_terminal()))
            .try_init()
    };
}

/// Logs who is denied by which rule: never more than a few a second, never a key itself.
pub(crate) struct DenialLog {
    sample: Option<Limiter>,
    hasher: RandomState,
}

impl DenialLog {
    pub(crate) fn new() -> Self {
        Self {
            sample: Limiter::new(DENIALS).ok(),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn denied(&self, decision: &Decision, attributes: &Attributes<'_>) {
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let Some(headline) = decision.headline() else {
            return;
        };
        if self
            .sample
            .as_ref()
            .is_none_or(|sample| sample.check("").is_denied())
        {
            return;
        }
        let key = headline.rule.key_text(attributes).unwrap_or_default();
        let key = format!("{:016x}", self.hasher.hash_one(key.as_ref()));
        let seconds = |wait: Micros| {
            let wait = std::time::Duration::from(wait).as_secs_f64();
            format!("{wait:.6}s")
        };
        let retry_after = headline.outcome.retry.wait().map(seconds);
        tracing::info!(
            rule = headline.rule.id(),
            key,
            limit = headline.outcome.limit,
            retry_after = retry_after.as_deref().unwrap_or("never"),
            degraded = decision.is_degraded(),
            "denied"
        );
    }
}
