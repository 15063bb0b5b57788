//! `tidegate top`: a live view of rules, rates and top keys, for a terminal.
//!
//! `feed.rs` asks the server, `activity.rs` reads its answers, `state.rs` follows the keyboard, `draw.rs` draws,
//! `screen.rs` takes the terminal and gives it back, `once.rs` prints a single time.

mod activity;
mod draw;
mod feed;
mod once;
mod screen;
mod state;

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::{self, Answer};
use crate::output;
use feed::TopQuestion;
use state::TopState;

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct TopArgs {
    /// How much of the past to show; rates are averages over it
    #[arg(long, value_name = "WINDOW", default_value = "1m")]
    window: ActivityWindow,

    /// What to sort the rules by
    #[arg(long, value_name = "COLUMN", default_value = "denied")]
    sort: RuleOrder,

    /// Show the top keys of this rule; the first one if left out
    #[arg(long, value_name = "ID")]
    rule: Option<String>,

    /// Print it once, as plain text, and exit
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// How much of the past is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ActivityWindow {
    #[value(name = "1m")]
    Minute,
    #[value(name = "5m")]
    FiveMinutes,
    #[value(name = "1h")]
    Hour,
    #[value(name = "24h")]
    Day,
}

impl ActivityWindow {
    /// The window of the top keys: there are two.
    fn of_keys(self) -> &'static str {
        match self {
            Self::Minute | Self::FiveMinutes => "1m",
            Self::Hour | Self::Day => "1h",
        }
    }
}

/// The order of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuleOrder {
    Denied,
    Allowed,
    Cost,
    Name,
}

/// The order of top keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeyOrder {
    Denied,
    Used,
}

/// One of several values that a key of the keyboard goes through.
trait Choice: ValueEnum + PartialEq {
    /// As the API names it.
    fn name(&self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn next(&self) -> Self {
        let all = Self::value_variants();
        let following = all.iter().skip_while(|one| *one != self).nth(1);
        following.unwrap_or(&all[0]).clone()
    }
}

impl<T: ValueEnum + PartialEq> Choice for T {}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let wanted = TopQuestion {
        window: args.window,
        sort: args.sort,
        keys: KeyOrder::Denied,
        rule: args.rule.clone(),
    };
    let is_screen = !args.once && !args.server.json;
    if is_screen && !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!("`tidegate top` needs a terminal; add --once for text, or --json");
    }
    // Asked before the screen is taken, so that a first error is an ordinary one.
    let first = feed::fetch(&client, &wanted)?;
    if args.server.json {
        output::print_json(&first.to_json())?;
    } else if args.once {
        output::print(&once::rendered(&client.server, &wanted, &first))?;
    } else {
        let state = TopState::new(&client.server, wanted, first);
        screen::show(client, state)?;
    }
    Ok(Answer::Yes)
}
