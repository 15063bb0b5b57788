//! Rate limiting in front of any HTTP service: middleware for axum, hyper and tonic.
//!
//! [`RateLimitLayer`] puts a [`Gate`](tidegate::Gate) in front of a service. A request is decided by the rules
//! of the gate. If it may go on, the service is called and its answer gets the `RateLimit` headers; if not, the
//! client gets 429 or the status of another [reason](tidegate::Reason::status) with a problem document, or
//! `RESOURCE_EXHAUSTED` and the like over gRPC.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//!
//! use axum::{Router, extract::ConnectInfo, routing::get};
//! use tidegate::rules::RuleSet;
//! use tidegate::{Gate, MemoryStore};
//! use tidegate_tower::RateLimitLayer;
//!
//! let rules = RuleSet::from_yaml("
//! rules:
//!   - {id: login, match: {path: /login, method: POST}, per: [ip], limit: 3/minute}
//!   - {id: per-user, per: [user_id], limit: 100/minute}
//! ")?;
//! let gate = Arc::new(Gate::new(MemoryStore::new(), rules));
//!
//! let limits = RateLimitLayer::new(gate)
//!     .peer_address(|request| {
//!         let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
//!         Some(peer.0.ip())
//!     })
//!     .attributes(|request, attributes| {
//!         // Your own authentication has put the user there, in an earlier layer.
//!         if let Some(user) = request.extensions.get::<String>() {
//!             attributes.set("user_id", user)?;
//!         }
//!         Ok(())
//!     });
//! let app: Router = Router::new()
//!     .route("/orders", get(async || "no orders yet"))
//!     .layer(limits);
//! # Ok(()) }
//! ```
//!
//! With tonic the layer goes to `Server::builder().layer(limits)`, and the path of a call is
//! `/package.Service/Method`. Programs that run: the examples `axum`, `tonic` and `redis` of this crate.
//!
//! | | |
//! | --- | --- |
//! | [`RateLimitLayer`] | the settings |
//! | [`RateLimit`], [`ResponseFuture`], [`ResponseBody`] | the service that the layer makes, and its answers |
//! | [`PeerAddress`], [`client_address`], [`ForwardedHeader`] | where the address of a client comes from |
//! | [`AdmittedRequest`] | a request that may go on, for servers that call their service themselves |
//! | [`UnderscoreHeaders`] | headers that some servers treat as others |
//! | [`RequestPermit`], [`BackgroundRequests`] | how long a permit of a concurrency limit is held |
//! | [`denied`], [`refused`], [`problem`], [`insert_headers`] | the answers, for front ends that make their own |
//! | [`DenialSettings`], [`DenialReason`] | the answers to denied clients, and the reasons |
//! | [`DescribedCall`], [`ReceiptSlot`], [`DenialForm`] | requests whose cost is known once their body was read, and settled by the caller |
//! | [`UsageLayer`], [`UsageLimit`], [`UsageSettings`] | limits of language models by tokens and money |
//! | [`UsageReading`], [`ModelCall`], [`UsageBody`] | the same for gateways, which read bodies themselves |
//! | [`BodyPool`], [`BodyShare`], [`PooledBytes`] | a bound on the memory of bodies |
//! | [`MeasuredFrom`], [`Unmeasured`] | what adaptive limits learn from answers |

#![forbid(unsafe_code)]

mod admitted;
mod background;
mod body;
mod body_memory;
mod described;
mod error;
mod future;
mod hold;
mod layer;
mod protocol;
mod question;
mod reply;
mod service;
mod settings;
mod twins;
mod undo;
mod usage;
mod watch;

pub use admitted::AdmittedRequest;
pub use background::BackgroundRequests;
pub use body::ResponseBody;
pub use body_memory::{BodyMemoryUsedUp, BodyPool, BodyShare, PooledBytes};
pub use described::{DenialForm, DescribedCall, ReceiptSlot};
pub use error::RequestError;
pub use future::ResponseFuture;
pub use hold::RequestPermit;
pub use layer::RateLimitLayer;
pub use protocol::Protocol;
pub use question::{PeerAddress, client_address};
pub use reply::{
    DenialReason, DenialSettings, denied, denied_with, insert_headers, problem, refused,
};
pub use service::RateLimit;
pub use tidegate::address::ForwardedHeader;
pub use twins::{UnderscoreHeaders, folded_byte};
pub use usage::{
    DeniedBody, HoldRefusal, ModelBody, ModelCall, ModelRequestBody, ModelRoute, PriceLookup,
    RefusedCall, Unanswered, UnreadBody, UsageBody, UsageFuture, UsageLayer, UsageLimit, UsageNote,
    UsageNotes, UsageReading, UsageResults, UsageSettings,
};
pub use watch::{MeasuredFrom, Unmeasured};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
