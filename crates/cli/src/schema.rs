//! `tidegate schema`: the JSON Schema of a file, for editors that complete and check it.

use clap::{Args, ValueEnum};

use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Which file it describes
    file: Described,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Described {
    /// A file of rules
    Rules,
    /// The file of settings
    Config,
}

pub(crate) fn run(args: &SchemaArgs) -> anyhow::Result<Answer> {
    let schema = match args.file {
        Described::Rules => tidegate::rules::schema(),
        Described::Config => tidegate_server::config::schema(),
    };
    output::print(&format!("{schema:#}\n"))?;
    Ok(Answer::Yes)
}
