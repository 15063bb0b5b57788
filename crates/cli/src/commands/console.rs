//! `tidegate console`: prints an address at which the web console opens signed in, and opens it where there is a
//! desktop. The address has a code that works once, for a minute, and never the token.

use std::process::{Command, Stdio};

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
            client.server()
        );
    }
    let seconds = reply.part("expires_in")?.as_u64().unwrap_or_default();
    let url = format!("{}/console/#code={code}", client.base());
    let is_opened = !args.no_open && opener().is_some_and(|program| open(program, &url));
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

/// The program that opens an address, if there is a desktop.
fn opener() -> Option<&'static str> {
    if cfg!(target_os = "macos") {
        return Some("open");
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "these are not settings: they say whether there is a desktop"
    )]
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")).then_some("xdg-open")
}

/// Starts the program, and does not wait for it: some run for as long as the browser does.
fn open(program: &str, url: &str) -> bool {
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.is_ok()
}
