//! A Cluster whose master of the counted keys is lost, with and without a replica, or whose slot moves.

use std::time::Duration;

use tidegate_testkit::redis::{Cluster, slot_of};

use crate::bound::OverBound;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome};
use crate::rules::USER;
use crate::stage::{Stage, millis};
use crate::witness::Witness;

pub(super) const ROWS: &[FaultRow] = &[
    FaultRow {
        name: "cluster-failover",
        group: FaultGroup::Redis,
        title: "Cluster: master killed, its replica is promoted",
        is_short: false,
        run: failover,
    },
    FaultRow {
        name: "cluster-no-replica",
        group: FaultGroup::Redis,
        title: "Cluster: master without a replica killed, returns empty",
        is_short: false,
        run: without_replica,
    },
    FaultRow {
        name: "cluster-resharding",
        group: FaultGroup::Redis,
        title: "Cluster: the slot moves to and fro, key by key",
        is_short: false,
        run: resharding,
    },
];

fn slot() -> u16 {
    slot_of(USER)
}

/// A client on another master than that of the counted keys.
fn witness(cluster: &Cluster, stage: &Stage<'_>) -> Witness {
    let own = cluster.master_of(slot()).port();
    let mut users = (0..).map(|number| format!("w{number}"));
    let user = users.find(|user| cluster.master_of(slot_of(user)).port() != own);
    let server = stage.fleet.servers[0].address();
    Witness::start(server, &user.unwrap_or_default())
}

fn failover(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let cluster = Cluster::with_replicas();
    let mut stage = Stage::over_redis(ground, &cluster.url())?;
    let witness = witness(&cluster, &stage);
    stage.warm_up();
    let begin = tidegate_testkit::now();
    let old = cluster.kill_master_of(slot());
    let promotion = cluster.wait_for_promotion(slot(), old);
    stage.healed_at(promotion.at);
    let took = millis(promotion.at - begin);
    stage.facts.push(RowFact::seen("failover", took, "ms"));
    stage.facts.push(witness.fact());
    Ok(stage.finish(OverBound::lost_once()))
}

fn without_replica(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let cluster = Cluster::start();
    let mut stage = Stage::over_redis(ground, &cluster.url())?;
    let witness = witness(&cluster, &stage);
    stage.warm_up();
    let old = cluster.kill_master_of(slot());
    stage.hold();
    old.restart();
    cluster.wait_until_ok();
    stage.healed();
    stage.facts.push(witness.fact());
    Ok(stage.finish(OverBound::lost_once()))
}

fn resharding(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let cluster = Cluster::start();
    let mut stage = Stage::over_redis(ground, &cluster.url())?;
    stage.warm_up();
    let moves = stage.repeat(Duration::from_millis(200), || {
        let owner = cluster.master_of(slot()).port();
        let mut others = cluster.nodes().iter().filter(|node| node.port() != owner);
        if let Some(to) = others.next() {
            cluster.migrate(slot(), to).finish();
        }
    });
    stage.healed();
    let fact = RowFact::at_least("times that the slot moved", f64::from(moves), 2.0, "");
    stage.facts.push(fact);
    Ok(stage.finish(OverBound::nothing_lost()))
}
