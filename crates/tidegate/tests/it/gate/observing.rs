//! What an observer sees of a decision.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use super::parts::{bringing, descriptors, entry};
use super::{decide, decide_parts, request, rules};
use tidegate::gate::{Charged, Observed, Observer, Part};
use tidegate::rules::{FrontEnd, OnStoreFailure, RuleSet, Verdict};
use tidegate::{Attributes, Gate, Limit, MemoryStore, Store};
use tidegate_core::{Charge, Scope};
use tidegate_testkit::{FailingStore, StoreState, block_on};

/// What a rule said to a part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    rule: String,
    verdict: Verdict,
    admitted: u64,
    key: Option<String>,
    /// `delayed`, `degraded`, `shadow`, `brought`.
    marks: Vec<&'static str>,
}

/// Writes down what it sees, and counts it. Its clock always shows 7.
#[derive(Default)]
struct Notes {
    seen: Mutex<Vec<Seen>>,
    values: Mutex<Vec<String>>,
    calls: Mutex<Vec<(u64, FrontEnd)>>,
    charged: Mutex<Vec<(u64, u64, bool)>>,
}

impl Observer for Notes {
    fn begin(&self) -> u64 {
        7
    }

    fn decided(&self, observed: &Observed<'_, '_>) {
        let call = (observed.began, observed.front_end);
        self.calls.lock().unwrap().push(call);
        for rule in observed
            .parts()
            .flat_map(|part| part.rules().collect::<Vec<_>>())
        {
            rule.count();
            let marks = [
                (rule.is_delayed(), "delayed"),
                (rule.is_degraded(), "degraded"),
                (rule.is_shadow(), "shadow"),
                (rule.is_ad_hoc(), "brought"),
            ];
            let marks = marks.into_iter().filter(|(is_it, _)| *is_it);
            self.seen.lock().unwrap().push(Seen {
                rule: rule.rule().id().to_owned(),
                verdict: rule.verdict(),
                admitted: rule.admitted(),
                key: rule.key().map(Cow::into_owned),
                marks: marks.map(|(_, mark)| mark).collect(),
            });
            let values = rule.key_values().into_iter();
            let values = values.map(|(name, value)| format!("{name}={value}"));
            self.values.lock().unwrap().extend(values);
        }
    }

    fn charged(&self, began: u64, charge: &Charge<'_>, charged: &Charged) {
        let seen = (began, charge.cost, charged.outcome.allowed);
        self.charged.lock().unwrap().push(seen);
    }
}

