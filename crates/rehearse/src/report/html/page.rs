//! The page as a whole, with its policy: nothing is loaded, and only its own style and script are used.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tidegate::Timestamp;
use tidegate::printable::hexadecimal;
use tidegate::rules::write_time;

use super::chart::scale_chart;
use super::sections::{against, chart, input, rule, scale_rows};
use super::{escaped, grouped, list, number, share};
use crate::run::Simulated;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What the page says about where it is from.
#[derive(Debug, Clone, Copy)]
pub struct HtmlTerms<'t> {
    /// The name of the rule file.
    pub rule_file: &'t str,
    /// Its text, of which a digest is shown.
    pub rule_text: &'t str,
    /// The command, without secrets.
    pub command: &'t str,
    /// The version of the program.
    pub version: &'t str,
}

/// The report as a page. `json` is the same report as JSON.
pub fn to_html(simulated: &Simulated, json: &Value, terms: &HtmlTerms<'_>) -> String {
    let total = &json["total"];
    let (requests, denied) = (number(&total["requests"]), number(&total["denied"]));
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>Simulation of {}</title><style>{STYLE}</style></head><body><main>",
        hash(STYLE),
        hash(SCRIPT),
        escaped(terms.rule_file)
    );
    out.push_str(&format!(
        "<h1>Simulation of {}</h1>",
        escaped(terms.rule_file)
    ));
    out.push_str(&format!(
        "<p class=\"result\">{} of {} requests would have been denied ({}).</p>",
        grouped(denied),
        grouped(requests),
        share(denied, requests)
    ));
    if json["complete"] != true {
        out.push_str("<p class=\"note\">Reading was stopped before the end.</p>");
    }
    out.push_str(&facts(simulated, json, terms));
    let warnings = list(&json["warnings"]);
    if !warnings.is_empty() {
        out.push_str("<section><h2>Warnings</h2><ul class=\"warnings\">");
        for warning in warnings {
            out.push_str(&format!(
                "<li>{}</li>",
                escaped(warning.as_str().unwrap_or_default())
            ));
        }
        out.push_str("</ul></section>");
    }
    out.push_str("<section><h2>All requests</h2>");
    out.push_str("<p class=\"legend\"><span class=\"allowed\"></span> allowed <span class=\"denied\"></span> denied</p>");
    out.push_str(&chart(json, ""));
    out.push_str(&scale_chart(
        "Denied if all limits were multiplied",
        &scale_rows(json, None),
    ));
    out.push_str("</section>");
    for (index, of_rule) in simulated.rules.iter().enumerate() {
        out.push_str(&rule(simulated, json, index, of_rule));
    }
    out.push_str(&against(&json["against"]));
    out.push_str(&input(&json["input"]));
    out.push_str(
        "<footer><p>A log has what clients did under the limits of that time, not how they would have reacted to a denial.</p></footer>",
    );
    out.push_str(&format!("</main><script>{SCRIPT}</script></body></html>\n"));
    out
}

/// What was simulated.
fn facts(simulated: &Simulated, json: &Value, terms: &HtmlTerms<'_>) -> String {
    let digest = hexadecimal(&Sha256::digest(terms.rule_text));
    let time = |micros: u64| write_time(Timestamp::from_micros(micros));
    let span = simulated
        .input
        .span
        .map(|(first, last)| format!("{} to {}", time(first), time(last)));
    let files: Vec<String> = list(&json["input"]["files"])
        .iter()
        .map(|file| escaped(file["file"].as_str().unwrap_or_default()))
        .collect();
    let rows = [
        ("Logs", files.join(", ")),
        ("Requests", span.unwrap_or_else(|| "none".to_owned())),
        (
            "Rules",
            format!(
                "{} <span class=\"digest\">sha256 {digest}</span>",
                escaped(terms.rule_file)
            ),
        ),
        (
            "Command",
            format!("<code>{}</code>", escaped(terms.command)),
        ),
        ("Version", escaped(terms.version)),
    ];
    let mut out = "<dl>".to_owned();
    for (name, value) in rows {
        out.push_str(&format!("<dt>{name}</dt><dd>{value}</dd>"));
    }
    out.push_str("</dl>");
    out
}
