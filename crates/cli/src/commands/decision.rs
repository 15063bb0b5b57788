//! A decision as text: the answer first, then why, then each limit if there are several.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate::{Micros, Timestamp};

use crate::output::{BAD, CAREFUL, GOOD, TextTable, plain, styled};
use crate::times;

/// The limits of a decision, or of an explained rule.
pub(super) fn list(decision: &Value) -> &[Value] {
    let limits = decision.get("limits").and_then(Value::as_array);
    limits.map_or(&[], Vec::as_slice)
}

/// The decision as text: the answer first, then why, then each limit if there are several.
pub(super) fn decision(decision: &Value, now: Timestamp) -> String {
    let get = |key: &str| decision.get(key).unwrap_or(&Value::Null);
    let is_allowed = get("allowed") == &json!(true);
    let mut text = if is_allowed {
        styled(GOOD.bold(), "allowed")
    } else {
        styled(BAD.bold(), "denied")
    };
    if let Some(rule) = get("rule").as_str() {
        let _ = write!(text, " by rule {}", plain(rule));
    }
    if get("degraded") == &json!(true) {
        let note = "degraded: the store was unavailable";
        let _ = write!(text, " ({})", styled(CAREFUL, note));
    }
    text.push('\n');
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    // Without the attribute there is no counter, and no wait helps.
    let is_counted = get("reason") != &json!("missing_attribute");
    if let (Some(remaining), Some(limit)) = (get("remaining").as_u64(), get("limit").as_u64())
        && is_counted
    {
        line("remaining", format!("{remaining} of {limit}"));
    }
    if let Some(reset) = times::instant(get("reset_time")).filter(|_| is_counted) {
        line("resets", when(reset, now));
    }
    if let Some(reason) = reason(decision) {
        line("reason", reason);
    }
    if !is_allowed && is_counted {
        line("retry after", retry(get("retry_after")));
    }
    if let Some(delay) = times::span(get("delay")).filter(|delay| !delay.is_zero()) {
        line("go on after", times::length(delay));
    }
    if let Some(lease) = get("lease").as_str() {
        line("lease", plain(lease));
    }
    let limits = list(decision);
    if limits.len() > 1 {
        text.push('\n');
        text.push_str(&limits_table(limits, now));
    }
    text
}

/// Why a decision, or one of its limits, denies; `None` if it does not, or an older server gives no reason.
pub(super) fn reason(answer: &Value) -> Option<String> {
    let words = match answer.get("reason")?.as_str()? {
        "over_limit" => "the limit is used up".to_owned(),
        "blocked" => "the rule grants nothing to this request".to_owned(),
        "missing_attribute" => {
            let missing = answer.get("missing").and_then(Value::as_array);
            let missing = missing.into_iter().flatten().filter_map(Value::as_str);
            let missing: Vec<String> = missing.map(plain).collect();
            match missing.as_slice() {
                [one] => format!("the attribute `{one}` is missing"),
                several => format!("the attributes `{}` are missing", several.join("`, `")),
            }
        }
        "too_expensive" => "the cost is more than the limit can ever grant".to_owned(),
        "store_unavailable" => "the store was unavailable, and the rule denies then".to_owned(),
        other => plain(other),
    };
    Some(words)
}

fn when(at: Timestamp, now: Timestamp) -> String {
    let at_text = times::rfc3339(at);
    match at.since(now) {
        Micros::ZERO => format!("{at_text} (now)"),
        span => format!("{at_text} (in {})", times::length(span)),
    }
}

pub(super) fn retry(seconds: &Value) -> String {
    times::span(seconds).map_or_else(|| "never".to_owned(), times::length)
}

fn limits_table(limits: &[Value], now: Timestamp) -> String {
    let mut table = TextTable::new(&[
        "rule",
        "answer",
        "remaining",
        "limit",
        "window",
        "resets in",
        "retry after",
        "note",
    ]);
    for limit in limits {
        let get = |key: &str| limit.get(key).unwrap_or(&Value::Null);
        let is = |key: &str| get(key) == &json!(true);
        let text = |key: &str| match get(key) {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let reset = times::instant(get("reset_time"));
        let notes = [("shadow", is("shadow")), ("degraded", is("degraded"))];
        let notes = notes.iter().filter(|(_, holds)| *holds);
        let notes = notes.map(|(note, _)| (*note).to_owned());
        let notes: Vec<String> = notes.chain(reason(limit)).collect();
        table.row(vec![
            text("rule"),
            if is("allowed") { "allowed" } else { "denied" }.to_owned(),
            text("remaining"),
            text("limit"),
            times::span(get("window")).map_or_else(|| "-".to_owned(), times::length),
            reset.map_or_else(|| "-".to_owned(), |at| times::length(at.since(now))),
            if is("allowed") {
                "-".to_owned()
            } else {
                retry(get("retry_after"))
            },
            notes.join(", "),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(value: &Value) -> String {
        let now = Timestamp::from_seconds(1_794_770_000);
        anstream::adapter::strip_str(&decision(value, now)).to_string()
    }

    #[test]
    fn a_denial_says_by_what_and_for_how_long() {
        let denied = json!({
            "allowed": false, "rule": "per-user", "limit": 100, "remaining": 0,
            "reset_time": 1_794_770_060.25, "retry_after": 0.6, "delay": 0, "degraded": false,
            "lease": null,
            "limits": [
                {"rule": "per-user", "algorithm": "token_bucket", "window": 60, "allowed": false,
                 "limit": 100, "remaining": 0, "reset_time": 1_794_770_060.25, "retry_after": 0.6,
                 "delay": 0, "shadow": false, "degraded": false},
                {"rule": "all", "algorithm": "fixed_window", "window": 86400, "allowed": true,
                 "limit": 10_000, "remaining": 9_000, "reset_time": 1_794_787_200, "retry_after": 0,
                 "delay": 0, "shadow": true, "degraded": false},
            ],
        });
        insta::assert_snapshot!(plainly(&denied));
    }

    #[test]
    fn an_answer_without_a_rule_is_short() {
        let allowed = json!({"allowed": true, "rule": null, "limit": null, "remaining": null,
            "reset_time": null, "retry_after": null, "delay": null, "degraded": null,
            "lease": null, "limits": []});
        assert_eq!(plainly(&allowed), "allowed\n");
    }

    #[test]
    fn a_denial_for_a_missing_attribute_says_only_that() {
        let denied = json!({"allowed": false, "rule": "per-user", "limit": 0, "remaining": 0,
            "reset_time": 1_794_770_000, "retry_after": null, "reason": "missing_attribute", "missing": ["user_id"]});
        let expected =
            "denied by rule per-user\n  reason       the attribute `user_id` is missing\n";
        assert_eq!(plainly(&denied), expected);
    }

    #[test]
    fn a_denial_without_an_end_and_a_failed_store_say_so() {
        let blocked = json!({"allowed": false, "rule": "bad", "limit": 0, "remaining": 0,
            "reset_time": null, "retry_after": null, "degraded": true, "limits": [{}]});
        insta::assert_snapshot!(plainly(&blocked));
    }
}
