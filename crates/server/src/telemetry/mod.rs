//! What the server tells about itself: metrics and logs.

mod gateway_metrics;
mod logs;
mod measured;
mod metrics;
mod plain_text;
mod redis_metrics;
mod rule_limits;
mod rule_metrics;
mod snapshot_metrics;
mod throttled;
mod timing;

pub(crate) use logs::DenialLog;
pub use logs::start as start_logs;
pub(crate) use measured::Measured;
pub(crate) use metrics::{Labels, Metrics};
pub(crate) use plain_text::plain_text;
pub(crate) use throttled::Throttled;
pub(crate) use timing::Timing;
