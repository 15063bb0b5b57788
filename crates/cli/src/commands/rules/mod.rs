//! `tidegate rules`: one file per command. Shared by several: `file.rs` (a rule file), `remote.rs` (the server's
//! rules) and `changes.rs` (differences between two sets).

mod apply;
mod cases;
mod changes;
mod delete;
mod diff;
mod expectation;
pub(in crate::commands) mod file;
mod get;
mod history;
mod list;
mod promise;
mod promote;
mod remote;
mod rollback;
mod rollout;
mod suggest;
mod test;
mod validate;

use clap::{Args, Subcommand};

use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Show the server's rules in a table
    List,
    /// Show one rule
    Get(get::GetArgs),
    /// Apply the rules of a file to the server
    Apply(apply::ApplyArgs),
    /// Show how a file differs from the server (what `apply --prune` would do), or one version from another
    Diff(diff::DiffArgs),
    /// Remove one rule
    Delete(delete::DeleteArgs),
    /// Show the versions of the server's rules
    History(history::HistoryArgs),
    /// Return to an earlier version, as a new one
    Rollback(rollback::RollbackArgs),
    /// Take a rule that is tried to its next step: its candidate, its rollout or its shadow mode ends
    Promote(promote::PromoteArgs),
    /// Set the share of keys that a rule's candidate, or the rule itself, decides for
    Rollout(rollout::RolloutArgs),
    /// Fit limits to logs of recorded traffic, without a server
    Suggest(Box<suggest::SuggestArgs>),
    /// Check rule files, without a server
    Validate(validate::ValidateArgs),
    /// Test rules with requests at given times, without a server
    Test(test::TestArgs),
}

/// The rules of a server, as JSON.
pub(super) fn remote_rules(client: &ApiClient) -> anyhow::Result<Vec<serde_json::Value>> {
    Ok(remote::Remote::read(client)?.rules)
}

pub(crate) fn run(args: &RulesArgs) -> anyhow::Result<Answer> {
    let json = args.server.json;
    let client = || ApiClient::new(&args.server);
    match &args.command {
        RulesCommand::Validate(validate) => validate::run(validate, json),
        RulesCommand::Suggest(suggest) => suggest::run(suggest, json),
        RulesCommand::Test(test) => test::run(test, json),
        RulesCommand::List => list::run(&client()?, json),
        RulesCommand::Get(get) => get::run(get, &client()?, json),
        RulesCommand::Apply(apply) => apply::run(apply, &client()?, json),
        RulesCommand::Diff(diff) => diff::run(diff, &client()?, json),
        RulesCommand::Delete(delete) => delete::run(delete, &client()?, json),
        RulesCommand::History(history) => history::run(history, &client()?, json),
        RulesCommand::Promote(promote) => promote::run(promote, &client()?, json),
        RulesCommand::Rollout(rollout) => rollout::run(rollout, &client()?, json),
        RulesCommand::Rollback(rollback) => rollback::run(rollback, &client()?, json),
    }
}
