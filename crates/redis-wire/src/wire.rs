//! Steps of the script and their outcomes.
//!
//! A [`LuaStep`] is one thing to decide, with all its keys and numbers, ready to be sent together with
//! others. `encode.rs` writes the arguments that `lua/shell/steps.lua` reads.

mod answer;
mod encode;
mod hold;

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::algorithm::{Form, Hold};
use tidegate_core::limit::{MAX_COUNT, MAX_WINDOW};
use tidegate_core::{
    AdjustedCharge, Algorithm, Charge, Limit, Micros, Outcome, PermitId, Rate, Request, Scope,
    Timestamp,
};

use crate::keys::{RedisKeys, slot_of, slot_of_permit};
use crate::plan::{Plan, PlannedCharge};
pub use answer::{BadReply, Finding, Leased, StepError, StepOutcome, admitted, decode};
pub use encode::{arguments, eval, evalsha};
pub use hold::{BareRecord, HoldAnswer, HoldPart, HoldTerms, KeptPart};

/// The latest time of a decision: every window that starts then has an end.
const LATEST: Timestamp = Timestamp::from_micros(Timestamp::MAX.as_micros() - 2 * MAX_WINDOW.get());
/// More than any limit can grant, and little enough that the script can add to it.
const MAX_COST: u64 = 1 << 50;

/// One thing to decide, all or nothing. Its keys are in one slot.
#[derive(Debug, Clone)]
pub struct LuaStep {
    op: Op,
    /// The time, where it is supplied; else the script's own.
    at: Option<Timestamp>,
    /// The ends of reservations by supplied times, in the same slot: of a step that brings one.
    ends: Option<Arc<str>>,
    id: Option<PermitId>,
    register: Option<Register>,
    slot: u16,
    /// Keys without a charge.
    keys: SmallVec<[Arc<str>; 2]>,
    charges: SmallVec<[LuaCharge; 2]>,
    /// What an operation on a reservation needs in addition.
    args: Vec<String>,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Charge,
    Peek,
    Preview,
    Settle,
    SettleInFull,
    Adjust,
    Lease,
    Return,
    Register,
    Release,
    Renew,
    ReleaseThere,
    RenewThere,
    Unregister,
    Forget,
    Heal,
    HoldReserve,
    HoldSettle,
    HoldExtend,
    HoldLook,
}

/// A charge as the script reads it.
#[derive(Debug, Clone)]
struct LuaCharge {
    state: Arc<str>,
    /// Of a concurrency limit: the key with the details of its permits.
    companion: Option<Arc<str>>,
    /// Where it is noted what a reset forgot: to give something back, or to forget. Permits have names and need none.
    reset_note: Option<Arc<str>>,
    form: Form,
    /// Whether reservations that are never settled are given back to it.
    gives_back: bool,
    cost: u64,
    /// The index of the first charge on the same state.
    first: usize,
    extra: Extra,
    /// What is written into the record of a reservation.
    reserved: Option<Box<HoldPart>>,
}

/// What some operations need of a charge in addition to its limit and cost.
#[derive(Debug, Clone, Copy)]
enum Extra {
    None,
    Adjusted {
        /// When it began to flow back.
        charged_at: Timestamp,
        /// When it was taken.
        taken_at: Timestamp,
        /// What it costs after all.
        actual: u64,
    },
    Request(LeaseRequest),
    /// How long a reset is remembered.
    Remembered(Micros),
}

/// When a charge was made, and what it costs after all.
#[derive(Debug, Clone, Copy)]
pub struct ChargeChange {
    /// When it was made.
    pub charged_at: Timestamp,
    /// How long it was held before it went on.
    pub delay: Micros,
    /// What it costs after all.
    pub actual: u64,
}

impl ChargeChange {
    /// A charge with this outcome costs nothing after all.
    fn to_nothing(outcome: &Outcome) -> Self {
        Self {
            charged_at: outcome.at,
            delay: outcome.delay,
            actual: 0,
        }
    }
}

