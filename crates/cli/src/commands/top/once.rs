//! Prints the activity a single time, as plain text.

use std::fmt::Write as _;

use super::Choice as _;
use super::activity::{ShownKeys, rate_text};
use super::draw::ago;
use super::feed::{TopAnswer, TopQuestion};
use crate::output::{TextTable, counted, grouped, plain};

/// The rules and their rates, and the top keys of one of them.
pub(super) fn rendered(server: &str, wanted: &TopQuestion, fetched: &TopAnswer) -> String {
    let activity = &fetched.activity;
    let rate = |counts: &[u64]| rate_text(activity.rate(counts));
    let total = &activity.total;
    let mut text = format!(
        "{server}, last {}: {} allowed/s, {} denied/s, {}\n\n",
        wanted.window.name(),
        rate(&total.allowed),
        rate(&total.denied),
        counted(activity.ages.len().max(1), "instance"),
    );
    let mut headings = vec![
        "rule",
        "allowed/s",
        "denied/s",
        "shadow/s",
        "delayed/s",
        "degraded/s",
        "cost/s",
        "unit",
    ];
    let has_candidates = activity.has_candidates();
    headings.extend(has_candidates.then_some("candidate/s"));
    let mut table = TextTable::new(&headings);
    for rule in activity.sorted(wanted.sort) {
        let outcomes = &rule.outcomes;
        let mut row = vec![
            rule.rule.clone(),
            rate(&outcomes.allowed),
            rate(&outcomes.denied),
            rate(&outcomes.shadow_denied),
            rate(&outcomes.delayed),
            rate(&outcomes.degraded),
            rate(&outcomes.cost),
            rule.unit.clone().unwrap_or_default(),
        ];
        row.extend(has_candidates.then(|| rate(&outcomes.candidate_denied)));
        table.row(row);
    }
    // Writing to a String cannot fail.
    text.push_str(&table.render());
    if activity.left_out > 0 {
        let _ = writeln!(text, "and {} more rules", activity.left_out);
    }
    match (&fetched.rule, &fetched.keys) {
        (Some(rule), Some(keys)) if !keys.keys.is_empty() => {
            let (sort, window) = (wanted.keys.name(), wanted.window.of_keys());
            let rule = plain(rule);
            let about = keys.about();
            let _ = writeln!(text, "\ntop keys of {rule} by {sort}, last {window}{about}");
            text.push_str(&keys_table(keys, activity.until));
        }
        (Some(rule), None) => {
            let _ = writeln!(text, "\nthere is no rule `{}`", plain(rule));
        }
        _ => {}
    }
    text
}

fn keys_table(keys: &ShownKeys, now: f64) -> String {
    let mut table = TextTable::new(&["key", "denied", "used", "at least", "at most", "seen"]);
    for key in &keys.keys {
        let mut cells = vec![key.text.clone()];
        cells.extend([key.denied, key.used, key.lower, key.upper].map(grouped));
        cells.push(key.last_seen.map_or_else(String::new, |at| ago(now - at)));
        table.row(cells);
    }
    table.render()
}
