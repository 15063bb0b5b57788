//! The report as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate::rules::{Mode, Rule, RuleSet};

use super::{LISTED, seconds};
use crate::input::{FileCounts, LineNoteKind, ReadFile};
use crate::run::{CandidateTally, ChangedDecisions, ClientNames, RuleTally, Simulated, left_out};

/// The report as JSON. `top` is how many clients of each rule are listed.
pub fn to_json(simulated: &Simulated, top: Option<usize>) -> Value {
    json!({
        "simulation": 1,
        "complete": simulated.is_complete,
        "took": took(simulated.took),
        "warnings": simulated.warnings,
        "input": input(simulated),
        "total": total(simulated),
        "rules": rules(simulated, top),
        "scale": scale(simulated),
        "against": against(simulated, top),
        "series": series(simulated),
    })
}

fn took(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e3).round() / 1e3
}

pub(super) fn counts(counts: &FileCounts) -> Map<String, Value> {
    let numbers = [
        ("lines", counts.lines),
        ("requests", counts.requests),
        ("malformed", counts.malformed),
        ("ignored", counts.ignored),
        ("refused", counts.refused),
        ("outside", counts.outside),
        ("late", counts.late),
    ];
    numbers
        .into_iter()
        .map(|(name, number)| (name.to_owned(), json!(number)))
        .collect()
}

/// What was read.
pub(crate) fn input(simulated: &Simulated) -> Value {
    let read = &simulated.input;
    input_of(&read.files, read.span, read.resolution)
}

/// The same for files of any run.
pub(crate) fn input_of(files: &[ReadFile], span: Option<(u64, u64)>, resolution: u64) -> Value {
    let mut sum = FileCounts::default();
    for file in files {
        let one = file.counts();
        sum.lines += one.lines;
        sum.requests += one.requests;
        sum.malformed += one.malformed;
        sum.ignored += one.ignored;
        sum.refused += one.refused;
        sum.outside += one.outside;
        sum.late += one.late;
    }
    let listed = files.iter().map(|file| {
        let mut object = Map::new();
        object.insert("file".to_owned(), json!(file.name));
        object.insert("format".to_owned(), json!(file.format.name()));
        object.extend(counts(file.counts()));
        Value::Object(object)
    });
    let mut object = counts(&sum);
    object.insert(
        "from".to_owned(),
        span.map_or(Value::Null, |(first, _)| seconds(first)),
    );
    object.insert(
        "to".to_owned(),
        span.map_or(Value::Null, |(_, last)| seconds(last)),
    );
    object.insert(
        "resolution".to_owned(),
        match resolution {
            1_000_000 => json!(1),
            1_000 => json!(0.001),
            _ => json!(0.000_001),
        },
    );
    object.insert("files".to_owned(), listed.collect());
    object.insert("problems".to_owned(), problems(files));
    Value::Object(object)
}

/// The first lines with problems, without their texts, which may have secrets.
fn problems(files: &[ReadFile]) -> Value {
    let notes = files
        .iter()
        .flat_map(|file| file.notes().iter().map(move |note| (file, note)));
    let listed = notes.take(LISTED).map(|(file, note)| {
        let kind = match note.kind {
            LineNoteKind::Malformed => "malformed",
            LineNoteKind::Refused => "refused",
            LineNoteKind::Late => "late",
        };
        json!({"file": file.name, "line": note.line, "kind": kind, "reason": note.reason})
    });
    listed.collect()
}

fn total(simulated: &Simulated) -> Value {
    let total = &simulated.total;
    json!({
        "requests": total.requests,
        "allowed": total.allowed,
        "denied": total.denied,
        "delayed": total.delayed,
        "unmatched": total.unmatched,
    })
}

/// The tally of a rule, by its index among all; none if it was left out.
pub(super) fn tally_of(simulated: &Simulated, index: usize) -> Option<&RuleTally> {
    let decided = simulated
        .indexes
        .iter()
        .position(|decided| *decided == index);
    decided.map(|decided| &simulated.tallies.rules[decided])
}

