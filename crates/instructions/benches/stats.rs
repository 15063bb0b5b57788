//! The stats by the names of envoyproxy/ratelimit: what one call of Envoy adds to the cost of its decision.

#![expect(clippy::unwrap_used, reason = "a benchmark may")]

use std::hint::black_box;

use tidegate::Attributes;
use tidegate::rules::{RuleSet, RuleSettings, Source};
use tidegate_instructions::{count, run};
use tidegate_ratelimit::stats::{
    CountedMethod, LimitHits, ObserverForm, RateLimitStats, StatForms,
};

/// How many calls one benchmark counts.
const TIMES: usize = 1_000;

/// As Envoy Gateway names them.
const RULES: &str = "
domain: infra/gw/http
descriptors:
  - key: httproute/infra/web/rule/0/match/0/*
    value: httproute/infra/web/rule/0/match/0/*
    descriptors:
      - {key: rule-0-match-0, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
";
const ROUTE: &str = "httproute/infra/web/rule/0/match/0/*";

struct CountedCalls {
    rules: RuleSet,
    /// The index of the rule that is charged.
    rule: usize,
    key: &'static str,
    stats: RateLimitStats,
}

fn calls(rule: usize, key: &'static str) -> CountedCalls {
    let rules = RuleSet::read(&Source::new("rules", RULES), &RuleSettings::default()).unwrap();
    let bounds = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ];
    let form = ObserverForm::Histogram(bounds.to_vec());
    let stats = RateLimitStats::new(&StatForms {
        names: 100,
        observers: vec![(CountedMethod::ShouldRateLimit.timer(), form, 1e6)],
        ..StatForms::default()
    });
    stats.rules_changed(&rules);
    CountedCalls {
        rules,
        rule,
        key,
        stats,
    }
}

/// Counts a descriptor of each call.
fn descriptors(calls: CountedCalls) -> CountedCalls {
    let mut attributes = Attributes::new();
    attributes.push("domain", "infra/gw/http");
    attributes.push(ROUTE, ROUTE);
    attributes.push(calls.key, "203.0.113.7");
    let rule = calls.rules.iter().nth(calls.rule).unwrap();
    for _ in 0..TIMES {
        let path = calls.rules.stat_path(black_box(rule), &attributes).unwrap();
        let hits = LimitHits {
            limit: 3,
            hits: 1,
            ..LimitHits::default()
        };
        black_box(calls.stats.add(&path, black_box(&hits)));
    }
    drop(attributes);
    calls
}

/// Times each call, without reading the clock.
fn times(calls: CountedCalls) -> CountedCalls {
    for _ in 0..TIMES {
        let micros = black_box(700);
        calls
            .stats
            .add_call(CountedMethod::ShouldRateLimit, micros, || 0);
    }
    calls
}

fn main() {
    run(&[
        ("count.fixed_name", || {
            count(calls(0, "rule-0-match-0"), descriptors);
        }),
        ("count.named_by_value", || {
            count(calls(1, "user"), descriptors);
        }),
        ("time", || count(calls(0, ""), times)),
    ]);
}
