//! The text of the rule file: each rule with the lines that it came from, and checked by the reader of rules.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tidegate::document::{Source, write_yaml};
use tidegate::printable::escaped;
use tidegate::rules::{RuleSet, RuleSettings};

use crate::model::{AppliedLimit, LimitModel, LimitZone, ZoneCounting, ZoneDelay, ZoneRate};
use crate::report::{ConfigLine, ImportReport};
use crate::request_test::{RuleScope, quoted};

/// How many lines that a rule came from are named.
const MAX_LINES: usize = 8;
/// The longest id of a rule, less the number that makes it unique.
const MAX_ID: usize = 56;
/// Names that a rule must not have.
const RESERVED: [&str; 3] = ["history", "rollback", "diff"];

/// A limit with all that its rule says.
pub(crate) struct WrittenLimit<'g> {
    pub(crate) zone: &'g LimitZone,
    pub(crate) limit: &'g AppliedLimit,
    pub(crate) lines: &'g [(ConfigLine, String)],
    pub(crate) scope: RuleScope,
    pub(crate) per: Vec<String>,
    pub(crate) is_shared_if_missing: bool,
}

/// The rules so far.
#[derive(Debug, Default)]
pub(crate) struct WrittenRules {
    rules: Vec<(Vec<String>, Value)>,
    ids: BTreeSet<String>,
    identify: Vec<String>,
    settings: Vec<String>,
}