fn rules(simulated: &Simulated, top: Option<usize>) -> Value {
    let empty = RuleTally::default();
    let all = simulated.rules.iter().enumerate();
    let entry = |(index, rule): (usize, &std::sync::Arc<Rule>)| {
        let tally = tally_of(simulated, index).unwrap_or(&empty);
        let names = &simulated.names;
        let without_durations = simulated.input.without_durations.as_deref();
        json!({
            "rule": rule.id(),
            "mode": mode(rule),
            "requests": tally.allowed + tally.denied,
            "allowed": tally.allowed,
            "denied": tally.denied,
            "delayed": tally.delayed,
            "cost": tally.cost,
            "reasons": tally.reasons,
            "enforced": {"allowed": tally.enforced[0], "denied": tally.enforced[1]},
            "missing": tally.missing,
            "clients": tally.client_count(),
            "clients_denied": tally.clients_denied(),
            "exact": tally.is_exact(),
            "longest_streak": streak(rule, tally, names),
            "note": note(rule, without_durations),
            "top": clients(rule, tally, names, top),
            "candidate": candidate(rule, tally, without_durations.is_none()),
        })
    };
    all.map(entry).collect()
}

/// What the candidate of a rule said; null if it has none, or it was left out.
fn candidate(rule: &Rule, tally: &RuleTally, have_durations: bool) -> Value {
    let tried = rule.candidate();
    let Some(tried) = tried.filter(|tried| !left_out(tried, have_durations)) else {
        return Value::Null;
    };
    let counts: &CandidateTally = &tally.candidate;
    json!({
        "limit": tried.to_json()["limit"],
        "requests": counts.allowed + counts.denied,
        "allowed": counts.allowed,
        "denied": counts.denied,
        "clients_denied": counts.clients_denied(),
        "newly_denied": counts.newly_denied,
        "newly_allowed": counts.newly_allowed,
    })
}

pub(super) fn mode(rule: &Rule) -> &'static str {
    match rule.mode() {
        Mode::Shadow => "shadow",
        _ => "enforce",
    }
}

/// What is particular about how a rule was simulated, by a file that does not say how long requests took.
fn note(rule: &Rule, without_durations: Option<&str>) -> Option<String> {
    if let Some(file) = without_durations {
        let subject = if left_out(rule, false) {
            Some("")
        } else {
            let tried = rule.candidate();
            tried
                .filter(|tried| left_out(tried, false))
                .map(|_| "its candidate was ")
        };
        if let Some(subject) = subject {
            return Some(format!(
                "{subject}left out: it counts concurrent requests, and `{file}` does not say how long requests took; `--map duration=FIELD` names them"
            ));
        }
    }
    rule.adaptive()
        .map(|_| "it is adaptive, and stayed at the limit that it begins with".to_owned())
}

fn streak(rule: &Rule, tally: &RuleTally, names: &ClientNames) -> Value {
    let Some(streak) = &tally.streak else {
        return Value::Null;
    };
    json!({
        "key": names.key(rule, &streak.key),
        "denied": streak.denied,
        "from": seconds(streak.from),
        "to": seconds(streak.to),
    })
}

fn clients(rule: &Rule, tally: &RuleTally, names: &ClientNames, top: Option<usize>) -> Value {
    let listed = tally.top(top).into_iter().map(|(key, client)| {
        json!({
            "key": names.key(rule, key),
            "requests": client.requests,
            "allowed": client.requests - client.denied,
            "denied": client.denied,
            "delayed": client.delayed,
            "longest_streak": client.longest_streak,
        })
    });
    listed.collect()
}

fn scale(simulated: &Simulated) -> Value {
    let all: Vec<&std::sync::Arc<Rule>> = simulated.rules.iter().collect();
    let rows = simulated
        .scale
        .iter()
        .enumerate()
        .map(|(factor, (number, tally))| {
            let decided = simulated
                .indexes
                .iter()
                .zip(&simulated.tallies.rules)
                .zip(&tally.rules);
            let rules = decided.map(|((index, of_rule), (allowed, denied))| {
                json!({
                    "rule": all[*index].id(),
                    "allowed": allowed,
                    "denied": denied,
                    "clients_denied": of_rule.clients_denied_by(factor),
                })
            });
            json!({
                "factor": factor_number(number.as_f64()),
                "total": {"allowed": tally.allowed, "denied": tally.denied},
                "rules": rules.collect::<Vec<Value>>(),
            })
        });
    rows.collect()
}

