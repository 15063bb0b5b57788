//! Reservations while Redis, the network or a server fails: what is held and used never exceeds the limit, and nothing is
//! lost for longer than a reservation lasts.

use std::time::Duration;

use tidegate_testkit::fault_proxy::{FaultMode, FaultProxy};
use tidegate_testkit::redis::{RedisServer, Sentinel};

use crate::budget::{BUDGET, BudgetLoad, Ledger, TTL, remaining, servers};
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome};
use crate::stage::number;

pub(super) const ROWS: &[FaultRow] = &[
    row(
        "reservations-redis-killed",
        "Redis killed (SIGKILL) while reservations are open, returns with its append-only file",
        false,
        redis_killed,
    ),
    row(
        "reservations-redis-empty",
        "Redis killed while reservations are open, returns empty",
        false,
        redis_empty,
    ),
    row(
        "reservations-failover",
        "Sentinel: master killed while reservations are open",
        false,
        failover,
    ),
    row(
        "reservations-server-killed",
        "a server killed (SIGKILL) between reserving and settling, again and again",
        false,
        server_killed,
    ),
    row(
        "reservations-replies-lost",
        "calls arrive, replies are lost: settling is repeated",
        true,
        |ground| partition(ground, FaultMode::LoseReplies),
    ),
    row(
        "reservations-partition",
        "black hole between servers and Redis",
        false,
        |ground| partition(ground, FaultMode::BlackHole),
    ),
    row(
        "reservations-kills",
        "for 60 s, a server killed every 2 s and all connections of Redis closed every 300 ms",
        true,
        kills,
    ),
];

const fn row(
    name: &'static str,
    title: &'static str,
    is_short: bool,
    run: fn(&Ground) -> anyhow::Result<RowOutcome>,
) -> FaultRow {
    FaultRow {
        name,
        group: FaultGroup::Reservations,
        title,
        is_short,
        run,
    }
}

/// What Redis keeps of what it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedisKeeps {
    All,
    /// It may forget once.
    NotAll,
}

/// Load before the fault, during it and after it, then judges the run.
fn run(
    ground: &Ground,
    mut fleet: Fleet,
    kept: RedisKeeps,
    fault: impl FnOnce(&mut Fleet) -> anyhow::Result<()>,
) -> anyhow::Result<RowOutcome> {
    let load = BudgetLoad::start(&fleet)?;
    std::thread::sleep(ground.before);
    fault(&mut fleet)?;
    std::thread::sleep(ground.after);
    let ledger = load.stop();
    // What was lost is back when its reservation has ended.
    std::thread::sleep(TTL + Duration::from_secs(1));
    let left = remaining(&fleet)?;
    let (dead, panics) = fleet.casualties();
    for problem in ledger.unexpected.iter().take(5) {
        println!("    unexpected: {problem}");
    }
    let mut facts = vec![
        RowFact::at_most("servers that ended", number(dead), 0.0, ""),
        RowFact::at_most("panics", number(panics), 0.0, ""),
    ];
    facts.extend(judge(&ledger, left, kept));
    Ok(RowOutcome {
        figures: None,
        facts,
    })
}

fn judge(ledger: &Ledger, left: u64, kept: RedisKeeps) -> Vec<RowFact> {
    let quotas = match kept {
        RedisKeeps::All => 0,
        RedisKeeps::NotAll => BUDGET,
    };
    let over = ledger.most.saturating_sub(BUDGET);
    let mut facts = vec![
        RowFact::at_least("reserved", f64::from(ledger.reserved), 100.0, ""),
        RowFact::at_least("denied", f64::from(ledger.denied), 1.0, ""),
        RowFact::at_least("settled or cancelled", f64::from(ledger.ended), 100.0, ""),
        RowFact::seen("calls that were repeated", f64::from(ledger.repeated), ""),
        RowFact::at_most(
            "held and used beyond the limit",
            figure(over),
            figure(quotas),
            "",
        ),
        RowFact::at_most(
            "unexpected answers",
            number(ledger.unexpected.len()),
            0.0,
            "",
        ),
    ];
    let forgotten = f64::from(ledger.forgotten);
    if kept == RedisKeeps::NotAll {
        facts.push(RowFact::seen("forgotten reservations", forgotten, ""));
    } else {
        facts.push(RowFact::at_most(
            "forgotten reservations",
            forgotten,
            0.0,
            "",
        ));
        let used = BUDGET.saturating_sub(ledger.charged);
        let lost = used.saturating_sub(ledger.uncertain).saturating_sub(left);
        let back = left.saturating_sub(used);
        facts.push(RowFact::at_most(
            "lost for longer than its `ttl`",
            figure(lost),
            0.0,
            "",
        ));
        facts.push(RowFact::at_most("given back twice", figure(back), 0.0, ""));
    }
    facts
}

