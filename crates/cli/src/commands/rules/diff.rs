//! `tidegate rules diff`: how a file differs from the server, rule by rule.

use anstyle::Style;
use clap::Args;
use serde_json::Value;
use tidegate::document::write_yaml;
use tidegate_server::rulebook::{id_of, unified};

use super::changes::Changes;
use super::file::{self, FileArgs};
use super::remote::Remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, BAD, GOOD, HEADING, PLACE, plain, styled};

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    file: FileArgs,
}

pub(super) fn run(args: &DiffArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let (rules, name) = file::rules(&args.file, json)?;
    let remote = Remote::read(client)?;
    let changes = Changes::between(&remote.rules, &rules, &args.file.settings.settings());
    if json {
        output::print_json(&as_json(&changes))?;
    } else if changes.is_empty() {
        output::print("no differences\n")?;
    } else {
        let server = match remote.version {
            Some(version) => format!("{} (version {version})", client.server()),
            None => client.server().to_owned(),
        };
        output::print(&rendered(&changes, &server, &name))?;
    }
    Ok(if changes.is_empty() {
        Answer::Yes
    } else {
        Answer::No
    })
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
pub(super) fn coloured(text: &str) -> impl Iterator<Item = String> {
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
