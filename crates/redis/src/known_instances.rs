//! The instances that share a Redis, as one of them keeps them over a restart.

use std::time::Duration;

use tidegate_core::PermitId;

/// The data that an instance keeps over a restart: its identity, and the others in case Redis is unreachable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownInstances {
    /// Its own id, which no two running instances may share: 32 hexadecimal digits, generated if missing.
    pub id: Option<PermitId>,
    /// All that count, including itself. Empty if the others are not known.
    pub instances: Vec<KnownInstance>,
}

/// An instance that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownInstance {
    /// Its name in Redis: the id that it keeps over restarts, and a part of this run.
    pub name: String,
    /// For how long it has been missing; none if it is present.
    pub missing: Option<Duration>,
}
