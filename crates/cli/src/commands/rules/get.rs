//! `tidegate rules get`: one rule as YAML, or as JSON.

use clap::Args;

use super::remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output;
use tidegate::document::write_yaml;

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// The rule's id
    id: String,
}

pub(super) fn run(args: &GetArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let reply = match remote::path_of(&args.id) {
        Some(path) => Some(client.get(&path)?.accept(&[200, 404])?),
        None => None,
    };
    let Some(reply) = reply.filter(|reply| reply.status == 200) else {
        remote::note_missing(&args.id, json)?;
        return Ok(Answer::No);
    };
    if json {
        output::print_json(&reply.body)?;
    } else {
        output::print(&write_yaml(&reply.body))?;
    }
    Ok(Answer::Yes)
}
