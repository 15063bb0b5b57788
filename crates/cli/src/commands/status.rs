//! `tidegate status`: the state of a server.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;
use tidegate::{Clock as _, SystemClock, Timestamp};

use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output::{self, BAD, CAREFUL, GOOD, counted, plain, styled};
use crate::times::{self, whole_seconds};

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let reply = client.get("/v1/status")?.accept(&[200])?;
    let status = reply.part("status")?;
    let text = || rendered(&client.server, &reply.body, SystemClock.now());
    output::print_either(args.server.json, &reply.body, text)?;
    let is_ready = matches!(status.as_str(), Some("ready" | "degraded"));
    Ok(if is_ready { Answer::Yes } else { Answer::No })
}

fn rendered(server: &str, body: &Value, now: Timestamp) -> String {
    let status = body["status"].as_str().unwrap_or("unknown");
    let style = match status {
        "ready" => GOOD,
        "degraded" => CAREFUL,
        _ => BAD,
    };
    let mut text = format!("{server} is {}\n", styled(style.bold(), &plain(status)));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<11}{}", plain(&value));
    };
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let version = word(&body["version"]);
    let uptime = times::span(&body["uptime"]).map_or_else(String::new, |up| {
        format!(", up {}", times::length(whole_seconds(up)))
    });
    line("version", format!("{version}{uptime}"));
    line("store", store(&body["store"], now));
    if let Some(instances) = body["instances"].as_u64() {
        line("instances", instances.to_string());
    }
    line("rules", rules(&body["rules"]));
    if let Some(keys) = body["keys"].as_u64() {
        line("keys", format!("{keys} in memory"));
    }
    if let Some(leases) = body["leases"].as_u64() {
        let what = match body["store"]["kind"].as_str() {
            Some("redis") => "taken in advance",
            _ => "held",
        };
        line("leases", format!("{leases} {what}"));
    }
    if let Some(open) = body["reservations"].as_u64() {
        let what = if open == 1 {
            "reservation"
        } else {
            "reservations"
        };
        line("reserved", format!("{open} open {what}"));
    }
    if let Some(snapshot) = body.get("snapshot").filter(|snapshot| !snapshot.is_null()) {
        line("snapshot", written(snapshot, now));
    }
    for warning in body["warnings"].as_array().into_iter().flatten() {
        let warning = plain(warning.as_str().unwrap_or_default());
        let _ = writeln!(text, "{}: {warning}", styled(CAREFUL.bold(), "warning"));
    }
    text
}

/// The kind of the store, and how it answers.
fn store(store: &Value, now: Timestamp) -> String {
    let mut text = store["kind"].as_str().unwrap_or("?").to_owned();
    if let Some(latency) = store["latency"].as_f64() {
        let _ = write!(text, ", answers in {:.1} ms", latency * 1e3);
    }
    if let Some(since) = times::instant(&store["degraded_since"]) {
        let span = times::length(whole_seconds(now.since(since)));
        let what = match store["breaker"].as_str() {
            Some("partial") => "a part of it does not answer",
            _ => "does not answer",
        };
        let _ = write!(text, ", {what} since {} ({span})", times::rfc3339(since));
    }
    push_problem(&mut text, store);
    text
}

fn push_problem(text: &mut String, part: &Value) {
    if let Some(problem) = part["problem"].as_str() {
        let _ = write!(text, ": {problem}");
    }
}

fn rules(rules: &Value) -> String {
    let count = rules["count"].as_u64().unwrap_or(0);
    let count = counted(usize::try_from(count).unwrap_or(usize::MAX), "rule");
    let source = match rules["file"].as_str() {
        Some(file) => format!("file {file}"),
        None => rules["source"].as_str().unwrap_or("?").to_owned(),
    };
    let mut text = format!("{count}, version {}, from {source}", rules["version"]);
    push_problem(&mut text, rules);
    text
}

/// When the counters were written.
fn written(snapshot: &Value, now: Timestamp) -> String {
    let mut text = match times::instant(&snapshot["last_written"]) {
        Some(at) => format!(
            "written {} ago",
            times::length(whole_seconds(now.since(at)))
        ),
        None => "not written yet".to_owned(),
    };
    push_problem(&mut text, snapshot);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plainly(body: &Value) -> String {
        let now = Timestamp::from_seconds(1_794_770_000);
        let text = rendered("http://127.0.0.1:8080", body, now);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn what_applies_to_the_store_is_shown() {
        let memory = json!({
            "status": "ready", "version": "0.1.0", "uptime": 11_100.25,
            "store": {"kind": "memory", "latency": null, "breaker": null, "degraded_since": null, "problem": null},
            "instances": 1,
            "rules": {"source": "data directory", "version": 5, "count": 12, "problem": null, "file": null},
            "keys": 1_234, "leases": 3, "reservations": 2,
            "snapshot": {"last_written": 1_794_769_996.5, "age": 0.2, "problem": null},
            "warnings": [],
        });
        insta::assert_snapshot!(plainly(&memory));
        let redis = json!({
            "status": "degraded", "version": "0.1.0", "uptime": 60,
            "store": {"kind": "redis", "latency": null, "breaker": "open", "degraded_since": 1_794_769_880,
                      "problem": "127.0.0.1:6379: connection refused"},
            "instances": 3,
            "rules": {"source": "file", "version": 1, "count": 1, "problem": null, "file": "/etc/tidegate/rules.yaml"},
            "keys": null, "leases": 40, "reservations": 1, "snapshot": null, "warnings": ["one\u{1b}[2J"],
        });
        insta::assert_snapshot!(plainly(&redis));
    }
}
