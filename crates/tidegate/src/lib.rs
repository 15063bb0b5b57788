//! Exact rate limiting for Rust services.
//!
//! Build a [`Limiter`], check a key, read the answer:
//!
//! ```
//! use tidegate::Limiter;
//!
//! let limiter = Limiter::new("3/minute")?;
//! for _ in 0..3 {
//!     assert!(limiter.check("user_42").is_allowed());
//! }
//! let denied = limiter.check("user_42");
//! assert!(denied.is_denied());
//! println!("{} left, try again in {:?}", denied.remaining(), denied.retry_after());
//! # Ok::<(), tidegate::LimitError>(())
//! ```
//!
//! Or let it wait: [`Limiter::acquire`] reserves a place and returns when it is time, and gives the
//! place back if its future is dropped before.
//!
//! Limits are written as people say them: `100/minute burst 20`, `10 per 2 hours`, or several that
//! must all agree, `10/minute; 2/second`. [`Algorithm`] names the ways to count them. Everything is
//! whole numbers and whole microseconds: never over the limit, and a retry-after that is true.

mod acquire;
mod adaptive;
pub mod address;
mod attributes;
mod clock;
pub mod document;
pub mod gate;
pub mod host;
mod limiter;
mod limiter_decision;
pub mod path;
mod reason;
pub mod rules;
mod value;
pub mod white_space;

pub use acquire::{AcquireError, Permit};
pub use adaptive::{Adaptive, AdaptiveLimit, Ended};
pub use attributes::{AttributeError, Attributes, MAX_ATTRIBUTES, MAX_NAME, MAX_VALUE};
pub use clock::TokioClock;
pub use gate::{Decision, Gate};
pub use limiter::{Limiter, LimiterBuilder};
pub use limiter_decision::LimiterDecision;
pub use reason::Reason;
pub use value::{AttributeValue, credentials, credentials_in};

pub use tidegate_core::{
    Algorithm, Anchor, Clock, Limit, LimitError, ManualClock, MemoryStats, MemoryStore, Micros,
    Outcome, PermitId, Rate, Retry, Store, StoreError, SystemClock, Timestamp, Window, headers,
    limit, memory, store,
};
