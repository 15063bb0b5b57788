//! The HTTP API: checks, rules, permits, feedback, metrics, and who may do what.

mod access;
mod activity;
mod bodies;
mod candidates;
mod checks;
mod clients;
mod console;
mod evidence;
mod explain;
mod feedback;
pub(crate) mod history;
mod metrics;
mod overrides;
mod permits;
mod raw_requests;
mod reasons;
mod refusals;
mod reservations;
mod rules;
mod status;
mod timelines;
mod units;
mod validate;
mod worst_case;
