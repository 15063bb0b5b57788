//! Runs rows one after the other, prints a line for each, and stores what the long form measured. A row that fails does not keep
//! the others from running.

use std::time::Instant;

use anyhow::ensure;
use tidegate_testkit::now;

use crate::ground::Ground;
use crate::machine::MachineFacts;
use crate::report::{self, problems};
use crate::results::{RowEnd, RowResult, commit};
use crate::row::{FaultRow, RowFigures, RowOutcome, RowSkipped, shown};
use crate::rows;

/// Rows to run.
pub(crate) struct Suite {
    ground: Ground,
    rows: Vec<FaultRow>,
    machine: MachineFacts,
    commit: String,
    start: Instant,
}

impl Suite {
    /// The rows whose name contains one of these, or all; in the short form, those that belong to it.
    pub(crate) fn new(ground: Ground, names: &[String]) -> anyhow::Result<Self> {
        let mut chosen = rows::all();
        let is_named = |row: &FaultRow| names.iter().any(|name| row.name.contains(name.as_str()));
        chosen.retain(|row| {
            if names.is_empty() {
                row.is_short || !ground.is_short
            } else {
                is_named(row)
            }
        });
        ensure!(
            !chosen.is_empty(),
            "no row is named like that; `list` prints all"
        );
        let machine = MachineFacts::of(&ground.program);
        Ok(Self {
            ground,
            rows: chosen,
            machine,
            commit: commit(),
            start: now(),
        })
    }

    /// Runs them, and returns whether none of them failed.
    pub(crate) fn run(self) -> anyhow::Result<bool> {
        let mut failed = Vec::new();
        let count = self.rows.len();
        for (index, row) in self.rows.iter().enumerate() {
            println!("[{}/{count}] {}: {}", index + 1, row.name, row.title);
            let mut result = self.run_row(*row);
            print_result(&result);
            for _ in 1..self.ground.attempts() {
                if !result.outcome.fails_only_in_time() {
                    break;
                }
                println!("  again: the machine may have been busy");
                result = self.run_row(*row);
                print_result(&result);
            }
            if result.end == RowEnd::Failed {
                failed.push(row.name);
            }
            if !self.ground.is_short {
                result.store()?;
                report::write(false)?;
            }
        }
        let took = (now() - self.start).as_secs();
        println!(
            "{count} rows in {took} s, {} failed: {}",
            failed.len(),
            failed.join(", ")
        );
        Ok(failed.is_empty())
    }

    fn run_row(&self, row: FaultRow) -> RowResult {
        let begin = now();
        let ground = self.ground.clone();
        // A thread of its own: the processes of the row end with it, and a panic ends only the row.
        let thread = std::thread::spawn(move || (row.run)(&ground));
        let (end, reason, outcome) = match thread.join() {
            Ok(Ok(outcome)) if outcome.holds() => (RowEnd::Passed, None, outcome),
            Ok(Ok(outcome)) => (RowEnd::Failed, None, outcome),
            Ok(Err(error)) => {
                let end = match error.downcast_ref::<RowSkipped>() {
                    Some(_) => RowEnd::Skipped,
                    None => RowEnd::Failed,
                };
                (end, Some(format!("{error:#}")), RowOutcome::default())
            }
            Err(panic) => (
                RowEnd::Failed,
                Some(message(panic.as_ref())),
                RowOutcome::default(),
            ),
        };
        RowResult {
            name: row.name.to_owned(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            commit: self.commit.clone(),
            machine: self.machine.clone(),
            end,
            reason,
            seconds: (now() - begin).as_secs_f64().round(),
            outcome,
        }
    }
}

/// What a panic said.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

fn print_result(result: &RowResult) {
    if let Some(figures) = &result.outcome.figures {
        println!("    {}", line(figures));
    }
    for fact in &result.outcome.facts {
        let mark = if fact.holds { " " } else { "!" };
        let bound = match fact.bound.as_str() {
            "" => "only reported",
            bound => bound,
        };
        println!("  {mark} {}: {} ({bound})", fact.name, fact.value);
    }
    let took = result.seconds;
    match result.end {
        RowEnd::Passed => println!("  = ok, {took} s"),
        RowEnd::Skipped => println!("  = skipped: {}", problems(result)),
        RowEnd::Failed => println!("  = FAILED: {}", problems(result)),
    }
}

/// The figures of a row in one line.
fn line(figures: &RowFigures) -> String {
    let over = figures.rules.iter();
    let over: Vec<String> = over
        .map(|rule| format!("{}/{}", rule.over, rule.bound))
        .collect();
    format!(
        "over/bound {} | degraded {} % {} % | p99.9 {} (exact {} leased {}) slowest {} (client stalled {}) | {} decisions over 50 ms by the servers | recovery {} | {} answers, {} failed",
        over.join(" "),
        figures.degraded_exact,
        figures.degraded_leased,
        shown(figures.p999_ms, "ms"),
        shown(figures.p999_exact_ms, "ms"),
        shown(figures.p999_leased_ms, "ms"),
        shown(figures.slowest_ms, "ms"),
        shown(figures.stall_ms, "ms"),
        figures.over_50_ms,
        figures
            .recovery_ms
            .map_or("none".to_owned(), |time| shown(time, "ms")),
        figures.answers,
        figures.failed,
    )
}
