//! Redis as a process: killed, stopped, and back with or without its state.

use std::time::Duration;

use tidegate_testkit::redis::RedisServer;

use crate::bound::OverBound;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome};
use crate::stage::Stage;

pub(super) const ROWS: &[FaultRow] = &[
    FaultRow {
        name: "no-fault",
        group: FaultGroup::Redis,
        title: "no fault",
        is_short: false,
        run: no_fault,
    },
    FaultRow {
        name: "redis-killed-empty",
        group: FaultGroup::Redis,
        title: "killed (SIGKILL), returns empty",
        is_short: true,
        run: killed_empty,
    },
    FaultRow {
        name: "redis-killed-aof",
        group: FaultGroup::Redis,
        title: "killed (SIGKILL), returns with its append-only file",
        is_short: false,
        run: killed_with_aof,
    },
    FaultRow {
        name: "redis-stopped",
        group: FaultGroup::Redis,
        title: "hangs for 10 s (SIGSTOP)",
        is_short: false,
        run: stopped,
    },
    FaultRow {
        name: "redis-crash-loop",
        group: FaultGroup::Redis,
        title: "crash loop: 1 s up, 1 s down, returns empty",
        is_short: false,
        run: crash_loop,
    },
];

fn no_fault(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.expect_all_used();
    stage.warm_up();
    stage.hold();
    stage.healed();
    let mut outcome = stage.finish(OverBound::nothing_lost());
    if let Some(figures) = &outcome.figures {
        let degraded = figures.degraded_exact.max(figures.degraded_leased);
        let fact = RowFact::at_most("degraded answers", degraded, 0.0, "%");
        outcome.facts.push(fact);
    }
    Ok(outcome)
}

fn killed_empty(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    redis.kill();
    stage.hold();
    redis.restart();
    stage.healed();
    Ok(stage.finish(OverBound::lost_once()))
}

fn killed_with_aof(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::options().line("appendonly yes").start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    redis.kill();
    stage.hold();
    redis.restart();
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn stopped(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    redis.stop();
    std::thread::sleep(Duration::from_secs(10));
    redis.resume();
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn crash_loop(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    let second = Duration::from_secs(1);
    let times = 3;
    stage.warm_up();
    for _ in 0..times {
        redis.kill();
        std::thread::sleep(second);
        redis.restart();
        stage.healed();
        std::thread::sleep(second);
    }
    // Two seconds apart, so that a window of two seconds sees at most two of them.
    Ok(stage.finish(OverBound::lost(times, 2).flapping(2 * times)))
}
