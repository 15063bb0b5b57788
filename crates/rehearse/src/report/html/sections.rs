//! The parts of the page: one for each rule, the comparison, the input.

use serde_json::Value;
use tidegate::rules::Rule;

use super::chart::{TimeChart, scale_chart};
use super::masked::yaml;
use super::{escaped, grouped, key, list, number, share, table, text};
use crate::run::{ClientNames, Simulated};

/// One rule.
pub(super) fn rule(simulated: &Simulated, json: &Value, index: usize, rule: &Rule) -> String {
    let row = &json["rules"][index];
    let requests = number(&row["requests"]);
    let mut out = format!(
        "<section><h2>{}{}</h2>",
        escaped(rule.id()),
        if row["mode"] == "shadow" {
            " <small>shadow</small>"
        } else {
            ""
        }
    );
    out.push_str(&format!(
        "<p>{} of {} requests denied ({}), of {} of {} clients.{}</p>",
        grouped(number(&row["denied"])),
        grouped(requests),
        share(number(&row["denied"]), requests),
        grouped(number(&row["clients_denied"])),
        grouped(number(&row["clients"])),
        if row["exact"] == true {
            ""
        } else {
            " The numbers of clients are estimates."
        },
    ));
    if let Some(note) = row["note"].as_str() {
        out.push_str(&format!("<p class=\"note\">{}</p>", escaped(note)));
    }
    out.push_str(&format!(
        "<details open><summary>Rule</summary><pre tabindex=\"0\">{}</pre></details>",
        escaped(&yaml(rule, names(simulated)))
    ));
    out.push_str(&chart(json, rule.id()));
    out.push_str(&scale_chart(
        "Denied if limits were multiplied",
        &scale_rows(json, Some(rule.id())),
    ));
    out.push_str(&clients(row));
    if let Some(streak) = row["longest_streak"].as_object() {
        out.push_str(&format!(
            "<p>The longest streak: {} denials of {} in a row.</p>",
            grouped(number(&streak["denied"])),
            key(&streak["key"])
        ));
    }
    let missing = row["missing"].as_object().into_iter().flatten();
    for (name, count) in missing {
        out.push_str(&format!(
            "<p class=\"note\">{} requests lacked <code>{}</code>.</p>",
            grouped(number(count)),
            escaped(name)
        ));
    }
    if let Some(candidate) = row["candidate"].as_object() {
        out.push_str(&format!(
            "<p>The candidate <code>{}</code> denies {} requests: {} newly, and {} no longer.</p>",
            escaped(text(&candidate["limit"])),
            grouped(number(&candidate["denied"])),
            grouped(number(&candidate["newly_denied"])),
            grouped(number(&candidate["newly_allowed"]))
        ));
    }
    out.push_str("</section>");
    out
}

fn names(simulated: &Simulated) -> &ClientNames {
    &simulated.names
}

/// The chart of a rule over time; of none, of all requests.
pub(super) fn chart(json: &Value, rule: &str) -> String {
    let series = &json["series"];
    let row = match rule {
        "" => &series["total"],
        id => list(&series["rules"])
            .iter()
            .find(|row| row["rule"] == id)
            .unwrap_or(&Value::Null),
    };
    let numbers = |name: &str| list(&row[name]).iter().map(number).collect();
    let chart = TimeChart {
        title: "Allowed and denied over time",
        from: number(&series["from"]),
        step: number(&series["step"]),
        allowed: numbers("allowed"),
        denied: numbers("denied"),
    };
    chart.render()
}

/// The rows of a scale chart.
pub(super) fn scale_rows(json: &Value, rule: Option<&str>) -> Vec<(String, u64, u64, Option<u64>)> {
    let rows = list(&json["scale"]).iter().filter_map(|row| {
        let (counts, clients) = match rule {
            None => (&row["total"], None),
            Some(id) => {
                let found = list(&row["rules"]).iter().find(|row| row["rule"] == id)?;
                (found, Some(number(&found["clients_denied"])))
            }
        };
        let denied = number(&counts["denied"]);
        Some((
            row["factor"].to_string(),
            denied,
            number(&counts["allowed"]) + denied,
            clients,
        ))
    });
    rows.collect()
}

fn clients(row: &Value) -> String {
    let top = list(&row["top"]);
    if top.is_empty() {
        return String::new();
    }
    let rows = top.iter().map(|client| {
        vec![
            key(&client["key"]),
            grouped(number(&client["requests"])),
            grouped(number(&client["denied"])),
            share(number(&client["denied"]), number(&client["requests"])),
            grouped(number(&client["longest_streak"])),
        ]
    });
    let heading = "<h3>Top clients</h3>";
    format!(
        "{heading}{}",
        table(
            &["client", "requests", "denied", "share", "longest streak"],
            rows
        )
    )
}

/// The difference to other rules.
pub(super) fn against(against: &Value) -> String {
    if against.is_null() {
        return String::new();
    }
    let mut out = format!(
        "<section><h2>Compared with {}</h2>",
        escaped(text(&against["source"]))
    );
    for (name, words) in [
        ("newly_denied", "newly denied"),
        ("newly_allowed", "newly allowed"),
    ] {
        let change = &against[name];
        out.push_str(&format!(
            "<p>{} requests of {} clients are {words}.</p>",
            grouped(number(&change["requests"])),
            grouped(number(&change["clients"]))
        ));
        let top = list(&change["top"]);
        if !top.is_empty() {
            let rows = top.iter().map(|client| {
                vec![
                    escaped(text(&client["rule"])),
                    key(&client["key"]),
                    grouped(number(&client["requests"])),
                ]
            });
            out.push_str(&table(&["rule", "client", "requests"], rows));
        }
    }
    let count = |value: &Value| value.as_u64().map_or_else(|| "–".to_owned(), grouped);
    let rows = list(&against["rules"]).iter().map(|rule| {
        vec![
            escaped(text(&rule["rule"])),
            text(&rule["change"]).to_owned(),
            count(&rule["denied"]["before"]),
            count(&rule["denied"]["after"]),
        ]
    });
    out.push_str(&table(
        &["rule", "change", "denied before", "denied after"],
        rows,
    ));
    out.push_str("</section>");
    out
}

/// What was read, and what could not be.
pub(super) fn input(input: &Value) -> String {
    let kinds = [
        "lines",
        "requests",
        "malformed",
        "ignored",
        "refused",
        "outside",
        "late",
    ];
    let rows = list(&input["files"]).iter().map(|file| {
        let mut row = vec![
            escaped(text(&file["file"])),
            text(&file["format"]).to_owned(),
        ];
        row.extend(kinds.iter().map(|kind| grouped(number(&file[*kind]))));
        row
    });
    let headings: Vec<&str> = ["file", "format"].into_iter().chain(kinds).collect();
    let mut out = format!("<section><h2>Input</h2>{}", table(&headings, rows));
    let problems = list(&input["problems"]);
    if !problems.is_empty() {
        out.push_str("<h3>Problems</h3>");
        let rows = problems.iter().map(|problem| {
            vec![
                escaped(text(&problem["file"])),
                grouped(number(&problem["line"])),
                text(&problem["kind"]).to_owned(),
                escaped(text(&problem["reason"])),
            ]
        });
        out.push_str(&table(&["file", "line", "kind", "reason"], rows));
    }
    out.push_str("</section>");
    out
}
