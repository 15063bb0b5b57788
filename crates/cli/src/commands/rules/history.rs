//! `tidegate rules history`: the versions of the server's rules.

use serde_json::Value;

use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, TextTable};

pub(super) fn run(client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let reply = client.get("/v1/rules/history")?.accept(&[200])?;
    let versions = reply.list("history")?;
    if json {
        output::print_json(&reply.body)?;
    } else if versions.is_empty() {
        output::note("the rules have never been changed\n")?;
    } else {
        output::print(&table(versions))?;
    }
    Ok(Answer::Yes)
}

/// A row for each version, and one for each further change of it.
fn table(versions: &[Value]) -> String {
    let mut table = TextTable::new(&["version", "at", "by", "changes"]);
    for version in versions {
        let text = |key: &str| match version.get(key) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let changes = version.get("changes").and_then(Value::as_array);
        let changes = changes.into_iter().flatten().filter_map(Value::as_str);
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
}
