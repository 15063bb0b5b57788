//! What an observer sees of reservations of this process: decided when they are made, used when they are settled.

use std::sync::{Arc, Mutex};

use tidegate::gate::{Observed, ObservedRule, Observer, RuleWatch, UseCounter};
use tidegate::rules::{FrontEnd, Rule, Verdict};
use tidegate::{Costs, Gate, MemoryStore};
use tidegate_testkit::{FailingStore, StoreState, block_on};

use super::{request, rules};

/// What is written down, in order.
type Lines = Arc<Mutex<Vec<String>>>;

struct Notebook(Lines);

struct RulePage {
    rule: String,
    lines: Lines,
}

impl Observer for Notebook {
    fn decided(&self, observed: &Observed<'_, '_>) {
        for part in observed.parts() {
            for rule in part.rules() {
                rule.count();
                rule.watch();
            }
        }
    }

    fn reserved(&self, observed: &Observed<'_, '_>) {
        for part in observed.parts() {
            part.rules().for_each(|rule| rule.count_reserved());
        }
    }

    fn settled(&self, costs: &Costs) {
        self.0.lock().unwrap().push(format!("settled {costs:?}"));
    }

    fn watch(&self, rule: &Rule) -> Option<Arc<dyn RuleWatch>> {
        Some(Arc::new(RulePage {
            rule: rule.id().to_owned(),
            lines: Arc::clone(&self.0),
        }))
    }
}

impl RuleWatch for RulePage {
    fn decided(&self, rule: &ObservedRule<'_, '_>) {
        let line = format!("{} decided {}", self.rule, rule.admitted());
        self.lines.lock().unwrap().push(line);
    }

    fn reserved(&self, rule: &ObservedRule<'_, '_>) -> Option<UseCounter> {
        let (id, lines) = (rule.rule().id().to_owned(), Arc::clone(&self.lines));
        Some(Box::new(move |used| {
            let line = format!("{id} used {} for {}", used.charged, used.cost);
            lines.lock().unwrap().push(line);
        }))
    }
}

const RULES: &str = "
- {id: requests, per: [], limit: 50/hour; 40/minute}
- {id: tokens, per: [], unit: tokens, limit: 100/hour, algorithm: fixed_window, cost: 2}
- {id: shadow, per: [], unit: tokens, limit: 80/hour, algorithm: fixed_window, mode: shadow}";

const GIVE_BACK: &str = "
- {id: kept, per: [], unit: tokens, limit: 100/hour, algorithm: fixed_window}
- {id: returned, per: [], unit: tokens, limit: 100/hour, algorithm: fixed_window, unsettled: give_back}";

fn noted(list: &str) -> (Gate, Lines) {
    let lines = Lines::default();
    let observer: Arc<dyn Observer> = Arc::new(Notebook(Arc::clone(&lines)));
    let gate = Gate::new(MemoryStore::new(), rules(list)).with_observer(observer);
    (gate, lines)
}

fn tokens(tokens: u64) -> Costs {
    Costs::by_unit([("tokens", tokens)]).unwrap()
}

/// What was written since the last call, without what was settled in all.
fn taken(lines: &Lines) -> Vec<String> {
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    let is_rule = |line: &String| !line.starts_with("settled");
    assert!(lines.iter().filter(|line| !is_rule(line)).count() <= 1);
    lines.into_iter().filter(is_rule).collect()
}

/// The cost that each rule has admitted.
fn admitted(gate: &Gate) -> Vec<u64> {
    let rules = gate.rules();
    rules.iter().map(|rule| rule.counts().admitted()).collect()
}

