//! `tidegate simulate`: tries rules on logs. Nothing is sent anywhere, unless `--against` names a server, which is
//! asked for its rules.

mod bound;
mod progress;
mod terminal;
mod written;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use tidegate::document::Node;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate_rehearse::{
    HtmlTerms, InputProgress, ScaleFactor, ScaleSettings, Simulated, SimulationSettings, show,
    simulate, to_html, to_json,
};

use super::logs::{self, LogArgs};
use super::rules::remote_rules;
use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output::{self, plain};
use bound::DeniedBound;
pub(super) use progress::ShownProgress;
use written::{WrittenFile, write_whole};

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct SimulateArgs {
    /// The rules to try; may be left out if `--config` names a rule file
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,

    /// Compare with the rules of this file, or of the server with this URL
    #[arg(long, value_name = "FILE|URL")]
    against: Option<String>,

    /// Write the report as JSON to stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the report to this file, as one page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// How many clients of each rule are listed, or `all`
    #[arg(long, value_name = "N", default_value = "20", value_parser = top)]
    top: Top,

    /// Also try all limits multiplied by these factors; `off` for none
    #[arg(long, value_name = "LIST", default_value = "0.5,0.75,1,1.5,2")]
    scale: String,

    /// Multiply only the limits of this rule; may be given several times
    #[arg(long, value_name = "ID")]
    scale_rule: Vec<String>,

    /// End with 1 if more requests are denied than this number, or share such as `0.5%`
    #[arg(long, value_name = "N|P%", value_parser = DeniedBound::read)]
    max_denied: Option<DeniedBound>,

    /// End with 1 if more requests are denied that the rules of `--against` allow
    #[arg(long, value_name = "N|P%", value_parser = DeniedBound::read, requires = "against")]
    max_newly_denied: Option<DeniedBound>,

    /// Write each decision to this file, in the form of a recording
    #[arg(long, value_name = "FILE")]
    write_record: Option<PathBuf>,

    /// Print how the first N requests are read, and end
    #[arg(long, value_name = "N")]
    show: Option<usize>,

    #[command(flatten)]
    logs: LogArgs,

    /// The token to send to the server of `--against`
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TIDEGATE_TOKEN",
        hide_env_values = true,
        help_heading = "Server"
    )]
    token: Option<String>,

    /// The data directory of a server on this machine, for the token that it generated
    #[arg(
        long,
        value_name = "DIR",
        env = "TIDEGATE_DATA_DIR",
        default_value = "tidegate-data",
        help_heading = "Server"
    )]
    data_dir: String,

    /// Trust the certificates in this PEM file instead of the public ones
    #[arg(long, value_name = "PEM", help_heading = "Server")]
    ca_file: Option<PathBuf>,
}

/// How many clients are listed; none is all.
#[derive(Debug, Clone, Copy)]
struct Top(Option<usize>);

