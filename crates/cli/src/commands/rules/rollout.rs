//! `tidegate rules rollout`: sets the share of keys that a rule's candidate, or the rule itself, decides for.

use clap::Args;
use serde_json::json;
use tidegate::rules::KeyShare;

use super::promote::show_lines;
use super::remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct RolloutArgs {
    /// The rule's id
    id: String,

    /// The share of keys, from `0%` to `100%`
    #[arg(value_name = "PERCENT")]
    share: KeyShare,
}

pub(super) fn run(args: &RolloutArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let path = remote::path_of(&args.id);
    let found = path
        .as_ref()
        .map(|path| client.get(path)?.accept(&[200, 404]));
    let found = found.transpose()?.filter(|reply| reply.status == 200);
    let (Some(path), Some(found)) = (path, found) else {
        remote::note_missing(&args.id, json)?;
        return Ok(Answer::No);
    };
    let mut rule = found.body;
    remote::drop_computed(&mut rule);
    rule["rollout"] = json!(args.share.to_string());
    let reply = client.put(&path, &rule, found.etag.as_deref())?;
    if reply.status == 409 {
        show_lines(&rule, json)?;
    }
    let reply = reply.accept(&[200])?;
    let done = || format!("{} is rolled out to {} of its keys\n", args.id, args.share);
    output::print_either(json, &reply.body, done)?;
    Ok(Answer::Yes)
}
