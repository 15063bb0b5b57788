//! Files that are written whole or not at all, and that only their owner can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::NamedTempFile;

/// A file that takes its name once it is [complete](Self::persist). What has that name until then can still be read.
pub(super) struct WrittenFile {
    path: PathBuf,
    /// None for what is no file, such as a pipe, which is written directly.
    file: Option<NamedTempFile>,
}

impl WrittenFile {
    /// Begins a file, next to what has its name now.
    pub(super) fn begin(path: &Path) -> anyhow::Result<Self> {
        let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let file = if is_other {
            None
        } else {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
            Some(file.with_context(|| cannot_write(path))?)
        };
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// Writes to it.
    pub(super) fn writer(&self) -> anyhow::Result<Box<dyn Write>> {
        let writer: io::Result<File> = match &self.file {
            Some(file) => file.as_file().try_clone(),
            None => OpenOptions::new().write(true).open(&self.path),
        };
        Ok(Box::new(writer.with_context(|| cannot_write(&self.path))?))
    }

    /// Gives it its name.
    pub(super) fn persist(self) -> anyhow::Result<()> {
        let Self { path, file } = self;
        let Some(file) = file else {
            return Ok(());
        };
        let written = file.as_file().sync_all();
        written.with_context(|| cannot_write(&path))?;
        file.persist(&path).with_context(|| cannot_write(&path))?;
        Ok(())
    }
}

/// Writes a file.
pub(super) fn write_whole(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let file = WrittenFile::begin(path)?;
    let written = file.writer()?.write_all(text);
    written.with_context(|| cannot_write(path))?;
    file.persist()
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write `{}`", path.display())
}
