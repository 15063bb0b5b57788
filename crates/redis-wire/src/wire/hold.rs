//! Steps about stored reservations, and what they answer.

use tidegate_core::reservation::LONGEST_RESERVATION;
use tidegate_core::{
    Adjusted, CostUnit, Costs, Micros, Outcomes, ReservationId, ReservationPart, SettleRequest,
    StoredReservation, Timestamp,
};

use super::answer::{BadReply, StepOutcome, number};
use super::{LATEST, LuaStep, Op};
use crate::keys::slot_of;
use crate::plan::Plan;
use crate::value::{CommandWriter, ReplyValue};

/// What is written of a charge into the record of its reservation.
#[derive(Debug, Clone)]
pub struct HoldPart {
    /// The group of the charge, from 1. All of a group are charged or none.
    pub group: usize,
    /// The index of the charge in the reservation, over all records.
    pub index: usize,
    /// How much is charged.
    pub cost: u64,
    /// What its cost is counted in.
    pub unit: CostUnit,
    /// The cost in that unit.
    pub unit_cost: u64,
    /// What the caller calls it.
    pub label: String,
    /// When it was charged, with its delay, if that is done already.
    pub taken: Option<(Timestamp, Micros)>,
}

/// The terms of a reservation.
#[derive(Debug, Clone)]
pub struct HoldTerms<'a> {
    /// The id of the reservation.
    pub id: ReservationId,
    /// How long it lasts.
    pub ttl: Micros,
    /// What it is estimated to cost.
    pub estimate: &'a Costs,
    /// How many groups there are.
    pub groups: usize,
    /// The records of the same reservation in other slots.
    pub others: String,
    /// Whether this is the record in another slot.
    pub is_other: bool,
    /// Whether the record is written without a part of its own.
    pub bare: BareRecord,
}

/// When a record is written that has no part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BareRecord {
    /// It is never written.
    Never,
    /// If the charges that decide are allowed.
    IfMade,
    /// It is always written.
    Always,
}

/// What a step about a reservation answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldAnswer {
    /// The outcomes of the charges that were made, how many parts are in the record, and when the reservation ends.
    Reserved(Outcomes, u64, Timestamp),
    /// The record, whether it was settled before, and the keys of those in other slots.
    Record {
        /// Without its parts.
        record: StoredReservation,
        /// Its parts.
        parts: Vec<KeptPart>,
        /// Whether it was settled before.
        is_repeated: bool,
        /// The keys of the records in other slots.
        others: Vec<String>,
    },
    /// It lasts until then, in other slots too.
    Until(Timestamp, Vec<String>),
    /// There is no such reservation.
    Unknown,
    /// It was settled by another kind of call.
    OtherKind,
    /// It was settled with another cost.
    OtherCost,
}

/// A part of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPart {
    /// Its index in the reservation, over all records.
    pub index: u64,
    /// The key of its counter.
    pub counter: String,
    /// What was reserved, and what became of it.
    pub part: ReservationPart,
    /// How much of what was given back is for the lease that it was taken from, and not in Redis.
    pub for_lease: u64,
}

impl Op {
    pub(super) fn is_of_reservation(self) -> bool {
        matches!(
            self,
            Self::HoldReserve | Self::HoldSettle | Self::HoldExtend | Self::HoldLook
        )
    }
}

impl HoldPart {
    pub(super) fn write<C: CommandWriter>(&self, limit: &str, command: &mut C) {
        command
            .arg(self.group)
            .arg(self.index)
            .arg(self.cost)
            .arg(self.unit.as_str())
            .arg(self.unit_cost)
            .arg(limit)
            .arg(&self.label);
        match self.taken {
            Some((at, delay)) => {
                let flows_from = (at + delay).as_micros();
                command.arg("taken").arg(flows_from).arg(at.as_micros());
            }
            None => {
                command.arg("");
            }
        }
    }
}

