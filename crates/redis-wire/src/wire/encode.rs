//! Steps as a command.

use smallvec::SmallVec;
use tidegate_core::algorithm::{Form, Hold};
use tidegate_core::{Anchor, Window};

use super::{Extra, LuaCharge, LuaStep, MAX_COST, Op};
use crate::script::{SCRIPT, SHA1};
use crate::value::CommandWriter;
use tidegate_core::algorithm::fixed_window::MAX_USED;

/// Runs the script by its SHA-1, on a server that knows it.
pub fn evalsha<C: CommandWriter>(steps: &[&LuaStep]) -> C {
    command("EVALSHA", &SHA1, steps)
}

/// Runs the script by its text; the server knows its SHA-1 from then on.
pub fn eval<C: CommandWriter>(steps: &[&LuaStep]) -> C {
    command("EVAL", SCRIPT, steps)
}

fn command<C: CommandWriter>(name: &str, script: &str, steps: &[&LuaStep]) -> C {
    let mut command = C::default();
    command.arg(name).arg(script);
    write_arguments(steps, &mut command);
    command
}

/// The arguments of a call of the script after its name: the number of keys, the keys, and the steps.
pub fn arguments<C: CommandWriter>(steps: &[&LuaStep]) -> C {
    let mut arguments = C::default();
    write_arguments(steps, &mut arguments);
    arguments
}

fn write_arguments<C: CommandWriter>(steps: &[&LuaStep], command: &mut C) {
    let keys = || steps.iter().flat_map(|step| step.keys());
    command.arg(keys().count());
    for key in keys() {
        command.arg(key);
    }
    let limits = LimitTable::new(steps);
    limits.write(command);
    command.arg(steps.len());
    write_steps(steps, &limits.indexes, command);
}

/// Writes all steps; plain charges of one limit and cost are written as one run.
fn write_steps<C: CommandWriter>(steps: &[&LuaStep], indexes: &[usize], command: &mut C) {
    let (mut rest, mut indexes) = (steps, indexes.iter());
    while let Some((step, others)) = rest.split_first() {
        if let (Some(cost), Some(index)) = (step.plain_charge(), indexes.clone().next()) {
            let others = others.iter().zip(indexes.clone().skip(1));
            let is_same = |(other, at): &(&&LuaStep, &usize)| {
                other.plain_charge() == Some(cost) && *at == index
            };
            let count = 1 + others.take_while(is_same).count();
            // The script counts from one.
            command.arg("charges").arg(index + 1).arg(cost).arg(count);
            rest = &rest[count..];
            indexes.nth(count - 1);
        } else {
            step.write(&mut indexes, command);
            rest = others;
        }
    }
}

/// The limits of all steps: most steps of a call share a few.
struct LimitTable<'a> {
    distinct: SmallVec<[(&'a Form, bool); 8]>,
    /// For each charge, in order: the index of its limit.
    indexes: SmallVec<[usize; 32]>,
}

impl<'a> LimitTable<'a> {
    fn new(steps: &[&'a LuaStep]) -> Self {
        let mut limits = Self {
            distinct: SmallVec::new(),
            indexes: SmallVec::new(),
        };
        for charge in steps.iter().flat_map(|step| &step.charges) {
            let distinct = &limits.distinct;
            // Only among the latest: a longer search would cost more than it saves.
            let oldest = distinct.len().saturating_sub(16);
            let known = distinct[oldest..]
                .iter()
                .position(|known| *known == (&charge.form, charge.gives_back));
            let index = known.map_or(distinct.len(), |at| oldest + at);
            if known.is_none() {
                limits.distinct.push((&charge.form, charge.gives_back));
            }
            limits.indexes.push(index);
        }
        limits
    }

    fn write<C: CommandWriter>(&self, command: &mut C) {
        command.arg(self.distinct.len());
        for (form, gives_back) in &self.distinct {
            if *gives_back {
                command.arg("held");
            }
            write_limit(form, command);
        }
    }
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Peek => "peek",
            Self::Preview => "preview",
            Self::Settle => "settle",
            Self::SettleInFull => "settle_in_full",
            Self::Adjust => "adjust",
            Self::Lease => "lease",
            Self::Return => "return",
            Self::Register => "register",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::ReleaseThere => "release_there",
            Self::RenewThere => "renew_there",
            Self::Unregister => "unregister",
            Self::Forget => "forget",
            Self::Heal => "heal",
            Self::HoldReserve => "hold_reserve",
            Self::HoldSettle => "hold_settle",
            Self::HoldExtend => "hold_extend",
            Self::HoldLook => "hold_look",
        }
    }
}

impl Op {
    /// The largest cost that is sent.
    fn most(self) -> u64 {
        match self {
            Self::SettleInFull => MAX_USED,
            _ => MAX_COST,
        }
    }
}

impl LuaStep {
    /// The cost, if this is a single charge at the time of Redis, of a limit for which the script has a fast
    /// path.
    fn plain_charge(&self) -> Option<u64> {
        let ([charge], Op::Charge, None, None) =
            (&self.charges[..], self.op, self.at, &self.register)
        else {
            return None;
        };
        let has_fast_path = match &charge.form {
            Form::Bucket(form) => !form.has_common_parts() && matches!(form.hold(), Hold::UpTo(_)),
            Form::FixedWindow(_) => true,
            Form::SlidingCounter(_)
            | Form::SlidingSlots(_)
            | Form::SlidingLog(_)
            | Form::Concurrency(_) => false,
        };
        (has_fast_path && !charge.gives_back).then(|| charge.cost.min(MAX_COST))
    }

