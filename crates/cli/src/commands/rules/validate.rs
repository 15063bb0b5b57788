//! `tidegate rules validate`: reports all problems of rule files, without a server.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use serde_json::Value;
use tidegate::document::Problems;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate_server::config::RulePath;
use tidegate_server::rulebook::RuleFolder;

use super::file::{self, SettingsArgs};
use super::promise;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Rule files, YAML or JSON, or folders of descriptor files; `-` is stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,

    /// Accept descriptors of a domain in several files or documents
    #[arg(long)]
    merge_domains: bool,

    /// Leave out what begins with `.` in folders
    #[arg(long)]
    ignore_dot_files: bool,

    #[command(flatten)]
    settings: SettingsArgs,
}

impl ValidateArgs {
    fn settings(&self) -> RuleSettings {
        let mut settings = self.settings.settings();
        settings.merge_domains = self.merge_domains;
        settings
    }

    /// Reads a file or a folder. Returns its rules or their problems, and those as text.
    fn read(&self, file: &str) -> anyhow::Result<(Result<RuleSet, Problems>, String)> {
        let text_of = |rules: &Result<RuleSet, Problems>, render: &dyn Fn(&Problems) -> String| {
            let problems = rules
                .as_ref()
                .map_or_else(|problems| problems, RuleSet::warnings);
            render(problems)
        };
        if Path::new(file).is_dir() {
            let folder = RuleFolder::read(&RulePath {
                path: file.into(),
                ignore_dot_files: self.ignore_dot_files,
                is_lenient: false,
            })?;
            let rules = folder.rules(&self.settings());
            let text = text_of(&rules, &|problems| file::coloured(&folder.render(problems)));
            return Ok((rules, text));
        }
        let source = file::source(file)?;
        let rules = RuleSet::read(&source, &self.settings());
        let text = text_of(&rules, &|problems| file::rendered(problems, &source));
        Ok((rules, text))
    }
}

pub(super) fn run(args: &ValidateArgs, json: bool) -> anyhow::Result<Answer> {
    let mut answer = Answer::Yes;
    let mut unread = Vec::new();
    let mut listed = Vec::new();
    for file in &args.files {
        let (rules, text) = match args.read(file) {
            Ok(read) => read,
            // The other files are still checked.
            Err(error) => {
                unread.push(format!("{error:#}"));
                continue;
            }
        };
        let name = if file == "-" {
            "<stdin>"
        } else {
            file.as_str()
        };
        let problems = rules
            .as_ref()
            .map_or_else(|problems| problems, RuleSet::warnings);
        if problems.has_errors() || (args.deny_warnings && !problems.is_empty()) {
            answer = Answer::No;
        }
        if json {
            listed.extend(problems.iter().map(|problem| file::as_json(name, problem)));
            continue;
        }
        output::note(&text)?;
        let count = rules.as_ref().ok().map(RuleSet::len);
        output::print(&format!("{}\n", file::summary(name, count, problems)))?;
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
