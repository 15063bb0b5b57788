//! Wall clocks that are moved: that of Redis, that of a server, and those of servers that disagree.

use tidegate_testkit::redis::RedisServer;

use crate::bound::OverBound;
use crate::clock_shim::ClockShim;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowOutcome};
use crate::stage::{SERVERS, Stage};

const HOUR: i64 = 3_600;

pub(super) const REDIS_ROWS: &[FaultRow] = &[
    row(
        FaultGroup::Redis,
        "redis-clock-forward",
        "clock of Redis moved by +1 h",
        |ground| redis_clock(ground, HOUR),
    ),
    row(
        FaultGroup::Redis,
        "redis-clock-back",
        "clock of Redis moved by −1 h",
        |ground| redis_clock(ground, -HOUR),
    ),
];

pub(super) const ROWS: &[FaultRow] = &[
    row(
        FaultGroup::Servers,
        "server-clock-forward",
        "clock of a server that counts in memory moved by +1 h",
        |ground| memory_clock(ground, HOUR),
    ),
    row(
        FaultGroup::Servers,
        "server-clock-back",
        "clock of a server that counts in memory moved by −1 h",
        |ground| memory_clock(ground, -HOUR),
    ),
    row(
        FaultGroup::Servers,
        "skewed-clocks",
        "servers over one Redis, clocks at −1 h, 0 and +1 h; then one is set right",
        skewed,
    ),
];

const fn row(
    group: FaultGroup,
    name: &'static str,
    title: &'static str,
    run: fn(&Ground) -> anyhow::Result<RowOutcome>,
) -> FaultRow {
    FaultRow {
        name,
        group,
        title,
        is_short: false,
        run,
    }
}

/// Forward, every state is idle at once: its limit once more. Backward, what was used stays used.
fn bound(seconds: i64) -> OverBound {
    if seconds > 0 {
        OverBound::lost_once()
    } else {
        OverBound::nothing_lost()
    }
}

fn redis_clock(ground: &Ground, seconds: i64) -> anyhow::Result<RowOutcome> {
    let clock = ClockShim::new()?;
    let mut options = RedisServer::options();
    for (name, value) in clock.variables() {
        options = options.variable(name, value);
    }
    let redis = options.start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    clock.set(seconds)?;
    stage.healed();
    stage.hold();
    Ok(stage.finish(bound(seconds)))
}

fn memory_clock(ground: &Ground, seconds: i64) -> anyhow::Result<RowOutcome> {
    let clock = ClockShim::new()?;
    let mut fleet = Fleet::new(ground, 1, None)?;
    for (name, value) in clock.variables() {
        fleet.set(&name, &value);
    }
    fleet.start()?;
    let mut stage = Stage::of(ground, fleet);
    stage.warm_up();
    clock.set(seconds)?;
    stage.healed();
    stage.hold();
    Ok(stage.finish(bound(seconds)))
}

fn skewed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let clocks = [ClockShim::new()?, ClockShim::new()?];
    let mut fleet = Fleet::new(ground, SERVERS, Some(&redis.url()))?;
    for ((clock, seconds), server) in clocks.iter().zip([-HOUR, HOUR]).zip(&mut fleet.servers) {
        clock.set(seconds)?;
        server.launch.variables.extend(clock.variables());
    }
    fleet.start()?;
    let mut stage = Stage::of(ground, fleet);
    stage.warm_up();
    stage.hold();
    clocks[0].set(0)?;
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}
