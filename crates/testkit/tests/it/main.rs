//! The testkit itself, and the architecture of the workspace.

mod architecture;
mod cluster;
mod fault_proxy;
mod instructions;
mod linearizability;
mod public_api;
mod published;
mod redis_server;
mod sentinel;
mod settlements;
mod supply_chain;
