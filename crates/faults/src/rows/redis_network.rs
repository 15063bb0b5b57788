//! The network between the servers and Redis: slow, silent, losing replies, resetting connections.

use std::time::Duration;

use tidegate_testkit::fault_proxy::{FaultMode, FaultProxy};
use tidegate_testkit::redis::RedisServer;

use crate::bound::OverBound;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowOutcome};
use crate::stage::Stage;

pub(super) const ROWS: &[FaultRow] = &[
    slow("redis-slow-5ms", "replies 5 ms late", |ground| {
        late(ground, 5)
    }),
    slow(
        "redis-slow-14ms",
        "replies 14 ms late: just within the deadline",
        |ground| late(ground, 14),
    ),
    slow("redis-slow-50ms", "replies 50 ms late", |ground| {
        late(ground, 50)
    }),
    slow("redis-slow-500ms", "replies 500 ms late", |ground| {
        late(ground, 500)
    }),
    FaultRow {
        name: "redis-black-hole",
        group: FaultGroup::Redis,
        title: "black hole: connections open, nothing passes",
        is_short: true,
        run: |ground| broken(ground, FaultMode::BlackHole),
    },
    slow(
        "redis-replies-lost",
        "requests arrive, replies are lost",
        |ground| broken(ground, FaultMode::LoseReplies),
    ),
    slow("redis-resets", "all connections reset every 100 ms", resets),
];

/// A row that is not part of the short form.
const fn slow(
    name: &'static str,
    title: &'static str,
    run: fn(&Ground) -> anyhow::Result<RowOutcome>,
) -> FaultRow {
    FaultRow {
        name,
        group: FaultGroup::Redis,
        title,
        is_short: false,
        run,
    }
}

/// The windows of a bucket, a second each, that a fault touches.
fn windows_of(ground: &Ground) -> u32 {
    u32::try_from(ground.fault.as_secs()).unwrap_or(0) + 1
}

fn late(ground: &Ground, millis: u64) -> anyhow::Result<RowOutcome> {
    broken(
        ground,
        FaultMode::DelayReplies(Duration::from_millis(millis)),
    )
}

fn broken(ground: &Ground, mode: FaultMode) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.address());
    let url = format!("redis://{}", proxy.address());
    let mut stage = Stage::over_redis(ground, &url)?;
    stage.warm_up();
    proxy.set(mode);
    stage.hold();
    proxy.set(FaultMode::Pass);
    stage.healed();
    // With replies that are about as late as the deadline, some are in time and some are not, all the while.
    let outages = match mode {
        FaultMode::DelayReplies(_) => windows_of(ground),
        _ => 1,
    };
    Ok(stage.finish(OverBound::nothing_lost().flapping(outages)))
}

fn resets(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.address());
    let url = format!("redis://{}", proxy.address());
    let mut stage = Stage::over_redis(ground, &url)?;
    stage.warm_up();
    stage.repeat(Duration::from_millis(100), || proxy.close_connections());
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost().flapping(windows_of(ground))))
}
