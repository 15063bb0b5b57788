//! Checks that concurrent calls of an exact store had their effects one after the other.
//!
//! A history is what clients of one or several limits saw: when each call began and ended, and the answer. It is
//! accepted if there is an order of the calls in which each takes effect between its begin and its end, and in
//! which the pure functions of `tidegate_core`, one after the other, give every answer to the microsecond. A call
//! without an answer may have taken effect at any time after it began, or never.
//!
//! A call may be a reservation that is settled later. That is an effect of its own, between the begin and the end of
//! the settlement, which is repeated until it is answered.
//!
//! The answers carry the time at which the store decided, which orders most calls. What remains is searched
//! (Wing and Gong) in `search.rs`: calls of the same microsecond, and where unanswered calls took effect.

mod search;
mod settling;
mod states;
mod times;

use std::fmt;

use search::{DecidedCall, OpenCall, RememberedDenial, Search};
use settling::{REMEMBERED, SettledCall};
use tidegate_core::{Adjusted, Limit, Micros, Outcome, Timestamp};

/// The most calls in a history, and the most unanswered ones, so that the search stays short.
pub const MOST_CALLS: usize = 200;
/// The most unanswered calls in a history.
pub const MOST_OPEN: usize = 8;

/// One limit of a history, and what a call wanted to charge to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryCharge {
    /// The limit, by its position among those of the history.
    pub limit: usize,
    /// What the call wanted.
    pub cost: u64,
}

/// A call as its client saw it. All times are of the clock that the store reads.
#[derive(Debug, Clone)]
pub struct HistoryCall {
    /// When it began.
    pub began: Timestamp,
    /// When it ended, and the outcome of each charge. None if there was no answer, and the call is not known to
    /// have had no effect.
    pub answer: Option<(Timestamp, Vec<Outcome>)>,
    /// What it wanted to charge: all of it, or nothing.
    pub charges: Vec<HistoryCharge>,
    /// How it was settled, if it was allowed and then settled.
    pub settlement: Option<HistorySettlement>,
}

/// How a reservation was settled. All times are of the clock that the store reads.
#[derive(Debug, Clone)]
pub struct HistorySettlement {
    /// When the first of the calls began that settled it.
    pub began: Timestamp,
    /// When the answer came.
    pub ended: Timestamp,
    /// What each of its limits was charged in the end.
    pub actual: u64,
    /// What that did in each of them.
    pub adjusted: Vec<Adjusted>,
}

/// Why a history is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotLinearizable {
    /// The store decided before the call began or after it had ended.
    OutOfTime {
        /// The call, by its position in the history.
        call: usize,
    },
    /// No order explains all answers.
    NoOrder {
        /// How many answers the best order explains.
        explained: usize,
        /// How many there are.
        answers: usize,
    },
    /// There are too many calls, unanswered calls or orders.
    Undecided,
}

impl fmt::Display for NotLinearizable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfTime { call } => write!(f, "call {call} was decided outside of its time"),
            Self::NoOrder { explained, answers } => {
                write!(
                    f,
                    "no order explains more than {explained} of {answers} answers"
                )
            }
            Self::Undecided => f.write_str("too many orders to search"),
        }
    }
}

/// Accepts the history of states under `limits`, which nothing else has used.
pub fn check(limits: &[Limit], history: &[HistoryCall]) -> Result<(), NotLinearizable> {
    let forms: Vec<_> = limits.iter().map(|limit| *limit.form()).collect();
    let (mut decided, mut remembered, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let mut settled = Vec::new();
    let has_settlements = history.iter().any(|call| call.settlement.is_some());
    let outlived = if has_settlements {
        REMEMBERED
    } else {
        Micros::ZERO
    };
    for (call, entry) in history.iter().enumerate() {
        let Some((ended, outcomes)) = &entry.answer else {
            open.push(OpenCall {
                began: entry.began,
                charges: &entry.charges,
            });
            continue;
        };
        let is_allowed = outcomes.iter().all(|outcome| outcome.allowed);
        settled.extend(entry.settlement.as_ref().map(|settlement| SettledCall {
            charges: &entry.charges,
            outcomes,
            settlement,
        }));
        let first = outcomes.iter().map(|outcome| outcome.at).min();
        let last = outcomes.iter().map(|outcome| outcome.at).max();
        let (Some(first), Some(last)) = (first, last) else {
            continue;
        };
        let is_in_time = first >= entry.began && last <= *ended;
        // Only a denial may be answered from memory.
        if !is_allowed && (first < entry.began || first != last || is_copy(history, call)) {
            remembered.push(RememberedDenial {
                began: entry.began - outlived,
                ended: *ended,
                charges: &entry.charges,
            });
        } else if is_in_time && first == last {
            decided.push(DecidedCall {
                at: first,
                charges: &entry.charges,
                outcomes,
            });
        } else {
            return Err(NotLinearizable::OutOfTime { call });
        }
    }
    if history.len() > MOST_CALLS || open.len() > MOST_OPEN {
        return Err(NotLinearizable::Undecided);
    }
    Search::new(&forms, decided, remembered, open)
        .with_settlements(settled)
        .run()
}

/// Whether the answer of a call repeats a denial of another one: a remembered denial differs in its wait alone,
/// which has become shorter.
fn is_copy(history: &[HistoryCall], call: usize) -> bool {
    let Some((_, answer)) = &history[call].answer else {
        return false;
    };
    let copies = history[call].charges.iter().zip(answer);
    let mut denials = copies.filter(|(_, copy)| !copy.allowed);
    denials.any(|(charge, copy)| {
        let mut others = history.iter().enumerate();
        others.any(|(other, entry)| {
            let Some((_, answer)) = &entry.answer else {
                return false;
            };
            let mut originals = entry.charges.iter().zip(answer);
            originals.any(|(of, original)| {
                let is_alike = *copy
                    == Outcome {
                        retry: copy.retry,
                        is_remembered: copy.is_remembered,
                        ..*original
                    };
                let is_first = copy.retry == original.retry && other < call;
                of == charge && is_alike && (copy.retry < original.retry || is_first)
            })
        })
    })
}