impl LuaStep {
    /// Charges the groups of a plan, whose charges have these parts, and writes a record at `hold`.
    pub fn reserve(
        plan: &Plan<'_>,
        parts: Vec<HoldPart>,
        hold: &str,
        terms: &HoldTerms<'_>,
    ) -> Self {
        let mut step = Self {
            id: Some(terms.id.permit()),
            slot: slot_of(hold),
            ..Self::new(Op::HoldReserve, plan)
        };
        step.keys.push(hold.into());
        for (charge, part) in step.charges.iter_mut().zip(parts) {
            charge.reserved = Some(Box::new(part));
        }
        let kind = if terms.is_other { "other" } else { "" };
        step.args = vec![
            terms.ttl.get().to_string(),
            terms.estimate.to_string(),
            terms.others.clone(),
            terms.groups.to_string(),
            kind.to_owned(),
            match terms.bare {
                BareRecord::Never => String::new(),
                BareRecord::IfMade => "made".to_owned(),
                BareRecord::Always => "always".to_owned(),
            },
        ];
        step
    }

    /// Settles a reservation whose record is at `hold`. What is given back by parts with the numbers `of_lease` stays
    /// charged in Redis: the caller puts it back into its lease.
    pub fn settle_hold(hold: &str, request: &SettleRequest<'_>, of_lease: &[u64]) -> Self {
        let (kind, actual) = match request.actual {
            Some(actual) => ("cost", actual.to_string()),
            None => ("cancel", String::new()),
        };
        let numbers: Vec<String> = of_lease.iter().map(u64::to_string).collect();
        let args = vec![kind.to_owned(), actual, String::new(), numbers.join(" ")];
        Self::on_hold(Op::HoldSettle, hold, request.id, request.at, args)
    }

    /// Gives back what was charged with the record at `hold`, and removes it.
    pub fn drop_hold(hold: &str, id: ReservationId, at: Option<Timestamp>) -> Self {
        let args = vec!["cancel".to_owned(), String::new(), "remove".to_owned()];
        Self::on_hold(Op::HoldSettle, hold, id, at, args)
    }

    /// Lets the reservation at `hold` last for `ttl` from now on.
    pub fn extend_hold(hold: &str, id: ReservationId, ttl: Micros, at: Option<Timestamp>) -> Self {
        let args = [ttl, LONGEST_RESERVATION].map(|time| time.get().to_string());
        Self::on_hold(Op::HoldExtend, hold, id, at, args.into())
    }

    /// Reads the record at `hold`.
    pub fn look_at_hold(hold: &str, id: ReservationId) -> Self {
        Self::on_hold(Op::HoldLook, hold, id, None, Vec::new())
    }

    fn on_hold(
        op: Op,
        hold: &str,
        id: ReservationId,
        at: Option<Timestamp>,
        args: Vec<String>,
    ) -> Self {
        let mut step = Self {
            at: at.map(|at| at.min(LATEST)),
            id: Some(id.permit()),
            args,
            ..Self::bare(op, slot_of(hold))
        };
        step.keys.push(hold.into());
        step
    }

    /// Reads the answer to a step about a reservation.
    pub(super) fn hold_answer<V: ReplyValue>(&self, values: &[V]) -> Result<StepOutcome, BadReply> {
        let answer = match self.op {
            Op::HoldReserve => self.reserved(values)?,
            _ => self.record(values)?,
        };
        Ok(StepOutcome::Hold(Box::new(answer)))
    }

    fn reserved<V: ReplyValue>(&self, values: &[V]) -> Result<HoldAnswer, BadReply> {
        let [outcomes @ .., parts, ends] = values else {
            return Err(BadReply);
        };
        let (outcomes, rest) = outcomes.as_chunks::<6>();
        let is_charged = |reserved: &HoldPart| reserved.taken.is_none();
        let charged = self.charges.iter().filter(|charge| {
            let reserved = charge.reserved.as_deref();
            reserved.is_none_or(is_charged)
        });
        if !rest.is_empty() || outcomes.len() != charged.clone().count() {
            return Err(BadReply);
        }
        let outcomes = charged.zip(outcomes);
        let outcomes = outcomes.map(|(charge, values)| charge.outcome(values));
        Ok(HoldAnswer::Reserved(
            outcomes.collect::<Result<_, _>>()?,
            number(parts)?,
            Timestamp::from_micros(number(ends)?),
        ))
    }

