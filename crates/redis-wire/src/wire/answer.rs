//! Reads the script's reply and checks its form: a server may answer anything.

use tidegate_core::{Adjusted, AdjustedCharges, Micros, Outcome, Outcomes, Retry, Timestamp};

use super::{HoldAnswer, LuaCharge, LuaStep, Op};
use crate::value::ReplyValue;

/// The outcome of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// Of a charge, a peek or a settlement: one outcome for each charge.
    Outcomes(Outcomes),
    /// Of a step about a stored reservation.
    Hold(Box<HoldAnswer>),
    /// Of an adjustment: what it did to each charge.
    Adjusted(AdjustedCharges),
    /// For a lease: the units taken in advance.
    Leased(Leased),
    /// Of a release or renewal of permits: whether they were live in this slot, and the states in other slots
    /// that hold them, too.
    Held {
        /// Whether any permit was released, or all were renewed.
        was_live: bool,
        /// The keys of the other states.
        there: Vec<String>,
    },
    /// For a repair: the finding for each charge's state.
    Healed(Vec<Finding>),
    /// Of a step without a result.
    Done,
}

/// The result of checking and repairing a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It is valid, or cannot be repaired.
    Nothing,
    /// It was of a type that no version writes, and has been removed.
    Foreign,
    /// It had numbers that no version writes, which have been removed.
    Negative,
}

/// Units taken in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    /// The outcome for the charge's own cost. A window's give-back refers to its `at`.
    pub outcome: Outcome,
    /// The units of the lease: those taken, including the charge's cost, and those left of the lease before.
    /// Zero: there is no lease.
    pub units: u64,
    /// When the lease ends, by the clock of Redis.
    pub ends_at: Timestamp,
    /// How long it takes until the cost can be taken once more, if no other instance takes any and these are used.
    pub more_after: Retry,
}

/// Why one step failed, in the words of the server or the script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StepError {
    text: String,
}

impl StepError {
    /// The first word, such as `OOM`, `READONLY`, `WRONGTYPE` or `UNREADABLE`.
    pub fn code(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }
}

/// The reply does not have the script's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reply does not have the script's form")]
pub struct BadReply;

/// An outcome that admits now, with all of the limit back at `at`.
pub fn admitted(limit: u64, remaining: u64, at: Timestamp) -> Outcome {
    Outcome {
        allowed: true,
        limit,
        remaining,
        exceeded: 0,
        retry: Retry::Now,
        reset_at: at,
        delay: Micros::ZERO,
        at,
        is_remembered: false,
    }
}

/// Reads the reply to `steps`: the time of Redis, and the outcome of each.
pub fn decode<V: ReplyValue>(
    steps: &[&LuaStep],
    reply: &V,
) -> Result<(Timestamp, Vec<Result<StepOutcome, StepError>>), BadReply> {
    let mut values = reply.values().ok_or(BadReply)?.iter();
    let now = time(values.next().ok_or(BadReply)?)?;
    let mut answers = Vec::with_capacity(steps.len());
    for step in steps {
        let value = values.next().ok_or(BadReply)?;
        answers.push(if let Some(numbers) = value.values() {
            Ok(step.answer(numbers)?)
        } else if let Some(text) = value.text() {
            Err(StepError {
                text: String::from_utf8_lossy(text).into_owned(),
            })
        } else {
            let reset_at = values.next().ok_or(BadReply)?;
            Ok(step.admitted(number(value)?, time(reset_at)?, now)?)
        });
    }
    if values.next().is_some() {
        return Err(BadReply);
    }
    Ok((now, answers))
}

impl LuaStep {
    /// The outcome of a charge that the fast path admitted. The reply has only the numbers that are not known here.
    fn admitted(
        &self,
        remaining: u64,
        reset_at: Timestamp,
        now: Timestamp,
    ) -> Result<StepOutcome, BadReply> {
        let ([charge], Op::Charge) = (&self.charges[..], self.op) else {
            return Err(BadReply);
        };
        let outcome = Outcome {
            reset_at,
            ..admitted(charge.capacity(), remaining, now)
        };
        Ok(StepOutcome::Outcomes(Outcomes::one(outcome)))
    }

