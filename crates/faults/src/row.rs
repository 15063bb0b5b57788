//! A row of the suite: one fault, what is done, and how it ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ground::Ground;

/// The table that a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultGroup {
    /// Faults of Redis and of the network in front of it.
    Redis,
    /// Faults of Tidegate's processes, files and clocks.
    Servers,
    /// Faults while reservations are open.
    Reservations,
    /// Bounded resources.
    Resources,
}

/// One fault.
#[derive(Clone, Copy)]
pub(crate) struct FaultRow {
    /// What it is called on the command line, and its file of results.
    pub(crate) name: &'static str,
    pub(crate) group: FaultGroup,
    /// What happens, for the page.
    pub(crate) title: &'static str,
    /// Whether it is part of the short form.
    pub(crate) is_short: bool,
    pub(crate) run: fn(&Ground) -> anyhow::Result<RowOutcome>,
}

/// Why a row cannot run on this machine.
#[derive(Debug)]
pub(crate) struct RowSkipped(pub(crate) String);

impl fmt::Display for RowSkipped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for RowSkipped {}

/// One statement about a run, with its bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowFact {
    pub(crate) name: String,
    pub(crate) value: String,
    /// What was expected; empty for what is only reported.
    pub(crate) bound: String,
    pub(crate) holds: bool,
    /// Whether a busy machine can make it fail.
    #[serde(skip)]
    pub(crate) is_about_time: bool,
}

/// What one rule did in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleFigures {
    pub(crate) rule: String,
    /// Admitted beyond the limit.
    pub(crate) over: u32,
    pub(crate) bound: u32,
}

/// What a run of the standard load came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowFigures {
    pub(crate) rules: Vec<RuleFigures>,
    pub(crate) answers: usize,
    pub(crate) failed: usize,
    /// Of the answers during the fault, in percent.
    pub(crate) degraded_exact: f64,
    pub(crate) degraded_leased: f64,
    pub(crate) p999_ms: f64,
    pub(crate) p999_exact_ms: f64,
    pub(crate) p999_leased_ms: f64,
    pub(crate) slowest_ms: f64,
    /// The longest time in which the clients themselves did not run.
    pub(crate) stall_ms: f64,
    /// Decisions of more than 50 ms, by the servers' own histograms.
    pub(crate) over_50_ms: f64,
    /// From the end of the fault; none if it did not recover.
    pub(crate) recovery_ms: Option<f64>,
}

/// What a row came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowOutcome {
    pub(crate) figures: Option<RowFigures>,
    pub(crate) facts: Vec<RowFact>,
}

impl RowOutcome {
    pub(crate) fn holds(&self) -> bool {
        self.facts.iter().all(|fact| fact.holds)
    }

    /// Whether another run may show that only the machine was slow.
    pub(crate) fn fails_only_in_time(&self) -> bool {
        !self.holds()
            && self
                .facts
                .iter()
                .all(|fact| fact.holds || fact.is_about_time)
    }
}

impl RowFact {
    /// A number that must not exceed a bound.
    pub(crate) fn at_most(name: &str, value: f64, bound: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: shown(value, unit),
            bound: format!("at most {}", shown(bound, unit)),
            holds: value <= bound,
            is_about_time: false,
        }
    }

    /// A number that must not be below a bound.
    pub(crate) fn at_least(name: &str, value: f64, bound: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: shown(value, unit),
            bound: format!("at least {}", shown(bound, unit)),
            holds: value >= bound,
            is_about_time: false,
        }
    }

    /// A statement that must be true.
    pub(crate) fn is_true(name: &str, holds: bool) -> Self {
        Self {
            name: name.to_owned(),
            value: if holds { "yes" } else { "no" }.to_owned(),
            bound: "yes".to_owned(),
            holds,
            is_about_time: false,
        }
    }

    /// The same about time.
    pub(crate) fn about_time(self) -> Self {
        Self {
            is_about_time: true,
            ..self
        }
    }

    /// A number that is only reported.
    pub(crate) fn seen(name: &str, value: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: shown(value, unit),
            bound: String::new(),
            holds: true,
            is_about_time: false,
        }
    }
}

/// A number as a reader wants it: whole where it is whole or large, with groups of three digits.
pub(crate) fn shown(value: f64, unit: &str) -> String {
    let text = if value.fract() == 0.0 || value >= 100.0 {
        group_digits(&format!("{value:.0}"))
    } else {
        format!("{value:.1}")
    };
    if unit.is_empty() {
        text
    } else {
        format!("{text} {unit}")
    }
}

fn group_digits(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_their_unit() {
        assert_eq!(shown(0.0, ""), "0");
        assert_eq!(shown(16.25, "ms"), "16.2 ms");
        assert_eq!(shown(1_234_567.8, ""), "1,234,568");
        assert_eq!(shown(123.4, "s"), "123 s");
    }

    #[test]
    fn a_fact_beyond_its_bound_fails_its_row() {
        let mut outcome = RowOutcome::default();
        outcome.facts.push(RowFact::at_most("over", 3.0, 3.0, ""));
        assert!(outcome.holds());
        outcome.facts.push(RowFact::at_most("over", 4.0, 3.0, ""));
        assert!(!outcome.holds() && !outcome.fails_only_in_time());
        outcome.facts[1].is_about_time = true;
        assert!(outcome.fails_only_in_time());
        assert!(!RowFact::at_least("answers", 9.0, 10.0, "").holds);
        assert!(!RowFact::is_true("alive", false).holds);
    }
}
