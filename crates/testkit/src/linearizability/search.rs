//! The search for an order of calls that explains all answers.
//!
//! A store releases the permits of a call that it got no answer to, so such a call may have a second effect.

use std::collections::HashMap;

use tidegate_core::algorithm::Form;
use tidegate_core::{Outcome, PermitId, Timestamp};

use super::settling::SettledCall;
use super::states::ModelStates;
use super::times::RevealedTimes;
use super::{HistoryCharge, NotLinearizable};

/// How many steps are searched before a history counts as undecided.
const MOST_STEPS: u64 = 500_000;

/// A call that the store decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecidedCall<'h> {
    pub(super) at: Timestamp,
    pub(super) charges: &'h [HistoryCharge],
    pub(super) outcomes: &'h [Outcome],
}

/// A denial that was answered from memory. It changes nothing, so it only has to be true at some time in between.
#[derive(Debug, Clone, Copy)]
pub(super) struct RememberedDenial<'h> {
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) charges: &'h [HistoryCharge],
}

/// A call without an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenCall<'h> {
    pub(super) began: Timestamp,
    pub(super) charges: &'h [HistoryCharge],
}

pub(super) struct Search<'h> {
    pub(super) forms: &'h [Form],
    /// In the order of their times; those of the same time in any order.
    pub(super) decided: Vec<DecidedCall<'h>>,
    /// In the order of their ends.
    pub(super) settled: Vec<SettledCall<'h>>,
    remembered: Vec<RememberedDenial<'h>>,
    open: Vec<OpenCall<'h>>,
    revealed: RevealedTimes,
    /// How many answers were explained at the most.
    best: usize,
    steps: u64,
    /// Positions from which no order explains the rest, by their numbers.
    failed: HashMap<(usize, u32, u32), Vec<Position>>,
}

/// How far an order has come.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// How many of the decided calls have taken effect.
    pub(super) index: usize,
    pub(super) states: ModelStates,
    /// When the last call took effect.
    pub(super) at: Timestamp,
    /// Which settlements have.
    pub(super) settled: Vec<bool>,
    /// Which of the open calls have, a bit for each.
    applied: u32,
    /// Of which of those the permits are released.
    released: u32,
    /// Which remembered denials were true at some time.
    confirmed: Vec<bool>,
}

impl<'h> Search<'h> {
    pub(super) fn new(
        forms: &'h [Form],
        mut decided: Vec<DecidedCall<'h>>,
        remembered: Vec<RememberedDenial<'h>>,
        mut open: Vec<OpenCall<'h>>,
    ) -> Self {
        decided.sort_by_key(|call| call.at);
        open.sort_by_key(|call| call.began);
        Self {
            forms,
            revealed: RevealedTimes::new(forms, &decided, &open),
            decided,
            settled: Vec::new(),
            remembered,
            open,
            best: 0,
            steps: 0,
            failed: HashMap::new(),
        }
    }

    /// With these settlements of decided calls.
    pub(super) fn with_settlements(mut self, mut settled: Vec<SettledCall<'h>>) -> Self {
        settled.sort_by_key(|call| call.settlement.ended);
        self.settled = settled;
        self
    }

    pub(super) fn run(mut self) -> Result<(), NotLinearizable> {
        let position = Position {
            index: 0,
            states: ModelStates::fresh(self.forms),
            at: Timestamp::EPOCH,
            settled: vec![false; self.settled.len()],
            applied: 0,
            released: 0,
            confirmed: vec![false; self.remembered.len()],
        };
        if self.explains_from(&position) {
            return Ok(());
        }
        Err(if self.steps >= MOST_STEPS {
            NotLinearizable::Undecided
        } else {
            NotLinearizable::NoOrder {
                explained: self.best,
                answers: self.decided.len(),
            }
        })
    }

    pub(super) fn explains_from(&mut self, position: &Position) -> bool {
        self.best = self.best.max(position.index);
        self.steps += 1;
        if self.steps >= MOST_STEPS {
            return false;
        }
        // Calls of the same microsecond are exchanged in place: what remains is the same only between them.
        let at = |index: usize| self.decided.get(index).map(|call| call.at);
        let is_between = position.index == 0 || at(position.index - 1) != at(position.index);
        let key = (position.index, position.applied, position.released);
        let is_known = |failed: &Vec<Position>| failed.contains(position);
        if is_between && self.failed.get(&key).is_some_and(is_known) {
            return false;
        }
        // Most often, no open call takes effect here.
        let is_explained = self.decides(position)
            || self.settles(position)
            || self.releases(position)
            || self.applies(position);
        if is_between && !is_explained {
            self.failed.entry(key).or_default().push(position.clone());
        }
        is_explained
    }

