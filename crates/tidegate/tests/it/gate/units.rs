//! Rules that count other units than requests, and requests with costs by unit.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use tidegate::rules::OnStoreFailure;
use tidegate::{Costs, Reason};
use tidegate_testkit::{FailingStore, block_on};

use super::{FailingGate, answered, decide, gate, left, request, rules};

const UNITS: [&str; 4] = ["requests", "tokens", "money", "bytes"];

fn by_unit(costs: &[(&str, u64)]) -> Costs {
    Costs::by_unit(costs.iter().copied()).unwrap()
}

#[test]
fn a_rule_is_charged_in_its_own_unit() {
    let list = "
- {id: requests, per: [], limit: 100/hour}
- {id: tokens, per: [], unit: tokens, limit: 1000/hour}
- {id: triple, per: [], unit: tokens, limit: 1000/hour, cost: 3}
- {id: money, per: [], unit: money, limit: 50/hour}
- {id: pairs, per: [], limit: 100/hour, cost: 2}";
    #[rustfmt::skip]
    let table = [
        (Costs::from(7),                                     [93, 993, 979, 43, 86]),
        (by_unit(&[("tokens", 60)]),                         [99, 940, 820, 50, 98]),
        (by_unit(&[("tokens", 60), ("money", 4)]),           [99, 940, 820, 46, 98]),
        (by_unit(&[("requests", 0), ("tokens", 1)]),         [100, 999, 997, 50, 100]),
        (by_unit(&[("requests", 5)]),                        [95, 1000, 1000, 50, 90]),
        (by_unit(&[("unknown", 5)]),                         [99, 1000, 1000, 50, 98]),
        (by_unit(&[]),                                       [99, 1000, 1000, 50, 98]),
    ];
    for (costs, expected) in table {
        let gate = gate(list);
        let decision = decide(&gate, &request("").with_cost(costs.clone()));
        assert!(decision.is_allowed(), "{costs:?}");
        assert_eq!(answered(&decision).len(), 5, "all are in the answer");
        assert_eq!(left(&gate, ""), expected, "{costs:?}");
    }
}

#[test]
fn a_rule_that_is_charged_nothing_speaks_only_if_it_denies() {
    let full = gate(
        "
- {id: requests, per: [], limit: 100/hour}
- {id: tokens, per: [], unit: tokens, limit: 10/hour}",
    );
    let tokens = request("").with_cost(by_unit(&[("tokens", 10), ("requests", 0)]));
    assert_eq!(decide(&full, &tokens).rule(), Some("tokens"));
    let decision = decide(&full, &request("").with_cost(by_unit(&[])));
    assert_eq!(
        decision.rule(),
        Some("requests"),
        "although tokens has less left"
    );
    let nothing = decide(&full, &request("").with_cost(by_unit(&[("requests", 0)])));
    assert!(nothing.is_allowed() && nothing.rule().is_none());
    assert_eq!(nothing.limits().count(), 2);
    let settings = tidegate::headers::HeaderSettings::default();
    let names: Vec<&str> = nothing.headers(&settings).map(|(name, _)| name).collect();
    assert_eq!(names, ["ratelimit-policy", "ratelimit"]);

    for (rule, reason) in [
        (
            "{id: r, per: [], unit: tokens, limit: blocked}",
            Reason::Blocked,
        ),
        (
            "{id: r, per: [user_id], missing: deny, unit: tokens, limit: 1/s}",
            Reason::MissingAttribute,
        ),
    ] {
        let gate = gate(&format!("- {rule}\n- {{id: all, per: [], limit: 1/hour}}"));
        let decision = decide(&gate, &request("").with_cost(by_unit(&[("money", 1)])));
        assert_eq!(decision.rule(), Some("r"));
        assert_eq!(decision.reason(), Some(reason));
        assert_eq!(
            left(&gate, "user_id=u").last(),
            Some(&1),
            "nothing is charged"
        );
    }
}

#[test]
fn a_rule_that_is_charged_nothing_does_not_deny_without_the_store() {
    let list = "
- {id: requests, per: [], limit: 100/hour, on_store_failure: allow}
- {id: tokens, per: [], unit: tokens, limit: 10/hour, on_store_failure: deny}";
    let gate = FailingGate::new(FailingStore::unreachable(), rules(list));
    let asked = |costs| block_on(gate.decide(&request("").with_cost(costs)));
    assert!(asked(by_unit(&[])).is_allowed());
    let denied = asked(by_unit(&[("tokens", 1)]));
    assert_eq!(denied.reason(), Some(Reason::StoreUnavailable));
    let rule = denied.headline().unwrap().rule;
    assert_eq!(rule.on_store_failure(), OnStoreFailure::Deny);
}