fn figure(units: u64) -> f64 {
    f64::from(u32::try_from(units).unwrap_or(u32::MAX))
}

fn redis_killed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::options().line("appendonly yes").start();
    let fleet = servers(ground, &redis.url())?;
    run(ground, fleet, RedisKeeps::All, |_| {
        redis.kill();
        std::thread::sleep(Duration::from_millis(500));
        redis.restart();
        Ok(())
    })
}

fn redis_empty(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let fleet = servers(ground, &redis.url())?;
    run(ground, fleet, RedisKeeps::NotAll, |_| {
        redis.kill();
        std::thread::sleep(Duration::from_millis(500));
        redis.restart();
        Ok(())
    })
}

fn failover(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let group = Sentinel::start();
    let fleet = servers(ground, &group.url())?;
    run(ground, fleet, RedisKeeps::NotAll, |_| {
        let old = group.kill_master();
        group.wait_for_new_master(old);
        std::thread::sleep(Duration::from_secs(1));
        old.restart();
        Ok(())
    })
}

fn server_killed(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let fleet = servers(ground, &redis.url())?;
    run(ground, fleet, RedisKeeps::All, |fleet| {
        for turn in 0..4 {
            kill(fleet, turn)?;
        }
        Ok(())
    })
}

fn partition(ground: &Ground, mode: FaultMode) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.address());
    let fleet = servers(ground, &format!("redis://{}", proxy.address()))?;
    run(ground, fleet, RedisKeeps::All, |_| {
        proxy.set(mode);
        std::thread::sleep(ground.fault);
        proxy.set(FaultMode::Pass);
        Ok(())
    })
}

fn kills(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let lasts = Duration::from_secs(if ground.is_short { 5 } else { 60 });
    let redis = RedisServer::start();
    let fleet = servers(ground, &redis.url())?;
    run(ground, fleet, RedisKeeps::All, |fleet| {
        let end = tidegate_testkit::now() + lasts;
        for turn in 0.. {
            let next = tidegate_testkit::now() + Duration::from_secs(2);
            if next > end {
                break;
            }
            kill(fleet, turn)?;
            while tidegate_testkit::now() < next {
                let _: u64 = redis.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        Ok(())
    })
}

/// Kills one server after the other, and starts it again.
fn kill(fleet: &mut Fleet, turn: usize) -> anyhow::Result<()> {
    let count = fleet.servers.len();
    let server = &mut fleet.servers[turn % count];
    server.kill();
    std::thread::sleep(Duration::from_millis(200));
    server.start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_lost_or_given_back_twice_is_found() {
        let ledger = Ledger {
            most: BUDGET,
            charged: 10,
            uncertain: 2,
            reserved: 200,
            denied: 1,
            ended: 200,
            ..Ledger::default()
        };
        let broken = |ledger: &Ledger, left| {
            let facts = judge(ledger, left, RedisKeeps::All);
            let broken = facts.into_iter().filter(|fact| !fact.holds);
            broken.map(|fact| fact.name).collect::<Vec<_>>()
        };
        for left in [BUDGET - 10, BUDGET - 12] {
            assert_eq!(broken(&ledger, left), Vec::<String>::new());
        }
        assert_eq!(
            broken(&ledger, BUDGET - 13),
            ["lost for longer than its `ttl`"]
        );
        assert_eq!(broken(&ledger, BUDGET - 9), ["given back twice"]);
        let over = Ledger {
            most: BUDGET + 1,
            ..ledger
        };
        assert_eq!(
            broken(&over, BUDGET - 10),
            ["held and used beyond the limit"]
        );
    }
}