    fn record<V: ReplyValue>(&self, values: &[V]) -> Result<HoldAnswer, BadReply> {
        let (code, rest) = values.split_first().ok_or(BadReply)?;
        let is_repeated = match number(code)? {
            0 => return Ok(HoldAnswer::Unknown),
            1 => return Ok(HoldAnswer::OtherKind),
            2 => return Ok(HoldAnswer::OtherCost),
            3 => false,
            4 => true,
            _ => return Err(BadReply),
        };
        let texts = rest.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        if self.op == Op::HoldExtend {
            let [ends, others] = &texts[..] else {
                return Err(BadReply);
            };
            return Ok(HoldAnswer::Until(time(ends)?, words(others)));
        }
        let [at, ends, estimate, is_settled, settled, others, parts @ ..] = &texts[..] else {
            return Err(BadReply);
        };
        let (parts, left) = parts.as_chunks::<5>();
        if !left.is_empty() {
            return Err(BadReply);
        }
        let cost = |text: &str| text.parse::<Costs>().map_err(|_| BadReply);
        let parts = parts.iter().map(read_part);
        let id = self.id.ok_or(BadReply)?;
        Ok(HoldAnswer::Record {
            record: StoredReservation {
                id: ReservationId::from_u128(id.as_u128()),
                created_at: time(at)?,
                expires_at: time(ends)?,
                estimate: cost(estimate)?,
                settled: match *is_settled {
                    "1" => Some(cost(settled)?),
                    _ => None,
                },
                parts: Vec::new(),
            },
            parts: parts.collect::<Result<_, _>>()?,
            is_repeated,
            others: words(others),
        })
    }
}

/// The text of a part, its unit and the cost in that, its counter, its label and its result.
fn read_part([text, unit, counter, label, result]: &[&str; 5]) -> Result<KeptPart, BadReply> {
    let mut words = text.split(' ');
    let mut word = || words.next().ok_or(BadReply);
    let whole = |text: &str| text.parse::<u64>().map_err(|_| BadReply);
    let (index, reserved, limit) = (whole(word()?)?, whole(word()?)?, word()?);
    let (unit, _) = unit.split_once(' ').ok_or(BadReply)?;
    let mut part = ReservationPart {
        label: (*label).into(),
        unit: CostUnit::new(unit).map_err(|_| BadReply)?,
        limit: capacity(limit).ok_or(BadReply)?,
        reserved,
        settled: reserved,
        adjusted: Adjusted::default(),
    };
    let mut for_lease = 0;
    if !result.is_empty() {
        let numbers = result
            .split(' ')
            .map(whole)
            .collect::<Result<Vec<_>, _>>()?;
        let [settled, given_back, overrun, uncharged, remaining, rest] = numbers[..] else {
            return Err(BadReply);
        };
        (part.settled, for_lease) = (settled, rest);
        part.adjusted = Adjusted {
            given_back,
            overrun,
            uncharged,
            remaining,
        };
    }
    Ok(KeptPart {
        index,
        counter: (*counter).to_owned(),
        part,
        for_lease,
    })
}

/// What a limit grants, by its arguments.
fn capacity(limit: &str) -> Option<u64> {
    let mut words = limit.split(',').skip_while(|word| *word == "held");
    let position = match words.next()? {
        "tb" | "cell" => 2,
        _ => 0,
    };
    words.nth(position)?.parse().ok()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn time(text: &str) -> Result<Timestamp, BadReply> {
    let micros = text.parse().map_err(|_| BadReply)?;
    Ok(Timestamp::from_micros(micros))
}

fn text<V: ReplyValue>(value: &V) -> Result<&str, BadReply> {
    let bytes = value.text().ok_or(BadReply)?;
    std::str::from_utf8(bytes).map_err(|_| BadReply)
}
