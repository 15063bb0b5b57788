//! The command line, for clap. The arguments of a command are in the file of that command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::bench::BenchArgs;
use crate::commands::check::CheckArgs;
use crate::commands::console::ConsoleArgs;
use crate::commands::denied::DeniedArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::import::ImportArgs;
use crate::commands::overrides::OverrideArgs;
use crate::commands::reservations::{CancelArgs, ReserveArgs, SettleArgs};
use crate::commands::reset::ResetArgs;
use crate::commands::rules::RulesArgs;
use crate::commands::settings::ShowSettingsArgs;
use crate::commands::simulate::SimulateArgs;
use crate::commands::status::StatusArgs;
use crate::commands::top::TopArgs;
use crate::completions::CompletionsArgs;
use crate::exit;
use crate::manual::ManualArgs;
use crate::schema::SchemaArgs;
use crate::serve::ServeArgs;

/// An exact rate limiter for APIs: a server, and the tools to work with it.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = exit::HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// When to use colour; `auto` is on a terminal, unless `NO_COLOR` is set
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: Color,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(ServeArgs),
    /// Show what the environment and flags become, and whether the server would start with them
    Settings(ShowSettingsArgs),
    /// Ask whether a request is allowed, and charge it
    Check(CheckArgs),
    /// Ask whether a request is allowed, and charge its cost as an estimate that is settled later
    Reserve(ReserveArgs),
    /// Replace the estimate of a reservation by the true cost
    Settle(SettleArgs),
    /// Give the estimate of a reservation back
    Cancel(CancelArgs),
    /// Explain why a request would be allowed or denied, without charging it
    Explain(ExplainArgs),
    /// Show, change and validate rules
    Rules(RulesArgs),
    /// Try rules on logs of recorded traffic: what they would have allowed and denied
    #[command(alias = "replay")]
    Simulate(SimulateArgs),
    /// Show rules, rates and top keys, live
    Top(TopArgs),
    /// Show requests that were denied, the newest first
    Denied(DeniedArgs),
    /// Open the web console of a server, signed in with your token
    Console(ConsoleArgs),
    /// Send load to a server, and measure what it answers and how fast
    Bench(BenchArgs),
    /// Clear what a client has used, and show how much it was
    Reset(ResetArgs),
    /// Show the state of a server
    Status(StatusArgs),
    /// Give a client another limit until a given time
    Override(OverrideArgs),
    /// Write the limits of nginx or ingress-nginx as rules to stdout
    Import(ImportArgs),
    /// Write the JSON Schema of a file to stdout, for editors
    Schema(SchemaArgs),
    /// Write a completion script for a shell to stdout
    Completions(CompletionsArgs),
    /// Write the manual pages to a folder
    Manual(ManualArgs),
}

