//! What the server tells about itself: metrics and logs.

mod gateway_metrics;
mod logs;
mod metrics;
mod observer;
mod plain_text;
mod redis_metrics;
mod rule_limits;
mod rule_metrics;
mod snapshot_metrics;
mod throttled;
mod timing;
mod token_refusals;

pub use logs::start as start_logs;
pub(crate) use metrics::{Metrics, register_counter};
pub(crate) use observer::DecisionObserver;
pub(crate) use plain_text::plain_text;
pub(crate) use throttled::Throttled;
pub(crate) use timing::{BOUNDS, Timing};
pub(crate) use token_refusals::{TokenRefusal, TokenRefusals};
