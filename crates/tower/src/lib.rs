//! Rate limiting in front of any HTTP service: middleware for axum, hyper and tonic.
//!
//! [`RateLimitLayer`] puts a [`Gate`](tidegate::Gate) before a service. A request is decided by the
//! rules of the gate; if it may go on, the service is called and its answer gets the `RateLimit`
//! headers; if not, the client gets 429 with a problem document, or `RESOURCE_EXHAUSTED` over gRPC.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tidegate::document::Source;
//! use tidegate::rules::{RuleSet, RuleSettings};
//! use tidegate::{Gate, MemoryStore};
//! use tidegate_tower::RateLimitLayer;
//!
//! let source = Source::new("rules.yaml", "
//! rules:
//!   - {id: login, match: {path: /login, method: POST}, per: [ip], limit: 3/minute}
//!   - {id: per-user, per: [user_id], limit: 100/minute}
//! ");
//! let (rules, problems) = RuleSet::read(&source, &RuleSettings::default());
//! let gate = Arc::new(Gate::new(MemoryStore::new(), rules.expect("no problems")));
//!
//! let layer = RateLimitLayer::new(gate).attributes(|request, attributes| {
//!     // Your own authentication has put the user there, in an earlier layer.
//!     if let Some(user) = request.extensions.get::<String>() {
//!         attributes.set("user_id", user)?;
//!     }
//!     Ok(())
//! });
//! ```
//!
//! `layer.rs` has the settings, `future.rs` the road of a request, `twins.rs` which headers are removed
//! first, `question.rs` what is asked of the gate and `reply.rs` what is answered in place of the service.

mod body;
mod error;
mod future;
mod hold;
mod layer;
mod question;
mod reply;
mod service;
mod settings;
mod twins;
mod undo;
mod watch;

pub use body::ResponseBody;
pub use error::RequestError;
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use question::{PeerAddress, client_address};
pub use reply::{Protocol, denied, insert_headers, problem, refused};
pub use service::RateLimit;
pub use tidegate::address::ForwardedHeader;
pub use twins::UnderscoreHeaders;
pub use watch::{MeasuredFrom, Unmeasured};
