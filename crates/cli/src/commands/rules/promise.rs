//! The most that rules grant, in the words of `Limit::promise`.

use tidegate::rules::{Grant, Rule, RuleSet};

use crate::output::TextTable;

/// Between the limits of a rule on one line.
const AND: &str = " | ";

/// The algorithms of a rule's limits, in their order, each once. `None` if it has no limits.
pub(super) fn algorithms(rule: &Rule) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for limit in rule.grants().first()?.limits() {
        let name = limit.algorithm().name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(", "))
}

/// The most that the limits of a rule admit, without its tiers and overrides.
pub(super) fn in_one_line(rule: &Rule) -> String {
    let grant = rule.grants().first();
    grant.map_or_else(String::new, |grant| {
        let promises = promises(rule, grant).into_iter();
        promises
            .map(|row| row[2].clone())
            .collect::<Vec<_>>()
            .join(AND)
    })
}

/// A row for each limit of each rule and of its tiers.
pub(super) fn table(rules: &RuleSet) -> String {
    let mut table = TextTable::new(&["rule", "tier", "limit", "algorithm", "worst case"]);
    for rule in rules.iter() {
        let own = rule.grants().first().map(|grant| ("-".to_owned(), grant));
        for (tier, grant) in own.into_iter().chain(rule.tiers()) {
            for [limit, algorithm, promise] in promises(rule, grant) {
                let tier = tier.clone();
                table.row(vec![rule.id().to_owned(), tier, limit, algorithm, promise]);
            }
        }
    }
    table.render()
}

/// The limits of a grant, each with its algorithm and its promise.
fn promises(rule: &Rule, grant: &Grant) -> Vec<[String; 3]> {
    let limits = rule.highest(grant);
    if limits.is_empty() {
        let text = grant.text();
        return vec![[text.clone(), "-".to_owned(), text]];
    }
    let row = |limit: &tidegate::Limit| {
        let rate = match rule.adaptive() {
            Some(_) => format!("up to {}", limit.rate()),
            None => limit.rate().to_string(),
        };
        let algorithm = limit.algorithm().name().to_owned();
        [rate, algorithm, rule.promise(limit)]
    };
    limits.iter().map(row).collect()
}
