//! `tidegate rules rollback`: returns to an earlier version, as a new one.

use clap::Args;
use serde_json::json;

use super::diff::diff_text;
use super::remote::Remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, counted};

#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    /// The version to return to, as `rules history` shows it
    #[arg(value_name = "VERSION")]
    version: u64,

    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &RollbackArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let mut body = json!({"version": args.version});
    if args.dry_run {
        body["dry_run"] = json!(true);
    }
    let reply = client.post("/v1/rules/rollback", &body)?.accept(&[200])?;
    if json || args.dry_run {
        if !json {
            reply.part("text")?;
        }
        output::print_either(json, &reply.body, || diff_text(&reply.body))?;
        return Ok(Answer::Yes);
    }
    let remote = Remote::from_reply(&reply)?;
    let rules = counted(remote.rules.len(), "rule");
    let now = remote
        .version
        .map(|version| format!(", now as version {version}"));
    let now = now.unwrap_or_default();
    output::print(&format!("back to version {}{now}: {rules}\n", args.version))?;
    Ok(Answer::Yes)
}
