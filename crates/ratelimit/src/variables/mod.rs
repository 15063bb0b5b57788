//! The variables of envoyproxy/ratelimit as settings of Tidegate.
//!
//! `table.rs` has every variable with what it becomes; `go.rs` reads values as Go does, `reader.rs` the environment. A
//! file for each group says which settings its variables make: `listeners.rs`, `rules.rs`, `redis.rs`, `answers.rs`,
//! `sinks.rs`, `telemetry.rs`. `report.rs` says what became of those that are set.

mod answers;
mod go;
mod listeners;
mod reader;
mod redis;
mod report;
mod rules;
mod sinks;
mod table;
mod telemetry;

pub use reader::{Environment, VariableSetting};
pub use report::{VariableFate, VariableNote, without_password};
pub use table::{Effect, KnownVariable, NoteLevel, VARIABLES};

use tidegate::document::Problems;

use crate::mode::EnvoyRatelimit;
use reader::Reader;

/// What the variables of an environment say.
#[derive(Debug)]
pub struct ReadVariables {
    /// The settings that they make, each once.
    pub settings: Vec<VariableSetting>,
    /// Secrets, by the variable of Tidegate that has them.
    pub secrets: Vec<(&'static str, String)>,
    /// What no setting says.
    pub mode: EnvoyRatelimit,
    /// What became of each variable that is set, in the order of the table.
    pub fates: Vec<VariableFate>,
    /// What is to be logged.
    pub notes: Vec<VariableNote>,
}

/// Reads all variables. Values that cannot be read, and those that would change decisions, are problems.
pub fn read(environment: &Environment<'_>, problems: &mut Problems) -> ReadVariables {
    let mut reader = Reader::new(environment, problems);
    reader.check_all();
    listeners::read(&mut reader);
    rules::read(&mut reader);
    redis::read(&mut reader);
    answers::read(&mut reader);
    sinks::read(&mut reader);
    telemetry::read(&mut reader);
    let mode = EnvoyRatelimit {
        healthy_without_configuration: reader.is_true("FORCE_START_WITHOUT_INITIAL_CONFIG"),
        healthy_with_domains_only: reader.is_true("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
        healthy_with_redis_only: reader.is_true("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"),
    };
    report::finish(reader, mode)
}

#[cfg(test)]
mod tests;
