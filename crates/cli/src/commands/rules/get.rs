//! `tidegate rules get`: one rule as YAML, or as JSON.

use clap::Args;
use tidegate::document::write_yaml;

use super::remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// The rule's id
    id: String,
}

pub(super) fn run(args: &GetArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let Some(mut rule) = remote::find(client, &args.id)? else {
        remote::note_missing(&args.id, json)?;
        return Ok(Answer::No);
    };
    if json {
        output::print_json(&rule)?;
    } else {
        // The text of a file.
        remote::drop_computed(&mut rule);
        output::print(&write_yaml(&rule))?;
    }
    Ok(Answer::Yes)
}
