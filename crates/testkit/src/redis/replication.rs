//! How far a server is with replication, by its own account.

use super::RedisServer;
use super::server::BRIEF;

/// The parts of `INFO replication` that tests wait for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replication {
    pub(super) is_master: bool,
    /// Of a replica: its master's port.
    pub(super) follows: Option<u16>,
    /// Of a replica: whether it has had all of its master's data and gets what follows.
    pub(super) is_linked: bool,
    /// How much has been written to the master, as far as this server knows.
    pub(super) written: u64,
}

impl Replication {
    /// The state of a server, if it answers.
    pub(super) fn of(server: &RedisServer) -> Option<Self> {
        let command = ["INFO", "replication"];
        let text: String = server.query_within(BRIEF, &command).ok()?;
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        Some(Self {
            is_master: field("role")? == "master",
            follows: field("master_port").and_then(|port| port.parse().ok()),
            is_linked: field("master_link_status") == Some("up"),
            written: field("master_repl_offset")?.parse().ok()?,
        })
    }

    /// Whether this is a replica that has all that was `written` to its master.
    pub(super) fn has(&self, written: u64) -> bool {
        !self.is_master && self.is_linked && self.written >= written
    }
}
