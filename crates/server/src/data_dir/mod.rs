//! The data directory: where a server without a rule file keeps its rules; with Redis, the last ones that it
//! followed. Small files of other parts of the server are kept there too, wherever the rules come from.
//!
//! One file for each version, written whole or not at all. What a rule says, and whether it may be
//! changed, is left to the caller; so is comparing versions before a change.
//! Why plain files: `docs/decisions/006-data-directory.md`.
//!
//! - `locked`: the directory itself, whatever is kept in it
//! - `directory`: the versions of the rules: opening, writing, reading
//! - `version`: a version and the text of its file
//! - `scan`: what is found in the folder of versions at the start
//! - `name`: the names of the files in it
//! - `lock`: one server for each directory
//! - `made_token`: the token that a server makes for its operator
//! - `running`: where the server that has the lock listens, for commands on the same machine
//! - `error`: what can go wrong

mod directory;
mod error;
mod lock;
mod locked;
pub(crate) mod made_token;
mod name;
pub(crate) mod running;
mod scan;
#[cfg(test)]
mod tests;
mod version;

pub use directory::DataDir;
pub use error::DataDirError;
pub use locked::LockedDir;
pub use made_token::MadeTokenError;
pub use running::RunningServer;
pub use scan::Warning;
pub(crate) use version::checksum;
pub use version::{BadVersion, NewVersion, Row, RulesVersion};
