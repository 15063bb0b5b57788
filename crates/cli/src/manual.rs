//! `tidegate manual`: writes the manual pages, one for the program and one for each command.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use crate::arguments::Cli;
use crate::exit::Answer;

#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// The folder to write them to; made if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn run(args: &ManualArgs) -> anyhow::Result<Answer> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| {
            // `help` would have a page for each command again.
            let command = Cli::command().disable_help_subcommand(true);
            clap_mangen::generate_to(command, folder)
        })
        .with_context(|| format!("cannot write manual pages to `{}`", folder.display()))?;
    Ok(Answer::Yes)
}
