//! The HTTP API: checks, rules, permits, feedback, metrics, and who may do what.

mod access;
mod checks;
mod feedback;
mod metrics;
mod overrides;
mod permits;
mod reasons;
mod refusals;
mod rules;
mod timelines;
