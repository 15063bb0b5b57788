//! A decision as text: the answer first, then why, then each limit if there are several.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate::{Micros, Rate, Timestamp, Window};

use crate::output::{BAD, CAREFUL, GOOD, TextTable, cell, plain, styled};
use crate::times;

/// What is said of an answer that the store had no part in.
pub(super) const DEGRADED: &str = "degraded: the store was unavailable";

/// The limits of a decision, or of an explained rule.
pub(super) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    let list = value.get(key).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// The decision as text: the answer first, then why, then each limit if there are several.
pub(super) fn decision(decision: &Value, now: Timestamp) -> String {
    let mut text = summary(decision, now);
    let limits = list(decision, "limits");
    if limits.len() > 1 {
        text.push('\n');
        text.push_str(&limits_table(limits, now));
    }
    text
}

/// The answer and why, without the limits.
pub(super) fn summary(decision: &Value, now: Timestamp) -> String {
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
        let _ = write!(text, " ({})", styled(CAREFUL, DEGRADED));
    }
    text.push('\n');
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    let is_counted = is_counted(decision);
    if let (Some(remaining), Some(limit)) = (get("remaining").as_u64(), get("limit").as_u64())
        && is_counted
    {
        let burst = headline(decision).and_then(burst);
        let most = burst.unwrap_or_else(|| limit.to_string());
        line("remaining", format!("{remaining} of {most}"));
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
    if let Some(reservation) = get("reservation").as_str() {
        line("reservation", plain(reservation));
    }
    if let Some(end) = times::instant(get("expires_at")) {
        line("expires", when(end, now));
    }
    text
}

/// Whether an answer is that of a counter. Without an attribute of the key there is none, and no wait helps.
pub(super) fn is_counted(answer: &Value) -> bool {
    answer.get("reason") != Some(&json!("missing_attribute"))
}

/// The limit with the headline numbers of a decision.
fn headline(decision: &Value) -> Option<&Value> {
    let keys = ["rule", "limit", "remaining", "reset_time", "retry_after"];
    let is_headline = |limit: &&Value| {
        let is_same = |key: &&str| limit.get(*key) == decision.get(*key);
        limit.get("shadow") != Some(&json!(true)) && keys.iter().all(is_same)
    };
    list(decision, "limits").iter().find(is_headline)
}

/// The burst of a limit with its rate, if they differ: `burst 20, 100/minute`.
pub(super) fn burst(limit: &Value) -> Option<String> {
    let number = |key: &str| limit.get(key).and_then(Value::as_u64);
    let (count, burst) = (number("rate")?, number("limit")?);
    let algorithm = limit.get("algorithm").and_then(Value::as_str);
    let is_bucket = matches!(algorithm, Some("token_bucket" | "leaky_bucket"));
    if !is_bucket || count == burst {
        return None;
    }
    let window = times::span(limit.get("window")?)?;
    let rate = Rate::new(count, window).to_string();
    Some(format!("burst {burst}, {rate}"))
}

/// The window of a limit: `minute`, `2h`, or `month` and `year` if it is a whole one of the calendar.
pub(super) fn window(limit: &Value) -> Option<String> {
    let span = times::span(limit.get("window")?)?;
    let end = limit.get("reset_time").and_then(times::instant);
    let is_whole = |calendar: &&Window| {
        end.is_some_and(|end| calendar.around(end - Micros::new(1)) == (end - span, end))
    };
    let calendar = [Window::Month, Window::Year];
    let whole = calendar.iter().find(is_whole);
    let rate = Rate::new(1, *whole.unwrap_or(&Window::Span(span))).to_string();
    rate.strip_prefix("1/").map(str::to_owned)
}