#[test]
fn the_policy_of_a_unit_names_it() {
    let gate = gate(
        "- {id: tokens, per: [], unit: tokens, limit: 10/hour}\n- {id: r, per: [], limit: 5/hour}",
    );
    let decision = decide(&gate, &request("").with_cost(by_unit(&[("tokens", 1)])));
    let settings = tidegate::headers::HeaderSettings::default();
    let mut headers = decision.headers(&settings);
    let (_, policy) = headers
        .find(|(name, _)| *name == "ratelimit-policy")
        .unwrap();
    assert_eq!(
        policy,
        r#""tokens";q=10;qu="tokens";w=3600, "r";q=5;w=3600"#
    );
    let rule = decision.limits().next().unwrap().rule;
    let promise = rule.promise(rule.grants()[0].limits().first().unwrap());
    assert!(promise.starts_with("tokens: at most "), "{promise}");
}

/// A rule by hand: its unit, its own cost, its limit, whether it only counts.
type WrittenRule = (&'static str, u64, u64, bool);

fn rule() -> impl Strategy<Value = WrittenRule> {
    (
        select(&UNITS[..]),
        1..4_u64,
        1..60_u64,
        prop::bool::weighted(0.2),
    )
}

fn costs() -> impl Strategy<Value = Option<BTreeMap<&'static str, u64>>> {
    let by_unit = prop::collection::btree_map(select(&UNITS[..]), 0..20_u64, 0..4);
    prop::option::weighted(0.9, by_unit)
}

proptest! {
    #[test]
    fn each_rule_counts_its_own_unit_and_all_or_none_are_charged(
        written in prop::collection::vec(rule(), 1..6),
        requests in prop::collection::vec(costs(), 1..20),
    ) {
        let line = |(index, (unit, cost, limit, is_shadow)): (usize, &WrittenRule)| {
            let mode = if *is_shadow { "shadow" } else { "enforce" };
            format!("- {{id: r{index}, per: [], unit: {unit}, cost: {cost}, limit: {limit}/hour, algorithm: fixed_window, mode: {mode}}}")
        };
        let lines: Vec<String> = written.iter().enumerate().map(line).collect();
        let text = lines.join("\n");
        let gate = gate(&text);
        let mut used = vec![0; written.len()];
        for costs in requests {
            let asked = match &costs {
                Some(costs) => Costs::by_unit(costs.iter().map(|(unit, cost)| (*unit, *cost))).unwrap(),
                None => Costs::from(2),
            };
            let charge = |(unit, cost, _, _): &WrittenRule| cost * match &costs {
                Some(costs) => costs.get(unit).copied().unwrap_or(u64::from(*unit == "requests")),
                None => 2,
            };
            let fits = |index: usize| charge(&written[index]) == 0 || used[index] + charge(&written[index]) <= written[index].2;
            let is_shadow = |index: usize| written[index].3;
            let all = 0..written.len();
            let is_allowed = all.clone().all(|index| is_shadow(index) || fits(index));
            let decision = decide(&gate, &request("").with_cost(asked));
            prop_assert_eq!(decision.is_allowed(), is_allowed);
            for (index, limit) in decision.limits().enumerate() {
                prop_assert_eq!(limit.outcome.allowed, fits(index), "{}", index);
            }
            // The rule that speaks is charged, and one speaks if any enforced rule is.
            let is_charged = |index: &usize| !is_shadow(*index) && (costs.is_none() || charge(&written[*index]) > 0);
            prop_assert_eq!(decision.rule().is_some(), all.clone().any(|index| is_charged(&index)));
            if let Some(rule) = decision.rule() {
                prop_assert!(is_charged(&rule[1..].parse().unwrap()), "{}", rule);
            }
            let charged: Vec<usize> = all.filter(|index| if is_shadow(*index) { fits(*index) } else { is_allowed }).collect();
            for index in charged {
                used[index] += charge(&written[index]);
            }
        }
        let expected: Vec<u64> = written.iter().zip(used).map(|((_, _, limit, _), used)| limit - used).collect();
        prop_assert_eq!(left(&gate, ""), expected);
    }
}
