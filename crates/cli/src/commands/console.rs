//! `tidegate console`: prints an address at which the web console opens signed in, and opens it where there is a
//! desktop. The address has a code that works once, for a minute, and never the token.

mod page;

use std::path::Path;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ConsoleArgs {
    /// Only print the address
    #[arg(long)]
    no_open: bool,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &ConsoleArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let reply = client
        .post("/v1/console/code", &json!({}))?
        .accept(&[200])?;
    let code = reply.part("code")?.as_str().unwrap_or_default();
    if code.is_empty() || !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        bail!(
            "{} sent a code that is not one; is it a Tidegate server?",
            &client.server
        );
    }
    let seconds = reply.part("expires_in")?.as_u64().unwrap_or_default();
    let url = format!("{}/console/#code={code}", &client.base);
    let program = page::opener().filter(|_| !args.no_open);
    let is_opened =
        program.is_some_and(|program| page::open(program, &url, Path::new(&args.server.data_dir)));
    if args.server.json {
        let opened: Value = json!({"url": url, "expires_in": seconds, "opened": is_opened});
        output::print_json(&opened)?;
        return Ok(Answer::Yes);
    }
    output::print(&format!("{url}\n"))?;
    let what = if is_opened {
        "opened in your browser"
    } else {
        "open it in a browser on this machine, or through a tunnel"
    };
    output::note(&format!("{what}; it works once, within {seconds} s\n"))?;
    Ok(Answer::Yes)
}
