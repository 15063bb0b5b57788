//! Reads and validates a rule file, and reports its problems.

use std::io::Read as _;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use tidegate::document::{Place, Problem, Problems, Severity, Source};
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Clock as _, SystemClock};

use crate::client::Refused;
use crate::output::{self, BAD, CAREFUL, counted, plain_lines, styled};

/// Settings of the server that affect how rules are read.
#[derive(Debug, Args)]
pub(super) struct SettingsArgs {
    /// How many bits of an IPv6 address make a key on the server
    #[arg(long, value_name = "BITS", default_value_t = RuleSettings::default().ipv6_prefix,
          value_parser = clap::value_parser!(u8).range(1..=128))]
    ipv6_prefix: u8,
}

impl SettingsArgs {
    pub(super) fn settings(&self) -> RuleSettings {
        // The other settings do not change the canonical form of a rule.
        let mut settings = RuleSettings::default().at(SystemClock.now());
        settings.ipv6_prefix = self.ipv6_prefix;
        settings
    }
}

/// A file's name and its text. `-` is stdin.
pub(in crate::commands) fn source(file: &str) -> anyhow::Result<Source> {
    let (name, bytes) = if file == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        ("<stdin>", read.map(|_| bytes))
    } else {
        (file, std::fs::read(file))
    };
    let bytes = bytes.with_context(|| format!("cannot read `{name}`"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(_) => bail!("cannot read `{name}`: it is not text in UTF-8"),
    }
}

/// The rules of a file in canonical form, and the name of the file. Problems go to stderr, or into the error if
/// the output is JSON; with errors there are no rules.
pub(super) fn rules(
    file: &str,
    settings: &RuleSettings,
    json: bool,
) -> anyhow::Result<(Vec<Value>, String)> {
    let source = source(file)?;
    let rules = RuleSet::read(&source, settings);
    if !json {
        let problems = rules
            .as_ref()
            .map_or_else(|problems| problems, RuleSet::warnings);
        output::note(&rendered(problems, &source))?;
    }
    let rules = rules.map_err(|problems| {
        let summary = summary(&source.name, None, &problems);
        let listed = problems.errors().filter(|_| json);
        Refused {
            status: None,
            message: format!("nothing was sent to the server, because of {summary}"),
            problems: listed
                .map(|problem| as_json(&source.name, problem))
                .collect(),
        }
    })?;
    if rules.is_by_descriptors() {
        bail!(
            "`{}` holds descriptors of envoyproxy/ratelimit, which a server reads only from its own file: start it with `--rules {}`",
            source.name,
            source.name
        );
    }
    let written = rules.iter().map(|rule| rule.written().clone()).collect();
    Ok((written, source.name))
}

/// All problems as text, with the first word of each in colour.
pub(in crate::commands) fn rendered(problems: &Problems, source: &Source) -> String {
    coloured(&problems.render(source))
}

/// Problems as text, with the first word of each in colour.
pub(super) fn coloured(rendered: &str) -> String {
    let mut text = String::new();
    for line in plain_lines(rendered).split_inclusive('\n') {
        let words = [("error", BAD), ("warning", CAREFUL)];
        let word = words
            .iter()
            .find_map(|(word, style)| Some((word, style, line.strip_prefix(word)?)));
        match word {
            Some((word, style, rest)) if rest.starts_with(": ") => {
                text.push_str(&styled(style.bold(), word));
                text.push_str(rest);
            }
            _ => text.push_str(line),
        }
    }
    text
}

/// One line about a file: `rules.yaml: 3 rules, 1 warning`.
pub(in crate::commands) fn summary(
    name: &str,
    rules: Option<usize>,
    problems: &Problems,
) -> String {
    let (errors, warnings) = (problems.errors().count(), problems.warnings().count());
    let mut parts = Vec::new();
    parts.extend(rules.map(|rules| counted(rules, "rule")));
    if errors > 0 {
        parts.push(counted(errors, "error"));
    }
    if warnings > 0 {
        parts.push(counted(warnings, "warning"));
    }
    format!("{name}: {}", parts.join(", "))
}

/// A problem as JSON.
pub(super) fn as_json(file: &str, problem: &Problem) -> Value {
    let file = problem.source.as_deref().unwrap_or(file);
    let (line, column) = match problem.place {
        Place::Text { line, column, .. } => (Some(line), Some(column)),
        Place::Setting(_) | Place::Nowhere => (None, None),
    };
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    json!({
        "file": file,
        "line": line,
        "column": column,
        "severity": severity,
        "rule": problem.rule,
        "field": problem.field,
        "message": problem.message,
    })
}
