//! `tidegate reserve`, `tidegate settle`, `tidegate cancel`: an estimate is charged first and settled later.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use tidegate::Micros;

use super::decision::{decision, list};
use super::overrides::encoded;
use super::question::QuestionArgs;
use crate::arguments::ServerArgs;
use crate::client::{ApiClient, Reply};
use crate::exit::{self, Answer};
use crate::output::{self, TextTable, cell, plain};

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ReserveArgs {
    #[command(flatten)]
    question: QuestionArgs,

    /// How long the reservation lasts unless it is settled: 1s to 1d
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = ttl)]
    ttl: Micros,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct SettleArgs {
    /// The reservation, as `reserve` printed it
    #[arg(value_name = "ID")]
    id: String,

    /// What it cost after all
    #[arg(value_name = "COST")]
    cost: u64,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct CancelArgs {
    /// The reservation, as `reserve` printed it
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn reserve(args: &ReserveArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let mut body = args.question.body()?;
    // Exact: a whole number of milliseconds, below a day.
    body["ttl"] = json!(std::time::Duration::from(args.ttl).as_secs_f64());
    let reply = client.post("/v1/reserve", &body)?;
    // A server that is not ready, or has no room, answers 503 too; only a decision has `allowed`.
    let is_decision = reply.body.get("allowed").is_some_and(Value::is_boolean);
    let reply = match reply.status {
        503 if !is_decision => reply.accept(&[])?,
        _ => reply.accept(&[200, 429, 503])?,
    };
    let is_allowed = reply.part("allowed")? == &json!(true);
    output::print_either(args.server.json, &reply.body, || {
        decision(&reply.body, args.question.now())
    })?;
    Ok(if is_allowed { Answer::Yes } else { Answer::No })
}

pub(crate) fn settle(args: &SettleArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let path = format!("{}/settle", path(&args.id));
    let reply = client.post(&path, &json!({"cost": args.cost}))?;
    ended(reply, args.server.json)
}

pub(crate) fn cancel(args: &CancelArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    let reply = client.delete(&path(&args.id))?;
    ended(reply, args.server.json)
}

fn path(id: &str) -> String {
    format!("/v1/reservations/{}", encoded(id))
}

/// A reservation that is gone, or was settled otherwise, is an answer and not an error.
fn ended(reply: Reply, json: bool) -> anyhow::Result<Answer> {
    let reply = reply.accept(&[200, 404, 409])?;
    if reply.status != 200 {
        let problem = cell(&reply.body["detail"]);
        if json {
            output::print_json(&reply.body)?;
        } else {
            output::note(&format!("{}\n", plain(&problem)))?;
        }
        return Ok(Answer::No);
    }
    output::print_either(json, &reply.body, || settled(&reply.body))?;
    Ok(Answer::Yes)
}

/// What was settled: the sums first, then each counter.
fn settled(body: &Value) -> String {
    let mut text = format!("settled at {}", amount(&body["settled"]));
    let _ = write!(text, ", given back {}", amount(&body["given_back"]));
    let _ = writeln!(text, ", overrun {}", amount(&body["overrun"]));
    let columns = [
        "rule",
        "limit",
        "reserved",
        "settled",
        "given_back",
        "overrun",
        "uncharged",
    ];
    let limits = list(body, "limits");
    if !limits.is_empty() {
        let mut table = TextTable::new(&columns.map(|name| match name {
            "given_back" => "given back",
            name => name,
        }));
        for limit in limits {
            table.row(columns.iter().map(|name| cell(&limit[*name])).collect());
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}

/// A number, or numbers by unit: `tokens=25 money=3`.
fn amount(value: &Value) -> String {
    let Some(units) = value.as_object() else {
        return cell(value);
    };
    let units = units.iter();
    let units: Vec<String> = units
        .map(|(unit, cost)| format!("{}={}", plain(unit), cell(cost)))
        .collect();
    units.join(" ")
}

fn ttl(text: &str) -> Result<Micros, String> {
    let refused = || "write a span from 1s to 1d, for example `5m`".to_owned();
    let span: Micros = text.parse().map_err(|_| refused())?;
    let is_fit = (Micros::SECOND..=Micros::DAY).contains(&span);
    is_fit.then_some(span).ok_or_else(refused)
}