impl WrittenRules {
    pub(crate) fn new(model: &LimitModel) -> Self {
        let mut settings = Vec::new();
        if !model.trusted_proxies.is_empty() {
            settings.push(format!(
                "trusted_proxies: [{}]",
                model.trusted_proxies.join(", ")
            ));
            let header = model.forwarded_header.as_deref().unwrap_or("x-real-ip");
            settings.push(format!("forwarded_header: {header}"));
        }
        Self {
            settings,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Adds a line of the setting `identify`.
    pub(crate) fn identify(&mut self, line: String) {
        if !self.identify.contains(&line) {
            self.identify.push(line);
        }
    }

    fn any(&self, is: impl Fn(&Value) -> bool) -> bool {
        self.rules.iter().any(|(_, rule)| is(rule))
    }

    pub(crate) fn counts_addresses(&self) -> bool {
        self.any(|rule| {
            let per = rule.get("per").and_then(Value::as_array);
            per.is_some_and(|per| per.contains(&json!("ip")))
        })
    }

    pub(crate) fn has_paths(&self) -> bool {
        self.any(|rule| mentions(rule, "path"))
    }

    pub(crate) fn has_hosts(&self) -> bool {
        self.any(|rule| mentions(rule, "host"))
    }

    /// Adds the rule of a limit, or says why a rule cannot have it.
    pub(crate) fn add(&mut self, written: WrittenLimit<'_>, report: &mut ImportReport) {
        let WrittenLimit { zone, limit, .. } = written;
        let mut rule = Map::new();
        let mut put = |key: &str, value: Value| rule.insert(key.to_owned(), value);
        put("id", json!(""));
        let mut scope = Map::new();
        written.scope.write(&mut scope);
        for (key, value) in scope {
            put(&key, value);
        }
        put("per", json!(written.per));
        if written.is_shared_if_missing {
            put("missing", json!("share"));
        }
        match (limit.counting, zone.rate) {
            (ZoneCounting::Requests { burst, delay }, Some(rate)) => {
                rounded(zone, rate, report);
                if is_coarse(burst, rate) {
                    let message = format!(
                        "the burst is small against the rate: nginx counts in whole milliseconds, admits requests up to one early, and so may admit several more than the rule in the time of the rate; from burst={} on they agree",
                        rate.count / 10
                    );
                    report.difference(limit.at, message);
                }
                let unit = if rate.is_per_minute {
                    "minute"
                } else {
                    "second"
                };
                let (capacity, algorithm) = match delay {
                    ZoneDelay::None => (burst + 1, "token_bucket"),
                    ZoneDelay::All => (burst + 1, "leaky_bucket"),
                    ZoneDelay::After(after) => (after + 1, "token_bucket"),
                };
                put(
                    "limit",
                    json!(format!("{}/{unit} burst {capacity}", rate.count)),
                );
                put("algorithm", json!(algorithm));
                if let ZoneDelay::After(after) = delay {
                    put("max_delay", json!(longest_delay(burst - after, rate)));
                }
            }
            (ZoneCounting::Connections(number), _) => {
                put("limit", json!(number));
                put("algorithm", json!("concurrency"));
                report.difference(
                    limit.at,
                    "`concurrency` needs the gateway or the middleware: forward-auth does not see the end of a request",
                );
            }
            (ZoneCounting::Requests { .. }, None) => return,
        }
        if limit.is_dry_run {
            put("mode", json!("shadow"));
        }
        match limit.status {
            429 => {}
            status @ (400..=499 | 503) => {
                put("denied", json!({ "status": status }));
                if status == 444 {
                    report.difference(
                        limit.at,
                        "with status 444 nginx closes the connection; the rule answers 444",
                    );
                }
            }
            status => {
                put("denied", json!({ "status": 503 }));
                report.difference(
                    limit.at,
                    format!("a rule cannot answer {status}; it answers 503"),
                );
            }
        }
        let id = self.id(&zone.name);
        put("id", json!(id));
        let rule = Value::Object(rule);
        if let Err(reason) = check(&rule) {
            report.left_out(limit.at, format!("`{}`: {reason}", limit.text));
            return;
        }
        self.ids.insert(id);
        let mut lines: Vec<String> = Vec::new();
        for (at, text) in written.lines.iter().take(MAX_LINES) {
            lines.push(format!("{}: {text}", report.place(*at)));
        }
        if written.lines.len() > MAX_LINES {
            lines.push(format!("and {} more", written.lines.len() - MAX_LINES));
        }
        let definition = format!("{}: {}", report.place(zone.at), zone.text);
        if !zone.text.is_empty() && !lines.contains(&definition) {
            lines.push(definition);
        }
        self.rules.push((lines, rule));
    }

    /// A name that no rule has, after that of the zone.
    fn id(&self, zone: &str) -> String {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String = zone
            .chars()
            .map(|c| if is_fine(c) { c } else { '-' })
            .take(MAX_ID)
            .collect();
        let name = if name.is_empty() {
            "limit".to_owned()
        } else {
            name
        };
        let is_free = |id: &String| !self.ids.contains(id) && !RESERVED.contains(&id.as_str());
        let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
        let mut ids = std::iter::once(name.clone()).chain(numbered);
        ids.find(is_free).unwrap_or(name)
    }

    /// The whole file.
    pub(crate) fn text(&self, report: &mut ImportReport) -> String {
        let mut text = String::new();
        let mut settings: Vec<String> = Vec::new();
        if !self.identify.is_empty() {
            settings.push("identify:".to_owned());
            settings.extend(self.identify.iter().map(|line| format!("  {line}")));
        }
        settings.extend(self.settings.iter().cloned());
        if !settings.is_empty() {
            text.push_str("# These rules need settings (tidegate.yaml):\n");
            for line in settings {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "#   {}", escaped(&line));
            }
            if !self.settings.is_empty() {
                report.general_note("the address of a client comes from a header: the settings at the top of the rules say which proxies are trusted");
            }
        }
        text.push_str("rules:\n");
        for (lines, rule) in &self.rules {
            for line in lines {
                let _ = writeln!(text, "  # {}", escaped(line));
            }
            for (index, line) in write_yaml(rule).lines().enumerate() {
                let begins = if index == 0 { "  - " } else { "    " };
                let _ = writeln!(text, "{begins}{line}");
            }
        }
        text
    }
}

/// Whether `match` or an exception of a rule has this key, or a condition about the attribute.
fn mentions(rule: &Value, key: &str) -> bool {
    let quoted = format!("attributes[\"{key}\"]");
    let in_item = |item: &Value| {
        let when = item.get("when").and_then(Value::as_str);
        item.get(key).is_some() || when.is_some_and(|when| when.contains(&quoted))
    };
    let except = rule.get("except").and_then(Value::as_array);
    rule.get("match").is_some_and(in_item) || except.is_some_and(|items| items.iter().any(in_item))
}

/// Whether milliseconds matter: the bucket is often full, and each time a part of a request is lost or won, which is
/// together a notable part of one in the time of the rate.
fn is_coarse(burst: u64, rate: ZoneRate) -> bool {
    let window = if rate.is_per_minute { 60_000 } else { 1_000 };
    let lost = rate.count.saturating_mul(rate.count).saturating_mul(10);
    lost >= window && (burst + 1).saturating_mul(10) <= rate.count
}

/// Reports a rate that nginx rounds.
fn rounded(zone: &LimitZone, rate: ZoneRate, report: &mut ImportReport) {
    if !rate.is_per_minute || rate.count.is_multiple_of(3) {
        return;
    }
    let thousandths = rate.count.saturating_mul(1_000) / 60;
    let per_minute = thousandths * 60;
    let message = format!(
        "nginx rounds {}r/m down to {} requests per second, {} per minute; the rule grants {} per minute",
        rate.count,
        decimal(thousandths),
        decimal(per_minute),
        rate.count
    );
    report.difference(zone.at, message);
}

/// Thousandths as a number.
fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The time in which so many requests leave the bucket, in whole milliseconds, rounded up.
fn longest_delay(requests: u64, rate: ZoneRate) -> String {
    let window: u128 = if rate.is_per_minute { 60_000 } else { 1_000 };
    let millis = (u128::from(requests) * window).div_ceil(u128::from(rate.count.max(1)));
    if millis.is_multiple_of(1_000) {
        format!("{}s", millis / 1_000)
    } else {
        format!("{millis}ms")
    }
}

/// Why a regular expression cannot be used in a condition.
pub(crate) fn pattern_problem(pattern: &str) -> Option<String> {
    let condition = format!(r#"attributes["path"].matches({})"#, quoted(pattern));
    let rule = json!({"id": "a", "match": {"when": condition}, "per": [], "limit": "1/second"});
    let reason = check(&rule).err()?;
    Some(
        reason
            .strip_prefix("`match.when`: ")
            .unwrap_or(&reason)
            .to_owned(),
    )
}

/// Whether the reader of rules accepts a rule; the error is its message.
fn check(rule: &Value) -> Result<(), String> {
    let document = write_yaml(&json!({ "rules": [rule] }));
    let source = Source::new("rules", document);
    match RuleSet::read(&source, &RuleSettings::default()) {
        Ok(_) => Ok(()),
        Err(problems) => {
            let first = problems.errors().next();
            Err(first.map_or_else(
                || "it is not a valid rule".to_owned(),
                |problem| format!("`{}`: {}", problem.field, problem.message),
            ))
        }
    }
}
