//! `tidegate completions`: writes a completion script for a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::Cli;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Answer::Yes)
}
