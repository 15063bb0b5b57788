//! Servers that share a Redis: limits, rules, leases, namespaces, clocks.

mod explain;
mod history;
mod namespaces;
pub(crate) mod shared;
mod shared_rules;
mod shares;
mod skewed_clocks;
