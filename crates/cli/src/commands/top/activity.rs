//! The server's answer about activity, as far as it is shown. Missing fields are zero or empty.

use serde_json::Value;
use tidegate::printable::escaped;

use super::RuleOrder;
use crate::commands::reset::key_text;
use crate::output::grouped;

/// The outcomes of requests over time, each a list of counts, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OutcomeSeries {
    pub(super) allowed: Vec<u64>,
    pub(super) denied: Vec<u64>,
    pub(super) shadow_denied: Vec<u64>,
    pub(super) candidate_denied: Vec<u64>,
    pub(super) delayed: Vec<u64>,
    pub(super) degraded: Vec<u64>,
    pub(super) cost: Vec<u64>,
}

impl OutcomeSeries {
    fn from_json(value: &Value) -> Self {
        let list = |name: &str| {
            let list = value[name].as_array().into_iter().flatten();
            list.map(|count| count.as_u64().unwrap_or(0)).collect()
        };
        Self {
            allowed: list("allowed"),
            denied: list("denied"),
            shadow_denied: list("shadow_denied"),
            candidate_denied: list("candidate_denied"),
            delayed: list("delayed"),
            degraded: list("degraded"),
            cost: list("cost"),
        }
    }
}

impl ShownActivity {
    /// Whether the candidate of any rule denied something.
    pub(super) fn has_candidates(&self) -> bool {
        let mut denied = self
            .rules
            .iter()
            .flat_map(|rule| &rule.outcomes.candidate_denied);
        denied.any(|count| *count > 0)
    }
}

/// The activity of one rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShownRule {
    pub(super) rule: String,
    /// What it counts, if the server says so.
    pub(super) unit: Option<String>,
    pub(super) outcomes: OutcomeSeries,
}

/// The activity of a server, or of all that share its store.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ShownActivity {
    /// The end of the window, in Unix seconds by the server's clock.
    pub(super) until: f64,
    /// The length of one count, in seconds.
    step: f64,
    /// Of each count, whether no server counted then: it was not running.
    pub(super) gaps: Vec<bool>,
    pub(super) total: OutcomeSeries,
    pub(super) rules: Vec<ShownRule>,
    /// How many rules the answer leaves out: those with the least to show.
    pub(super) left_out: u64,
    /// The last change of the rules, or of a temporary override, within the window.
    pub(super) last_change: Option<String>,
    /// The age of each instance's report, in seconds.
    pub(super) ages: Vec<f64>,
}

impl ShownActivity {
    pub(super) fn from_json(value: &Value) -> Self {
        let total = OutcomeSeries::from_json(&value["total"]);
        let step = value["step"].as_f64().unwrap_or(1.0);
        let from = value["from"].as_f64().unwrap_or(0.0);
        #[expect(clippy::cast_precision_loss, reason = "a list of at most 1,440 counts")]
        let begin = |index: usize| from + step * index as f64;
        let spans = value["gaps"].as_array().into_iter().flatten();
        let spans: Vec<_> = spans
            .filter_map(|gap| Some((gap["from"].as_f64()?, gap["to"].as_f64()?)))
            .collect();
        let is_gap = |index: usize| {
            let mut spans = spans.iter();
            spans.any(|(from, to)| *from <= begin(index) && *to >= begin(index + 1))
        };
        let rule = |rule: &Value| ShownRule {
            rule: rule["rule"].as_str().unwrap_or_default().to_owned(),
            unit: rule["unit"].as_str().map(str::to_owned),
            outcomes: OutcomeSeries::from_json(rule),
        };
        let list = |name: &str| value[name].as_array().into_iter().flatten();
        let age = |instance: &Value| instance["age"].as_f64().unwrap_or(0.0);
        Self {
            until: begin(total.allowed.len()),
            step,
            gaps: (0..total.allowed.len()).map(is_gap).collect(),
            rules: list("rules").map(rule).collect(),
            left_out: value["rules_left_out"].as_u64().unwrap_or(0),
            last_change: list("changes").last().map(change_text),
            ages: list("instances").map(age).collect(),
            total,
        }
    }

    /// Events per second, over the whole window without its gaps.
    #[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
    pub(super) fn rate(&self, counts: &[u64]) -> f64 {
        let gaps = self.gaps.iter().filter(|is_gap| **is_gap).count();
        let counted = counts.len().saturating_sub(gaps);
        if counted == 0 {
            return 0.0;
        }
        counts.iter().sum::<u64>() as f64 / (counted as f64 * self.step)
    }

