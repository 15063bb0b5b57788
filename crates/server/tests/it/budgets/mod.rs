//! Five concurrent callers of one budget, at every front end and over every store. The case is in the testkit.

mod front_ends;
mod model;
mod stores;

use front_ends::{Guards, Http, Models, Resp};
use stores::{BudgetServers, BudgetStore};
use tidegate_testkit::five_callers;

#[track_caller]
fn play(store: BudgetStore) {
    let servers = BudgetServers::start(store);
    five_callers(&Http(&servers), "http");
    five_callers(&Resp(&servers), "resp");
    five_callers(&Models::before(&servers), "gateway");
    let gates = servers.gates();
    five_callers(&Guards::of(&gates), "guards");
}

#[test]
fn five_callers_share_a_budget_in_memory() {
    play(BudgetStore::Memory);
}

#[test]
fn five_callers_share_a_budget_over_redis() {
    play(BudgetStore::Redis);
}

#[test]
fn five_callers_share_a_budget_over_leases() {
    play(BudgetStore::Leased);
}

#[test]
fn five_callers_share_a_budget_over_sentinels() {
    play(BudgetStore::Sentinel);
}

#[test]
fn five_callers_share_a_budget_over_a_cluster() {
    play(BudgetStore::Cluster);
}

#[test]
fn five_callers_share_a_budget_over_several_slots() {
    play(BudgetStore::SeveralSlots);
}
