//! What the user of a simulation should know about its figures.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate::Micros;
use tidegate::limit::Window;
use tidegate::rules::{Grant, Rule};

use super::simulate::Simulated;
use crate::input::{InputSettings, ReadFile};

/// Windows below this are seen differently if times are whole seconds.
const SHORT: Micros = Micros::from_seconds(10);
/// How many rules are named in one warning.
const NAMED: usize = 5;

pub(super) fn warnings(simulated: &Simulated, input: &InputSettings, evicted: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if simulated.total.requests == 0 {
        warnings.push("the log has no requests".to_owned());
    }
    if !simulated.is_complete {
        warnings.push(
            "reading was stopped before the end; the report is about what was read".to_owned(),
        );
    }
    let sum =
        |count: &dyn Fn(&ReadFile) -> u64| simulated.input.files.iter().map(count).sum::<u64>();
    let ambiguous = sum(&|file| file.ambiguous());
    if ambiguous > 0 {
        warnings.push(format!(
            "{ambiguous} times are in a local hour that occurs twice or not at all; they were read as the first one, or moved forward"
        ));
    }
    let lost = sum(&|file| file.lost());
    if lost > 0 {
        warnings.push(format!(
            "{lost} lines were lost when the recording was made"
        ));
    }
    warnings.extend(sampled(simulated));
    let late = sum(&|file| file.counts().late);
    if late > 0 {
        warnings.push(format!(
            "{late} lines came later than `--reorder` allows; they were decided at their own times, after requests that arrived after them"
        ));
    }
    if evicted > 0 {
        warnings.push(format!(
            "{evicted} counters had to make room for others, and began again"
        ));
    }
    let is_whole =
        simulated.total.requests > 0 && simulated.input.resolution == 1_000_000 && !input.spread;
    let decided = simulated.indexes.iter().zip(&simulated.tallies.rules);
    let mut short = Vec::new();
    for (index, tally) in decided {
        let Some(rule) = simulated.rules.iter().nth(*index) else {
            continue;
        };
        if is_whole && tally.allowed + tally.denied > 0 && has_short_window(rule) {
            short.push(rule.id());
        }
        let asked = tally.escaped + tally.allowed + tally.denied;
        for (name, count) in tally.missing.iter().filter(|(_, count)| **count == asked) {
            warnings.push(format!(
                "rule `{}`: none of its {count} requests has `{name}`; {}",
                rule.id(),
                advice(name)
            ));
        }
        if !tally.is_exact() {
            warnings.push(format!(
                "rule `{}`: there are more than a million pairs of rule and client; the numbers of clients are estimates, and so are the smallest of them",
                rule.id()
            ));
        }
    }
    if let Some(rules) = listed(&short) {
        warnings.push(format!(
            "{rules}: times are whole seconds, so that all requests of a second come at its first instant, which is the strictest reading; `--spread` spreads them"
        ));
    }
    if !simulated.names.is_secret_given {
        let tried = simulated
            .rules
            .iter()
            .filter(|rule| rule.rollout().is_some());
        warnings.extend(tried.map(|rule| format!(
            "rule `{}`: its rollout has as many clients as on a server, but others, since `key_secret` is not known; `--config` or `TIDEGATE_KEY_SECRET` gives it",
            rule.id()
        )));
    }
    for (name, other) in input.map.stand_ins() {
        warnings.push(format!("`{other}` stands in for `{name}`: the figures of rules that count by `{name}` are those of `{other}`"));
    }
    warnings
}

/// What to do if no request has an attribute.
fn advice(name: &str) -> String {
    match name {
        "ip" => "log it, and take it from its field: `--map ip=$remote_addr`".to_owned(),
        "user_id" => "log it, and take it from its field: `--map user_id=$remote_user`; or let another attribute stand in: `--map user_id=@ip`".to_owned(),
        _ => format!(
            "log it and take it from its field with `--map {name}=FIELD`; or log the key's user, and count by that: `--map user_id=$remote_user`; or let another attribute stand in: `--map {name}=@ip`"
        ),
    }
}

/// Rules that count by something else than the clients of which a recording has a share.
fn sampled(simulated: &Simulated) -> Vec<String> {
    let files = simulated.input.files.iter();
    let samples: BTreeSet<&Vec<String>> = files.flat_map(ReadFile::sampled_by).collect();
    let mut warnings = Vec::new();
    for by in samples {
        let counts_otherwise =
            |rule: &&Arc<Rule>| by.is_empty() || by.iter().any(|name| !rule.per().contains(name));
        let rules = simulated.rules.iter().filter(counts_otherwise);
        let ids: Vec<&str> = rules.map(|rule| rule.id()).collect();
        if let Some(rules) = listed(&ids) {
            warnings.push(format!(
                "{rules}: the recording has a share of the clients by `{}`, and what counts by something else sees a part of each key's requests",
                by.join("`, `")
            ));
        }
    }
    warnings
}

/// The rules with these ids, the first of them by name.
fn listed(ids: &[&str]) -> Option<String> {
    let named = |ids: &[&str]| {
        let names: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
        names.join(", ")
    };
    match ids {
        [] => None,
        [id] => Some(format!("rule `{id}`")),
        ids if ids.len() <= NAMED => Some(format!("rules {}", named(ids))),
        ids => Some(format!(
            "rules {} and {} others",
            named(&ids[..NAMED]),
            ids.len() - NAMED
        )),
    }
}

fn has_short_window(rule: &Rule) -> bool {
    let mut limits = rule.grants().iter().flat_map(Grant::limits);
    limits.any(|limit| matches!(limit.window(), Some(Window::Span(span)) if span < SHORT))
}
