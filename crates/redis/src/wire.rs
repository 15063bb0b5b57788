//! Steps on their way to the script and its answers on their way back.
//!
//! A [`Step`] is one thing to decide, with all its keys and numbers, ready to be sent together with
//! others. Everything that the script is told is written here, as `lua/shell/steps.lua` reads it.

mod answer;
mod encode;

use smallvec::SmallVec;
use tidegate_core::algorithm::Form;
use tidegate_core::limit::{MAX_COUNT, MAX_WINDOW};
use tidegate_core::{
    Algorithm, Charge, LeaseId, Limit, Micros, Outcome, Rate, Request, Scope, Timestamp,
};

use crate::keys::{Keys, slot_of};
pub(crate) use answer::{Answer, Finding, StepError, decode};
#[cfg(test)]
pub(crate) use answer::{BadReply, Leased};
pub(crate) use encode::{eval, evalsha};

/// The latest time at which anything is decided: every window that starts then has an end.
const LATEST: Timestamp = Timestamp::from_micros(Timestamp::MAX.as_micros() - 2 * MAX_WINDOW.get());
/// More than any limit can grant, and little enough that the script can add to it.
const MAX_COST: u64 = 1 << 50;

/// One thing to decide, all or nothing. Its keys are in one slot.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    op: Op,
    /// The time, where it is supplied; else the script's own.
    at: Option<Timestamp>,
    lease: Option<LeaseId>,
    register: Option<Register>,
    /// Keys that are named without a charge.
    keys: SmallVec<[String; 2]>,
    tasks: SmallVec<[Task; 2]>,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Charge,
    Peek,
    Settle,
    GiveBack,
    Lease,
    Return,
    Register,
    Release,
    Renew,
    ReleaseThere,
    RenewThere,
    Forget,
    Heal,
}

/// A charge on its way.
#[derive(Debug, Clone)]
struct Task {
    state: String,
    /// Of a concurrency limit: what is told of its leases.
    companion: Option<String>,
    form: Form,
    cost: u64,
    /// The index of the first task on the same state.
    first: usize,
    extra: Extra,
}

/// What some operations tell of a charge beside its limit and cost.
#[derive(Debug, Clone, Copy)]
enum Extra {
    None,
    ChargedAt(Timestamp),
    Want(Want),
}

/// What is wanted in advance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    /// The name of the new lease.
    pub(crate) id: LeaseId,
    /// How many units; at least the charge's cost are taken, or none.
    pub(crate) units: u64,
    /// For how long, if it is a bucket; a window's lease ends with the window or slot.
    pub(crate) lasts: Micros,
    /// The bucket's lease before this one, and how many of its units were used. It is gone after this
    /// step, whatever the answer; what it had left is part of the new one.
    pub(crate) previous: Option<(LeaseId, u64)>,
}

/// Where it is written which states a lease holds places of.
#[derive(Debug, Clone)]
struct Register {
    key: String,
    /// States in other slots, with the time that the lease lasts there.
    there: Vec<(String, Micros)>,
}

impl Step {
    /// Charges every limit of the request or none. A lease is written into its register, which is
    /// in the step's slot unless [`registered_elsewhere`](Self::registered_elsewhere).
    pub(crate) fn charge(keys: &Keys, request: &Request<'_>) -> Self {
        Self::merged(Op::Charge, keys, request).with_register(keys)
    }

    /// Answers as a charge would and changes nothing.
    pub(crate) fn peek(keys: &Keys, request: &Request<'_>) -> Self {
        Self::merged(Op::Peek, keys, request)
    }

    /// Charges what is known only afterwards.
    pub(crate) fn settle(keys: &Keys, request: &Request<'_>) -> Self {
        Self {
            lease: None,
            ..Self::of(Op::Settle, keys, request)
        }
    }

