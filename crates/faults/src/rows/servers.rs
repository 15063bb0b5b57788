//! Tidegate's processes: killed, stopped, replaced one by one, started without Redis, with different rules.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_testkit::fault_proxy::{FaultMode, FaultProxy};
use tidegate_testkit::redis::RedisServer;

use crate::bound::OverBound;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome};
use crate::rules::rule_file_of;
use crate::stage::{SERVERS, Stage};

pub(super) const ROWS: &[FaultRow] = &[
    FaultRow {
        name: "server-killed",
        group: FaultGroup::Servers,
        title: "one of three servers killed (SIGKILL), started again after 2 s",
        is_short: true,
        run: killed,
    },
    row(
        "server-stopped",
        "one of three servers hangs for 3 s (SIGSTOP)",
        stopped,
    ),
    row(
        "rolling-restart",
        "three servers restarted one by one, `drain_delay: 1s`, behind a balancer",
        rolling_restart,
    ),
    row(
        "start-without-redis",
        "Redis absent when the servers start for the first time, `instances: 3`",
        start_without_redis,
    ),
    row(
        "mixed-rules",
        "one server has rules with 40 % of each limit",
        mixed_rules,
    ),
];

const fn row(
    name: &'static str,
    title: &'static str,
    run: fn(&Ground) -> anyhow::Result<RowOutcome>,
) -> FaultRow {
    FaultRow {
        name,
        group: FaultGroup::Servers,
        title,
        is_short: false,
        run,
    }
}

fn killed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    stage.exclude(0);
    stage.fleet.servers[0].kill();
    std::thread::sleep(Duration::from_secs(2));
    stage.healed();
    stage.fleet.servers[0].start()?;
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn stopped(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    stage.exclude(0);
    stage.fleet.signal(0, Signal::STOP)?;
    std::thread::sleep(Duration::from_secs(3));
    stage.fleet.signal(0, Signal::CONT)?;
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn rolling_restart(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut fleet = Fleet::new(ground, SERVERS, Some(&redis.url()))?;
    fleet.set("TIDEGATE_DRAIN_DELAY", "1s");
    fleet.start()?;
    let mut stage = Stage::behind_a_balancer(ground, fleet);
    stage.warm_up();
    let mut codes = Vec::new();
    for server in &mut stage.fleet.servers {
        codes.push(server.terminate()?);
        server.start()?;
        std::thread::sleep(Duration::from_millis(500));
    }
    stage.healed();
    let clean = codes.iter().all(|code| *code == Some(0));
    let fact = RowFact::is_true("all ended with exit code 0", clean);
    stage.facts.push(fact);
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn start_without_redis(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.address());
    proxy.set(FaultMode::Cut);
    let url = format!("redis://{}", proxy.address());
    let mut fleet = Fleet::new(ground, SERVERS, Some(&url))?;
    fleet.set("TIDEGATE_INSTANCES", "3");
    fleet.start()?;
    let mut stage = Stage::of(ground, fleet);
    stage.warm_up();
    stage.hold();
    proxy.set(FaultMode::Pass);
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn mixed_rules(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    let file = stage.fleet.servers[0].file("rules.yaml");
    replace(&file, &rule_file_of(40))?;
    stage.hold();
    replace(&file, &rule_file_of(100))?;
    stage.healed();
    let reloads = stage.fleet.servers[0].metric("tidegate_rules_version")?;
    let fact = RowFact::at_least("versions of the rules on that server", reloads, 2.0, "");
    stage.facts.push(fact);
    Ok(stage.finish(OverBound::nothing_lost()))
}

/// Replaces a file in one step.
fn replace(file: &std::path::Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)?;
    Ok(())
}
