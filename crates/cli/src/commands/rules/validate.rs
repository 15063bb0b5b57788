//! `tidegate rules validate`: reports all problems of rule files, without a server.

use anyhow::bail;
use clap::Args;
use serde_json::Value;
use tidegate::rules::RuleSet;

use super::file::{self, SettingsArgs};
use super::promise;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Rule files, YAML or JSON; `-` is stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,

    #[command(flatten)]
    settings: SettingsArgs,
}

pub(super) fn run(args: &ValidateArgs, json: bool) -> anyhow::Result<Answer> {
    let mut answer = Answer::Yes;
    let mut unread = Vec::new();
    let mut listed = Vec::new();
    for file in &args.files {
        let source = match file::source(file) {
            Ok(source) => source,
            // The other files are still checked.
            Err(error) => {
                unread.push(format!("{error:#}"));
                continue;
            }
        };
        let rules = RuleSet::read(&source, &args.settings.settings());
        let problems = rules
            .as_ref()
            .map_or_else(|problems| problems, RuleSet::warnings);
        if problems.has_errors() || (args.deny_warnings && !problems.is_empty()) {
            answer = Answer::No;
        }
        if json {
            listed.extend(
                problems
                    .iter()
                    .map(|problem| file::as_json(&source.name, problem)),
            );
            continue;
        }
        output::note(&file::rendered(problems, &source))?;
        let count = rules.as_ref().ok().map(RuleSet::len);
        output::print(&format!("{}\n", file::summary(&source, count, problems)))?;
        if let Some(rules) = rules.as_ref().ok().filter(|rules| !rules.is_empty()) {
            output::print(&promise::table(rules))?;
        }
    }
    if json {
        output::print_json(&Value::Array(listed))?;
    }
    if !unread.is_empty() {
        bail!(unread.join("; "));
    }
    Ok(answer)
}
