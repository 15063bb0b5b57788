//! The report for a terminal.

#![expect(
    clippy::format_push_string,
    reason = "a report is written once; `write!` to a text would need its result ignored"
)]

use serde_json::Value;
use tidegate_rehearse::{ShownRequest, Simulated, key_text, noted_lines, share};

use crate::output::{BAD, CAREFUL, HEADING, TextTable, counted, grouped, plain, styled};
use crate::times::{instant, rfc3339};

/// How many clients of a rule are listed.
const WORST: usize = 5;
/// How much of a line is shown.
const SHOWN: usize = 120;

/// What a log cannot show.
const OPEN_LOOP: &str = "A log has what clients did under the limits of that time, not how they would have reacted to a denial.";

/// How requests were read.
pub(super) fn requests(shown: &[ShownRequest]) -> String {
    let mut text = String::new();
    for request in shown {
        text.push_str(&styled(HEADING, &request.time));
        text.push('\n');
        for (name, value) in &request.attributes {
            text.push_str(&format!("  {} = {}\n", plain(name), plain(value)));
        }
        let rules = if request.rules.is_empty() {
            "none".to_owned()
        } else {
            request.rules.join(", ")
        };
        text.push_str(&format!("  rules: {rules}\n"));
    }
    if shown.is_empty() {
        text.push_str("no requests\n");
    }
    text
}

/// A warning in colour.
pub(super) fn warning(text: &str) -> String {
    format!("{}: {}", styled(CAREFUL.bold(), "warning"), plain(text))
}