impl From<&AdjustedCharge<'_>> for ChargeChange {
    fn from(adjusted: &AdjustedCharge<'_>) -> Self {
        Self {
            charged_at: adjusted.charged_at,
            delay: adjusted.delay,
            actual: adjusted.actual,
        }
    }
}

/// What is wanted in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The id of the new lease.
    pub id: PermitId,
    /// How many units are wanted; at least the charge's cost is taken, or nothing.
    pub units: u64,
    /// For how long, for a bucket; a window's lease ends with the window or slot.
    pub lasts: Micros,
    /// The bucket's lease before this one, and how many of its units were used. This step ends it, whatever
    /// the outcome; its remaining units are part of the new one.
    pub previous: Option<(PermitId, u64)>,
}

/// Where it is written which states have permits under one id.
#[derive(Debug, Clone)]
struct Register {
    key: String,
    /// States in other slots, with the time that a permit lasts there.
    there: Vec<(Arc<str>, Micros)>,
}

impl LuaStep {
    /// Charges every limit of the plan or none. Permits are written into their register, which is
    /// in the step's slot unless [`registered_elsewhere`](Self::registered_elsewhere).
    pub fn charge(keys: &RedisKeys, plan: &Plan<'_>) -> Self {
        Self::new(Op::Charge, plan).with_register(keys)
    }

    /// Answers whether a charge would be allowed, over the state as it is, and changes nothing.
    pub fn peek(plan: &Plan<'_>) -> Self {
        Self::new(Op::Peek, plan)
    }

    /// Answers exactly as a charge would and changes nothing.
    pub fn preview(plan: &Plan<'_>) -> Self {
        Self::new(Op::Preview, plan)
    }

    /// Charges what is known only afterwards; all of it, also beyond the limits, if that is how all scopes of the plan
    /// are charged.
    pub fn settle(plan: &Plan<'_>) -> Self {
        let mut scopes = plan.charges.iter().map(|planned| planned.charge.scope);
        let op = if scopes.all(Scope::is_charged_in_full) {
            Op::SettleInFull
        } else {
            Op::Settle
        };
        Self {
            id: None,
            ..Self::new(op, plan)
        }
    }

    /// Changes the charges of a plan to what they cost after all.
    pub fn adjust(keys: &RedisKeys, plan: &Plan<'_>, changes: &[ChargeChange]) -> Self {
        let mut step = Self::new(Op::Adjust, plan);
        step.charges.truncate(changes.len());
        for (charge, change) in step.charges.iter_mut().zip(changes) {
            charge.extra = Extra::Adjusted {
                // A delayed charge flows back only from the end of its delay on.
                charged_at: change.charged_at + change.delay,
                taken_at: change.charged_at,
                actual: change.actual,
            };
        }
        step.with_register(keys)
    }

    /// Takes back a plan that was charged with these outcomes. None if one of them was denied:
    /// then nothing was taken.
    pub fn give_back(keys: &RedisKeys, plan: &Plan<'_>, outcomes: &[Outcome]) -> Option<Self> {
        let change = |outcome: &Outcome| outcome.allowed.then(|| ChargeChange::to_nothing(outcome));
        let changes: Option<SmallVec<[ChargeChange; 4]>> = outcomes.iter().map(change).collect();
        changes.map(|changes| Self::adjust(keys, plan, &changes))
    }

    /// Takes units in advance, for an instance to decide from. Not for logs and concurrency.
    pub fn lease(plan: &Plan<'_>, want: LeaseRequest) -> Self {
        let mut step = Self::new(Op::Lease, plan);
        step.id = Some(want.id);
        for charge in &mut step.charges {
            charge.extra = Extra::Request(want);
        }
        step
    }

    /// Ends the lease of a bucket, of which the plan's cost was never used.
    pub fn return_lease(plan: &Plan<'_>, id: PermitId) -> Self {
        Self {
            id: Some(id),
            ..Self::new(Op::Return, plan)
        }
    }

