//! `tidegate denied`: samples of requests that were denied, once or as they come.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tidegate::{Micros, Timestamp};

use super::reset::key_text;
use crate::arguments::ServerArgs;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, TextTable, cell, plain};
use crate::times;

/// The most that the server returns, and that are asked for while they are followed.
const MOST: u16 = 100;

/// How often they are asked for.
const PAUSE: Duration = Duration::from_secs(1);

/// How many are remembered, so that none is printed twice: those of other servers come later.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Args)]
#[command(
    after_help = "Denied requests are sampled: at most ten of a client are kept. `explain CLIENT` says why a client is denied."
)]
pub(crate) struct DeniedArgs {
    /// Only those that this rule denied
    #[arg(long, value_name = "ID")]
    rule: Option<String>,

    /// Only those of this client: a value of its key, or its digest
    #[arg(long, value_name = "CLIENT")]
    key: Option<String>,

    /// How many, the newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST)))]
    limit: u16,

    /// Print new ones as they come, the newest last; Ctrl-C ends it
    #[arg(long, short)]
    follow: bool,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(crate) fn run(args: &DeniedArgs) -> anyhow::Result<Answer> {
    let client = ApiClient::new(&args.server)?;
    if args.follow {
        return follow(args, &client);
    }
    let reply = client.get(&path(args, args.limit))?.accept(&[200])?;
    let denied = reply.list("denied")?;
    if args.server.json {
        output::print_json(&reply.body)?;
    } else if denied.is_empty() {
        output::note("no denied request was seen\n")?;
    } else {
        output::print(&table(denied))?;
    }
    Ok(Answer::Yes)
}

fn path(args: &DeniedArgs, limit: u16) -> String {
    let mut path = format!("/v1/denied?limit={limit}");
    for (name, value) in [("rule", &args.rule), ("key", &args.key)] {
        if let Some(value) = value {
            let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
            // Writing to a String cannot fail.
            let _ = write!(path, "&{name}={value}");
        }
    }
    path
}

fn follow(args: &DeniedArgs, client: &ApiClient) -> anyhow::Result<Answer> {
    let mut printed = PrintedRequests::default();
    let mut limit = usize::from(args.limit);
    loop {
        let reply = client.get(&path(args, MOST))?.accept(&[200])?;
        let new = printed.take_new(reply.list("denied")?, limit);
        let text: String = new.iter().map(|one| line(one, args.server.json)).collect();
        if !output::print_while_open(&text)? {
            return Ok(Answer::Yes);
        }
        limit = usize::from(MOST);
        std::thread::sleep(PAUSE);
    }
}

/// The requests that were printed.
#[derive(Debug, Default)]
struct PrintedRequests {
    known: HashSet<String>,
    order: VecDeque<String>,
}

impl PrintedRequests {
    /// The requests that were not there before, the oldest first. At most the newest `limit` of them.
    fn take_new<'v>(&mut self, denied: &'v [Value], limit: usize) -> Vec<&'v Value> {
        let mut new: Vec<&Value> = Vec::new();
        for one in denied {
            let text = one.to_string();
            if self.known.insert(text.clone()) {
                self.order.push_back(text);
                new.push(one);
            }
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
        new.truncate(limit);
        new.reverse();
        new
    }
}

const COLUMNS: [&str; 7] = [
    "time", "rule", "reason", "client", "request", "address", "instance",
];

fn table(denied: &[Value]) -> String {
    let mut table = TextTable::new(&COLUMNS);
    for one in denied {
        table.row(cells(one));
    }
    table.render()
}

fn cells(one: &Value) -> Vec<String> {
    let at = times::instant(&one["at"]).unwrap_or(Timestamp::EPOCH);
    let at = Timestamp::from_seconds(at.as_micros() / Micros::SECOND.get());
    let request = [&one["method"], &one["path"]];
    let request: Vec<&str> = request.into_iter().filter_map(Value::as_str).collect();
    let request = match request.as_slice() {
        [] => "-".to_owned(),
        words => words.join(" "),
    };
    let text = |name: &str| cell(&one[name]);
    vec![
        times::rfc3339(at),
        text("rule"),
        text("reason"),
        key_text(&one["key"]),
        request,
        text("address"),
        text("instance"),
    ]
}

/// One request in a line.
fn line(one: &Value, json: bool) -> String {
    if json {
        let text = output::json_text(one);
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        return format!("{}\n", lines.concat());
    }
    let cells = cells(one);
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    format!("{}\n", cells.join("  "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn denied(at: f64, path: &str) -> Value {
        json!({"at": at, "rule": "per-user", "reason": "over_limit", "key": {"user_id": "u1"}, "method": "GET",
               "path": path, "address": "203.0.113.7", "front_end": "http", "instance": "0123abcd"})
    }

    #[test]
    fn a_table_has_a_line_for_each_and_nothing_steers_the_terminal() {
        let mut bare = denied(1_794_770_001.25, "");
        for name in ["method", "path", "address"] {
            bare[name] = Value::Null;
        }
        bare["key"] = json!({});
        let rows = [denied(1_794_770_002.5, "/a\u{1b}[2J\u{202e}\n"), bare];
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&rows)));
        assert_eq!(line(&rows[0], false).matches('\n').count(), 1);
        let json = line(&rows[0], true);
        assert_eq!(json.matches('\n').count(), 1, "{json}");
        assert!(
            !json.contains('\u{1b}') && !json.contains('\u{202e}'),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), rows[0]);
    }

    #[test]
    fn each_request_is_printed_once_and_the_newest_last() {
        let mut printed = PrintedRequests::default();
        let [a, b, c, d] = [1.0, 2.0, 3.0, 4.0].map(|at| denied(at, "/"));
        let mut take = |all: &[&Value], limit| {
            let all: Vec<Value> = all.iter().map(|one| (*one).clone()).collect();
            let new = printed.take_new(&all, limit);
            new.iter()
                .map(|one| one["at"].as_f64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            take(&[&b, &a], 1),
            [2.0],
            "the newest of those that were there"
        );
        assert_eq!(take(&[&b, &a], 100), [0.0; 0]);
        assert_eq!(take(&[&d, &b, &a], 100), [4.0]);
        // One of another server comes later.
        assert_eq!(take(&[&d, &c, &b], 100), [3.0]);
        assert_eq!(take(&[&a], 100), [0.0; 0]);
    }
}