impl Notes {
    /// What was seen since the last call.
    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn observed(store: impl Into<Store>, rules: RuleSet) -> (Gate, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let observer: Arc<dyn Observer> = notes.clone();
    (Gate::new(store, rules).with_observer(observer), notes)
}

fn no_rules() -> RuleSet {
    RuleSet::from_yaml("rules: []").unwrap()
}

fn seen(rule: &str, verdict: Verdict, admitted: u64, key: &str, marks: &[&'static str]) -> Seen {
    Seen {
        rule: rule.to_owned(),
        verdict,
        admitted,
        key: Some(key.to_owned()),
        marks: marks.to_vec(),
    }
}

#[test]
fn it_sees_what_each_rule_said_and_charged() {
    let list = "
- {id: user, per: [user_id], limit: 5/minute}
- {id: counted, mode: shadow, per: [], limit: 4/minute}
- {id: paced, match: {path: /p}, per: [], limit: 2/minute, max_delay: 5m}";
    let (gate, notes) = observed(MemoryStore::new(), rules(list));
    let asked = || request("user_id=u path=/p").with_cost(2);
    decide(&gate, &asked());
    assert_eq!(
        notes.take(),
        [
            seen("user", Verdict::Allowed, 2, "u", &[]),
            seen("counted", Verdict::ShadowAllowed, 2, "", &["shadow"]),
            seen("paced", Verdict::Allowed, 2, "", &[]),
        ]
    );
    decide(&gate, &asked());
    assert_eq!(
        notes.take(),
        [
            seen("user", Verdict::Allowed, 2, "u", &[]),
            seen("counted", Verdict::ShadowAllowed, 2, "", &["shadow"]),
            seen("paced", Verdict::Allowed, 2, "", &["delayed"]),
        ]
    );
    decide(&gate, &request("user_id=u").with_cost(2));
    assert_eq!(
        notes.take(),
        [
            seen("user", Verdict::Denied, 0, "u", &[]),
            seen("counted", Verdict::ShadowDenied, 0, "", &["shadow"]),
        ]
    );
    assert_eq!(*notes.values.lock().unwrap(), ["user_id=u"; 3]);
    assert_eq!(*notes.calls.lock().unwrap(), [(7, FrontEnd::Library); 3]);

    let rules = gate.rules();
    let counts = |rule: &str, verdict| {
        let counts = rules.get(rule).unwrap().counts();
        let decisions = counts.decisions(FrontEnd::Library, verdict);
        (decisions, counts.admitted(), counts.delayed())
    };
    assert_eq!(counts("user", Verdict::Allowed), (2, 4, 0));
    assert_eq!(counts("user", Verdict::Denied), (1, 4, 0));
    assert_eq!(counts("counted", Verdict::ShadowDenied), (1, 4, 0));
    assert_eq!(counts("paced", Verdict::Allowed), (2, 4, 1));

    // What another rule denies is not delayed.
    decide(&gate, &request("user_id=u path=/p").with_cost(2));
    assert_eq!(
        notes.take(),
        [
            seen("user", Verdict::Denied, 0, "u", &[]),
            seen("counted", Verdict::ShadowDenied, 0, "", &["shadow"]),
            seen("paced", Verdict::Allowed, 0, "", &[]),
        ]
    );
    assert_eq!(counts("paced", Verdict::Allowed), (3, 4, 1));
    // It was allowed by the rule, and did not pass.
    let passed = |rule: &str| rules.get(rule).unwrap().counts().passed();
    assert_eq!(["user", "counted", "paced"].map(passed), [2, 0, 2]);
}

#[test]
fn it_sees_whom_a_rule_means_even_if_nothing_is_counted() {
    let list = "
- {id: blocking, per: [user_id], limit: 3/minute, overrides: {bad: blocked}}
- {id: strict, match: {path: /s}, per: [team], missing: deny, limit: 3/minute}";
    let (gate, notes) = observed(MemoryStore::new(), rules(list));
    decide(&gate, &request("user_id=bad path=/s"));
    let unnamed = Seen {
        key: None,
        ..seen("strict", Verdict::Denied, 0, "", &[])
    };
    let blocked = seen("blocking", Verdict::Denied, 0, "bad", &[]);
    assert_eq!(notes.take(), [blocked, unnamed]);
}

#[test]
fn it_sees_that_a_rule_goes_on_without_the_store() {
    let list = "- {id: r, per: [], limit: 3/minute}";
    let store = Arc::new(FailingStore::default());
    let (gate, notes) = observed(Arc::clone(&store), rules(list));
    decide(&gate, &request("z=1"));
    store.switch(StoreState::Unreachable);
    decide(&gate, &request("z=1"));
    let marks: Vec<_> = notes.take().into_iter().map(|seen| seen.marks).collect();
    assert_eq!(marks, [vec![], vec!["degraded"]]);
}

#[test]
fn it_sees_each_part_with_its_own_client_and_cost() {
    let list =
        "- {id: user, per: [user], limit: 3/minute}\n- {id: team, per: [team], limit: 3/minute}";
    let (gate, notes) = observed(MemoryStore::new(), rules(list));
    let part = |text, cost| Part::new(request(text).with_cost(cost));
    let parts = [
        part("user=a team=t", 1),
        part("user=b", 2),
        part("team=t", 0),
    ];
    let decisions = decide_parts(&gate, &parts);
    assert!(decisions.is_allowed() && !decisions.is_failed());
    assert_eq!(
        notes.take(),
        [
            seen("user", Verdict::Allowed, 1, "a", &[]),
            seen("team", Verdict::Allowed, 1, "t", &[]),
            seen("user", Verdict::Allowed, 2, "b", &[]),
            // It only asks.
            seen("team", Verdict::Allowed, 0, "t", &[]),
        ]
    );
    assert_eq!(*notes.calls.lock().unwrap(), [(7, FrontEnd::Grpc)]);

    // By rules, all parts are charged or none is.
    decide_parts(&gate, &[part("user=a", 1), part("user=b", 2)]);
    assert_eq!(
        notes.take(),
        [
            seen("user", Verdict::Allowed, 0, "a", &[]),
            seen("user", Verdict::Denied, 0, "b", &[]),
        ]
    );
}

#[test]
fn it_sees_that_descriptors_are_charged_each_on_its_own() {
    let text = "
domain: web
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
";
    let (gate, notes) = observed(MemoryStore::new(), descriptors(text));
    decide_parts(&gate, &[entry("user=a")]);
    decide_parts(&gate, &[entry("user=a"), entry("user=b")]);
    let admitted: Vec<_> = notes
        .take()
        .into_iter()
        .map(|seen| (seen.verdict, seen.admitted))
        .collect();
    assert_eq!(
        admitted,
        [
            (Verdict::Allowed, 1),
            (Verdict::Denied, 0),
            (Verdict::Allowed, 1),
        ]
    );
}

#[test]
fn it_sees_which_limits_came_with_the_request() {
    let list = "- {id: team, per: [team], limit: 3/minute}";
    let (gate, notes) = observed(MemoryStore::new(), rules(list));
    let parts = [
        bringing("domain=web user=a", "1/minute"),
        Part::new(request("team=t")),
    ];
    decide_parts(&gate, &parts);
    let marks: Vec<_> = notes.take().into_iter().map(|seen| seen.marks).collect();
    assert_eq!(marks, [vec!["brought"], vec![]]);
}

#[test]
fn it_sees_charges_without_rules() {
    let (gate, notes) = observed(MemoryStore::new(), no_rules());
    let (scope, limit) = (Scope::new("own"), "1/minute".parse::<Limit>().unwrap());
    let charge = Charge {
        scope: &scope,
        limit: &limit,
        key: "k",
        cost: 1,
    };
    for _ in 0..2 {
        block_on(gate.charge(&charge, OnStoreFailure::Deny));
    }
    assert_eq!(
        *notes.charged.lock().unwrap(),
        [(7, 1, true), (7, 1, false)]
    );
}

/// Keeps what it got back.
struct Began(Mutex<Vec<u64>>);

impl Observer for Began {
    fn decided(&self, observed: &Observed<'_, '_>) {
        self.0.lock().unwrap().push(observed.began);
    }
}

#[test]
fn one_without_a_clock_gets_zero() {
    let began = Arc::new(Began(Mutex::default()));
    let observer: Arc<dyn Observer> = began.clone();
    let gate = Gate::new(MemoryStore::new(), no_rules()).with_observer(observer);
    decide(&gate, &Attributes::new());
    assert_eq!(*began.0.lock().unwrap(), [0]);
}