    /// Releases the permits in all states that their register names in this slot.
    pub fn release(keys: &RedisKeys, id: PermitId) -> Self {
        Self::in_register(Op::Release, keys, id)
    }

    /// Renews the permits in all states that their register names in this slot.
    pub fn renew(keys: &RedisKeys, id: PermitId) -> Self {
        Self::in_register(Op::Renew, keys, id)
    }

    /// Releases the permits in one state.
    pub fn release_there(state: &str, id: PermitId) -> Self {
        Self::in_state(Op::ReleaseThere, state, id)
    }

    /// Renews the permits in one state.
    pub fn renew_there(state: &str, id: PermitId) -> Self {
        Self::in_state(Op::RenewThere, state, id)
    }

    /// Writes the register of permits that are in other slots only.
    pub fn register(
        keys: &RedisKeys,
        id: PermitId,
        at: Option<Timestamp>,
        there: Vec<(Arc<str>, Micros)>,
    ) -> Self {
        let step = Self {
            at: at.map(|at| at.min(LATEST)),
            ..Self::in_register(Op::Register, keys, id)
        };
        step.also_held(there)
    }

    /// Repairs the states of these charges, where no version of this program has written them.
    pub fn heal(plan: &Plan<'_>) -> Self {
        Self {
            at: None,
            id: None,
            ..Self::new(Op::Heal, plan)
        }
    }

