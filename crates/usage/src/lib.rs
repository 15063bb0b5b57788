//! What a request to a language model may cost, and what its answer says that it did cost.
//!
//! Tokens are known only when a model has answered. A limit therefore reserves an estimate, made from the request
//! ([`ModelRequest`], [`EstimateSettings`]), and settles what the answer reports ([`AnswerReader`]). Both understand the
//! wire forms of OpenAI, Anthropic and Gemini, and paths of your own ([`UsageForm`], [`OwnForm`]). [`TokenCounts`] are
//! then costs in the [units](UsageUnit) that rules count; money goes by the operator's prices ([`PriceList`]).
//!
//! The crate is pure: no I/O, no clock. It keeps less than 64 KiB of an answer, whatever comes, and does not panic.
//!
//! Inside: `json` scans JSON in pieces and reports values at watched paths; `answer_paths` and `request_paths` have the
//! paths of each form; `events` splits server-sent events; `document` collects the numbers of one document;
//! `event_hold` leaves out the event that the client did not ask for; `media` finds pictures in requests.

#![forbid(unsafe_code)]

mod answer;
mod answer_paths;
mod denied;
mod document;
mod estimate;
mod event_hold;
mod events;
mod form;
mod json;
mod media;
mod own_form;
mod prices;
mod request;
mod request_paths;
mod result;
mod tokens;

pub use answer::{AnswerKind, AnswerReader, PassedBytes};
pub use denied::DeniedFacts;
pub use estimate::{EstimateSettings, TokenEstimate};
pub use form::{AutoForms, FormName, UsageForm, UsageSetting};
pub use own_form::{OwnForm, OwnFormError};
pub use prices::{AmountError, ModelPrice, MoneyUnit, PriceAmount, PriceList, PriceRow};
pub use request::{BodyEdit, ModelRequest};
pub use result::{AnswerEnd, UsageResult};
pub use tokens::{TokenCounts, UsageUnit};
