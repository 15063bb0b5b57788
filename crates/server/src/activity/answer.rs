//! Writes the activity answers of the API as JSON. Written by hand: an answer may have a million numbers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidegate::rules::RuleSet;
use tidegate_activity::{
    ActivitySeries, KeyName, KeySort, KeyWindow, OutcomeCounts, RuleSeries, SeriesSpan, TopKey,
    TopKeys, candidate_of_rule, rule_of_candidate,
};

use super::ServerActivity;
use super::clients::newest_decision;
use super::others::OtherInstance;

/// The parameters of `GET /v1/activity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActivityQuestion {
    /// In seconds.
    pub(crate) window: u64,
    /// Whether only this instance is asked.
    pub(crate) is_own: bool,
    /// The most rules in the answer.
    pub(crate) rules: usize,
}

/// The parameters of `GET /v1/rules/{id}/keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeysQuestion {
    pub(crate) sort: KeySort,
    /// Whether it is about what the candidate denies.
    pub(crate) is_candidate: bool,
    pub(crate) window: KeyWindow,
    /// Whether only this instance is asked.
    pub(crate) is_own: bool,
    /// The most keys in the answer.
    pub(crate) keys: usize,
}

/// The sources of an answer: this server, the other instances, and the time.
#[derive(Clone, Copy)]
pub(crate) struct AnswerParts<'a> {
    pub(crate) activity: &'a ServerActivity,
    pub(crate) others: &'a [OtherInstance],
    /// Those in force.
    pub(crate) rules: &'a RuleSet,
    /// In Unix seconds.
    pub(crate) now: u64,
}

impl AnswerParts<'_> {
    /// What a rule counts; null if it is not in force any more.
    fn unit(&self, rule: &str) -> Value {
        let rule = self.rules.get(rule);
        json!(rule.map(|rule| rule.unit().as_str()))
    }

    /// The counts of all instances.
    fn series(&self, span: &SeriesSpan) -> ActivitySeries {
        let mut series = self.activity.live.series(span);
        if self.others.is_empty() {
            return series;
        }
        let own = series.rules.drain(..).map(|rule| (rule.rule, rule.points));
        let mut rules: HashMap<Arc<str>, Vec<OutcomeCounts>> = own.collect();
        for other in self.others {
            other.part.total.add_to(span, &mut series.total);
            for rule in &other.part.rules {
                let none = || vec![OutcomeCounts::default(); series.total.len()];
                let points = rules.entry(Arc::clone(&rule.rule)).or_insert_with(none);
                rule.series.add_to(span, points);
            }
        }
        let is_active = |points: &[OutcomeCounts]| points.iter().any(|point| !point.is_zero());
        let active = rules.into_iter().filter(|(_, points)| is_active(points));
        series.rules = active
            .map(|(rule, points)| RuleSeries { rule, points })
            .collect();
        series
    }

    /// The keys of a rule on all instances.
    pub(super) fn top_keys(
        &self,
        rule: &str,
        sort: KeySort,
        window: KeyWindow,
        most: usize,
    ) -> TopKeys {
        let own = match self.activity.live.find_rule(rule) {
            Some(rule) => rule.top_keys(sort, window, self.now, OWN_KEYS.max(most)),
            None => TopKeys {
                from: window.from(self.now),
                ..TopKeys::default()
            },
        };
        let others = self.others.iter();
        let others = others.filter_map(|other| other.part.rule(rule));
        own.with_parts(others, (sort, window), most)
    }

    /// The spans of time in which none of the instances counted.
    fn gaps(&self, span: &SeriesSpan) -> Value {
        let mut coverage = self.activity.live.coverage();
        coverage.extend(self.others.iter().map(|other| &other.part.coverage));
        let gaps = coverage.gaps(span, self.now).into_iter();
        gaps.map(|(from, to)| json!({"from": from, "to": to}))
            .collect()
    }

    /// The instances in the answer.
    pub(super) fn instances(&self) -> Value {
        let own = json!({"id": self.activity.instance, "age": 0, "complete": true});
        let other = |other: &OtherInstance| json!({"id": other.id, "age": other.age(self.now), "complete": other.part.is_complete});
        std::iter::once(own)
            .chain(self.others.iter().map(other))
            .collect()
    }
}