    /// A step that always writes, and leaves nothing for long.
    pub fn probe(keys: &RedisKeys) -> Self {
        let (scope, rate) = (Scope::new("probe"), Rate::new(MAX_COUNT, Micros::DAY));
        let Ok(limit) = Limit::new(rate, Algorithm::TOKEN_BUCKET) else {
            return Self::bare(Op::Settle, 0);
        };
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: "probe",
            cost: 1,
        }];
        Self::settle(&Plan::new(keys, &Request::new(&charges)))
    }

    /// Forgets in which states permits are held.
    pub fn unregister(keys: &RedisKeys, id: PermitId) -> Self {
        let mut step = Self::bare(Op::Unregister, slot_of_permit(id));
        step.keys.push(keys.register(id).into());
        step
    }

    /// Forgets what was used of the states of these charges.
    pub fn forget(plan: &Plan<'_>) -> Self {
        let mut step = Self {
            at: None,
            id: None,
            ..Self::new(Op::Forget, plan)
        };
        for charge in &mut step.charges {
            charge.extra = Extra::Remembered(charge.remembers());
        }
        step
    }

    /// The same step, whose permits are also held in these states in other slots.
    #[must_use]
    pub fn also_held(mut self, there: Vec<(Arc<str>, Micros)>) -> Self {
        if let Some(register) = &mut self.register {
            register.there = there;
        }
        self
    }

    /// The same step, whose permits another step writes into their register.
    #[must_use]
    pub fn registered_elsewhere(self) -> Self {
        Self {
            register: None,
            ..self
        }
    }

    /// All keys, in the order in which the script reads them.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let ends = self.ends.iter().map(AsRef::as_ref);
        let register = self.register.iter().map(|register| register.key.as_str());
        let charged = self.charges.iter().flat_map(|charge| {
            let others = charge.companion.iter().chain(&charge.reset_note);
            std::iter::once(&charge.state)
                .chain(others)
                .map(AsRef::as_ref)
        });
        ends.chain(register)
            .chain(self.keys.iter().map(AsRef::as_ref))
            .chain(charged)
    }

    /// Whether it is done even if its answer is no longer waited for.
    pub fn is_owed(&self) -> bool {
        let asks = matches!(self.op, Op::Charge | Op::Peek | Op::Preview | Op::Lease);
        !asks && !matches!(self.op, Op::HoldReserve | Op::HoldLook)
    }

    /// Whether it uses keys that only its record names, or that it finds next to a counter. While their slot is moved, the
    /// server that has the keys which the step names may not have these, and cannot tell that from keys that do not exist.
    pub fn finds_more_keys(&self) -> bool {
        let by_record = matches!(
            self.op,
            Op::HoldSettle | Op::HoldExtend | Op::Release | Op::Renew
        );
        by_record || self.ends.is_some() || self.charges.iter().any(|charge| charge.gives_back)
    }

    /// Whether it brings its time.
    pub fn brings_time(&self) -> bool {
        self.at.is_some()
    }

    /// Ends what is listed at [`ends`](RedisKeys::ends) and due at the time that it brings, before it does anything else.
    pub fn end_due(&mut self, ends: String) {
        self.ends = Some(ends.into());
    }

    /// The slot of its keys.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    fn bare(op: Op, slot: u16) -> Self {
        Self {
            op,
            at: None,
            ends: None,
            id: None,
            register: None,
            slot,
            keys: SmallVec::new(),
            charges: SmallVec::new(),
            args: Vec::new(),
        }
    }

    fn new(op: Op, plan: &Plan<'_>) -> Self {
        let charge = |planned: &PlannedCharge<'_>| LuaCharge {
            state: Arc::clone(&planned.state.key),
            companion: planned
                .is_concurrency()
                .then(|| RedisKeys::companion(&planned.state.key).into()),
            reset_note: (matches!(op, Op::Adjust | Op::Forget) && !planned.is_concurrency())
                .then(|| RedisKeys::reset_note(&planned.state.key).into()),
            form: *planned.charge.limit.form(),
            gives_back: planned.charge.scope.gives_back() && !planned.is_concurrency(),
            // What is decided is decided over the sum; what is booked is booked charge by charge.
            cost: match op {
                Op::Charge | Op::Peek | Op::Preview | Op::HoldReserve => planned.total,
                _ => planned.charge.cost,
            },
            first: planned.first,
            extra: Extra::None,
            reserved: None,
        };
        Self {
            at: plan.at.map(|at| at.min(LATEST)),
            id: plan.permit,
            charges: plan.charges.iter().map(charge).collect(),
            ..Self::bare(op, plan.slot())
        }
    }

    fn in_register(op: Op, keys: &RedisKeys, id: PermitId) -> Self {
        let step = Self {
            id: Some(id),
            ..Self::bare(op, slot_of_permit(id))
        };
        step.with_register(keys)
    }

    fn in_state(op: Op, state: &str, id: PermitId) -> Self {
        Self {
            id: Some(id),
            keys: SmallVec::from_iter([state.into(), RedisKeys::companion(state).into()]),
            ..Self::bare(op, slot_of(state))
        }
    }

    /// With its register, if it holds permits.
    fn with_register(mut self, keys: &RedisKeys) -> Self {
        let holds =
            self.charges.is_empty() || self.charges.iter().any(|charge| charge.companion.is_some());
        self.register = self.id.filter(|_| holds).map(|id| Register {
            key: keys.register(id),
            there: Vec::new(),
        });
        self
    }
}

impl LuaCharge {
    /// How long what was charged can be given back after a reset, at most: generously, as limits on one state differ.
    fn remembers(&self) -> Micros {
        let longest = match &self.form {
            Form::Bucket(form) => match form.hold() {
                Hold::UpTo(longest) => form.to_full() + longest,
                Hold::Queue => form.to_full(),
            },
            Form::FixedWindow(form) => form.window().longest(),
            Form::SlidingCounter(form) => form.window() + form.window(),
            Form::SlidingSlots(form) => form.window(),
            Form::SlidingLog(form) => form.window(),
            Form::Concurrency(_) => Micros::ZERO,
        };
        (longest + longest).max(Micros::DAY)
    }

    /// What the limit grants at most at one instant.
    fn capacity(&self) -> u64 {
        match &self.form {
            Form::Bucket(form) => form.burst(),
            Form::FixedWindow(form) => form.count(),
            Form::SlidingCounter(form) => form.count(),
            Form::SlidingSlots(form) => form.count(),
            Form::SlidingLog(form) => form.count(),
            Form::Concurrency(form) => form.holders(),
        }
    }
}

#[cfg(test)]
mod tests;
