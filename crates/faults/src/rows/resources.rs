//! More clients than a server has room for: keys, connections, file descriptors. One server that counts in memory.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_testkit::now;

use crate::exchange::{BlockingConnection, ask};
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::measure::percentile_999;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome, RowSkipped};
use crate::stage::{millis, number};

pub(super) const ROWS: &[FaultRow] = &[
    row("keys", "10,000,000 keys, `max_keys` of 1,000,000", keys),
    row("connections", "10,000 connections", connections),
    FaultRow {
        name: "descriptors",
        group: FaultGroup::Resources,
        title: "400 connections, 256 file descriptors",
        is_short: true,
        run: descriptors,
    },
];

const fn row(
    name: &'static str,
    title: &'static str,
    run: fn(&Ground) -> anyhow::Result<RowOutcome>,
) -> FaultRow {
    FaultRow {
        name,
        group: FaultGroup::Resources,
        title,
        is_short: false,
        run,
    }
}

const RULES: &str =
    "rules:\n  - {id: many, per: [user_id], limit: 20/hour, algorithm: fixed_window}\n";
const LIMIT: usize = 20;

/// One server with one rule, not started.
fn lone_server(ground: &Ground, variables: &[(&str, &str)]) -> anyhow::Result<Fleet> {
    let mut fleet = Fleet::new(ground, 1, None)?;
    fs::write(fleet.servers[0].file("rules.yaml"), RULES)?;
    fleet.set("TIDEGATE_SNAPSHOT", "off");
    for (name, value) in variables {
        fleet.set(name, value);
    }
    Ok(fleet)
}

fn is_allowed(connection: &mut BlockingConnection, user: &str) -> anyhow::Result<bool> {
    let body = format!(r#"{{"attributes":{{"user_id":"{user}"}}}}"#);
    Ok(connection.ask("POST /v1/check", &body)? == 200)
}

/// Clients that have used up their limit go on while ten million others come: none of them may get its limit back.
fn keys(ground: &Ground) -> anyhow::Result<RowOutcome> {
    const KEYS: usize = 10_000_000;
    const MAX_KEYS: usize = 1_000_000;
    const BATCH: usize = 1_000;
    const USERS: usize = 100;
    let mut fleet = lone_server(ground, &[("TIDEGATE_MAX_KEYS", "1000000")])?;
    fleet.start()?;
    let server = &fleet.servers[0];
    let address = server.address();
    let mut connection = BlockingConnection::open(address)?;
    for user in 0..USERS {
        for _ in 0..=LIMIT {
            is_allowed(&mut connection, &format!("used-up-{user}"))?;
        }
    }
    let is_done = AtomicBool::new(false);
    let (mut took, mut escaped, mut most) = (Vec::new(), 0, 0.0_f64);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let flood = scope.spawn(|| {
            let result = flood(address, KEYS, BATCH);
            is_done.store(true, Ordering::SeqCst);
            result
        });
        for user in (0..USERS).cycle() {
            if is_done.load(Ordering::SeqCst) {
                break;
            }
            let sent = now();
            escaped += usize::from(is_allowed(&mut connection, &format!("used-up-{user}"))?);
            took.push(now() - sent);
            most = most.max(server.resident_mib()?);
            std::thread::sleep(Duration::from_millis(5));
        }
        flood
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the flood ended early"))
    })?;
    took.sort_unstable();
    let held = server.metric("tidegate_keys")?;
    let evicted = server.metric("tidegate_keys_evicted_total")?;
    let least = number(KEYS - MAX_KEYS - MAX_KEYS / 10);
    let allowed = millis(ground.deadline + ground.latency_slack);
    let mut facts = alive(&mut fleet);
    facts.extend([
        RowFact::at_most("keys held", held, number(MAX_KEYS), ""),
        RowFact::at_least("evictions, counted", evicted, least, ""),
        RowFact::at_most(
            "used-up clients that were admitted again",
            number(escaped),
            0.0,
            "",
        ),
        RowFact::at_most("resident memory", most, 256.0, "MiB"),
        RowFact::at_most(
            "99.9 % of single checks meanwhile",
            millis(percentile_999(&took)),
            allowed,
            "ms",
        ),
        RowFact::seen(
            "slowest",
            millis(took.last().copied().unwrap_or_default()),
            "ms",
        ),
    ]);
    Ok(RowOutcome {
        figures: None,
        facts,
    })
}

/// That many keys, in batches of checks.
fn flood(address: std::net::SocketAddr, keys: usize, batch: usize) -> anyhow::Result<()> {
    let mut connection = BlockingConnection::open(address)?;
    let mut body = String::new();
    for first in (0..keys).step_by(batch) {
        body.clear();
        body += r#"{"checks":["#;
        for key in first..first + batch {
            let comma = if key > first { "," } else { "" };
            body += comma;
            body += r#"{"attributes":{"user_id":"k"#;
            body += &key.to_string();
            body += r#""}}"#;
        }
        body += "]}";
        let status = connection.ask("POST /v1/check/batch", &body)?;
        anyhow::ensure!(status == 200, "a batch was answered with {status}");
    }
    Ok(())
}

