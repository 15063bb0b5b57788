//! Why a limit was refused. Messages say what would be accepted.

use super::{Algorithm, MAX_COUNT, MAX_SLOTS, MAX_WINDOW, MIN_WINDOW, Rate, Window};
use crate::time::Micros;

/// Why a limit was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The text is not of the form of a limit.
    #[error(
        "`{text}` is not a limit: {reason}; write for example `100/minute`, `10 per 2 hours` or `100/minute burst 20`"
    )]
    Syntax {
        /// The text that was read.
        text: String,
        /// The mistake.
        reason: String,
    },
    /// The text means a limit, but is not the form of one.
    #[error("`{text}` is not a limit; write `{instead}`")]
    Spelling {
        /// The text that was read.
        text: String,
        /// The limit that it means.
        instead: String,
    },
    /// The text is not a span of time.
    #[error("`{text}` is not a span of time: {reason}; write for example `500ms`, `30s` or `5m`")]
    SpanSyntax {
        /// The text that was read.
        text: String,
        /// The mistake.
        reason: String,
    },
    /// A count or burst of zero.
    #[error(
        "a {what} of 0 would never let anything pass; give 1 to {MAX_COUNT}, or say `blocked` if that is meant"
    )]
    Zero {
        /// Which of the limit's numbers.
        what: &'static str,
    },
    /// A count or burst too large to be counted exactly.
    #[error("a {what} of {value} is too large; give 1 to {MAX_COUNT}")]
    TooLarge {
        /// Which of the limit's numbers.
        what: &'static str,
        /// The given value.
        value: u64,
    },
    /// A window or another span that is too short or too long.
    #[error("a {what} of {span} is out of range; give {MIN_WINDOW} to {} days", MAX_WINDOW.get() / Micros::DAY.get())]
    SpanOutOfRange {
        /// Which of the limit's spans.
        what: &'static str,
        /// The given value.
        span: Micros,
    },
    /// A limit that needs a window has none.
    #[error("`{count}` names no window; write for example `{count}/minute`")]
    WindowMissing {
        /// The count that was given.
        count: u64,
    },
    /// Concurrency counts holders at once and has no window.
    #[error(
        "concurrency counts holders at once and has no window; write `{}` instead of `{rate}`",
        rate.count
    )]
    WindowOnConcurrency {
        /// The rate that was given.
        rate: Rate,
    },
    /// Calendar months and years do not have one length.
    #[error(
        "`{window}` is a calendar period, which {algorithm} cannot count; use `fixed_window` with `anchor: clock`, or a span such as `30d`"
    )]
    CalendarNeedsFixedWindow {
        /// The window that was given.
        window: Window,
        /// The algorithm that was asked for.
        algorithm: &'static str,
    },
    /// A burst for an algorithm that has none.
    #[error("{algorithm} has no burst; leave it out, or use `token_bucket` or `leaky_bucket`")]
    BurstWithoutBucket {
        /// The algorithm that was asked for.
        algorithm: &'static str,
    },
    /// A number of slots that is zero or too large.
    #[error("{slots} slots are out of range; give 1 to {MAX_SLOTS}")]
    SlotsOutOfRange {
        /// The given value.
        slots: u32,
    },
    /// A number of slots that does not divide the window into whole microseconds.
    #[error(
        "{slots} slots do not divide a window of {window} into whole microseconds; give a number that does"
    )]
    SlotsDoNotDivide {
        /// The given value, or the default.
        slots: u32,
        /// The window to be divided.
        window: Micros,
    },
    /// A bucket so slow that the time to fill it cannot be computed exactly.
    #[error(
        "`{rate}` takes longer to fill than can be counted exactly (285 years); raise the count, or lower the burst or the window"
    )]
    FillsTooSlowly {
        /// The rate that was given.
        rate: Rate,
    },
    /// A delay longer than any window.
    #[error("a max_delay of {max_delay} is too long; give at most {} days", MAX_WINDOW.get() / Micros::DAY.get())]
    DelayTooLong {
        /// The given value.
        max_delay: Micros,
    },
    /// A delay within which more could be owed than can be counted exactly.
    #[error(
        "within a max_delay of {max_delay} more than {MAX_COUNT} could be owed; shorten it, or lower the count or the burst"
    )]
    DelayOwesTooMuch {
        /// The given value.
        max_delay: Micros,
    },
    /// Two limits of one list over the same window: only the smaller could ever decide.
    #[error("two limits over the same window `{window}`; keep the smaller one")]
    SameWindowTwice {
        /// The window that both have.
        window: Window,
    },
    /// A list without any limit: nothing could decide.
    #[error("there is no limit; give at least one, for example `100/minute`")]
    NoLimit,
    /// Two limits of one list that would count on the same state.
    #[error(
        "`{rate}` has the algorithm and the window of another limit in the list; keep the smaller one"
    )]
    SameShapeTwice {
        /// The later of the two.
        rate: Rate,
    },
}

/// No algorithm has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an algorithm; expected one of `{names}`",
    names = Algorithm::ALL.map(Algorithm::name).join("`, `")
)]
pub struct UnknownAlgorithm(pub(super) String);
