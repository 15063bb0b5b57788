//! `tidegate explain`: why a request would be allowed or denied, rule by rule. Nothing is charged.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use tidegate::Timestamp;

use super::decision::{DEGRADED, burst, is_counted, list, reason, retry, summary, window};
use super::question::QuestionArgs;
use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output::{self, BAD, CAREFUL, GOOD, HEADING, plain, styled};
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    question: QuestionArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let reply = client.post("/v1/explain", &args.question.body()?)?;
    let reply = reply.accept(&[200])?;
    let is_allowed = reply.part("decision")?.get("allowed") == Some(&json!(true));
    let page = || page(&reply.body, args.question.now());
    output::print_either(args.server.json, &reply.body, page)?;
    Ok(if is_allowed { Answer::Yes } else { Answer::No })
}

/// The verdict and why, then each rule.
fn page(explained: &Value, now: Timestamp) -> String {
    let verdict = explained.get("decision").unwrap_or(&Value::Null);
    // The limits follow under their rules.
    let mut text = summary(verdict, now);
    let rules = list(explained, "rules");
    if verdict.get("rule").is_none_or(Value::is_null) {
        text.push_str(if rules.is_empty() {
            "  the server has no rules\n"
        } else {
            "  no rule that applies limits it\n"
        });
    }
    for rule in rules {
        text.push('\n');
        text.push_str(&one_rule(rule, now));
    }
    text
}

fn one_rule(rule: &Value, now: Timestamp) -> String {
    let get = |key: &str| rule.get(key).unwrap_or(&Value::Null);
    let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(plain);
    let applies = get("applies") == &json!(true);
    let name = styled(HEADING, &word(rule, "rule").unwrap_or_default());
    let word_of = if applies { "applies" } else { "does not apply" };
    let mut text = format!("{name} {word_of}\n");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    let failed = get("failed");
    if let (Some(condition), Some(expected)) = (word(failed, "condition"), word(failed, "expected"))
    {
        let actual = word(failed, "actual");
        line(&condition, unmet(&condition, &expected, actual.as_deref()));
    }
    if let Some(key) = get("key").as_object() {
        let pairs = key.iter().map(|(name, value)| {
            let value = value.as_str().map(plain).unwrap_or_default();
            format!("{}={value}", plain(name))
        });
        let pairs: Vec<String> = pairs.collect();
        let by = if pairs.is_empty() {
            "shared by all requests".to_owned()
        } else {
            pairs.join(", ")
        };
        line("counted by", by);
    }
    let grant = get("grant");
    if let (Some(from), Some(value)) = (word(grant, "from"), word(grant, "value")) {
        let from = match from.as_str() {
            "limit" => "the rule's limit",
            "tier" => "a tier",
            "override" => "an override",
            "temporary" => "a temporary override",
            other => other,
        };
        line("grants", format!("{value}, from {from}"));
    }
    for limit in list(rule, "limits") {
        line("", numbers(limit, now));
        if let Some(promise) = word(limit, "promise") {
            line("", promise);
        }
    }
    text
}

/// Why a rule does not apply, as a sentence.
fn unmet(condition: &str, expected: &str, actual: Option<&str>) -> String {
    match (condition, actual) {
        ("missing", _) => format!("the request has no {expected}"),
        ("starts_at", _) => format!("it starts at {expected}"),
        ("expires_at", _) => format!("it expired at {expected}"),
        ("when", Some(actual)) => format!("{expected} is {actual}"),
        ("except", Some(actual)) => {
            let item = expected.strip_prefix("not (");
            let item = item.and_then(|item| item.strip_suffix(')'));
            format!(
                "the exception ({}) holds: {actual}",
                item.unwrap_or(expected)
            )
        }
        (_, Some(actual)) => format!("is {actual}, the rule expects {expected}"),
        (_, None) => format!("is missing, the rule expects {expected}"),
    }
}

