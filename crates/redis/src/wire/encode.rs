//! Steps as a command.

use redis::{Cmd, RedisWrite};
use tidegate_core::Window;
use tidegate_core::algorithm::{Form, Hold};

use super::{Extra, MAX_COST, Op, Step, Task};
use crate::script::{SCRIPT, SHA1};

/// Runs the script by its name, for those that know it.
pub(crate) fn evalsha(steps: &[&Step]) -> Cmd {
    command("EVALSHA", &SHA1, steps)
}

/// Runs the script by its text; the server knows it from then on.
pub(crate) fn eval(steps: &[&Step]) -> Cmd {
    command("EVAL", SCRIPT, steps)
}

fn command(name: &str, script: &str, steps: &[&Step]) -> Cmd {
    let mut command = redis::cmd(name);
    let keys = || steps.iter().flat_map(|step| step.keys());
    command.arg(script).arg(keys().count());
    for key in keys() {
        command.arg(key);
    }
    command.arg(steps.len());
    for step in steps {
        step.write(&mut command);
    }
    command
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Peek => "peek",
            Self::Settle => "settle",
            Self::GiveBack => "give_back",
            Self::Lease => "lease",
            Self::Return => "return",
            Self::Register => "register",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::ReleaseThere => "release_there",
            Self::RenewThere => "renew_there",
            Self::Forget => "forget",
        }
    }
}

impl Step {
    fn write(&self, command: &mut Cmd) {
        command.arg(self.op.name());
        match self.at {
            Some(at) => command.arg(at.as_micros()),
            None => command.arg("-1"),
        };
        match self.lease {
            Some(lease) => command.write_arg_fmt(lease),
            None => command.write_arg(b""),
        }
        match (&self.register, self.lease) {
            (Some(register), _) => {
                command.arg("registered").arg(register.there.len());
                for (key, ttl) in &register.there {
                    command.arg(key).arg(ttl.get());
                }
            }
            (None, Some(_)) => {
                command.arg("");
            }
            (None, None) => {}
        }
        command.arg(self.keys.len()).arg(self.tasks.len());
        for task in &self.tasks {
            task.write(command);
        }
    }
}

impl Task {
    fn write(&self, command: &mut Cmd) {
        let name = match &self.form {
            Form::Bucket(_) => "bucket",
            Form::FixedWindow(_) => "fixed_window",
            Form::SlidingCounter(_) => "sliding_window_counter",
            Form::SlidingSlots(_) => "sliding_window_slots",
            Form::SlidingLog(_) => "sliding_window_log",
            Form::Concurrency(_) => "concurrency",
        };
        // The script counts from one.
        command
            .arg(name)
            .arg(self.cost.min(MAX_COST))
            .arg(self.first + 1);
        write_limit(&self.form, command);
        match self.extra {
            Extra::None => {}
            Extra::ChargedAt(at) => {
                command.arg(at.as_micros());
            }
            Extra::Want(want) => {
                command.arg(want.units.min(MAX_COST));
                match want.previous {
                    Some((lease, _)) => command.write_arg_fmt(lease),
                    None => command.write_arg(b""),
                }
                let used = want.previous.map_or(0, |(_, used)| used.min(MAX_COST));
                command.arg(used).arg(want.lasts.get());
            }
        }
    }
}

fn write_limit(form: &Form, command: &mut Cmd) {
    match form {
        Form::Bucket(form) => {
            command
                .arg(form.count())
                .arg(form.window().get())
                .arg(form.burst())
                .arg(form.to_full().get());
            match form.hold() {
                Hold::UpTo(longest) => command.arg(longest.get()),
                Hold::ForWhatIsBefore => command.arg("-1"),
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
                tidegate_core::Anchor::Clock => "clock",
                tidegate_core::Anchor::FirstRequest => "first_request",
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