    /// Takes back a request that was charged with these outcomes. None if one of them was denied:
    /// then nothing was taken.
    pub(crate) fn give_back(
        keys: &Keys,
        request: &Request<'_>,
        outcomes: &[Outcome],
    ) -> Option<Self> {
        if outcomes.iter().any(|outcome| !outcome.allowed) {
            return None;
        }
        let mut step = Self::of(Op::GiveBack, keys, request);
        step.tasks.truncate(outcomes.len());
        for (task, outcome) in step.tasks.iter_mut().zip(outcomes) {
            // What waits in line flows back only when its turn has come.
            task.extra = Extra::ChargedAt(outcome.at + outcome.delay);
        }
        Some(step.with_register(keys))
    }

    /// Takes units in advance, for an instance to decide from. Not for logs and concurrency.
    pub(crate) fn lease(
        keys: &Keys,
        charge: &Charge<'_>,
        want: Want,
        at: Option<Timestamp>,
    ) -> Self {
        let charges = [*charge];
        let request = Request {
            charges: &charges,
            at,
            lease: Some(want.id),
        };
        let mut step = Self::of(Op::Lease, keys, &request);
        for task in &mut step.tasks {
            task.extra = Extra::Want(want);
        }
        step
    }

    /// Ends the lease of a bucket, of which the charge's cost was never used.
    pub(crate) fn return_lease(
        keys: &Keys,
        charge: &Charge<'_>,
        lease: LeaseId,
        at: Option<Timestamp>,
    ) -> Self {
        let charges = [*charge];
        let request = Request {
            charges: &charges,
            at,
            lease: Some(lease),
        };
        Self::of(Op::Return, keys, &request)
    }

    /// Ends a concurrency lease in all states that its register names in this slot.
    pub(crate) fn release(keys: &Keys, lease: LeaseId) -> Self {
        Self::bare(Op::Release, Some(lease)).with_register(keys)
    }

    /// Renews a concurrency lease in all states that its register names in this slot.
    pub(crate) fn renew(keys: &Keys, lease: LeaseId) -> Self {
        Self::bare(Op::Renew, Some(lease)).with_register(keys)
    }

    /// Ends a concurrency lease in one state.
    pub(crate) fn release_there(state: String, lease: LeaseId) -> Self {
        Self::bare(Op::ReleaseThere, Some(lease)).on(state)
    }

    /// Renews a concurrency lease in one state.
    pub(crate) fn renew_there(state: String, lease: LeaseId) -> Self {
        Self::bare(Op::RenewThere, Some(lease)).on(state)
    }

    /// Writes the register of a lease that holds places in other slots only.
    pub(crate) fn register(
        keys: &Keys,
        lease: LeaseId,
        at: Option<Timestamp>,
        there: Vec<(String, Micros)>,
    ) -> Self {
        let step = Self {
            at: at.map(|at| at.min(LATEST)),
            ..Self::bare(Op::Register, Some(lease))
        };
        step.with_register(keys).also_held(there)
    }

    /// Repairs the states of these charges, where no version of this program has written them.
    pub(crate) fn heal(keys: &Keys, charges: &[Charge<'_>]) -> Self {
        Self::of(Op::Heal, keys, &Request::new(charges))
    }

    /// A step that always writes, and leaves nothing for long.
    pub(crate) fn probe(keys: &Keys) -> Self {
        let (scope, rate) = (Scope::new("probe"), Rate::new(MAX_COUNT, Micros::DAY));
        let Ok(limit) = Limit::new(rate, Algorithm::TOKEN_BUCKET) else {
            return Self::bare(Op::Settle, None);
        };
        let charges = [Charge {
            scope: &scope,
            limit: &limit,
            key: "probe",
            cost: 1,
        }];
        Self::settle(keys, &Request::new(&charges))
    }

    /// Forgets where a lease is held.
    pub(crate) fn unregister(keys: &Keys, lease: LeaseId) -> Self {
        let mut step = Self::bare(Op::Forget, None);
        step.keys.push(keys.register(lease));
        step
    }

    /// Forgets what a key has used of a limit.
    pub(crate) fn forget(keys: &Keys, scope: &Scope, limit: &Limit, key: &str) -> Self {
        let state = keys.state(scope, limit, key);
        let mut step = Self::bare(Op::Forget, None);
        if matches!(limit.form(), Form::Concurrency(_)) {
            step.keys.push(Keys::companion(&state));
        }
        step.keys.push(state);
        step
    }

    /// The same step, whose lease is also held in these states in other slots.
    #[must_use]
    pub(crate) fn also_held(mut self, there: Vec<(String, Micros)>) -> Self {
        if let Some(register) = &mut self.register {
            register.there = there;
        }
        self
    }

    /// The same step, whose lease is written into its register by another.
    #[must_use]
    pub(crate) fn registered_elsewhere(self) -> Self {
        Self {
            register: None,
            ..self
        }
    }

    /// The states of concurrency limits in this step, with the time that a lease lasts there: what
    /// another slot's register has to name.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (&str, Micros)> {
        self.tasks.iter().filter_map(|task| match &task.form {
            Form::Concurrency(form) if task.cost > 0 => {
                Some((task.state.as_str(), form.lease_ttl()))
            }
            _ => None,
        })
    }

