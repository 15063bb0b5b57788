//! The server programs, and where they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Which server to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Program {
    /// `redis-server`.
    #[default]
    Redis,
    /// `valkey-server`.
    Valkey,
}

impl Program {
    /// Every program, for tests that hold for all of them.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// The file to run: the one that a script of this repository installed, else the one on the path.
    pub(super) fn file(self) -> &'static Path {
        static REDIS: OnceLock<PathBuf> = OnceLock::new();
        static VALKEY: OnceLock<PathBuf> = OnceLock::new();
        match self {
            Self::Redis => REDIS.get_or_init(|| self.find()),
            Self::Valkey => VALKEY.get_or_init(|| self.find()),
        }
    }

    fn find(self) -> PathBuf {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
        let (name, install) = match self {
            Self::Redis => ("redis-server", "`apt-get install redis-server`"),
            Self::Valkey => (
                "valkey-server",
                "`scripts/install valkey`, or `apt-get install valkey-server` where the distribution has it",
            ),
        };
        let installed = tools.join("valkey/usr/bin").join(name);
        [installed, PathBuf::from(name)]
            .into_iter()
            .find(|file| runs(Command::new(file).arg("--version")))
            .unwrap_or_else(|| panic!("`{name}` is missing: install it with {install}"))
    }
}

/// Whether the command can be started and succeeds.
pub(super) fn runs(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