/// The options of commands that call a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The address of the server, `http://` or `https://`
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_SERVER",
        default_value = "http://127.0.0.1:8080",
        global = true
    )]
    pub(crate) server: String,

    /// The token to send, if the server requires one
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TIDEGATE_TOKEN",
        hide_env_values = true,
        global = true
    )]
    pub(crate) token: Option<String>,

    /// The data directory of a server on this machine, for the token that it generated
    #[arg(
        long,
        value_name = "DIR",
        env = "TIDEGATE_DATA_DIR",
        default_value = "tidegate-data",
        global = true
    )]
    pub(crate) data_dir: String,

    /// Trust the certificates in this PEM file instead of the public ones
    #[arg(long, value_name = "PEM", global = true)]
    pub(crate) ca_file: Option<PathBuf>,

    /// Present the certificate in this PEM file, if the server requires one
    #[arg(long, value_name = "PEM", env = "TIDEGATE_CLIENT_CERT", global = true)]
    pub(crate) client_cert: Option<PathBuf>,

    /// Its private key, a PEM file
    #[arg(long, value_name = "PEM", env = "TIDEGATE_CLIENT_KEY", global = true)]
    pub(crate) client_key: Option<PathBuf>,

    /// Write JSON: the answer to stdout, an error as `{"error": text}` to stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Applies it to everything that this process prints.
    pub(crate) fn apply(self) {
        let choice = match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_documented_line_is_understood() {
        let lines = [
            "tidegate serve",
            "tidegate serve --config c --rules r --http a --admin a --grpc off --resp a --gateway a \
             --upstream u --redis r --data-dir d --trust-timestamps --log-format json --log-level debug",
            "tidegate serve --as envoy-ratelimit --debug 127.0.0.1:6070",
            "tidegate settings --as envoy-ratelimit",
            "tidegate check --attr path=/users --attr ip=1.2.3.4 --cost 2 --server http://x --token t",
            "tidegate check --attr user_id=u --timestamp 1794770000.25 --json",
            "tidegate check --attr user_id=u --timestamp 1794770000.1234567 --data-dir d",
            "tidegate explain -a path=/x -a api_key=k --cost 2 --json",
            "tidegate explain --url https://x/y?z --method POST -H a:b --header c:d --address 1.2.3.4",
            "tidegate explain 0123456789ab --rule per-key --cost 2",
            "tidegate explain carl",
            "tidegate reset carl --rule per-user",
            "tidegate denied",
            "tidegate denied --rule per-user --key u1 --limit 100 --follow --json",
            "tidegate rules list --server https://x --ca-file ca.pem",
            "tidegate rules list --server https://x --client-cert c.pem --client-key k.pem",
            "tidegate rules --server http://x get per-user --json",
            "tidegate rules apply -f rules.yaml --prune --dry-run",
            "tidegate rules diff -f -",
            "tidegate rules delete per-user --color never",
            "tidegate rules diff --from 3 --to 5",
            "tidegate rules diff --from 3 --json",
            "tidegate rules history",
            "tidegate rules history --diff",
            "tidegate rules rollback 3",
            "tidegate rules rollback 3 --dry-run",
            "tidegate reset -a user_id=u1 --rule per-user",
            "tidegate top --window 1h --sort allowed --rule per-user",
            "tidegate top --once",
            "tidegate top --json",
            "tidegate status --server http://x --json",
            "tidegate rules validate a.yaml b.yaml - --deny-warnings",
            "tidegate rules test cases.yaml more.yaml --rules rules.yaml --json",
            "tidegate explain --rules rules.yaml -a path=/x",
            "tidegate console --no-open --server http://x --data-dir d",
            "tidegate bench http -a user_id=user_{key} -a path=/v1/x --keys 1000 --zipf 1.1 --json",
            "tidegate bench grpc --address 127.0.0.1:8081 --domain web --connections 4 --in-flight 16",
            "tidegate bench resp --limit 15 30 60 --in-flight 16 --duration 5s",
            "tidegate bench resp -a user_id=u{key} --requests 1000",
            "tidegate bench url http://127.0.0.1:8000/items/{key} -H x-api-key:k{key} --rate 500 --warm-up 2s",
            "tidegate simulate --rules rules.yaml --show 3 access.log",
            "tidegate simulate --rules rules.yaml --against http://x --html report.html --max-denied 0.5% a.gz b",
            "tidegate rules suggest --per ip --window 1m --deny-clients 1% --as candidate access.log",
            "tidegate override",
            "tidegate override per-user --json",
            "tidegate override per-user u1 unlimited --for 2h --reason launch",
            "tidegate override per-user u1 100/minute --until 2027-01-01T00:00:00Z",
            "tidegate override per-user u1 --remove",
            "tidegate import nginx nginx.conf --strict --ipv6-prefix 128",
            "tidegate import ingress-nginx a.yaml b.yaml --replicas 3",
            "tidegate schema rules",
            "tidegate schema config",
            "tidegate completions zsh",
            "tidegate manual man1",
        ];
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn bad_usage_ends_with_two() {
        let lines = [
            "tidegate rules apply",
            "tidegate rules diff",
            "tidegate rules diff -f a.yaml --from 3",
            "tidegate rules diff --from first",
            "tidegate reset --rule",
            "tidegate reset carl -a user_id=carl",
            "tidegate explain carl -a user_id=carl",
            "tidegate explain carl --url /x",
            "tidegate explain --url /x -a user_id=carl",
            "tidegate explain --header a:b",
            "tidegate explain --address 1.2.3.4",
            "tidegate explain carl --method GET",
            "tidegate explain --rule per-user",
            "tidegate explain --url /x --header a",
            "tidegate denied --limit 0",
            "tidegate denied --limit 101",
            "tidegate denied u1",
            "tidegate top --window 2m",
            "tidegate rules validate",
            "tidegate rules test",
            "tidegate rules rollback last",
            "tidegate simulate --rules rules.yaml --max-denied few access.log",
            "tidegate check --attr user_id",
            "tidegate check --attr =x",
            "tidegate check --cost 1.5",
            "tidegate check --timestamp yesterday",
            "tidegate override per-user u1 blocked --for 2h --until 2027-01-01T00:00:00Z",
            "tidegate override per-user u1 blocked --remove",
            "tidegate override per-user --remove",
            "tidegate import",
            "tidegate import nginx",
            "tidegate import nginx nginx.conf --replicas 3",
            "tidegate import ingress-nginx a.yaml --replicas 0",
            "tidegate schema clients",
            "tidegate frobnicate",
        ];
        for line in lines {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn help_hides_the_token_and_lists_the_exit_codes() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("0 allowed, 1 denied, 2 error"), "{help}");
        let mut command = Cli::command();
        let check = command.find_subcommand_mut("check").unwrap();
        let help = check.render_long_help().to_string();
        assert!(help.contains("TIDEGATE_TOKEN]"), "{help}");
    }
}
