//! What the server reports of itself: metrics and logs.

mod logs;
mod measured;
mod metrics;
mod plain_text;
mod rule_limits;
mod rule_metrics;
mod throttled;

pub(crate) use logs::DenialLog;
pub use logs::start as start_logs;
pub(crate) use measured::Measured;
pub(crate) use metrics::{Labels, Metrics, counter, gauge, register_counter, register_unsettled};
pub(crate) use plain_text::plain_text;
pub(crate) use rule_metrics::register as register_rules;
pub(crate) use throttled::Throttled;
