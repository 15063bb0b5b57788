//! The HTTP API: checks, rules, permits, feedback, metrics, and who may do what.

mod access;
mod activity;
mod bodies;
mod checks;
mod console;
mod evidence;
mod explain;
mod feedback;
pub(crate) mod history;
mod metrics;
mod overrides;
mod permits;
mod reasons;
mod refusals;
mod rules;
mod status;
mod timelines;
mod validate;
mod worst_case;
