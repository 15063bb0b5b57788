//! `tidegate reset`: clears the usage of a client, and shows how much it was.

use clap::Args;
use serde_json::{Value, json};

use super::attributes::AttributeArgs;
use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output::{self, TextTable, cell, plain};

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ResetArgs {
    /// A client, by its value or by the digest that `top`, `denied` or the log shows
    #[arg(value_name = "CLIENT", conflicts_with = "attributes")]
    client: Option<String>,

    #[command(flatten)]
    attributes: AttributeArgs,

    /// Only this rule's counter; needed for a counter that all clients share
    #[arg(long, value_name = "ID")]
    rule: Option<String>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &ResetArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let mut body = match &args.client {
        Some(client) => json!({"client": client}),
        None => json!({"attributes": args.attributes.to_json()?}),
    };
    if let Some(rule) = &args.rule {
        body["rule"] = json!(rule);
    }
    let reply = client.post("/v1/reset", &body)?;
    let reply = reply.accept_client(args.client.as_deref())?;
    let counters = reply.list("reset")?;
    if args.server.json {
        output::print_json(&reply.body)?;
        return Ok(Answer::Yes);
    }
    output::print(&table(counters))?;
    for name in reply.body["ignored"].as_array().into_iter().flatten() {
        let name = plain(name.as_str().unwrap_or_default());
        output::note(&format!("no rule counts by `{name}`: it was ignored\n"))?;
    }
    Ok(Answer::Yes)
}

/// A row for each counter that was reset.
fn table(counters: &[Value]) -> String {
    let mut table = TextTable::new(&["rule", "limit", "key", "used"]);
    for counter in counters {
        let text = |key: &str| cell(&counter[key]);
        let limit = match text("limit").as_str() {
            "0" => "blocked".to_owned(),
            "-" => "unlimited".to_owned(),
            limit => limit.to_owned(),
        };
        let key = key_text(&counter["key"]);
        table.row(vec![text("rule"), limit, key, text("used")]);
    }
    table.render()
}

/// The key of a counter: `user_id=u1 ip=203.0.113.7`.
pub(crate) fn key_text(key: &Value) -> String {
    let parts = key.as_object().into_iter().flatten();
    let part = |(name, value): (&String, &Value)| format!("{name}={}", cell(value));
    let parts: Vec<String> = parts.map(part).collect();
    if parts.is_empty() {
        return "(one for all)".to_owned();
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_chose_cannot_steer_the_terminal() {
        let counters = [
            json!({"rule": "per-user", "limit": 100, "key": {"user_id": "\u{1b}[2J\u{202e}x"}, "used": 7}),
            json!({"rule": "all", "limit": 1000, "key": {}, "used": 12}),
            json!({"rule": "per-key", "limit": 0, "key": {}, "used": 1}),
            json!({"rule": "free", "limit": null, "key": {}, "used": 1}),
        ];
        let expected = "RULE      LIMIT      KEY                         USED\nper-user  100        user_id=\\u{1b}[2J\\u{202e}x  7\nall       1000       (one for all)               12\nper-key   blocked    (one for all)               1\nfree      unlimited  (one for all)               1\n";
        let text = table(&counters);
        assert_eq!(anstream::adapter::strip_str(&text).to_string(), expected);
    }
}
