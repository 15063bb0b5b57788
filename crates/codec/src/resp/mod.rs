//! The Redis protocol (RESP): commands, replies, and the commands that decide.
//!
//! `arguments.rs` parses commands and `inline.rs` those that a person types, `throttle.rs` and `check.rs` read and
//! answer `CL.THROTTLE` and `TG.CHECK`, `reservation.rs` the commands about reservations, `replies.rs` writes.

mod arguments;
pub mod check;
mod inline;
mod replies;
pub mod reservation;
pub mod throttle;

pub use arguments::{Arguments, ProtocolError, RespCommand};
pub use replies::{Replies, RespVersion};

/// The error when the store cannot answer and the rule denies then.
const UNDECIDED: &str = "the store cannot answer; try again in a second";

/// A client's bytes for a message: short, and one line.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
