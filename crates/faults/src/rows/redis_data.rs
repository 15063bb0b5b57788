//! What is done to a Redis that answers: its keys and scripts removed, its memory full, its role or password changed.

use std::time::Duration;

use tidegate_testkit::redis::RedisServer;

use crate::bound::OverBound;
use crate::evictions::Evictions;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome};
use crate::rules::USER;
use crate::stage::Stage;

pub(super) const ROWS: &[FaultRow] = &[
    row("redis-flushall", "`FLUSHALL`, twice", flushed),
    row(
        "redis-script-flush",
        "`SCRIPT FLUSH` every 100 ms",
        script_flushed,
    ),
    row("redis-full", "out of memory, `noeviction`", full),
    row(
        "redis-evicting",
        "out of memory, `allkeys-random`: counters are evicted",
        evicting,
    ),
    row(
        "redis-readonly",
        "becomes a replica (READONLY), and a master again",
        readonly,
    ),
    row(
        "redis-password",
        "password changed and connections closed, then changed back",
        password,
    ),
    row(
        "redis-wrongtype",
        "every counter replaced by a list, twice",
        wrong_type,
    ),
];

const fn row(
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

/// Does something twice, so far apart that no window of two seconds sees both.
fn twice(stage: &mut Stage<'_>, mut act: impl FnMut()) {
    for _ in 0..2 {
        act();
        stage.healed();
        std::thread::sleep(Duration::from_millis(2_500));
    }
}

fn flushed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    twice(&mut stage, || redis.query(&["FLUSHALL"]));
    Ok(stage.finish(OverBound::lost(2, 1)))
}

fn script_flushed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    stage.repeat(Duration::from_millis(100), || {
        let _: () = redis.query(&["SCRIPT", "FLUSH"]);
    });
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn full(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    let _: () = redis.query(&["CONFIG", "SET", "maxmemory", "1"]);
    stage.hold();
    let _: () = redis.query(&["CONFIG", "SET", "maxmemory", "0"]);
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

/// Foreign keys fill the memory, and Redis removes any key for them. A counter gets its limit once more each time that it is removed,
/// which Redis announces.
fn evicting(ground: &Ground) -> anyhow::Result<RowOutcome> {
    const FILL: &str = "for i = 1, 500 do redis.call('SET', ARGV[1] .. i, 'x') end";
    let redis = RedisServer::options()
        .line("maxmemory-policy allkeys-random")
        .line("notify-keyspace-events Ee")
        .start();
    let evictions = Evictions::watch(&redis)?;
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    let _: () = redis.query(&["CONFIG", "SET", "maxmemory", "3mb"]);
    let mut fills = 0;
    stage.repeat(Duration::from_millis(20), || {
        fills += 1;
        // Refused while Redis has not made room yet.
        let prefix = format!("foreign:{fills}:");
        let _: Result<(), _> = redis.try_query(&["EVAL", FILL, "0", &prefix]);
    });
    let _: () = redis.query(&["CONFIG", "SET", "maxmemory", "0"]);
    stage.healed();
    let most = evictions.most_of_a_counter()?;
    let name = "times that a counter was evicted, at most";
    stage
        .facts
        .push(RowFact::at_least(name, f64::from(most), 1.0, ""));
    Ok(stage.finish(OverBound::lost(most, most)))
}

fn readonly(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    // A master that does not exist: the data stays as it was.
    let _: () = redis.query(&["REPLICAOF", "127.0.0.1", "1"]);
    stage.hold();
    let _: () = redis.query(&["REPLICAOF", "NO", "ONE"]);
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn password(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::options().password("first").start();
    // A connection that is authenticated stays so.
    let mut control = redis.client().get_connection()?;
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    let mut set = |password: &str| -> anyhow::Result<()> {
        let mut command = redis::cmd("CONFIG");
        command.arg(&["SET", "requirepass", password]);
        command.query::<()>(&mut control)?;
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .query::<()>(&mut control)?;
        Ok(())
    };
    stage.warm_up();
    set("second")?;
    stage.hold();
    set("first")?;
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

fn wrong_type(ground: &Ground) -> anyhow::Result<RowOutcome> {
    const REPLACE: &str = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
        redis.call('DEL', key) redis.call('RPUSH', key, 'foreign') end";
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    let keys = format!("tg:{{{USER}}}:*");
    twice(&mut stage, || redis.query(&["EVAL", REPLACE, "0", &keys]));
    let repaired = stage.fleet.metric("tidegate_redis_repaired_states_total");
    stage
        .facts
        .push(RowFact::at_least("counters repaired", repaired, 12.0, ""));
    Ok(stage.finish(OverBound::lost(2, 1)))
}