/// Why a decision, or one of its limits, denies; `None` if it does not.
pub(super) fn reason(answer: &Value) -> Option<String> {
    let words = match answer.get("reason")?.as_str()? {
        "over_limit" => "the limit is used up".to_owned(),
        "blocked" => "the rule grants nothing to this request".to_owned(),
        "missing_attribute" => {
            let missing = list(answer, "missing").iter().filter_map(Value::as_str);
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
        let is_counted = is_counted(limit);
        let number = |key: &str| {
            if is_counted {
                cell(get(key))
            } else {
                "-".to_owned()
            }
        };
        let reset = times::instant(get("reset_time")).filter(|_| is_counted);
        let notes = ["shadow", "degraded"].into_iter().filter(|note| is(note));
        let notes: Vec<String> = notes.map(str::to_owned).chain(reason(limit)).collect();
        let again = (!is("allowed") && is_counted).then(|| retry(get("retry_after")));
        table.row(vec![
            cell(get("rule")),
            if is("allowed") { "allowed" } else { "denied" }.to_owned(),
            number("remaining"),
            burst(limit).unwrap_or_else(|| number("limit")),
            window(limit).unwrap_or_else(|| "-".to_owned()),
            reset.map_or_else(|| "-".to_owned(), |at| times::length(at.since(now))),
            again.unwrap_or_else(|| "-".to_owned()),
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
    fn a_burst_has_its_rate_next_to_it_and_a_month_its_name() {
        let limit = |algorithm: &str, limit: u64, rate: u64| {
            json!({"rule": "a", "algorithm": algorithm, "window": 60, "rate": rate, "allowed": true,
                "limit": limit, "remaining": 19, "reset_time": 1_794_770_001, "retry_after": 0})
        };
        let decision = |limits: Value| {
            json!({"allowed": true, "rule": "a", "limit": limits[0]["limit"], "remaining": 19,
                "reset_time": 1_794_770_001, "retry_after": 0, "limits": limits})
        };
        let remaining = |limits: Value| {
            let text = plainly(&decision(limits));
            let line = text.lines().find(|line| line.contains("remaining"));
            line.unwrap_or_default().trim().to_owned()
        };
        let burst = limit("token_bucket", 20, 100);
        assert_eq!(
            remaining(json!([burst])),
            "remaining    19 of burst 20, 100/minute"
        );
        let mut shadow = limit("token_bucket", 20, 5);
        shadow["shadow"] = json!(true);
        assert_eq!(
            remaining(json!([burst, shadow])),
            "remaining    19 of burst 20, 100/minute"
        );
        assert_eq!(
            remaining(json!([limit("leaky_bucket", 20, 20)])),
            "remaining    19 of 20"
        );
        let mut without_rate = burst.clone();
        without_rate["rate"] = Value::Null;
        assert_eq!(remaining(json!([without_rate])), "remaining    19 of 20");
        let until =
            |reset: u64, days: u64| window(&json!({"window": days * 86_400, "reset_time": reset}));
        // 2026-12-01 and 2027-01-01.
        assert_eq!(until(1_796_083_200, 30).as_deref(), Some("month"));
        assert_eq!(until(1_798_761_600, 365).as_deref(), Some("year"));
        assert_eq!(until(1_796_083_200, 31).as_deref(), Some("31d"));
        assert_eq!(until(1_796_083_201, 30).as_deref(), Some("30d"));
        let unknown = json!({"window": 2_592_000});
        assert_eq!(window(&unknown).as_deref(), Some("30d"));
        for (seconds, text) in [(1, "second"), (60, "minute"), (90, "90s"), (7200, "2h")] {
            let limit = json!({"window": seconds});
            assert_eq!(window(&limit).as_deref(), Some(text));
        }
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
        let mut limit = denied.clone();
        limit["allowed"] = json!(false);
        let mut two = denied.clone();
        two["limits"] = json!([limit, limit]);
        let text = plainly(&two);
        let row = text.lines().last().unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().take(7).collect();
        assert_eq!(
            cells,
            ["per-user", "denied", "-", "-", "-", "-", "-"],
            "{text}"
        );
    }

    #[test]
    fn a_denial_without_an_end_and_a_failed_store_say_so() {
        let blocked = json!({"allowed": false, "rule": "bad", "limit": 0, "remaining": 0,
            "reset_time": null, "retry_after": null, "degraded": true, "limits": [{}]});
        insta::assert_snapshot!(plainly(&blocked));
    }
}