fn top(text: &str) -> Result<Top, String> {
    if text == "all" {
        return Ok(Top(None));
    }
    let count = text
        .parse()
        .map_err(|_| "write a number or `all`".to_owned())?;
    Ok(Top(Some(count)))
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Answer> {
    let setup = args.logs.setup()?;
    let named = args
        .rules
        .clone()
        .or_else(|| Some(setup.rule_file.as_ref()?.display().to_string()));
    let Some(rule_file) = named else {
        bail!("no rules to try; name a file with --rules, or settings that name one with --config");
    };
    let inputs = args.logs.inputs(false)?;
    let (rules, source) = logs::rules(&rule_file, &setup.names.settings, args.logs.quiet)?;
    let settings = SimulationSettings {
        input: setup.input,
        rules: rules.clone(),
        against: args.against(&setup.names.settings)?,
        scale: args.scale()?,
        names: setup.names,
        invalid_credentials: setup.invalid_credentials,
        record: None,
    };
    if let Some(count) = args.show {
        let shown = show(&inputs, &settings, count)?;
        let all: Vec<Value> = shown.iter().map(|request| request.json.clone()).collect();
        output::print_either(args.json, &json!(all), || terminal::requests(&shown))?;
        return Ok(Answer::Yes);
    }
    let record = args.write_record.as_deref().map(WrittenFile::begin);
    let record = record.transpose()?;
    let settings = SimulationSettings {
        record: record.as_ref().map(WrittenFile::writer).transpose()?,
        ..settings
    };
    let progress = Arc::new(InputProgress::default());
    let shown = ShownProgress::start("simulating", &progress, args.logs.quiet);
    let simulated = simulate(&inputs, settings, &progress);
    let took = shown.end();
    let mut simulated = simulated?;
    simulated.took = took;
    if let Some(record) = record {
        record.persist()?;
    }
    args.report(&simulated, &source.name, &source.text)?;
    if !simulated.is_complete() {
        bail!("interrupted: the report is about what was read");
    }
    let is_over = |bound: &Option<DeniedBound>, counts: Option<(u64, u64)>| {
        bound
            .as_ref()
            .zip(counts)
            .is_some_and(|(bound, (denied, requests))| bound.is_exceeded(denied, requests))
    };
    let is_no = is_over(&args.max_denied, Some(simulated.denied()))
        || is_over(&args.max_newly_denied, simulated.newly_denied());
    Ok(if is_no { Answer::No } else { Answer::Yes })
}

impl SimulateArgs {
    /// The rules to compare with.
    fn against(&self, settings: &RuleSettings) -> anyhow::Result<Option<(String, RuleSet)>> {
        let Some(name) = &self.against else {
            return Ok(None);
        };
        if !name.starts_with("http://") && !name.starts_with("https://") {
            let (rules, source) = logs::rules(name, settings, true)?;
            return Ok(Some((source.name, rules)));
        }
        let client = ApiClient::new(&ServerArgs {
            server: name.clone(),
            token: self.token.clone(),
            data_dir: self.data_dir.clone(),
            ca_file: self.ca_file.clone(),
            client_cert: None,
            client_key: None,
            json: self.json,
        })?;
        let written = remote_rules(&client)?;
        let node: Node = serde_json::from_value(json!({ "rules": written }))?;
        let rules = RuleSet::from_node(&node, settings).map_err(|problems| {
            anyhow!(
                "the rules of {} cannot be read: {}",
                plain(name),
                plain(&problems.to_string())
            )
        })?;
        Ok(Some((name.clone(), rules)))
    }

    fn scale(&self) -> anyhow::Result<ScaleSettings> {
        let rules = self.scale_rule.clone();
        if self.scale == "off" {
            // Names of rules that are not there are still refused.
            let off = ScaleSettings::off();
            return Ok(ScaleSettings { rules, ..off });
        }
        let read = |text: &str| {
            let factor = ScaleFactor::read(text.trim());
            factor.ok_or_else(|| {
                anyhow!(
                    "--scale: `{text}` is not a factor; write numbers such as `0.5,1,2`, or `off`"
                )
            })
        };
        let factors = self.scale.split(',').map(read);
        let factors = factors.collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(
            factors.len() <= ScaleSettings::MOST,
            "--scale: {} factors; at most {} can be compared in one run",
            factors.len(),
            ScaleSettings::MOST
        );
        Ok(ScaleSettings { factors, rules })
    }

    /// Writes the reports that were asked for.
    fn report(&self, simulated: &Simulated, name: &str, text: &str) -> anyhow::Result<()> {
        let Top(top) = self.top;
        let json = to_json(simulated, top);
        if let Some(file) = &self.html {
            let terms = HtmlTerms {
                rule_file: name,
                rule_text: text,
                command: &command_line(),
                version: env!("CARGO_PKG_VERSION"),
            };
            write_whole(file, to_html(simulated, &json, &terms).as_bytes())?;
        }
        if !self.json {
            return Ok(output::print(&terminal::report(simulated, &json))?);
        }
        if !self.logs.quiet {
            for warning in simulated.warnings() {
                output::note(&format!("{}\n", terminal::warning(warning)))?;
            }
        }
        Ok(output::print_json(&json)?)
    }
}

/// The command as it was given, without the token and the values of `-a`, which may be secrets.
fn command_line() -> String {
    let mut words = Vec::new();
    let (mut is_token, mut is_attribute) = (false, false);
    for word in std::env::args() {
        let shown = match word.as_str() {
            _ if is_token => "…".to_owned(),
            text if is_attribute => format!("{}=…", text.split('=').next().unwrap_or_default()),
            text if text.starts_with("--attr=") => "--attr=…".to_owned(),
            text if text.starts_with("-a") && text.len() > 2 => "-a…".to_owned(),
            text if text.starts_with("--token=") => "--token=…".to_owned(),
            text if text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_./=,:@%+".contains(&byte))
                && !text.is_empty() =>
            {
                text.to_owned()
            }
            text => format!("'{}'", text.replace('\'', r"'\''")),
        };
        is_token = word == "--token";
        is_attribute = matches!(word.as_str(), "-a" | "--attr");
        words.push(shown);
    }
    if let Some(program) = words.first_mut() {
        let name = Path::new(program.as_str())
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_else(|| "tidegate".to_owned());
    }
    words.join(" ")
}
