//! `tidegate explain`: why a request would be allowed or denied, rule by rule. Nothing is charged.

mod offline;

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Map, Value, json};
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
    /// A client, by its value or by the digest that `top`, `denied` or the log shows: its last request is explained
    #[arg(value_name = "CLIENT", conflicts_with_all = ["attributes", "url", "offline_rules"])]
    client: Option<String>,

    /// The rule that counts the client, if several clients have this value
    #[arg(long, value_name = "ID", requires = "client")]
    rule: Option<String>,

    /// A raw request to this URL or path, which is read as the gateway reads it
    #[arg(long, value_name = "URL", conflicts_with_all = ["attributes", "offline_rules"])]
    url: Option<String>,

    /// The method of the raw request
    #[arg(
        long,
        value_name = "METHOD",
        requires = "url",
        conflicts_with = "client"
    )]
    method: Option<String>,

    /// A header of the raw request, such as `X-Api-Key: k1`; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", requires = "url", conflicts_with = "client", value_parser = header)]
    headers: Vec<(String, String)>,

    /// The address from which the raw request comes; without it, no address is known
    #[arg(long, value_name = "IP", requires = "url", conflicts_with = "client")]
    address: Option<String>,

    #[command(flatten)]
    question: QuestionArgs,

    #[command(flatten)]
    offline: offline::OfflineArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.to_owned(), value.trim_ascii().to_owned()))
        }
        _ => Err("write it as `NAME: VALUE`, for example `X-Api-Key: k1`".to_owned()),
    }
}

impl ExplainArgs {
    /// The body of the call.
    fn body(&self) -> anyhow::Result<Value> {
        let mut body = self.question.body()?;
        let Some(members) = body.as_object_mut() else {
            return Ok(body);
        };
        if let Some(client) = &self.client {
            members.remove("attributes");
            members.insert("client".to_owned(), json!(client));
            let rule = self.rule.iter();
            members.extend(rule.map(|rule| ("rule".to_owned(), json!(rule))));
        } else if let Some(url) = &self.url {
            members.remove("attributes");
            let mut headers: Map<String, Value> = Map::new();
            for (name, value) in &self.headers {
                let values = headers.entry(name.clone()).or_insert_with(|| json!([]));
                if let Some(values) = values.as_array_mut() {
                    values.push(json!(value));
                }
            }
            let mut request = json!({"url": url, "headers": headers});
            let given = [("method", &self.method), ("address", &self.address)];
            for (name, value) in given {
                if let Some(value) = value {
                    request[name] = json!(value);
                }
            }
            members.insert("request".to_owned(), request);
        }
        Ok(body)
    }
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let explained = if let Some(file) = &args.offline.rules {
        offline::explained(file, &args.body()?)?
    } else {
        let client = ApiClient::new(&args.server)?;
        let reply = client.post("/v1/explain", &args.body()?)?;
        let reply = reply.accept_client(args.client.as_deref())?;
        reply.part("decision")?;
        reply.body
    };
    let is_allowed = explained["decision"]["allowed"] == json!(true);
    let now = args.question.now();
    let page = || {
        let mut text = last_seen(&explained, now);
        if args.client.is_some() || args.url.is_some() {
            text.push_str(&known_by(&explained));
        }
        text + &page(&explained, now)
    };
    output::print_either(args.server.json, &explained, page)?;
    Ok(if is_allowed { Answer::Yes } else { Answer::No })
}

/// When a client was last seen, and how that ended; empty if that is not known.
fn last_seen(explained: &Value, now: Timestamp) -> String {
    let Some(last) = explained.get("last").filter(|last| last.is_object()) else {
        return String::new();
    };
    let word = |key: &str| last.get(key).and_then(Value::as_str).map(plain);
    let ago = last.get("at").and_then(times::instant);
    let ago = ago.map_or_else(String::new, |at| {
        let ago = times::whole_seconds(now.since(at));
        format!(" {} ago", times::length(ago))
    });
    let is_allowed = last.get("allowed") == Some(&json!(true));
    let mut text = format!("last seen{ago}: ");
    text.push_str(if is_allowed { "allowed" } else { "denied" });
    let request = [word("method"), word("path")].into_iter().flatten();
    let request: Vec<String> = request.collect();
    if !request.is_empty() {
        let _ = write!(text, ", {}", request.join(" "));
    }
    if let Some(address) = word("address") {
        let _ = write!(text, " from {address}");
    }
    if let Some(tier) = word("tier") {
        let _ = write!(text, ", tier {tier}");
    }
    text.push('\n');
    text
}