    /// Lets the next decided call take effect, or another one of the same microsecond.
    fn decides(&mut self, position: &Position) -> bool {
        let index = position.index;
        let mut before = position.clone();
        let Some(at) = self.decided.get(index).map(|call| call.at) else {
            self.confirm(&mut before, None);
            let are_true = before.confirmed.iter().all(|is_true| *is_true);
            return are_true && self.are_settled_before(&before, None);
        };
        self.confirm(&mut before, Some(at));
        if !self.are_confirmed_before(&before, at) || !self.are_settled_before(&before, Some(at)) {
            return false;
        }
        let ties = self.decided[index..].iter();
        let ties = ties.take_while(|call| call.at == at).count();
        for tie in index..index + ties {
            self.decided.swap(index, tie);
            let call = self.decided[index];
            let mut after = before.clone();
            let permit = permit_of(index, false);
            let outcomes = after.states.charge(self.forms, call.charges, at, permit);
            (after.index, after.at) = (index + 1, at);
            let is_explained = outcomes == call.outcomes && self.explains_from(&after);
            self.decided.swap(index, tie);
            if is_explained {
                return true;
            }
        }
        false
    }

    /// Lets the permits of one of the open calls be released before the next decided call.
    fn releases(&mut self, position: &Position) -> bool {
        if !self.has_permits() {
            return false;
        }
        for index in 0..self.open.len() {
            let bit = 1 << index;
            let mut after = position.clone();
            let is_held = position.applied & bit != 0 && position.released & bit == 0;
            // Only its order among the calls matters, and not its time.
            if is_held && after.states.release(permit_of(index, true), position.at) {
                after.released |= bit;
                if self.explains_from(&after) {
                    return true;
                }
            }
        }
        false
    }

    fn has_permits(&self) -> bool {
        let mut forms = self.forms.iter();
        forms.any(|form| matches!(form, Form::Concurrency(_)))
    }