    fn answer<V: ReplyValue>(&self, values: &[V]) -> Result<StepOutcome, BadReply> {
        match self.op {
            Op::Charge | Op::Peek | Op::Preview | Op::Settle | Op::SettleInFull => {
                let (outcomes, rest) = values.as_chunks::<6>();
                if !rest.is_empty() || outcomes.len() != self.charges.len() {
                    return Err(BadReply);
                }
                let outcomes = self
                    .charges
                    .iter()
                    .zip(outcomes)
                    .map(|(charge, values)| charge.outcome(values));
                Ok(StepOutcome::Outcomes(outcomes.collect::<Result<_, _>>()?))
            }
            Op::Lease => {
                let ([outcome], [units, ends_at, more]) = values.as_chunks::<6>() else {
                    return Err(BadReply);
                };
                let [charge] = &self.charges[..] else {
                    return Err(BadReply);
                };
                Ok(StepOutcome::Leased(Leased {
                    outcome: charge.outcome(outcome)?,
                    units: number(units)?,
                    ends_at: time(ends_at)?,
                    more_after: retry(more)?,
                }))
            }
            Op::Release | Op::Renew | Op::ReleaseThere | Op::RenewThere => {
                let (was_live, there) = values.split_first().ok_or(BadReply)?;
                let there = there.iter().map(|key| {
                    let key = key.text().ok_or(BadReply)?;
                    String::from_utf8(key.to_vec()).map_err(|_| BadReply)
                });
                Ok(StepOutcome::Held {
                    was_live: number(was_live)? == 1,
                    there: there.collect::<Result<_, _>>()?,
                })
            }
            Op::Heal => {
                let findings = values.iter().map(|value| match number(value)? {
                    0 => Ok(Finding::Nothing),
                    1 => Ok(Finding::Foreign),
                    2 => Ok(Finding::Negative),
                    _ => Err(BadReply),
                });
                Ok(StepOutcome::Healed(findings.collect::<Result<_, _>>()?))
            }
            Op::Adjust => {
                let (adjusted, rest) = values.as_chunks::<4>();
                if !rest.is_empty() || adjusted.len() != self.charges.len() {
                    return Err(BadReply);
                }
                let adjusted = adjusted.iter().map(read_adjusted);
                Ok(StepOutcome::Adjusted(adjusted.collect::<Result<_, _>>()?))
            }
            Op::HoldReserve | Op::HoldSettle | Op::HoldExtend | Op::HoldLook => {
                self.hold_answer(values)
            }
            Op::Return | Op::Register | Op::Unregister | Op::Forget => Ok(StepOutcome::Done),
        }
    }
}

impl LuaCharge {
    pub(super) fn outcome<V: ReplyValue>(&self, values: &[V; 6]) -> Result<Outcome, BadReply> {
        let [allowed, remaining, retry, reset_at, delay, at] = values;
        let allowed = number(allowed)? == 1;
        // Below zero: by how much the limit is exceeded.
        let left = remaining.number().ok_or(BadReply)?;
        Ok(Outcome {
            allowed,
            limit: self.capacity(),
            remaining: u64::try_from(left).unwrap_or(0),
            exceeded: if left < 0 { left.unsigned_abs() } else { 0 },
            retry: if allowed {
                Retry::Now
            } else {
                self::retry(retry)?
            },
            reset_at: time(reset_at)?,
            delay: Micros::new(number(delay)?),
            at: time(at)?,
            is_remembered: false,
        })
    }
}

fn read_adjusted<V: ReplyValue>(values: &[V; 4]) -> Result<Adjusted, BadReply> {
    let [given_back, overrun, uncharged, remaining] = values;
    Ok(Adjusted {
        given_back: number(given_back)?,
        overrun: number(overrun)?,
        uncharged: number(uncharged)?,
        remaining: number(remaining)?,
    })
}

/// A wait. One of nothing, too: only an outcome that allows has none.
fn retry<V: ReplyValue>(value: &V) -> Result<Retry, BadReply> {
    match value.number() {
        Some(-1) => Ok(Retry::Never),
        _ => Ok(Retry::After(Micros::new(number(value)?))),
    }
}

pub(super) fn number<V: ReplyValue>(value: &V) -> Result<u64, BadReply> {
    let number = value.number().ok_or(BadReply)?;
    u64::try_from(number).map_err(|_| BadReply)
}

fn time<V: ReplyValue>(value: &V) -> Result<Timestamp, BadReply> {
    number(value).map(Timestamp::from_micros)
}
