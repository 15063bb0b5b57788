//! `tidegate rules test`: requests and what their decisions must be, on a virtual server. No server is asked.

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use tidegate::document::{Problems, Source};
use tidegate::rules::RuleSet;
use tidegate::{Decision, Gate, MemoryStore};

use super::cases::{CaseFile, RuleCase};
use super::file::{self, SettingsArgs};
use crate::exit::Answer;
use crate::output::{self, BAD, counted, plain, styled};

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Files of cases, YAML or JSON; `-` is stdin
    #[arg(value_name = "CASES", required = true)]
    files: Vec<String>,

    /// The rules to test; without it, each file of cases has its own below `rules`
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,

    #[command(flatten)]
    settings: SettingsArgs,
}

pub(super) fn run(args: &TestArgs, json: bool) -> anyhow::Result<Answer> {
    let mut answer = Answer::Yes;
    let mut listed = Vec::new();
    let mut failed = Vec::new();
    for name in &args.files {
        // The other files are still tested.
        let differences = match test(name, args) {
            Ok((differences, cases)) => {
                if !json {
                    output::print(&summary(name, cases, &differences))?;
                }
                differences
            }
            Err(error) => {
                failed.push(format!("{error:#}"));
                continue;
            }
        };
        if !differences.is_empty() {
            answer = Answer::No;
        }
        listed.extend(differences);
    }
    if json {
        output::print_json(&Value::Array(
            listed.iter().map(CaseDifference::to_json).collect(),
        ))?;
    }
    if !failed.is_empty() {
        bail!(failed.join("; "));
    }
    Ok(answer)
}

/// A value that is not the expected one.
struct CaseDifference {
    file: String,
    line: usize,
    case: String,
    key: &'static str,
    expected: String,
    came: String,
}

impl CaseDifference {
    fn to_json(&self) -> Value {
        json!({"file": self.file, "line": self.line, "case": self.case, "key": self.key,
            "expected": self.expected, "came": self.came})
    }

    fn line(&self) -> String {
        let case = if self.case.is_empty() {
            String::new()
        } else {
            format!("`{}`, ", plain(&self.case))
        };
        format!(
            "{}: {}:{}: {case}`{}`: expected {}, came {}\n",
            styled(BAD.bold(), "different"),
            plain(&self.file),
            self.line,
            self.key,
            plain(&self.expected),
            plain(&self.came),
        )
    }
}

fn summary(name: &str, cases: usize, differences: &[CaseDifference]) -> String {
    let mut text: String = differences.iter().map(CaseDifference::line).collect();
    let end = match differences.len() {
        0 => "all hold".to_owned(),
        count => counted(count, "difference"),
    };
    let cases = counted(cases, "case");
    text.extend([&plain(name), ": ", &cases, ", ", &end, "\n"]);
    text
}

/// The differences of a file, and how many cases it has.
fn test(name: &str, args: &TestArgs) -> anyhow::Result<(Vec<CaseDifference>, usize)> {
    let source = file::source(name)?;
    let mut problems = Problems::new();
    let Some(cases) = CaseFile::read(&source, &mut problems) else {
        problems.sort();
        return Err(refused(&problems, &source));
    };
    let settings = args.settings.settings();
    let (read, of) = match (&args.rules, &cases.rules) {
        (Some(_), Some(_)) => {
            bail!("{name}: it has rules of its own, and --rules names others; remove one of them")
        }
        (None, None) => {
            bail!(
                "{name}: no rules to test; name a file with --rules, or write `rules:` next to `cases:`"
            )
        }
        (Some(rules), None) => {
            let source = file::source(rules)?;
            (RuleSet::read(&source, &settings), source)
        }
        (None, Some(rules)) => (RuleSet::from_node(rules, &settings), source.clone()),
    };
    let rules = read.map_err(|problems| refused(&problems, &of))?;
    let gate = Gate::new(MemoryStore::new(), rules);
    let mut differences = Vec::new();
    for case in &cases.cases {
        let decision = decide(&gate, case)?;
        for expected in &case.expected {
            if let Some(came) = expected.unmet(&decision) {
                differences.push(CaseDifference {
                    file: source.name.clone(),
                    line: expected.line,
                    case: case.name.clone(),
                    key: expected.key,
                    expected: expected.value.to_string(),
                    came: came.to_string(),
                });
            }
        }
    }
    Ok((differences, cases.cases.len()))
}

/// The problems of a file go to stderr, and how many there are into the error.
fn refused(problems: &Problems, source: &Source) -> anyhow::Error {
    // If stderr is closed, the problems cannot be shown.
    let _ = output::note(&file::rendered(problems, source));
    anyhow!(file::summary(&source.name, None, problems))
}

/// The decision about a request; about the last one, if it is repeated.
fn decide(gate: &Gate, case: &RuleCase) -> anyhow::Result<Decision> {
    let ask = || {
        let decided = gate.try_decide(&case.request);
        decided.map_err(|_| anyhow!("the store is not in memory"))
    };
    for _ in 1..case.repeat {
        ask()?;
    }
    ask()
}
