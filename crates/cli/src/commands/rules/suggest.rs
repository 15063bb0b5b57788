//! `tidegate rules suggest`: limits that keep a stated goal on a log. Nothing is changed, and no server is asked.

use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tidegate::Micros;
use tidegate::document::Node;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate_rehearse::{
    InputProgress, SuggestGoal, SuggestSettings, SuggestShare, suggest, suggestions_to_json,
    suggestions_to_yaml,
};

use crate::commands::logs::{self, LogArgs};
use crate::commands::simulate::ShownProgress;
use crate::exit::Answer;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    /// The rules whose limits are fitted; without it, one rule is made by `--per`, `--window` and `--algorithm`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["per", "window", "algorithm"])]
    rules: Option<String>,

    /// The attributes that clients are counted by [default: ip]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    per: Option<Vec<String>>,

    /// The window of the limit [default: 1m]
    #[arg(long, value_name = "SPAN")]
    window: Option<Micros>,

    #[arg(
        long,
        value_name = "NAME",
        help = "The algorithm of the limit [default: token_bucket]"
    )]
    algorithm: Option<String>,

    /// The share of clients that may have a denied request [default: 1%]
    #[arg(long, value_name = "P%", value_parser = share, conflicts_with = "deny_requests")]
    deny_clients: Option<SuggestShare>,

    /// The share of requests that may be denied
    #[arg(long, value_name = "P%", value_parser = share)]
    deny_requests: Option<SuggestShare>,

    /// By how much the limits are raised afterwards
    #[arg(long, value_name = "P%", value_parser = headroom, default_value = "0%")]
    headroom: SuggestShare,

    /// Whether to print each limit as `limit`, or as `candidate` next to the current one
    #[arg(long = "as", value_name = "KEY", default_value = "limit")]
    printed_as: PrintedAs,

    #[command(flatten)]
    logs: LogArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PrintedAs {
    Limit,
    Candidate,
}

fn share(text: &str) -> Result<SuggestShare, String> {
    let share = SuggestShare::read(text).filter(|share| share.is_part());
    share.ok_or_else(|| "write a share such as `1%` or `0.25%`".to_owned())
}

fn headroom(text: &str) -> Result<SuggestShare, String> {
    SuggestShare::read(text).ok_or_else(|| "write a share such as `20%`".to_owned())
}

pub(super) fn run(args: &SuggestArgs, json: bool) -> anyhow::Result<Answer> {
    let setup = args.logs.setup()?;
    // One rule by these options, also if the settings name a file.
    let of_settings = setup.rule_file.as_ref().filter(|_| !args.names_a_rule());
    let of_settings = of_settings.map(|file| file.display().to_string());
    let named = args.rules.clone().or(of_settings);
    let settings = &setup.names.settings;
    let (rules, are_new) = match &named {
        Some(file) => (logs::rules(file, settings, args.logs.quiet)?.0, false),
        None => (args.new_rule(settings)?, true),
    };
    if rules.is_by_descriptors() {
        bail!("the rules are descriptors of envoyproxy/ratelimit, whose limits cannot be fitted");
    }
    if args.printed_as == PrintedAs::Candidate && are_new {
        bail!("--as candidate needs rules that have a limit; name their file with --rules");
    }
    let inputs = args.logs.inputs(true)?;
    let settings = SuggestSettings {
        input: setup.input,
        rules,
        are_new,
        goal: match (args.deny_clients, args.deny_requests) {
            (_, Some(share)) => SuggestGoal::Requests(share),
            (share, None) => SuggestGoal::Clients(share.unwrap_or(SuggestShare::ONE_PERCENT)),
        },
        headroom: args.headroom,
        names: setup.names,
        invalid_credentials: setup.invalid_credentials,
        as_candidate: args.printed_as == PrintedAs::Candidate,
    };
    let progress = Arc::new(InputProgress::default());
    let shown = ShownProgress::start("reading", &progress, args.logs.quiet);
    let suggested = suggest(&inputs, settings, &progress);
    shown.end();
    let suggested = suggested?;
    if json {
        output::print_json(&suggestions_to_json(&suggested))?;
    } else {
        output::print(&suggestions_to_yaml(&suggested))?;
    }
    if !suggested.has_requests() {
        output::note("no rule had a request\n")?;
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

impl SuggestArgs {
    /// Whether any option says what the one rule is.
    fn names_a_rule(&self) -> bool {
        self.per.is_some() || self.window.is_some() || self.algorithm.is_some()
    }

    /// The one rule that is fitted if no file has any.
    fn new_rule(&self, settings: &RuleSettings) -> anyhow::Result<RuleSet> {
        let rule: Value = json!({
            "id": "suggested",
            "per": self.per.clone().unwrap_or_else(|| vec!["ip".to_owned()]),
            "limit": format!("1/{}", self.window.unwrap_or(Micros::from_seconds(60))),
            "algorithm": self.algorithm.as_deref().unwrap_or("token_bucket"),
        });
        let node: Node = serde_json::from_value(json!({ "rules": [rule] }))?;
        RuleSet::from_node(&node, settings)
            .map_err(|problems| anyhow!("{}", problems.to_string().trim_end()))
    }
}