pub(super) fn report(simulated: &Simulated, json: &Value) -> String {
    let mut text = input(json);
    for (file, line, reason, excerpt) in noted_lines(simulated) {
        let excerpt: String = String::from_utf8_lossy(excerpt)
            .chars()
            .take(SHOWN)
            .collect();
        text.push_str(&format!("  {}:{line}: {reason}", plain(file)));
        if excerpt.is_empty() {
            text.push('\n');
        } else {
            text.push_str(&format!(": {}\n", plain(&excerpt)));
        }
    }
    text.push('\n');
    text.push_str(&total(&json["total"]));
    text.push_str(&rules(json));
    for rule in list(&json["rules"]) {
        text.push_str(&worst(rule));
    }
    text.push_str(&scale(json));
    text.push_str(&against(&json["against"]));
    for line in simulated.warnings() {
        text.push_str(&format!("{}\n", warning(line)));
    }
    text.push_str(OPEN_LOOP);
    text.push('\n');
    text
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn count(value: &Value) -> String {
    grouped(number(value))
}

/// One line on what was read.
fn input(json: &Value) -> String {
    let input = &json["input"];
    let files: Vec<String> = list(&input["files"])
        .iter()
        .map(|file| format!("{} ({})", plain(text(&file["file"])), text(&file["format"])))
        .collect();
    let mut line = format!(
        "{}: {} requests in {} lines",
        files.join(", "),
        count(&input["requests"]),
        count(&input["lines"])
    );
    for kind in ["malformed", "ignored", "refused", "outside", "late"] {
        if number(&input[kind]) > 0 {
            line.push_str(&format!(", {} {kind}", count(&input[kind])));
        }
    }
    if let (Some(from), Some(to)) = (instant(&input["from"]), instant(&input["to"])) {
        line.push_str(&format!(", {} to {}", rfc3339(from), rfc3339(to)));
    }
    line.push('\n');
    line
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn total(total: &Value) -> String {
    let requests = number(&total["requests"]);
    let mut line = format!(
        "{} of {} requests denied ({})",
        styled(BAD, &count(&total["denied"])),
        grouped(requests),
        share(number(&total["denied"]), requests)
    );
    for (key, words) in [("delayed", "delayed"), ("unmatched", "without a rule")] {
        if number(&total[key]) > 0 {
            line.push_str(&format!(", {} {words}", count(&total[key])));
        }
    }
    line.push_str("\n\n");
    line
}

fn rules(json: &Value) -> String {
    let mut table = TextTable::new(&[
        "rule",
        "requests",
        "allowed",
        "denied",
        "share",
        "delayed",
        "clients denied",
        "longest streak",
    ]);
    let mut notes = String::new();
    for rule in list(&json["rules"]) {
        let mut name = text(&rule["rule"]).to_owned();
        if rule["mode"] == "shadow" {
            name.push_str(" (shadow)");
        }
        let estimate = if rule["exact"] == true { "" } else { "about " };
        table.row(vec![
            name,
            count(&rule["requests"]),
            count(&rule["allowed"]),
            count(&rule["denied"]),
            share(number(&rule["denied"]), number(&rule["requests"])),
            count(&rule["delayed"]),
            format!(
                "{estimate}{} of {}",
                count(&rule["clients_denied"]),
                count(&rule["clients"])
            ),
            rule["longest_streak"]
                .as_object()
                .map_or_else(|| "-".to_owned(), |streak| count(&streak["denied"])),
        ]);
        notes.push_str(&candidate(rule));
        if let Some(note) = rule["note"].as_str() {
            notes.push_str(&format!("{}: {note}\n", text(&rule["rule"])));
        }
    }
    format!("{}{notes}\n", table.render())
}

/// What the candidate of a rule said, in a line.
fn candidate(rule: &Value) -> String {
    let tried = &rule["candidate"];
    if tried.is_null() {
        return String::new();
    }
    let clients = usize::try_from(number(&tried["clients_denied"])).unwrap_or(usize::MAX);
    format!(
        "{}: its candidate {} denies {} of {} requests ({}), of {}; {} newly, {} no longer\n",
        text(&rule["rule"]),
        plain(&limit(&tried["limit"])),
        styled(BAD, &count(&tried["denied"])),
        count(&tried["requests"]),
        share(number(&tried["denied"]), number(&tried["requests"])),
        counted(clients, "client"),
        count(&tried["newly_denied"]),
        count(&tried["newly_allowed"])
    )
}

/// A limit as rules write it.
fn limit(limit: &Value) -> String {
    limit
        .as_str()
        .map_or_else(|| limit.to_string(), str::to_owned)
}

fn key(key: &Value) -> String {
    plain(&key_text(key))
}

/// The worst clients of a rule that denies.
fn worst(rule: &Value) -> String {
    if number(&rule["denied"]) == 0 {
        return String::new();
    }
    let mut table = TextTable::new(&["client", "requests", "denied", "share", "longest streak"]);
    let denied = list(&rule["top"])
        .iter()
        .filter(|client| number(&client["denied"]) > 0);
    for client in denied.take(WORST) {
        table.row(vec![
            key(&client["key"]),
            count(&client["requests"]),
            count(&client["denied"]),
            share(number(&client["denied"]), number(&client["requests"])),
            count(&client["longest_streak"]),
        ]);
    }
    let heading = format!("worst clients of {}", text(&rule["rule"]));
    format!("{}\n{}\n", styled(HEADING, &heading), table.render())
}

/// The shares that are denied with multiplied limits.
fn scale(json: &Value) -> String {
    let rows = list(&json["scale"]);
    let requests = number(&json["total"]["requests"]);
    if rows.is_empty() || requests == 0 {
        return String::new();
    }
    let shares: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "×{} {}",
                row["factor"],
                share(number(&row["total"]["denied"]), requests)
            )
        })
        .collect();
    format!(
        "{}  {}\n\n",
        styled(HEADING, "denied if limits were"),
        shares.join("   ")
    )
}

fn against(against: &Value) -> String {
    if against.is_null() {
        return String::new();
    }
    let change = |name: &str, words: &str| {
        let change = &against[name];
        let clients = usize::try_from(number(&change["clients"])).unwrap_or(usize::MAX);
        let mut lines = format!(
            "  {} requests of {} {words}\n",
            count(&change["requests"]),
            counted(clients, "client")
        );
        for client in list(&change["top"]).iter().take(WORST) {
            lines.push_str(&format!(
                "    {}  {}  {}\n",
                text(&client["rule"]),
                key(&client["key"]),
                count(&client["requests"])
            ));
        }
        lines
    };
    let heading = format!("compared with {}", plain(text(&against["source"])));
    let mut lines = format!("{}\n", styled(HEADING, &heading));
    lines.push_str(&change("newly_denied", "newly denied"));
    lines.push_str(&change("newly_allowed", "newly allowed"));
    for rule in list(&against["rules"])
        .iter()
        .filter(|rule| rule["change"] != "same")
    {
        lines.push_str(&format!(
            "  rule {} {}\n",
            text(&rule["rule"]),
            text(&rule["change"])
        ));
    }
    lines.push('\n');
    lines
}
