//! The limits in force as a list of lines, in the form of the page `/rlconfig` of envoyproxy/ratelimit.

use std::fmt::Write as _;

use tidegate::rules::{Grant, Mode, Rule, RuleSet};
use tidegate::{Micros, Window};
use tidegate_codec::grpc::proto::rate_limit::Unit;

/// A line for each limit, sorted.
pub fn listed(rules: &RuleSet) -> String {
    let mut lines: Vec<String> = rules.iter().filter_map(|rule| line(rule)).collect();
    lines.sort_unstable();
    lines.concat()
}

/// The line of a rule that is written as a descriptor.
fn line(rule: &Rule) -> Option<String> {
    let path = rule.descriptor_path()?;
    let (unit, requests) = match rule.grants() {
        [Grant::Unlimited] => (Unit::Unknown, 0),
        grants => {
            let limits = grants.first().map_or(&[][..], Grant::limits);
            let rate = limits.first().map(tidegate::Limit::rate);
            let window = rule.period().or(rate.and_then(|rate| rate.window));
            (unit(window), rate.map_or(0, |rate| rate.count))
        }
    };
    let mut line = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        line,
        "{path}: unit={} requests_per_unit={requests}, shadow_mode: {}, quota_mode: {}",
        unit.name(),
        rule.mode() == Mode::Shadow,
        rule.is_quota()
    );
    Some(line)
}

fn unit(window: Option<Window>) -> Unit {
    match window {
        Some(Window::Span(Micros::SECOND)) => Unit::Second,
        Some(Window::Span(Micros::MINUTE)) => Unit::Minute,
        Some(Window::Span(Micros::HOUR)) => Unit::Hour,
        Some(Window::Span(Micros::DAY)) => Unit::Day,
        Some(Window::Span(Micros::WEEK)) => Unit::Week,
        Some(Window::Month) => Unit::Month,
        Some(Window::Year) => Unit::Year,
        _ => Unit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_by_hand() {
        let rules = "domain: infra/gw/http
descriptors:
- {key: z, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 1000000000}}
- {key: b, value: '*', rate_limit: {unlimited: true}}
- key: a:1
  value: x.y
  descriptors:
  - {key: c, value: v, shadow_mode: true, rate_limit: {unit: month, requests_per_unit: 3}}
  - {key: d, rate_limit: {unit: week, requests_per_unit: 0}}
";
        let rules = RuleSet::from_yaml(rules).unwrap();
        let expected = "\
infra/gw/http.a:1_x.y.c_v: unit=MONTH requests_per_unit=3, shadow_mode: true, quota_mode: false
infra/gw/http.a:1_x.y.d: unit=WEEK requests_per_unit=0, shadow_mode: false, quota_mode: false
infra/gw/http.b_*: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
infra/gw/http.z: unit=SECOND requests_per_unit=1000000000, shadow_mode: false, quota_mode: true
";
        assert_eq!(listed(&rules), expected);
    }

    #[test]
    fn rules_of_other_forms_are_not_listed() {
        let rules = RuleSet::from_yaml("rules: [{id: a, per: [ip], limit: 1/s}]").unwrap();
        assert_eq!(listed(&rules), "");
    }
}
