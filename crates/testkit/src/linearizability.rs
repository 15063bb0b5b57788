//! Checks that concurrent calls of an exact store had their effects one after the other.
//!
//! A history is what clients of one key saw: when each call began and ended, and the answer. It is accepted if
//! there is an order of the calls in which each takes effect between its begin and its end, and in which the
//! pure functions of `tidegate_core`, one after the other, give every answer to the microsecond. A call without
//! an answer may have taken effect at any time after it began, or never.
//!
//! The answers carry the time at which the store decided, which orders most calls. What remains is searched
//! (Wing and Gong): calls of the same microsecond, and where unanswered calls took effect.

use std::collections::HashMap;
use std::fmt;

use tidegate_core::algorithm::Form;
use tidegate_core::{Limit, Outcome, PermitId, Timestamp};

use crate::ModelState;

/// The most unanswered calls in a history, so that the search stays short.
pub const MOST_OPEN: usize = 8;
/// How many steps are searched before a history counts as undecided.
const MOST_STEPS: u64 = 500_000;

/// A call as its client saw it. All times are of the clock that the store reads.
#[derive(Debug, Clone, Copy)]
pub struct HistoryCall {
    /// When it began.
    pub began: Timestamp,
    /// When it ended, and the answer. None if there was none, and it is not known to have had no effect.
    pub answer: Option<(Timestamp, Outcome)>,
    /// What it wanted to charge.
    pub cost: u64,
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
    /// There are too many unanswered calls, or too many orders.
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

/// Accepts the history of one key under `limit`, which nothing else has used.
pub fn check(limit: &Limit, history: &[HistoryCall]) -> Result<(), NotLinearizable> {
    let mut search = Search {
        form: limit.form(),
        decided: Vec::new(),
        remembered: Vec::new(),
        open: Vec::new(),
        best: 0,
        steps: 0,
        failed: HashMap::new(),
    };
    for (call, entry) in history.iter().enumerate() {
        match entry.answer {
            None => search.open.push(OpenCall {
                began: entry.began,
                cost: entry.cost,
            }),
            // Only a denial may be answered from memory.
            Some((_, outcome)) if outcome.allowed && outcome.at < entry.began => {
                return Err(NotLinearizable::OutOfTime { call });
            }
            Some((ended, outcome)) if outcome.at < entry.began || is_copy(history, call) => {
                search.remembered.push(RememberedDenial {
                    began: entry.began,
                    ended,
                    cost: entry.cost,
                });
            }
            Some((ended, outcome)) if outcome.at <= ended => search.decided.push(DecidedCall {
                cost: entry.cost,
                outcome,
            }),
            Some(_) => return Err(NotLinearizable::OutOfTime { call }),
        }
    }
    if search.open.len() > MOST_OPEN {
        return Err(NotLinearizable::Undecided);
    }
    search.decided.sort_by_key(|call| call.outcome.at);
    search.open.sort_by_key(|call| call.began);
    let position = Position {
        index: 0,
        state: ModelState::fresh(search.form),
        at: Timestamp::EPOCH,
        applied: 0,
        confirmed: vec![false; search.remembered.len()],
    };
    if search.explains_from(&position) {
        return Ok(());
    }
    Err(if search.steps >= MOST_STEPS {
        NotLinearizable::Undecided
    } else {
        NotLinearizable::NoOrder {
            explained: search.best,
            answers: search.decided.len(),
        }
    })
}

/// Whether the answer of a call repeats a denial of another one: a remembered denial differs in its wait alone,
/// which has become shorter.
fn is_copy(history: &[HistoryCall], call: usize) -> bool {
    let Some((_, copy)) = history[call].answer.filter(|(_, copy)| !copy.allowed) else {
        return false;
    };
    let mut others = history.iter().enumerate();
    others.any(|(other, entry)| {
        let Some((_, original)) = entry.answer.filter(|_| entry.cost == history[call].cost) else {
            return false;
        };
        let is_alike = copy
            == Outcome {
                retry: copy.retry,
                ..original
            };
        let is_first = copy.retry == original.retry && other < call;
        is_alike && (copy.retry < original.retry || is_first)
    })
}

/// A call that the store decided.
#[derive(Debug, Clone, Copy)]
struct DecidedCall {
    cost: u64,
    outcome: Outcome,
}

/// A denial that was answered from memory. It changes nothing, so it only has to be true at some time in between.
#[derive(Debug, Clone, Copy)]
struct RememberedDenial {
    began: Timestamp,
    ended: Timestamp,
    cost: u64,
}

/// A call without an answer.
#[derive(Debug, Clone, Copy)]
struct OpenCall {
    began: Timestamp,
    cost: u64,
}

struct Search<'l> {
    form: &'l Form,
    /// In the order of their times; those of the same time in any order.
    decided: Vec<DecidedCall>,
    remembered: Vec<RememberedDenial>,
    open: Vec<OpenCall>,
    /// How many answers were explained at the most.
    best: usize,
    steps: u64,
    /// Positions from which no order explains the rest, by their numbers.
    failed: HashMap<(usize, u32), Vec<Position>>,
}

/// How far an order has come.
#[derive(Clone, PartialEq, Eq)]
struct Position {
    /// How many of the decided calls have taken effect.
    index: usize,
    state: ModelState,
    /// When the last one did.
    at: Timestamp,
    /// Which of the open calls have, a bit for each.
    applied: u32,
    /// Which remembered denials were true at some time.
    confirmed: Vec<bool>,
}