    fn write<'a, C: CommandWriter>(
        &self,
        indexes: &mut impl Iterator<Item = &'a usize>,
        command: &mut C,
    ) {
        command.arg(self.op.name());
        match (self.at, &self.ends) {
            (Some(at), Some(_)) => command.arg(at.as_micros()).arg("ends"),
            (Some(at), None) => command.arg(at.as_micros()).arg(""),
            (None, _) => command.arg("-1"),
        };
        match self.id {
            Some(id) => command.arg(id.to_string()),
            None => command.arg(""),
        };
        match (&self.register, self.id) {
            (Some(register), _) => {
                command.arg("registered").arg(register.there.len());
                for (key, ttl) in &register.there {
                    command.arg(&**key).arg(ttl.get());
                }
            }
            (None, Some(_)) => {
                command.arg("");
            }
            (None, None) => {}
        }
        command.arg(self.keys.len()).arg(self.charges.len());
        for (charge, index) in self.charges.iter().zip(indexes) {
            command.arg(index + 1);
            charge.write(self.op.most(), command);
        }
        if self.op.is_of_reservation() {
            command.arg(self.args.len());
            for arg in &self.args {
                command.arg(arg);
            }
        }
    }
}

impl LuaCharge {
    fn write<C: CommandWriter>(&self, most: u64, command: &mut C) {
        command.arg(self.cost.min(most)).arg(self.first + 1);
        if let Some(reserved) = &self.reserved {
            let mut limit = JoinedArguments::default();
            if self.gives_back {
                limit.arg("held");
            }
            limit.arg(short_kind(&self.form));
            write_numbers(&self.form, &mut limit);
            reserved.write(&limit.0, command);
        }
        match self.extra {
            Extra::None => {}
            Extra::Adjusted {
                charged_at,
                taken_at,
                actual,
            } => {
                command
                    .arg(charged_at.as_micros())
                    .arg(taken_at.as_micros())
                    .arg(actual.min(MAX_COST));
            }
            Extra::Remembered(time) => {
                command.arg(time.get() / 1_000);
            }
            Extra::Request(want) => {
                command.arg(want.units.min(MAX_COST));
                match want.previous {
                    Some((lease, _)) => command.arg(lease.to_string()),
                    None => command.arg(""),
                };
                let used = want.previous.map_or(0, |(_, used)| used.min(MAX_COST));
                command.arg(used).arg(want.lasts.get());
            }
        }
    }
}

/// The arguments of a limit, as a reservation keeps them: with commas in between.
#[derive(Default)]
struct JoinedArguments(String);

impl CommandWriter for JoinedArguments {
    fn write(&mut self, argument: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&String::from_utf8_lossy(argument));
    }
}

fn write_limit<C: CommandWriter>(form: &Form, command: &mut C) {
    command.arg(match form {
        Form::Bucket(form) if form.has_common_parts() => "cell",
        Form::Bucket(_) => "bucket",
        Form::FixedWindow(_) => "fixed_window",
        Form::SlidingCounter(_) => "sliding_window_counter",
        Form::SlidingSlots(_) => "sliding_window_slots",
        Form::SlidingLog(_) => "sliding_window_log",
        Form::Concurrency(_) => "concurrency",
    });
    write_numbers(form, command);
}

/// The kind of a limit as a reservation keeps it.
fn short_kind(form: &Form) -> &'static str {
    match form {
        Form::Bucket(form) if form.has_common_parts() => "cell",
        Form::Bucket(_) => "tb",
        Form::FixedWindow(_) => "fw",
        Form::SlidingCounter(_) => "swc",
        Form::SlidingSlots(_) => "sws",
        Form::SlidingLog(_) => "log",
        Form::Concurrency(_) => "con",
    }
}

fn write_numbers<C: CommandWriter>(form: &Form, command: &mut C) {
    match form {
        Form::Bucket(form) => {
            command
                .arg(form.count())
                .arg(form.window().get())
                .arg(form.burst())
                .arg(form.to_full().get());
            match form.hold() {
                Hold::UpTo(longest) => command.arg(longest.get()),
                Hold::Queue => command.arg("-1"),
            };
        }
        Form::FixedWindow(form) => {
            command.arg(form.count());
            match form.window() {
                Window::Span(span) => command.arg(span.get()),
                Window::Month => command.arg("month"),
                Window::Year => command.arg("year"),
            };
            command.arg(match form.anchor() {
                Anchor::Clock => "clock",
                Anchor::FirstRequest => "first_request",
                Anchor::Epoch => "epoch",
            });
        }
        Form::SlidingCounter(form) => {
            command.arg(form.count()).arg(form.window().get());
        }
        Form::SlidingSlots(form) => {
            command
                .arg(form.count())
                .arg(form.window().get())
                .arg(form.slot().get())
                .arg(form.counted());
        }
        Form::SlidingLog(form) => {
            command.arg(form.count()).arg(form.window().get());
        }
        Form::Concurrency(form) => {
            command.arg(form.holders()).arg(form.lease_ttl().get());
        }
    }
}
