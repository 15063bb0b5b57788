//! A master under Sentinel that is killed or hangs, and comes back when another has been promoted.

use std::time::Duration;

use tidegate_testkit::redis::Sentinel;

use crate::bound::OverBound;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome};
use crate::stage::{Stage, millis};

pub(super) const ROWS: &[FaultRow] = &[
    FaultRow {
        name: "sentinel-killed",
        group: FaultGroup::Redis,
        title: "Sentinel: master killed, comes back after the failover",
        is_short: false,
        run: killed,
    },
    FaultRow {
        name: "sentinel-hung",
        group: FaultGroup::Redis,
        title: "Sentinel: master hangs, comes back 2 s after the failover",
        is_short: false,
        run: hung,
    },
];

fn killed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let group = Sentinel::start();
    let mut stage = Stage::over_redis(ground, &group.url())?;
    stage.warm_up();
    let begin = tidegate_testkit::now();
    let old = group.kill_master();
    let promotion = group.wait_for_new_master(old);
    stage.healed_at(promotion.at);
    let took = millis(promotion.at - begin);
    stage.facts.push(RowFact::seen("failover", took, "ms"));
    std::thread::sleep(Duration::from_secs(2));
    old.restart();
    Ok(stage.finish(OverBound::lost_once()))
}

fn hung(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let group = Sentinel::start();
    let mut stage = Stage::over_redis(ground, &group.url())?;
    stage.warm_up();
    let begin = tidegate_testkit::now();
    let old = group.stop_master();
    let promotion = group.wait_for_new_master(old);
    stage.healed_at(promotion.at);
    let took = millis(promotion.at - begin);
    stage.facts.push(RowFact::seen("failover", took, "ms"));
    std::thread::sleep(Duration::from_secs(2));
    old.resume();
    Ok(stage.finish(OverBound::lost_once()))
}