    /// Counts as a line of bars.
    pub(super) fn bars(&self, counts: &[u64], width: usize) -> String {
        sparkline(counts, &self.gaps, width)
    }

    /// The rules in the order in which they are shown.
    pub(super) fn sorted(&self, sort: RuleOrder) -> Vec<&ShownRule> {
        let mut rules: Vec<&ShownRule> = self.rules.iter().collect();
        let sum = |counts: &[u64]| std::cmp::Reverse(counts.iter().sum::<u64>());
        match sort {
            RuleOrder::Denied => rules.sort_by_key(|rule| sum(&rule.outcomes.denied)),
            RuleOrder::Allowed => rules.sort_by_key(|rule| sum(&rule.outcomes.allowed)),
            RuleOrder::Cost => rules.sort_by_key(|rule| sum(&rule.outcomes.cost)),
            RuleOrder::Name => rules.sort_by(|one, other| one.rule.cmp(&other.rule)),
        }
        rules
    }
}

/// `version 5 by ops`, or `override of per-user added by ops`.
fn change_text(change: &Value) -> String {
    let text = |value: &Value| escaped(value.as_str().unwrap_or("?")).into_owned();
    let by = text(&change["by"]);
    let changed = &change["override"];
    if changed.is_object() {
        let (rule, what) = (text(&changed["rule"]), text(&changed["what"]));
        return format!("override of {rule} {what} by {by}");
    }
    match change["version"].as_u64() {
        Some(version) => format!("version {version} by {by}"),
        None => format!("by {by}"),
    }
}

/// A key of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShownKey {
    /// Escaped: clients choose it.
    pub(super) text: String,
    pub(super) denied: u64,
    pub(super) used: u64,
    /// The bounds of the count that keys are sorted by.
    pub(super) lower: u64,
    pub(super) upper: u64,
    /// Unix seconds.
    pub(super) last_seen: Option<f64>,
}

/// The top keys of a rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ShownKeys {
    pub(super) keys: Vec<ShownKey>,
    /// What the rule counts, if the server says so.
    pub(super) unit: Option<String>,
    pub(super) distinct_denied: Option<u64>,
    /// The standard error of that, as a part of it; `None` if there may be more.
    pub(super) distinct_error: Option<f64>,
    /// Whether other rules are counted with it, because it has no room of its own.
    pub(super) is_shared: bool,
}

impl ShownKeys {
    /// A summary of the numbers: `, 12 keys denied, used in requests`, `, about 1,200 keys denied, used in tokens`.
    pub(super) fn about(&self) -> String {
        let distinct = self.distinct_denied;
        let mut text = distinct.map_or_else(String::new, |distinct| {
            let how = match self.distinct_error {
                None => "at least ",
                Some(error) if error > 0.0 => "about ",
                Some(_) => "",
            };
            let keys = if distinct == 1 { "key" } else { "keys" };
            format!(", {how}{} {keys} denied", grouped(distinct))
        });
        if let Some(unit) = &self.unit {
            text.push_str(", used in ");
            text.push_str(&escaped(unit));
        }
        if self.is_shared {
            text.push_str(", together with other rules");
        }
        text
    }
}

impl ShownKeys {
    pub(super) fn from_json(value: &Value) -> Self {
        let key = |key: &Value| {
            let count = |name: &str| key[name].as_u64().unwrap_or(0);
            ShownKey {
                text: escaped(&key_text(&key["key"])).into_owned(),
                denied: count("denied"),
                used: count("used"),
                lower: count("lower"),
                upper: count("upper"),
                last_seen: key["last_seen"].as_f64(),
            }
        };
        let keys = value["keys"].as_array().into_iter().flatten();
        Self {
            keys: keys.map(key).collect(),
            unit: value["unit"].as_str().map(str::to_owned),
            distinct_denied: value["distinct_denied"].as_u64(),
            distinct_error: value["distinct_error"].as_f64(),
            is_shared: value["shared"] == true,
        }
    }
}