    /// All keys, in the order in which the script is told of them.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let register = self.register.iter().map(|register| register.key.as_str());
        let charged = self
            .tasks
            .iter()
            .flat_map(|task| std::iter::once(task.state.as_str()).chain(task.companion.as_deref()));
        register
            .chain(self.keys.iter().map(String::as_str))
            .chain(charged)
    }

    /// Whether it is to be done even if nobody waits for its answer any more.
    pub(crate) fn is_owed(&self) -> bool {
        !matches!(self.op, Op::Charge | Op::Peek | Op::Lease)
    }

    /// The slot of its keys, if it has any.
    pub(crate) fn slot(&self) -> Option<u16> {
        self.keys().next().map(slot_of)
    }

    fn bare(op: Op, lease: Option<LeaseId>) -> Self {
        Self {
            op,
            at: None,
            lease,
            register: None,
            keys: SmallVec::new(),
            tasks: SmallVec::new(),
        }
    }

    fn of(op: Op, keys: &Keys, request: &Request<'_>) -> Self {
        let mut tasks: SmallVec<[Task; 2]> = SmallVec::with_capacity(request.charges.len());
        for charge in request.charges {
            let task = Task::new(keys, charge, &tasks);
            tasks.push(task);
        }
        Self {
            at: request.at.map(|at| at.min(LATEST)),
            tasks,
            ..Self::bare(op, request.lease)
        }
    }

    /// With the sum of their costs on all charges of one state.
    fn merged(op: Op, keys: &Keys, request: &Request<'_>) -> Self {
        let mut step = Self::of(op, keys, request);
        for index in 1..step.tasks.len() {
            let first = step.tasks[index].first;
            let cost = step.tasks[index].cost;
            let (earlier, later) = step.tasks.split_at_mut(index);
            for task in earlier.iter_mut().filter(|task| task.first == first) {
                task.cost = task.cost.saturating_add(cost);
                later[0].cost = task.cost;
            }
        }
        step
    }

    /// With its lease's register, if it holds any place.
    fn with_register(mut self, keys: &Keys) -> Self {
        let holds = self.tasks.is_empty() || self.tasks.iter().any(|task| task.companion.is_some());
        self.register = self.lease.filter(|_| holds).map(|lease| Register {
            key: keys.register(lease),
            there: Vec::new(),
        });
        self
    }

    fn on(mut self, state: String) -> Self {
        let companion = Keys::companion(&state);
        self.keys.extend([state, companion]);
        self
    }
}

impl Task {
    fn new(keys: &Keys, charge: &Charge<'_>, earlier: &[Self]) -> Self {
        let form = *charge.limit.form();
        let state = keys.state(charge.scope, charge.limit, charge.key);
        let is_same = |other: &Self| other.state == state;
        Self {
            first: earlier.iter().position(is_same).unwrap_or(earlier.len()),
            companion: matches!(form, Form::Concurrency(_)).then(|| Keys::companion(&state)),
            state,
            form,
            cost: charge.cost,
            extra: Extra::None,
        }
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
