//! `tidegate rules delete`: removes one rule.

use clap::Args;
use serde_json::json;

use super::remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// The rule's id
    id: String,
}

pub(super) fn run(args: &DeleteArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let status = match remote::path_of(&args.id) {
        Some(path) => client.delete(&path)?.accept(&[200, 204, 404])?.status,
        None => 404,
    };
    if status == 404 {
        remote::note_missing(&args.id, json)?;
        return Ok(Answer::No);
    }
    let removed = json!({"removed": [args.id]});
    output::print_either(json, &removed, || format!("removed {}\n", args.id))?;
    Ok(Answer::Yes)
}
