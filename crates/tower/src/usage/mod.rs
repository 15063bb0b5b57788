//! The cost of requests to language models: their bodies are read before they are decided (`model_body.rs`, `reading.rs`), and what their
//! answers report is settled before the end of the answer passes on (`call.rs`, `body.rs`). What bodies say is read by
//! `tidegate-usage`. `layer.rs` puts all of it in front of a service; a gateway reads bodies in its own way.

mod body;
mod call;
mod layer;
mod model_body;
mod reading;
mod request_body;
mod results;
mod settings;

pub use body::UsageBody;
pub use call::ModelCall;
pub use layer::{UsageFuture, UsageLayer, UsageLimit};
pub use model_body::ModelBody;
pub use reading::{HoldRefusal, ModelRoute, RefusedCall, UnreadBody, UsageReading};
pub use request_body::ModelRequestBody;
pub use results::UsageResults;
pub use settings::{DeniedBody, PriceLookup, UsageNote, UsageNotes, UsageSettings};

/// As an extension of an answer: a gateway made it, because no server answered.
#[derive(Debug, Clone, Copy)]
pub struct Unanswered {
    /// Whether a server may have got the request.
    pub may_be_sent: bool,
}