/// The answer of one limit.
fn numbers(limit: &Value, now: Timestamp) -> String {
    let get = |key: &str| limit.get(key).unwrap_or(&Value::Null);
    let is = |key: &str| get(key) == &json!(true);
    let mut text = match reason(limit) {
        None => styled(GOOD, "allows"),
        Some(reason) => format!("{}: {reason}", styled(BAD, "denies")),
    };
    let is_counted = is_counted(limit);
    if let (Some(remaining), Some(whole)) = (get("remaining").as_u64(), get("limit").as_u64())
        && is_counted
    {
        let _ = match (burst(limit), window(limit)) {
            (Some(burst), _) => write!(text, "; {remaining} left of {burst}"),
            (None, Some(window)) => write!(text, "; {remaining} of {whole} left per {window}"),
            (None, None) => write!(text, "; {remaining} of {whole} left"),
        };
    }
    if let Some(reset) = times::instant(get("reset_time")).filter(|reset| *reset > now) {
        let _ = write!(text, ", all back in {}", times::length(reset.since(now)));
    }
    if !is("allowed") && is_counted {
        let _ = write!(text, ", retry after {}", retry(get("retry_after")));
    }
    if is("shadow") {
        let _ = write!(
            text,
            " ({})",
            styled(CAREFUL, "shadow: counted, not enforced")
        );
    }
    if is("degraded") {
        let _ = write!(text, " ({})", styled(CAREFUL, DEGRADED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(value: &Value) -> String {
        let now = Timestamp::from_seconds(1_794_770_000);
        anstream::adapter::strip_str(&page(value, now)).to_string()
    }

    #[test]
    fn a_page_has_the_verdict_then_each_rule() {
        let limit = |rule: &str, allowed: bool, remaining: u64, shadow: bool| {
            json!({"rule": rule, "algorithm": "token_bucket", "window": 60, "allowed": allowed,
                "rate": 5, "worst_case": {"window": 9, "instant": 5}, "promise": "at most 9 in any minute: 5 at once, then one every 12 s",
                "limit": 5, "remaining": remaining, "reset_time": 1_794_770_048, "retry_after": if allowed { 0 } else { 12 },
                "delay": 0, "shadow": shadow, "degraded": false, "reason": if allowed { Value::Null } else { json!("over_limit") }})
        };
        let failed = |rule: &str, condition: &str, expected: &str, actual: Value| {
            json!({"rule": rule, "applies": false, "grant": null, "key": null, "limits": [],
                "failed": {"condition": condition, "expected": expected, "actual": actual}})
        };
        let applies = |rule: &str, from: &str, key: Value, limits: Value| {
            json!({"rule": rule, "applies": true, "failed": null, "key": key, "limits": limits,
                "grant": {"from": from, "value": "5/minute"}})
        };
        let explained = json!({
            "decision": {"allowed": false, "rule": "per-key", "limit": 5, "remaining": 0,
                "reset_time": 1_794_770_048, "retry_after": 12, "delay": 0, "degraded": false,
                "lease": null, "limits": [limit("per-key", false, 0, false)], "reason": "over_limit"},
            "rules": [
                failed("writes", "method", "POST, PUT", json!("GET")),
                failed("hosts", "host", "*.example.com", Value::Null),
                failed("later", "starts_at", "2027-01-01T00:00:00Z", json!("2026-11-15T19:13:20Z")),
                failed("cel", "when", "attributes.plan == \"a\"", json!("false: plan=b")),
                failed("not-health", "except", "not (path: /health)", json!("path=/health")),
                failed("per-user", "missing", "user_id", Value::Null),
                applies("per-key", "override", json!({"api_key": "sk_l…0123456789ab"}), json!([limit("per-key", false, 0, false)])),
                applies("all", "limit", json!({}), json!([limit("all", true, 4, true)])),
                applies("paid", "temporary", json!({"api_key": "\u{1b}[31m"}), json!([])),
            ],
            "headers": {},
        });
        insta::assert_snapshot!(plainly(&explained));
    }

    #[test]
    fn no_value_forges_a_line() {
        let forged = "x\nper-ip applies\n  grants       unlimited";
        let explained = json!({"decision": {"allowed": false, "rule": forged, "reason": forged}, "rules": [
            {"rule": forged, "applies": false, "failed": {"condition": "path", "expected": forged, "actual": forged}},
            {"rule": "a", "applies": true, "key": {forged: forged}, "grant": {"from": forged, "value": forged}},
        ]});
        let text = plainly(&explained);
        assert!(!text.contains("\nper-ip applies"), "{text}");
        let honest = explained.to_string().replace(r"\n", " ");
        let honest = plainly(&serde_json::from_str(&honest).unwrap());
        assert_eq!(text.lines().count(), honest.lines().count(), "{text}");
    }

    #[test]
    fn without_rules_the_page_says_so() {
        let allowed = json!({"decision": {"allowed": true, "rule": null}, "rules": []});
        assert_eq!(plainly(&allowed), "allowed\n  the server has no rules\n");
    }
}