/// The counts of all requests and of the rules with the most denials, with the `changes` in that time: each with its
/// time in Unix seconds, the oldest first.
pub(crate) fn activity_json(
    parts: &AnswerParts<'_>,
    question: &ActivityQuestion,
    changes: &[(u64, Value)],
) -> String {
    let span = SeriesSpan::ending(parts.now, question.window);
    let mut series = parts.series(&span);
    let tried = take_candidates(&mut series);
    let left_out = keep_busiest(&mut series, question.rules);
    let mut out = String::with_capacity(256 + 16 * (series.rules.len() + 1) * series.total.len());
    let _ = write!(
        out,
        r#"{{"from":{},"step":{},"total":{{"#,
        span.from, span.step
    );
    write_points(&mut out, &series.total);
    write_candidate_denied(&mut out, tried.values(), series.total.len());
    out.push_str(r#"},"rules":["#);
    for (index, rule) in series.rules.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let (id, unit) = (json!(&*rule.rule), parts.unit(&rule.rule));
        let _ = write!(out, r#"{comma}{{"rule":{id},"unit":{unit},"#);
        write_points(&mut out, &rule.points);
        let of_rule = tried.get(&*rule.rule).into_iter();
        write_candidate_denied(&mut out, of_rule, rule.points.len());
        out.push('}');
    }
    let _ = write!(out, r#"],"rules_left_out":{left_out}"#);
    if !series.shared.is_empty() {
        let _ = write!(out, r#","shared":{{"rules":{},"#, series.without_room);
        write_points(&mut out, &series.shared);
        write_candidate_denied(&mut out, std::iter::empty(), series.shared.len());
        out.push('}');
    }
    let changes = changes.iter().filter(|(at, _)| *at >= span.from);
    let changes: Value = changes.map(|(_, change)| change.clone()).collect();
    let (gaps, instances) = (parts.gaps(&span), parts.instances());
    let _ = write!(
        out,
        r#","gaps":{gaps},"changes":{changes},"instances":{instances}}}"#
    );
    out
}

/// The counts of candidates, by rule, taken out of those of rules. A rule that has no counts of its own gets zeros.
fn take_candidates(series: &mut ActivitySeries) -> BTreeMap<String, Vec<OutcomeCounts>> {
    let mut tried = BTreeMap::new();
    series
        .rules
        .retain_mut(|one| match rule_of_candidate(&one.rule) {
            Some(rule) => {
                tried.insert(rule.to_owned(), std::mem::take(&mut one.points));
                false
            }
            None => true,
        });
    for (rule, points) in &tried {
        if !series.rules.iter().any(|one| *one.rule == **rule) {
            series.rules.push(RuleSeries {
                rule: rule.as_str().into(),
                points: vec![OutcomeCounts::default(); points.len()],
            });
        }
    }
    tried
}

/// `,"candidate_denied":[0,1]`: the sum of these candidates.
fn write_candidate_denied<'p>(
    out: &mut String,
    tried: impl Iterator<Item = &'p Vec<OutcomeCounts>>,
    steps: usize,
) {
    let mut sums = vec![0_u64; steps];
    for points in tried {
        for (sum, point) in sums.iter_mut().zip(points) {
            *sum = sum.saturating_add(point.denied);
        }
    }
    let _ = write!(out, r#","candidate_denied":{}"#, json!(sums));
}

/// Sorts rules by denials, then by requests, and keeps the first. Returns how many are left out.
fn keep_busiest(series: &mut ActivitySeries, most: usize) -> usize {
    let rank = |rule: &RuleSeries| {
        let sum = rule
            .points
            .iter()
            .fold(OutcomeCounts::default(), |sum, point| sum.plus(point));
        let denied = sum.denied.saturating_add(sum.shadow_denied);
        Reverse((denied, sum.allowed.saturating_add(denied)))
    };
    series.rules.sort_by(|one, other| one.rule.cmp(&other.rule));
    series.rules.sort_by_cached_key(rank);
    let left_out = series.rules.len().saturating_sub(most);
    series.rules.truncate(most);
    left_out
}

/// `"allowed":[1,0],"denied":[0,2]`, and so on.
fn write_points(out: &mut String, points: &[OutcomeCounts]) {
    let arrays: Vec<[u64; 6]> = points.iter().map(OutcomeCounts::array).collect();
    for (index, name) in OutcomeCounts::NAMES.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(out, r#"{comma}"{name}":["#);
        for (at, counts) in arrays.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match counts[index] {
                0 => {
                    out.push_str(comma);
                    out.push('0');
                }
                count => {
                    let _ = write!(out, "{comma}{count}");
                }
            }
        }
        out.push(']');
    }
}

/// The most keys of this instance that are taken into account.
const OWN_KEYS: usize = 100;

/// The keys of a rule with the largest counts.
pub(crate) fn keys_json(parts: &AnswerParts<'_>, rule: &str, question: &KeysQuestion) -> String {
    let (sort, window) = (question.sort, question.window);
    let candidate = question.is_candidate.then(|| candidate_of_rule(rule));
    let counted = candidate.as_deref().unwrap_or(rule);
    let top = parts.top_keys(counted, sort, window, question.keys);
    // Of the limit itself, as far as they are among those with the largest counts.
    let own = candidate.as_ref().map(|_| {
        [KeySort::Denied, KeySort::Used].map(|sort| parts.top_keys(rule, sort, window, OWN_KEYS))
    });
    let own_of = |name: &KeyName| {
        let lists = own.iter().flatten();
        let found = lists
            .flat_map(|list| &list.keys)
            .find(|key| key.name == *name);
        found.map_or((0, 0), |key| (key.denied, key.used))
    };
    let key = |key: &TopKey| {
        let mut written = json!({
            "key": shown(&key.name),
            "denied": key.denied,
            "used": key.used,
            "lower": key.lower,
            "upper": key.upper,
            "last_seen": key.seen,
            "last": newest_decision(parts, counted, key),
        });
        if question.is_candidate {
            let (denied, used) = own_of(&key.name);
            written["candidate_denied"] = json!(key.denied);
            written["denied"] = json!(denied);
            written["used"] = json!(used);
        }
        written
    };
    let body = json!({
        "keys": top.keys.iter().map(key).collect::<Vec<_>>(),
        "distinct_denied": top.distinct_denied.count(),
        "distinct_error": top.distinct_denied.error().map(|error| (error * 1_000.0).round() / 1_000.0),
        "unit": parts.unit(rule),
        "total": top.weight,
        "from": top.from,
        "shared": top.is_shared,
        "instances": parts.instances(),
    });
    body.to_string()
}

/// A key as JSON: its attributes and values.
pub(super) fn shown(name: &KeyName) -> Value {
    let part =
        |part: &tidegate_activity::KeyPart| (part.attribute.to_string(), json!(&*part.value));
    Value::Object(name.parts().iter().map(part).collect::<Map<_, _>>())
}