#[test]
fn a_reservation_is_counted_when_it_is_made_and_its_cost_once_when_it_is_settled() {
    #[rustfmt::skip]
    let table: [(_, &[&str], _); 3] = [
        (Some(10), &["requests used 1 for 1", "tokens used 20 for 10", "shadow used 10 for 10"], [1, 20, 10]),
        (Some(45), &["requests used 1 for 1", "tokens used 90 for 45", "shadow used 45 for 45"], [1, 90, 45]),
        (None, &["requests used 0 for 0", "tokens used 0 for 0", "shadow used 0 for 0"], [0, 0, 0]),
    ];
    for (actual, expected, cost) in table {
        let (gate, lines) = noted(RULES);
        let guard = block_on(gate.reserve(&request(""), tokens(30))).unwrap();
        assert!(guard.decision().is_allowed());
        assert_eq!(taken(&lines), [""; 0]);
        assert_eq!(admitted(&gate), [0, 0, 0]);
        let rules = gate.rules();
        let counts = rules.get("tokens").unwrap();
        let allowed = counts
            .counts()
            .decisions(FrontEnd::Library, Verdict::Allowed);
        assert_eq!(allowed, 1);
        match actual {
            Some(actual) => block_on(guard.settle(tokens(actual))).map(drop).unwrap(),
            None => block_on(guard.cancel()).map(drop).unwrap(),
        }
        assert_eq!(taken(&lines), expected, "{actual:?}");
        assert_eq!(admitted(&gate), cost, "{actual:?}");
    }
}

#[test]
fn one_that_is_never_settled_is_counted_with_its_estimate() {
    let (gate, lines) = noted(RULES);
    drop(block_on(gate.reserve(&request(""), tokens(30))).unwrap());
    let estimate = [
        "requests used 1 for 1",
        "tokens used 60 for 30",
        "shadow used 30 for 30",
    ];
    assert_eq!(taken(&lines), estimate);
    // A receipt that lost its decision is kept like any other.
    let kept = block_on(gate.reserve_by(
        &gate.rules(),
        FrontEnd::Gateway,
        &request("").with_cost(tokens(10)),
    ));
    drop(kept.unwrap().into_kept());
    assert_eq!(admitted(&gate), [2, 80, 40]);
}

#[test]
fn what_a_rule_gives_back_unsettled_is_not_counted_as_used() {
    let (gate, lines) = noted(GIVE_BACK);
    drop(block_on(gate.reserve(&request(""), tokens(30))).unwrap());
    assert_eq!(
        taken(&lines),
        ["kept used 30 for 30", "returned used 0 for 0"]
    );
    let guard = block_on(gate.reserve(&request(""), tokens(30))).unwrap();
    block_on(guard.settle(tokens(7))).unwrap();
    assert_eq!(
        taken(&lines),
        ["kept used 7 for 7", "returned used 7 for 7"]
    );
    let guard = block_on(gate.reserve(&request(""), tokens(30))).unwrap();
    block_on(guard.cancel()).unwrap();
    assert_eq!(admitted(&gate), [37, 7]);
}

#[test]
fn a_denied_one_is_counted_like_any_other_decision() {
    let (gate, lines) = noted(RULES);
    drop(block_on(gate.reserve(&request(""), tokens(60))).unwrap());
    // It was denied by `tokens`; the rule that only counts charged it.
    assert_eq!(
        taken(&lines),
        [
            "requests decided 0",
            "tokens decided 0",
            "shadow decided 60"
        ]
    );
    assert_eq!(admitted(&gate), [0, 0, 60]);
}

#[test]
fn a_stored_one_is_counted_with_its_estimate_when_it_is_made() {
    let (gate, lines) = noted(RULES);
    let asked = request("").with_cost(tokens(30));
    let minute = std::time::Duration::from_mins(1);
    let made = block_on(gate.reserve_stored(&gate.rules(), FrontEnd::Http, &asked, minute));
    let made = made.unwrap().made.unwrap();
    let estimate = [
        "requests decided 1",
        "tokens decided 60",
        "shadow decided 30",
    ];
    assert_eq!(taken(&lines), estimate);
    block_on(gate.settle_reservation(made.id, Some(&tokens(5)), Some(super::NOW))).unwrap();
    assert_eq!(taken(&lines), [""; 0]);
    assert_eq!(admitted(&gate), [1, 60, 30]);
}

#[test]
fn one_whose_settlement_fails_is_counted_with_its_estimate() {
    let lines = Lines::default();
    let observer: Arc<dyn Observer> = Arc::new(Notebook(Arc::clone(&lines)));
    let store = Arc::new(FailingStore::over(Arc::new(MemoryStore::new())));
    let gate = Gate::new(Arc::clone(&store), rules(RULES)).with_observer(observer);
    let guard = block_on(gate.reserve(&request(""), tokens(30))).unwrap();
    store.switch(StoreState::Unreachable);
    block_on(guard.settle(tokens(10))).unwrap_err();
    assert_eq!(admitted(&gate), [1, 60, 30]);
    assert_eq!(taken(&lines).len(), 3);
}
