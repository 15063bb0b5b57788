//! `tidegate rules diff`: how a file differs from the server, or one version from another.

use anstyle::Style;
use clap::Args;
use serde_json::Value;
use tidegate::document::write_yaml;
use tidegate_server::rulebook::{id_of, unified};

use super::changes::{Changes, summary};
use super::file::{self, SettingsArgs};
use super::remote::Remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, BAD, GOOD, HEADING, PLACE, plain, styled};

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The rule file, YAML or JSON; `-` is stdin
    #[arg(long, short, value_name = "FILE", required_unless_present_any = ["from", "to"], conflicts_with_all = ["from", "to"])]
    file: Option<String>,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Compare this version, as `rules history` shows it; the one before `--to` if left out
    #[arg(long, value_name = "VERSION")]
    from: Option<u64>,

    /// With this version; the current one if left out
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
}

pub(super) fn run(args: &DiffArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let Some(file) = &args.file else {
        return compare(args, client, json);
    };
    let settings = args.settings.settings();
    let (rules, name) = file::rules(file, &settings, json)?;
    let remote = Remote::read(client)?;
    let changes = Changes::between(&remote.rules, &rules, &settings);
    if json {
        output::print_json(&as_json(&changes))?;
    } else if changes.is_empty() {
        output::print("no differences\n")?;
    } else {
        let server = match remote.version {
            Some(version) => format!("{} (version {version})", &client.server),
            None => client.server.clone(),
        };
        output::print(&rendered(&changes, &server, &name))?;
    }
    Ok(answer(changes.is_empty()))
}

/// Compares two versions of the server's rules.
fn compare(args: &DiffArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let diff = versions(client, args.from, args.to)?;
    output::print_either(json, &diff, || diff_text(&diff))?;
    Ok(answer(diff["text"] == ""))
}

/// The server's diff of two versions.
pub(super) fn versions(
    client: &ApiClient,
    from: Option<u64>,
    to: Option<u64>,
) -> anyhow::Result<Value> {
    let from = from.map(|version| format!("from={version}"));
    let to = to.map(|version| format!("to={version}"));
    let query = from
        .into_iter()
        .chain(to)
        .collect::<Vec<String>>()
        .join("&");
    let reply = client.get(&format!("/v1/rules/diff?{query}"))?;
    let reply = reply.accept(&[200])?;
    reply.part("text")?;
    Ok(reply.body)
}

/// A diff of the server as text, in colour.
pub(super) fn diff_text(diff: &Value) -> String {
    let text = diff["text"].as_str().unwrap_or_default();
    if text.is_empty() {
        return "no differences\n".to_owned();
    }
    let mut lines: Vec<String> = coloured(text).collect();
    let count = |key: &str| diff[key].as_array().map_or(0, Vec::len);
    let counts = [count("added"), count("changed"), count("removed")];
    let summary = summary(counts, !diff["order"].is_null());
    lines.extend([String::new(), summary]);
    lines.join("\n") + "\n"
}

fn answer(is_same: bool) -> Answer {
    if is_same { Answer::Yes } else { Answer::No }
}

fn as_json(changes: &Changes) -> Value {
    let mut diff = changes.0.to_json();
    // The name of `rule` before there was a diff of versions.
    for changed in diff["changed"].as_array_mut().into_iter().flatten() {
        changed["id"] = changed["rule"].clone();
    }
    diff
}

/// The differences as a unified diff of the rules' YAML, each below the rule's name.
fn rendered(changes: &Changes, server: &str, file: &str) -> String {
    let Changes(diff) = changes;
    let mut lines = vec![
        styled(BAD, &format!("--- {server}")),
        styled(GOOD, &format!("+++ {}", plain(file))),
    ];
    for rule in &diff.removed {
        push_rule("removed", Some(rule), None, &mut lines);
    }
    for (before, after) in &diff.changed {
        push_rule("changed", Some(before), Some(after), &mut lines);
    }
    for rule in &diff.added {
        push_rule("added", None, Some(rule), &mut lines);
    }
    if let Some((before, after)) = &diff.order {
        let order = format!(
            "order changed: {} -> {}",
            before.join(", "),
            after.join(", ")
        );
        lines.extend([String::new(), styled(HEADING, &plain(&order))]);
    }
    lines.extend([String::new(), changes.summary()]);
    lines.join("\n") + "\n"
}

/// The difference of one rule. A new or removed rule is shown whole.
fn push_rule(what: &str, before: Option<&Value>, after: Option<&Value>, lines: &mut Vec<String>) {
    let id = before.or(after).map(id_of).unwrap_or_default();
    let heading = format!("rule {} {what}", plain(id));
    lines.extend([String::new(), styled(HEADING, &heading)]);
    let yaml = |rule: Option<&Value>| rule.map(write_yaml).unwrap_or_default();
    lines.extend(coloured(&unified(&yaml(before), &yaml(after))));
}

/// The lines of a unified diff, in colour.
fn coloured(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| {
        let style = match line.as_bytes().first() {
            Some(b'-') => BAD,
            Some(b'+') => GOOD,
            Some(b'@') => PLACE,
            _ => Style::new(),
        };
        styled(style, &plain(line))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::rules::RuleSettings;

    use super::*;

    fn changes() -> Changes {
        let before = [
            json!({"id": "old", "per": [], "limit": "5/second"}),
            json!({"id": "per-user", "description": "free users", "per": ["user_id"], "limit": "100/minute",
                   "match": {"path": ["/v1/**"]}, "missing": "deny", "tiers": {"pro": "1000/minute"}}),
            json!({"id": "per-ip", "per": ["ip"], "limit": "10/second"}),
        ];
        let after = [
            json!({"id": "per-ip", "per": "ip", "limit": {"requests": 10, "window": "1s"}}),
            json!({"id": "per-user", "description": "free users", "per": ["user_id"], "limit": "200/minute",
                   "match": {"path": ["/v1/**", "/login"]}, "missing": "deny", "tiers": {"pro": "1000/minute"}}),
            json!({"id": "new", "per": ["ip"], "limit": "1/day", "mode": "shadow"}),
        ];
        Changes::between(&before, &after, &RuleSettings::default())
    }

    #[test]
    fn differences_read_as_a_diff_of_the_files() {
        let text = rendered(
            &changes(),
            "http://127.0.0.1:8080 (version 7)",
            "rules.yaml",
        );
        insta::assert_snapshot!("diff", anstream::adapter::strip_str(&text));
    }

    #[test]
    fn lines_are_coloured_by_what_happened_to_them() {
        let text = rendered(&changes(), "server", "file");
        assert!(
            text.contains("\u{1b}[31m-limit: 100/minute\u{1b}[0m\n"),
            "{text:?}"
        );
        assert!(
            text.contains("\u{1b}[32m+limit: 200/minute\u{1b}[0m\n"),
            "{text:?}"
        );
    }

    #[test]
    fn differences_in_json_have_whole_rules() {
        let json = as_json(&changes());
        assert_eq!(json["changed"][0]["id"], "per-user");
        assert_eq!(json["removed"][0]["limit"], "5/second");
        assert_eq!(json["order"]["after"], json!(["per-ip", "per-user"]));
    }
}
