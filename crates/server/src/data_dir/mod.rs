//! The data directory: the rules of a server without a rule file, or the last ones that it followed in Redis.
//! Other parts of the server keep small files there too, wherever the rules come from.
//!
//! One file per version, written atomically. The content of rules, and whether they may be changed, is left to
//! the caller; so is comparing versions before a change.
//! Why plain files: `docs/decisions/006-data-directory.md`.
//!
//! - `locked`: the locked directory and its files
//! - `directory`: the versions of the rules: opening, writing, reading
//! - `version`: a version and the text of its file
//! - `scan`: reads the folder of versions at the start
//! - `name`: the names of the files in it
//! - `lock`: one server per directory
//! - `owner`: whose files are used
//! - `made_token`: the token that a server generates for its operator
//! - `running`: where the running server listens, for commands on the same machine
//! - `error`: the errors

mod directory;
mod error;
mod lock;
mod locked;
pub(crate) mod made_token;
mod name;
mod owner;
pub(crate) mod running;
mod scan;
#[cfg(test)]
mod tests;
mod version;

pub use directory::DataDir;
pub use error::DataDirError;
pub use locked::LockedDir;
pub use made_token::MadeTokenError;
pub use running::{ReachedServer, RunningServer};
pub use scan::Warning;
pub use version::{BadVersion, NewVersion, Row, RulesVersion};
pub(crate) use version::{checksum, is_sealed, seal};
#[cfg(feature = "fuzzing")]
pub(crate) use version::{decode, encode};