impl Search<'_> {
    fn explains_from(&mut self, position: &Position) -> bool {
        self.best = self.best.max(position.index);
        // Calls of the same microsecond are exchanged in place: what remains is the same only between them.
        let at = |index: usize| self.decided.get(index).map(|call| call.outcome.at);
        let is_between = position.index == 0 || at(position.index - 1) != at(position.index);
        let key = (position.index, position.applied);
        let is_known = |failed: &Vec<Position>| failed.contains(position);
        if is_between && self.failed.get(&key).is_some_and(is_known) {
            return false;
        }
        let is_explained = self.continues_from(position);
        if is_between && !is_explained {
            self.failed.entry(key).or_default().push(position.clone());
        }
        is_explained
    }

    fn continues_from(&mut self, position: &Position) -> bool {
        let next = self.decided.get(position.index).copied();
        let open = self.possible(position, next.map(|call| call.outcome.at));
        // Most often, no open call takes effect here.
        for chosen in subsets(&open) {
            for from in self.times(position, &chosen, next) {
                self.steps += 1;
                if self.steps >= MOST_STEPS {
                    return false;
                }
                let mut before = position.clone();
                self.confirm(&mut before, Some(from));
                let Some(mut after) = self.apply(&before, &chosen, from) else {
                    continue;
                };
                let Some(next) = next else {
                    self.confirm(&mut after, None);
                    if after.confirmed.iter().all(|is_true| *is_true) {
                        return true;
                    }
                    continue;
                };
                self.confirm(&mut after, Some(next.outcome.at));
                if self.are_confirmed_before(&after, next.outcome.at) && self.decides(&after) {
                    return true;
                }
            }
        }
        false
    }

    /// Lets the next decided call take effect, or another one of the same microsecond.
    fn decides(&mut self, position: &Position) -> bool {
        let index = position.index;
        let at = self.decided[index].outcome.at;
        let ties = self.decided[index..].iter();
        let ties = ties.take_while(|call| call.outcome.at == at).count();
        for tie in index..index + ties {
            self.decided.swap(index, tie);
            let call = self.decided[index];
            let mut after = position.clone();
            let outcome = after.state.charge(self.form, call.cost, at, no_permit());
            (after.index, after.at) = (index + 1, at);
            let is_explained = outcome == call.outcome && self.explains_from(&after);
            self.decided.swap(index, tie);
            if is_explained {
                return true;
            }
        }
        false
    }

    /// The open calls that may take effect before `until`.
    fn possible(&self, position: &Position, until: Option<Timestamp>) -> Vec<usize> {
        let is_possible = |index: &usize| {
            let began = self.open[*index].began;
            position.applied & (1 << index) == 0 && until.is_none_or(|until| began <= until)
        };
        (0..self.open.len()).filter(is_possible).collect()
    }

    /// The position after these open calls have taken effect, as soon after `from` as each could. None if one of
    /// them would be denied, and so has no effect.
    fn apply(&self, position: &Position, chosen: &[usize], from: Timestamp) -> Option<Position> {
        let mut after = position.clone();
        for index in chosen {
            let call = self.open[*index];
            after.at = after.at.max(from).max(call.began);
            let outcome = after
                .state
                .charge(self.form, call.cost, after.at, no_permit());
            if !outcome.allowed {
                return None;
            }
            after.applied |= 1 << index;
        }
        Some(after)
    }

    /// When open calls may have taken effect such that the next answer can be explained: as early and as late as
    /// they are allowed, and when the next answer gets its `reset_at`. The later they are, the later that is.
    fn times(
        &self,
        position: &Position,
        chosen: &[usize],
        next: Option<DecidedCall>,
    ) -> Vec<Timestamp> {
        let (Some(next), false) = (next, chosen.is_empty()) else {
            return vec![position.at];
        };
        let apply = |at: u64| self.apply(position, chosen, Timestamp::from_micros(at));
        let fits = |at: u64| {
            apply(at).is_some_and(|after| {
                let outcome = after.state.ask(self.form, next.cost, next.outcome.at);
                outcome.reset_at >= next.outcome.reset_at
            })
        };
        let until = next.outcome.at.as_micros();
        let began = chosen.iter().map(|index| self.open[*index].began).min();
        let from = began.unwrap_or_default().max(position.at).as_micros();
        let allowed = first(from, until, |at| apply(at).is_some());
        let fitting = first(allowed, until, fits);
        let mut times = [allowed, fitting, until]
            .map(Timestamp::from_micros)
            .to_vec();
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Confirms the remembered denials that are true from the position to the next decided call.
    fn confirm(&self, position: &mut Position, until: Option<Timestamp>) {
        for (denial, is_true) in self.remembered.iter().zip(&mut position.confirmed) {
            let at = denial.began.max(position.at);
            let is_possible = at <= denial.ended && until.is_none_or(|until| at <= until);
            if !*is_true && is_possible {
                *is_true = !position.state.ask(self.form, denial.cost, at).allowed;
            }
        }
    }

    fn are_confirmed_before(&self, position: &Position, until: Timestamp) -> bool {
        let mut denials = self.remembered.iter().zip(&position.confirmed);
        denials.all(|(denial, is_true)| *is_true || denial.ended >= until)
    }
}

/// The first number from `low` on for which `is_reached`, which then stays true; at most `high`.
fn first(mut low: u64, mut high: u64, is_reached: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_reached(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// All subsets, the smaller ones first.
fn subsets(of: &[usize]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for index in of {
        let with: Vec<Vec<usize>> = all
            .iter()
            .map(|subset| subset.iter().chain([index]).copied().collect())
            .collect();
        all.extend(with);
    }
    all.sort_by_key(Vec::len);
    all
}

/// Concurrency limits are not part of histories.
fn no_permit() -> PermitId {
    PermitId::from_u128(0)
}
