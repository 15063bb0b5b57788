//! `tidegate check`: asks whether a request is allowed, and charges it.

mod advice;

use clap::Args;
use serde_json::{Value, json};

use super::decision::{decision, list};
use super::question::QuestionArgs;
use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    question: QuestionArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let reply = client.post("/v1/check", &args.question.body()?)?;
    // A server that is not ready answers 503 too; only a decision has `allowed`.
    let is_decision = reply.body.get("allowed").is_some_and(Value::is_boolean);
    let reply = match reply.status {
        503 if !is_decision => reply.accept(&[])?,
        _ => reply.accept(&[200, 429, 503])?,
    };
    let is_allowed = reply.part("allowed")? == &json!(true);
    if args.server.json {
        output::print_json(&reply.body)?;
    } else {
        output::print(&decision(&reply.body, args.question.now()))?;
        let given = &args.question.attributes.attributes;
        output::note(&match list(&reply.body, "limits") {
            [] => advice::no_rule(&client, given),
            _ => advice::unused(&client, given),
        })?;
    }
    Ok(if is_allowed { Answer::Yes } else { Answer::No })
}