/// A whole factor without decimals.
fn factor_number(factor: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and small"
    )]
    if factor.fract() == 0.0 {
        return json!(factor as u64);
    }
    json!(factor)
}

fn against(simulated: &Simulated, top: Option<usize>) -> Value {
    let Some((source, before, tally, indexes)) = &simulated.against else {
        return Value::Null;
    };
    let names = &simulated.names;
    json!({
        "source": source,
        "total": {"allowed": tally.allowed, "denied": tally.denied},
        "newly_denied": changed(&tally.newly_denied, &simulated.rules, &simulated.indexes, names, top),
        "newly_allowed": changed(&tally.newly_allowed, before, indexes, names, top),
        "rules": compared(simulated, before, &denied_before(&tally.rules_denied, indexes, before.len())),
    })
}

/// What each of the other rules denied, by its index among all of them; none if it was left out.
fn denied_before(denied: &[u64], indexes: &[usize], count: usize) -> Vec<Option<u64>> {
    let mut all = vec![None; count];
    for (index, denied) in indexes.iter().zip(denied) {
        all[*index] = Some(*denied);
    }
    all
}

fn changed(
    changes: &ChangedDecisions,
    rules: &RuleSet,
    indexes: &[usize],
    names: &ClientNames,
    top: Option<usize>,
) -> Value {
    let all: Vec<&std::sync::Arc<Rule>> = rules.iter().collect();
    let listed = changes.top(top).into_iter().map(|(rule, key, requests)| {
        let rule = all[indexes[rule]];
        json!({"rule": rule.id(), "key": names.key(rule, key), "requests": requests})
    });
    json!({
        "requests": changes.requests,
        "clients": changes.client_count(),
        "top": listed.collect::<Vec<Value>>(),
    })
}

/// Each rule of either set, those of the run first.
fn compared(simulated: &Simulated, before: &RuleSet, denied_before: &[Option<u64>]) -> Value {
    let position = |id: &str| before.iter().position(|rule| rule.id() == id);
    let mut rows = Vec::new();
    for (index, rule) in simulated.rules.iter().enumerate() {
        let old = position(rule.id());
        let change = match old.and_then(|old| before.iter().nth(old)) {
            None => "added",
            Some(old) if old.to_json() == rule.to_json() => "same",
            Some(_) => "changed",
        };
        let after = tally_of(simulated, index).map(|tally| tally.denied);
        let was = old.and_then(|old| denied_before[old]);
        rows.push(
            json!({"rule": rule.id(), "change": change, "denied": {"before": was, "after": after}}),
        );
    }
    for (old, rule) in before.iter().enumerate() {
        if simulated.rules.get(rule.id()).is_none() {
            let denied = json!({"before": denied_before[old], "after": null});
            rows.push(json!({"rule": rule.id(), "change": "removed", "denied": denied}));
        }
    }
    Value::Array(rows)
}

fn series(simulated: &Simulated) -> Value {
    let timeline = &simulated.timeline;
    let row = |row: usize| {
        let [allowed, denied] = timeline.row(row);
        json!({"allowed": allowed, "denied": denied})
    };
    let all: Vec<&std::sync::Arc<Rule>> = simulated.rules.iter().collect();
    let rules = simulated
        .indexes
        .iter()
        .enumerate()
        .map(|(position, index)| {
            let mut entry = json!({"rule": all[*index].id()});
            let counts = row(position + 1);
            entry["allowed"] = counts["allowed"].clone();
            entry["denied"] = counts["denied"].clone();
            entry
        });
    json!({
        "from": timeline.from(),
        "step": timeline.step(),
        "total": row(0),
        "rules": rules.collect::<Vec<Value>>(),
    })
}