    /// Lets one of the open calls take effect before the next decided call.
    fn applies(&mut self, position: &Position) -> bool {
        let next = self.decided.get(position.index).copied();
        if next.is_some_and(|next| !self.can_still_match(position, next)) {
            return false;
        }
        let mut tried: Vec<&[HistoryCharge]> = Vec::new();
        for index in 0..self.open.len() {
            let call = self.open[index];
            let is_late = next.is_some_and(|next| call.began > next.at);
            // The earliest of the open calls that charge the same stands for all of them.
            if is_late || position.applied & (1 << index) != 0 || tried.contains(&call.charges) {
                continue;
            }
            tried.push(call.charges);
            for at in self.times(position, call, next) {
                let mut after = position.clone();
                self.confirm(&mut after, Some(at));
                if !after.states.allow(self.forms, call.charges, at) {
                    // Denied, it has no effect.
                    continue;
                }
                after
                    .states
                    .charge(self.forms, call.charges, at, permit_of(index, true));
                (after.at, after.applied) = (at, after.applied | (1 << index));
                if self.explains_from(&after) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether further charges can make the next answer true: they only make it less, unless something is given back.
    fn can_still_match(&self, position: &Position, next: DecidedCall<'_>) -> bool {
        // One that shares its time may come first.
        let shares = self.decided[position.index + 1..].first();
        if shares.is_some_and(|other| other.at == next.at) {
            return true;
        }
        let has_unsettled = position.settled.iter().any(|is_settled| !is_settled);
        if has_unsettled || position.applied != position.released && self.has_permits() {
            return true;
        }
        let permit = permit_of(position.index, false);
        let mut states = position.states.clone();
        let outcomes = states.charge(self.forms, next.charges, next.at, permit);
        let is_allowed = |outcomes: &[Outcome]| outcomes.iter().all(|outcome| outcome.allowed);
        match (is_allowed(&outcomes), is_allowed(next.outcomes)) {
            (true, false) => true,
            (false, true) => false,
            _ => {
                let mut pairs = outcomes.iter().zip(next.outcomes);
                pairs.all(|(model, answer)| model.remaining >= answer.remaining)
            }
        }
    }

    /// When an open call may have taken effect such that answers can be explained: as early and as late as it is
    /// allowed, when the next answers get their `reset_at`, and at times that later answers reveal.
    fn times(
        &self,
        position: &Position,
        call: OpenCall<'_>,
        next: Option<DecidedCall<'_>>,
    ) -> Vec<Timestamp> {
        let from = call.began.max(position.at);
        let allows = |at: u64| {
            let at = Timestamp::from_micros(at);
            position.states.allow(self.forms, call.charges, at)
        };
        let Some(next) = next else {
            let revealed = self.revealed.between(from, Timestamp::MAX);
            return [from].into_iter().chain(revealed).collect();
        };
        let until = next.at.as_micros();
        let allowed = first(from.as_micros(), until, allows);
        let mut times = vec![allowed, until];
        for charge in call.charges {
            for (later, index) in self.shown(position, *charge) {
                let fitting = self.fitting(position, *charge, later, index);
                times.extend(fitting.map(|fits| first(allowed, until, fits)));
            }
        }
        let mut times: Vec<_> = times.into_iter().map(Timestamp::from_micros).collect();
        times.extend(self.revealed.between(from, next.at));
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Whether a later answer has its `reset_at` or more, if a charge takes effect at a time: alone, or as the first
    /// of several open calls that the bucket has not repaid when the next one follows.
    fn fitting(
        &self,
        position: &'h Position,
        charge: HistoryCharge,
        later: DecidedCall<'h>,
        index: usize,
    ) -> impl Iterator<Item = impl Fn(u64) -> bool> {
        let outcome = later.outcomes[index];
        let is_denied = later.outcomes.iter().any(|outcome| !outcome.allowed);
        let mut asked = later.charges[index];
        if is_denied && outcome.allowed {
            // Another limit denied: it answered over the untouched state.
            asked.cost = 0;
        }
        let costs = self.open.iter().flat_map(|open| open.charges);
        let most = match self.forms[charge.limit] {
            Form::Bucket(_) => costs.map(|charge| charge.cost).sum(),
            _ => charge.cost,
        };
        (charge.cost..=most).map(move |cost| {
            move |at: u64| {
                let mut after = position.states.clone();
                let joint = [HistoryCharge { cost, ..charge }];
                let permit = permit_of(0, true);
                after.charge(self.forms, &joint, Timestamp::from_micros(at), permit);
                after.ask(self.forms, asked, later.at).reset_at >= outcome.reset_at
            }
        })
    }

    /// The first answers that show a charge, perhaps later than the next one: all of one microsecond, with the
    /// position of the limit in each.
    fn shown(&self, position: &Position, charge: HistoryCharge) -> Vec<(DecidedCall<'h>, usize)> {
        let later = self.decided[position.index..].iter();
        let mut shows = later.filter_map(|later| {
            let mut charges = later.charges.iter();
            let index = charges.position(|other| other.limit == charge.limit)?;
            Some((*later, index))
        });
        let first = shows.next();
        let ties =
            shows.take_while(|(later, _)| Some(later.at) == first.map(|(first, _)| first.at));
        first.into_iter().chain(ties).collect()
    }

    /// Confirms the remembered denials that are true from the position to the next call.
    pub(super) fn confirm(&self, position: &mut Position, until: Option<Timestamp>) {
        for (denial, is_true) in self.remembered.iter().zip(&mut position.confirmed) {
            let at = denial.began.max(position.at);
            let is_possible = at <= denial.ended && until.is_none_or(|until| at <= until);
            if !*is_true && is_possible {
                *is_true = !position.states.allow(self.forms, denial.charges, at);
            }
        }
    }

    fn are_confirmed_before(&self, position: &Position, until: Timestamp) -> bool {
        let mut denials = self.remembered.iter().zip(&position.confirmed);
        denials.all(|(denial, is_true)| *is_true || denial.ended >= until)
    }
}

/// The permit of a decided call or of an open one.
fn permit_of(index: usize, is_open: bool) -> PermitId {
    PermitId::from_u128(index as u128 * 2 + u128::from(is_open))
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