/// Lets this process have that many connections, or skips the row.
fn need_descriptors(count: u64) -> anyhow::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    if limits.maximum.is_some_and(|maximum| maximum < count) {
        let reason = format!("it needs {count} file descriptors (`ulimit -Hn`)");
        return Err(RowSkipped(reason).into());
    }
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}

fn connections(ground: &Ground) -> anyhow::Result<RowOutcome> {
    const COUNT: usize = 10_000;
    need_descriptors(11_000)?;
    // A few more for the questions of the suite itself.
    let mut fleet = lone_server(ground, &[("TIDEGATE_MAX_CONNECTIONS", "10010")])?;
    fleet.start()?;
    let server = &fleet.servers[0];
    let before = server.resident_mib()?;
    let (mut open, mut took, mut failed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..COUNT {
        open.push(BlockingConnection::open(server.address())?);
        let last = open.len() - 1;
        failed += usize::from(is_allowed(&mut open[last], &format!("c{last}")).is_err());
    }
    for (index, connection) in open.iter_mut().enumerate() {
        let sent = now();
        failed += usize::from(is_allowed(connection, &format!("c{index}")).is_err());
        took.push(now() - sent);
    }
    took.sort_unstable();
    let most = server.resident_mib()?;
    drop(open);
    let closed = now();
    let (status, _) = ask(server.address(), "GET /healthz", None, "")?;
    let recovered = millis(now() - closed);
    let allowed = millis(ground.deadline + ground.latency_slack);
    let mut facts = alive(&mut fleet);
    facts.extend([
        RowFact::at_most("failed requests of 20,000", number(failed), 0.0, ""),
        RowFact::at_most(
            "99.9 % of answers with all connections open",
            millis(percentile_999(&took)),
            allowed,
            "ms",
        ),
        RowFact::seen(
            "slowest",
            millis(took.last().copied().unwrap_or_default()),
            "ms",
        ),
        RowFact::at_most("memory for 10,000 connections", most - before, 400.0, "MiB"),
        RowFact::is_true("answers after all are closed", status == 200),
        RowFact::at_most("recovery", recovered, millis(ground.recovery), "ms"),
    ]);
    Ok(RowOutcome {
        figures: None,
        facts,
    })
}

fn descriptors(ground: &Ground) -> anyhow::Result<RowOutcome> {
    const COUNT: usize = 400;
    need_descriptors(1_024)?;
    let mut fleet = lone_server(ground, &[])?;
    fleet.servers[0].launch.descriptors = Some(256);
    fleet.start()?;
    let server = &fleet.servers[0];
    let (mut open, mut slowest) = (Vec::new(), Duration::ZERO);
    for number in 0..COUNT {
        let begin = now();
        let mut connection = BlockingConnection::open(server.address())?;
        slowest = slowest.max(now() - begin);
        let body = format!(r#"{{"attributes":{{"user_id":"d{number}"}}}}"#);
        connection.send("POST /v1/check", &body)?;
        open.push(connection);
    }
    let before = server.cpu_seconds()?;
    std::thread::sleep(ground.fault);
    let busy = (server.cpu_seconds()? - before) / ground.fault.as_secs_f64() * 100.0;
    let mut answered = 0;
    for connection in &mut open {
        connection.set_patience(Duration::from_millis(1))?;
        answered += usize::from(connection.status().is_ok());
    }
    drop(open);
    let closed = now();
    let (status, _) = ask(server.address(), "GET /healthz", None, "")?;
    let recovered = millis(now() - closed);
    let mut facts = alive(&mut fleet);
    facts.extend([
        RowFact::at_most("slowest connect", millis(slowest), 900.0, "ms").about_time(),
        RowFact::at_least("connections served", number(answered), 128.0, ""),
        RowFact::at_most("of them, with 256 descriptors", number(answered), 256.0, ""),
        RowFact::at_most(
            "CPU while the others wait",
            (busy * 10.0).round() / 10.0,
            10.0,
            "%",
        ),
        RowFact::is_true("answers once descriptors are free", status == 200),
        RowFact::at_most("recovery", recovered, millis(ground.recovery), "ms").about_time(),
    ]);
    Ok(RowOutcome {
        figures: None,
        facts,
    })
}

fn alive(fleet: &mut Fleet) -> Vec<RowFact> {
    let (dead, panics) = fleet.casualties();
    vec![
        RowFact::at_most("servers that ended", number(dead), 0.0, ""),
        RowFact::at_most("panics", number(panics), 0.0, ""),
    ]
}
