//! Telemetry: metrics, logs, and the access log.

mod access_log;
mod exchanges;
mod line_writer;
mod logs;
mod metrics;
mod observer;
mod plain_text;
mod process;
mod rule_limits;
mod rule_metrics;
mod throttled;

pub(crate) use access_log::AccessLog;
pub(crate) use exchanges::{
    ExchangeSinks, current_usage, note_reservation, note_store_call, shown_id,
};
pub(crate) use logs::LoggedKeys;
pub use logs::start as start_logs;
pub(crate) use metrics::{
    BOUNDS, Metrics, counter, gauge, register_counter, register_unreconciled,
};
pub(crate) use observer::DecisionObserver;
pub(crate) use plain_text::plain_text;
pub(crate) use process::register as register_process;
pub(crate) use rule_metrics::{register as register_rules, register_reservations};
