//! A wall clock of a process that can be moved while it runs: a small library in C, compiled at run time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::row::RowSkipped;

const SOURCE: &str = include_str!("clock_shim.c");

/// The library, and the offset of the clock of all processes that have loaded it.
#[derive(Debug)]
pub(crate) struct ClockShim {
    folder: TempDir,
}

impl ClockShim {
    /// Compiles it. A machine without a C compiler skips the row.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let source = folder.path().join("clock_shim.c");
        fs::write(&source, SOURCE)?;
        let shim = Self { folder };
        shim.set(0)?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(shim.library())
            .arg(source)
            .output();
        match compiled {
            Ok(output) if output.status.success() => Ok(shim),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(RowSkipped(format!("the clock library does not compile: {text}")).into())
            }
            Err(error) => Err(RowSkipped(format!("`cc` cannot be run: {error}")).into()),
        }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock_shim.so")
    }

    fn offset(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// What a process needs in its environment.
    pub(crate) fn variables(&self) -> [(String, String); 2] {
        let text = |path: PathBuf| path.display().to_string();
        [
            ("LD_PRELOAD".to_owned(), text(self.library())),
            ("FAULTS_CLOCK".to_owned(), text(self.offset())),
        ]
    }

    /// Moves the clock to so many seconds from the true time. The file is written in place and never shorter, because processes
    /// have it mapped.
    pub(crate) fn set(&self, seconds: i64) -> anyhow::Result<()> {
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(self.offset())?;
        file.write_all_at(&seconds.to_ne_bytes(), 0)?;
        Ok(())
    }
}
