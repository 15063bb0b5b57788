//! `tidegate bench`: sends load to a server, and prints how many requests it answers and how long they take.

mod summary;
mod target;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tidegate::Micros;
use tidegate_load::{KeySpread, LoadEnd, LoadPlan, LoadProgress};

use crate::arguments::ServerArgs;
use crate::exit::{self, Answer};
use crate::output;
use target::BenchTarget;

/// How wide the progress bar is.
const BAR: usize = 30;

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    target: BenchTarget,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// How much load is sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// How many connections are open
    #[arg(long, value_name = "N", default_value_t = 64, global = true)]
    connections: usize,

    /// Requests on their way at the same time on each connection: streams of gRPC, pipelined commands of RESP
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    in_flight: usize,

    /// How long load is measured
    #[arg(long, value_name = "TIME", default_value = "10s", global = true)]
    duration: Micros,

    /// Measure so many requests instead of a time
    #[arg(long, value_name = "N", global = true)]
    requests: Option<u64>,

    /// Send so many requests per second, whether or not earlier ones are answered (an open loop)
    #[arg(
        long,
        value_name = "PER_SECOND",
        global = true,
        allow_negative_numbers = true
    )]
    rate: Option<f64>,

    /// How many keys there are; `{key}` in a value is the number of a request's key
    #[arg(long, value_name = "N", default_value_t = 10_000, global = true)]
    keys: u64,

    /// Let keys follow Zipf's law with this exponent, such as 1.0; otherwise all are as likely
    #[arg(
        long,
        value_name = "EXPONENT",
        global = true,
        allow_negative_numbers = true
    )]
    zipf: Option<f64>,

    /// Let keys come one after the other, so that N requests are N different keys: to fill a server
    #[arg(long, conflicts_with = "zipf", global = true)]
    in_order: bool,

    /// How long load is sent before it is measured
    #[arg(long, value_name = "TIME", default_value = "1s", global = true)]
    warm_up: Micros,

    /// How long a request waits for its answer
    #[arg(long, value_name = "TIME", default_value = "10s", global = true)]
    timeout: Micros,

    /// The same seed gives the same keys
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    seed: u64,
}

impl LoadArgs {
    fn plan(&self) -> anyhow::Result<LoadPlan> {
        let keys = match self.zipf {
            Some(exponent) => KeySpread::zipf(self.keys, exponent)?,
            None if self.in_order => KeySpread::in_order(self.keys)?,
            None => KeySpread::uniform(self.keys)?,
        };
        let mut plan = LoadPlan::new(keys);
        plan.connections = self.connections;
        plan.in_flight = self.in_flight;
        plan.end = match self.requests {
            Some(requests) => LoadEnd::Requests(requests),
            None => LoadEnd::After(self.duration.into()),
        };
        plan.rate = self.rate;
        plan.warm_up = self.warm_up.into();
        plan.timeout = self.timeout.into();
        plan.seed = self.seed;
        Ok(plan)
    }
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Answer> {
    let plan = args.load.plan()?;
    let target = args.target.build(&args.server)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let is_seen = std::io::stderr().is_terminal();
    let show = |line: &str| {
        if is_seen {
            // Without a terminal there is nothing to see.
            let _ = output::note(&format!("\r\x1b[2K{line}"));
        }
    };
    let report = runtime.block_on(tidegate_load::run(&plan, &target, |now| show(&line(now))));
    show("");
    let report = report?;
    output::print_either(args.server.json, &json!(report), || summary::text(&report))?;
    let has_answers = report.allowed + report.denied > 0;
    Ok(if has_answers { Answer::Yes } else { Answer::No })
}

fn line(now: LoadProgress) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a few characters"
    )]
    let filled = ((now.done * BAR as f64) as usize).min(BAR);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
    if now.is_warming_up {
        return format!("{bar} warming up");
    }
    let per_second = summary::per_second(now.answered, now.elapsed.max(Duration::from_millis(1)));
    format!(
        "{bar} {:.1} s, {} answers, {per_second}/s",
        now.elapsed.as_secs_f64(),
        output::grouped(now.answered)
    )
}