/// A rate in few characters: `0`, `0.3`, `12.3`, `1,234`.
pub(super) fn rate_text(rate: f64) -> String {
    if rate == 0.0 {
        return "0".to_owned();
    }
    if rate < 0.05 {
        return "<0.1".to_owned();
    }
    if rate < 99.95 {
        return format!("{rate:.1}");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float saturates"
    )]
    let whole = rate.round() as u64;
    grouped(whole)
}

/// Counts as a line of bars, the newest at the right; blank where nothing happened, and a dot where nothing was counted.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bars have eight heights"
)]
fn sparkline(counts: &[u64], gaps: &[bool], width: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns = counts.len().min(width);
    let is_gap = |index: usize| gaps.get(index).copied().unwrap_or(false);
    let mean = |column: usize| {
        let begin = column * counts.len() / columns;
        let end = (column + 1) * counts.len() / columns;
        let counted = (begin..end).filter(|index| !is_gap(*index));
        let (sum, count) = counted.fold((0, 0), |(sum, count), index| {
            (counts[index].saturating_add(sum), count + 1)
        });
        (count > 0).then(|| sum as f64 / f64::from(count))
    };
    let means: Vec<Option<f64>> = (0..columns).map(mean).collect();
    let most = means.iter().copied().flatten().fold(0.0, f64::max);
    let bar = |mean: &Option<f64>| match mean.map(|mean| mean / most) {
        Some(part) if part > 0.0 => BARS[((part * 8.0).ceil() as usize).min(8)],
        Some(_) => ' ',
        None => '·',
    };
    let bars: String = means.iter().map(bar).collect();
    format!("{bars:>width$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_and_numbers_are_short() {
        #[rustfmt::skip]
        let table = [
            (0.0, "0"), (0.01, "<0.1"), (0.05, "0.1"), (12.34, "12.3"), (99.94, "99.9"),
            (99.96, "100"), (1_234.5, "1,235"), (1_234_567.0, "1,234,567"),
        ];
        for (rate, text) in table {
            assert_eq!(rate_text(rate), text);
        }
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
    }

    #[test]
    fn bars_by_hand() {
        #[rustfmt::skip]
        let table: [(&[u64], usize, &str); 7] = [
            (&[],                   3, "   "),
            (&[0, 0, 0],            3, "   "),
            (&[0, 1, 8],            3, " ▁█"),
            (&[4, 8],               4, "  ▄█"),
            (&[8, 8, 0, 0],         2, "█ "),
            (&[1, 2, 3, 4, 5],      3, "▂▅█"),
            (&[u64::MAX / 4, 1],    2, "█▁"),
        ];
        for (counts, width, bars) in table {
            assert_eq!(sparkline(counts, &[], width), bars, "{counts:?}");
        }
        assert_eq!(sparkline(&[1], &[], 0), "");
    }

    #[test]
    fn a_gap_is_neither_drawn_as_zero_nor_part_of_a_rate() {
        let answer = json!({
            "from": 600, "step": 60,
            "total": {"allowed": [0, 0, 30, 0, 0, 0, 0, 60]},
            "gaps": [{"from": 600, "to": 700}, {"from": 830, "to": 1_000}],
        });
        let activity = ShownActivity::from_json(&answer);
        assert_eq!(activity.bars(&activity.total.allowed, 8), "· ▄ ·· █");
        // A column with counts and a gap has the counts.
        assert_eq!(activity.bars(&activity.total.allowed, 4), " ▄·█");
        let rate = activity.rate(&activity.total.allowed);
        assert!((rate - 90.0 / 300.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn changes_of_rules_and_of_overrides_are_named() {
        let mark = json!({"rule": "r\n", "key": "u1", "what": "added", "text": "t"});
        for (change, text) in [
            (json!({"version": 5, "by": "ops"}), "version 5 by ops"),
            (
                json!({"version": 5, "by": "ops", "override": mark}),
                "override of r\\u{a} added by ops",
            ),
        ] {
            assert_eq!(change_text(&change), text);
        }
    }

    #[test]
    fn an_answer_of_another_form_is_not_an_error() {
        for value in [json!(null), json!([]), json!({"rules": [1], "total": "x"})] {
            let activity = ShownActivity::from_json(&value);
            assert!(activity.rate(&activity.total.denied) < 1e-9);
            let keys = ShownKeys::from_json(&value);
            assert!(keys.keys.is_empty());
        }
    }
}
