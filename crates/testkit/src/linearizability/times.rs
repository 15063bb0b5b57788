//! Times at which calls without an answer may have taken effect, as answers to other calls reveal them.
//!
//! A bucket forgets when it was charged. A log, a window that starts with its first request and a permit do not: a
//! later `retry_after` or `reset_at` counts from that very microsecond. And which window or slot a charge counts
//! in depends on which side of a boundary it was decided.

use std::collections::BTreeSet;

use tidegate_core::algorithm::Form;
use tidegate_core::{Anchor, Micros, Retry, Timestamp, Window};

use super::search::{DecidedCall, OpenCall};

/// Candidates, in the order of time.
pub(super) struct RevealedTimes(BTreeSet<Timestamp>);

impl RevealedTimes {
    pub(super) fn new(forms: &[Form], decided: &[DecidedCall<'_>], open: &[OpenCall<'_>]) -> Self {
        let mut times = BTreeSet::new();
        let begins = open.iter().map(|call| call.began);
        let first = begins.chain(decided.first().map(|call| call.at)).min();
        let (Some(first), Some(last)) = (first, decided.last().map(|call| call.at)) else {
            return Self(times);
        };
        for call in decided {
            for (charge, outcome) in call.charges.iter().zip(call.outcomes) {
                let Some(memory) = remembers(&forms[charge.limit]) else {
                    continue;
                };
                times.insert(outcome.reset_at - memory);
                if let Retry::After(wait) = outcome.retry {
                    times.insert(call.at + wait - memory);
                }
            }
        }
        // Whether a charge still counts at the time of another call depends on which side of these it was decided.
        for memory in forms.iter().filter_map(remembers) {
            let ends = decided.iter().map(|call| call.at - memory);
            times.extend(ends.flat_map(|end| [end, end + Micros::new(1)]));
        }
        for boundary in forms.iter().filter_map(boundaries) {
            let step = boundary.get().max(1);
            let count = (last.since(first).get() / step).min(1_000);
            let start = first.as_micros() / step * step;
            times.extend((0..=count + 1).map(|part| Timestamp::from_micros(start + part * step)));
        }
        Self(times)
    }

    /// Those from one time to another, both included.
    pub(super) fn between(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Timestamp> {
        let is_span = from <= until;
        let times = is_span.then(|| self.0.range(from..=until));
        times.into_iter().flatten().copied()
    }
}

/// How long after a charge it ends, where that depends on the very time of the charge.
fn remembers(form: &Form) -> Option<Micros> {
    match form {
        Form::SlidingLog(log) => Some(log.window()),
        Form::Concurrency(limit) => Some(limit.lease_ttl()),
        Form::FixedWindow(window) if window.anchor() == Anchor::FirstRequest => {
            span(window.window())
        }
        _ => None,
    }
}

/// How far apart the times are at which a charge begins to count elsewhere.
fn boundaries(form: &Form) -> Option<Micros> {
    match form {
        Form::FixedWindow(window) => span(window.window()),
        Form::SlidingCounter(counter) => Some(counter.window()),
        Form::SlidingSlots(slots) => Some(slots.slot()),
        _ => None,
    }
}

fn span(window: Window) -> Option<Micros> {
    match window {
        Window::Span(span) => Some(span),
        _ => None,
    }
}
