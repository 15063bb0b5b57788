//! Servers that share a Redis: limits, rules, overrides, leases, namespaces, clocks.

mod activity;
mod batches;
mod candidates;
mod clients;
mod explain;
mod history;
mod namespaces;
mod overrides;
pub(crate) mod shared;
mod shared_rules;
mod shares;
mod skewed_clocks;