/// What the request is known by.
fn known_by(explained: &Value) -> String {
    let attributes = explained.get("attributes").and_then(Value::as_object);
    let pairs = attributes.into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map(plain).unwrap_or_default();
        format!("{}={value}", plain(name))
    });
    let pairs: Vec<String> = pairs.collect();
    match pairs.as_slice() {
        [] => String::new(),
        pairs => format!("explained for {}\n", pairs.join(", ")),
    }
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
        let tier = word(rule, "tier").map(|tier| format!("the tier {tier}"));
        let from = match from.as_str() {
            "limit" => "the rule's limit",
            "tier" => tier.as_deref().unwrap_or("a tier"),
            "override" => "an override",
            "temporary" => "a temporary override",
            other => other,
        };
        line("grants", format!("{value}, from {from}"));
    }
    if let Some(tiers) = get("tiers").as_object().filter(|tiers| !tiers.is_empty()) {
        line("tier", unknown_tier(tiers));
    }
    let lines_of = |one: &Value| -> Vec<String> {
        let lines = list(one, "limits").iter().map(|limit| {
            let promise = word(limit, "promise");
            std::iter::once(numbers(limit, now)).chain(promise)
        });
        lines.flatten().collect()
    };
    for text in lines_of(rule) {
        line("", text);
    }
    let candidate = get("candidate");
    if let Some(value) = candidate
        .get("grant")
        .and_then(|grant| word(grant, "value"))
    {
        let decides = if candidate.get("decides") == Some(&json!(true)) {
            "decides, the limit only counts"
        } else {
            "only counts"
        };
        line("candidate", format!("{value}, {decides}"));
        for text in lines_of(candidate) {
            line("", text);
        }
    }
    if let Some(percent) = get("rollout").get("percent").and_then(Value::as_f64) {
        let is_in = get("rollout").get("in") == Some(&json!(true));
        let word = if is_in { "in it" } else { "not in it" };
        line(
            "rollout",
            format!("{percent}% of the keys; this one is {word}"),
        );
    }
    text
}

/// That the tier is not known, with those that there are.
fn unknown_tier(tiers: &Map<String, Value>) -> String {
    let each = tiers.iter().map(|(name, limit)| {
        let limit = limit.as_str().map(plain).unwrap_or_default();
        format!("{} ({limit})", plain(name))
    });
    let each: Vec<String> = each.collect();
    let first = tiers.keys().next().map(|name| plain(name));
    format!(
        "{}: the rule has the tiers {}; to explain one, give `-a tier={}`",
        styled(CAREFUL, "not known"),
        each.join(", "),
        first.unwrap_or_default()
    )
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
        let unit = get("unit").as_str().filter(|unit| *unit != "requests");
        let unit = unit.map_or_else(String::new, |unit| format!(" {}", plain(unit)));
        let _ = match (burst(limit), window(limit)) {
            (Some(burst), _) => write!(text, "; {remaining}{unit} left of {burst}"),
            (None, Some(window)) => {
                write!(text, "; {remaining} of {whole}{unit} left per {window}")
            }
            (None, None) => write!(text, "; {remaining} of {whole}{unit} left"),
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
                "rate": 5, "unit": if shadow { "tokens" } else { "requests" }, "worst_case": {"window": 9, "instant": 5}, "promise": "at most 9 in any minute: 5 at once, then one every 12 s",
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
        let mut tried = applies(
            "tried",
            "limit",
            json!({}),
            json!([limit("tried", true, 4, true)]),
        );
        tried["candidate"] = json!({"grant": {"from": "limit", "value": "2/minute"}, "decides": true,
            "limits": [limit("tried", false, 0, false)]});
        tried["rollout"] = json!({"percent": 12.5, "in": true});
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
                tried,
                applies("paid", "temporary", json!({"api_key": "\u{1b}[31m"}), json!([])),
            ],
            "headers": {},
        });
        insta::assert_snapshot!(plainly(&explained));
    }

    #[test]
    fn a_client_has_its_last_decision_and_a_tier_that_is_not_known_its_tiers() {
        let explained = json!({
            "decision": {"allowed": true, "rule": "r", "limits": []},
            "rules": [
                {"rule": "r", "applies": true, "key": {"user_id": "carl"}, "grant": {"from": "limit", "value": "100/minute"},
                 "tier": "unknown", "tiers": {"free": "100/minute", "pro": "1000/minute"}, "limits": []},
                {"rule": "s", "applies": true, "key": {"user_id": "carl"}, "grant": {"from": "tier", "value": "5/second"},
                 "tier": "pro", "limits": []},
            ],
            "attributes": {"user_id": "carl", "path": "/v1/orders"},
            "last": {"at": 1_794_769_988.25, "allowed": false, "method": "GET", "path": "/v1/\u{1b}orders", "address": "203.0.113.7", "tier": "pro"},
        });
        let now = Timestamp::from_seconds(1_794_770_000);
        let text = last_seen(&explained, now) + &known_by(&explained) + &page(&explained, now);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string());
        let bare = json!({"last": {"at": 1_794_769_000, "allowed": true}});
        assert_eq!(last_seen(&bare, now), "last seen 16m 40s ago: allowed\n");
        assert_eq!(last_seen(&json!({"last": null}), now), "");
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
