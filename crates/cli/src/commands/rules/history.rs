//! `tidegate rules history`: the versions of the server's rules.

use clap::Args;
use serde_json::Value;

use super::diff::{diff_text, versions};
use crate::client::{ApiClient, Refused};
use crate::exit::Answer;
use crate::output::{self, HEADING, TextTable, cell, plain, styled};

#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    /// Show what each change did, as a diff against the version before
    #[arg(long)]
    diff: bool,
}

pub(super) fn run(args: &HistoryArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let mut reply = client.get("/v1/rules/history")?.accept(&[200])?;
    let rows = reply.list("history")?.to_vec();
    if json {
        if args.diff {
            for (index, row) in rows.iter().enumerate() {
                let diff = diff_of(client, row, &rows[index + 1..])?;
                reply.body["history"][index]["diff"] = diff.unwrap_or_default();
            }
        }
        output::print_json(&reply.body)?;
    } else if rows.is_empty() {
        output::note("the rules have never been changed\n")?;
    } else if args.diff {
        for (index, row) in rows.iter().enumerate() {
            let diff = diff_of(client, row, &rows[index + 1..])?;
            let space = if index > 0 { "\n" } else { "" };
            output::print(&format!("{space}{}", with_diff(row, diff.as_ref())))?;
        }
    } else {
        output::print(&table(&rows))?;
    }
    Ok(Answer::Yes)
}

/// Whether a row is of a temporary override. It has the version of the rules at the time.
fn is_override(row: &Value) -> bool {
    row["override"].is_object()
}

/// The diff of a row; `None` if it changed no rule, or if one of the two versions is not kept.
fn diff_of(client: &ApiClient, row: &Value, older: &[Value]) -> anyhow::Result<Option<Value>> {
    if is_override(row) {
        return Ok(None);
    }
    let version = |row: &Value| row["version"].as_u64();
    let older = older.iter().find(|row| !is_override(row));
    let before = match (older.and_then(version), version(row)) {
        (Some(before), _) => before,
        // Before the first version there were no rules.
        (None, Some(1)) => 0,
        _ => return Ok(None),
    };
    match versions(client, Some(before), version(row)) {
        Ok(diff) => Ok(Some(diff)),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(Refused {
                status: Some(404), ..
            }) => Ok(None),
            _ => Err(error),
        },
    }
}

/// A row of the history, followed by its diff.
fn with_diff(row: &Value, diff: Option<&Value>) -> String {
    let text = |key: &str| plain(&cell(&row[key]));
    let (version, at, by) = (text("version"), text("at"), text("by"));
    let heading = styled(HEADING, &format!("version {version}  {at}  {by}"));
    let mut lines = vec![heading];
    let changes = row["changes"].as_array().into_iter().flatten();
    lines.extend(changes.filter_map(|change| Some(format!("  {}", plain(change.as_str()?)))));
    if is_override(row) {
        return format!("{}\n", lines.join("\n"));
    }
    let diff = diff.map_or_else(|| "the version before is not kept\n".to_owned(), diff_text);
    format!("{}\n{diff}", lines.join("\n"))
}

/// A row for each version, and one for each further change of it.
fn table(versions: &[Value]) -> String {
    let mut table = TextTable::new(&["version", "at", "by", "changes"]);
    for version in versions {
        let text = |key: &str| cell(&version[key]);
        let changes = version["changes"].as_array().into_iter().flatten();
        let changes = changes.filter_map(Value::as_str);
        let mut changes = changes.map(str::to_owned);
        let first = changes.next().unwrap_or_else(|| "-".to_owned());
        table.row(vec![text("version"), text("at"), text("by"), first]);
        for change in changes {
            table.row(vec![String::new(), String::new(), String::new(), change]);
        }
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_change_has_a_line() {
        let versions = [
            json!({"version": 10, "at": "2026-11-15T19:13:20Z", "by": "deploy", "changes": ["added a", "removed b"]}),
            json!({"version": 9, "at": "2026-11-14T09:00:00Z", "by": null, "changes": []}),
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&versions)));
    }

    #[test]
    fn no_value_forges_a_line_of_the_history() {
        let row = json!({"version": 9, "at": "2026-11-14T09:00:00Z", "by": "a\nversion 10", "override": {"rule": "r", "key": "k", "what": "added", "text": "t"},
            "changes": ["added override of a for u1: blocked (x)\nversion 8  2026-11-14T09:00:00Z  root"]});
        let text = with_diff(&row, None);
        assert_eq!(text.matches('\n').count(), 2, "{text}");
        assert!(text.contains("a\\u{a}version 10"), "{text}");
    }

    #[test]
    fn a_change_of_an_override_has_no_diff() {
        let row = json!({"version": 9, "at": "2026-11-14T09:00:00Z", "by": "ops", "override": {"rule": "r", "key": "k", "what": "added", "text": "t"},
            "changes": ["removed override of a for u1"]});
        let text = with_diff(&row, None);
        let text = anstream::adapter::strip_str(&text).to_string();
        let expected = "version 9  2026-11-14T09:00:00Z  ops\n  removed override of a for u1\n";
        assert_eq!(text, expected);
    }
}
