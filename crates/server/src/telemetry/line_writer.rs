//! Writes lines to stderr or a file from a thread of its own, so that no request waits for a disk. A full queue
//! loses lines, which are counted. A file that was moved away, as logrotate does, is opened anew.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_listen::clock::now;

use crate::config::LineTarget;

/// How many lines may wait to be written.
const QUEUE: usize = 8_192;
/// How often it is checked whether the file was moved away.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An item in the queue of the thread.
enum Queued {
    Line(Vec<u8>),
    /// All lines before it are to be on the disk.
    Flush(SyncSender<()>),
}

/// Writes lines without making callers wait.
#[derive(Debug)]
pub(crate) struct LineWriter {
    /// None only while it is dropped.
    lines: Option<SyncSender<Queued>>,
    lost: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl LineWriter {
    /// Opens the target and starts the thread.
    pub(crate) fn open(target: &LineTarget) -> io::Result<Self> {
        let output = Output::open(target)?;
        let (lines, waiting) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(output, &waiting))?;
        Ok(Self {
            lines: Some(lines),
            lost: AtomicU64::new(0),
            thread: Some(thread),
        })
    }

    /// Writes a line, which ends with a line feed, as soon as its turn comes.
    pub(crate) fn write(&self, line: Vec<u8>) {
        let sent = self
            .lines
            .as_ref()
            .map(|lines| lines.try_send(Queued::Line(line)));
        if !matches!(sent, Some(Ok(()))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, but no longer than `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        let (written, waiting) = sync_channel(1);
        let asked = self
            .lines
            .as_ref()
            .map(|lines| lines.try_send(Queued::Flush(written)));
        if matches!(asked, Some(Ok(()))) {
            let _ = waiting.recv_timeout(patience);
        }
    }

    /// How many lines were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for LineWriter {
    /// Waits until all lines are written.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum Output {
    Stderr,
    File {
        path: PathBuf,
        file: BufWriter<File>,
    },
}

impl Output {
    fn open(target: &LineTarget) -> io::Result<Self> {
        Ok(match target {
            LineTarget::Stderr => Self::Stderr,
            LineTarget::File(path) => Self::File {
                path: path.clone(),
                file: BufWriter::new(open(path)?),
            },
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            // Locked for the whole line: the log writes there, too.
            Self::Stderr => io::stderr().lock().write_all(line),
            Self::File { file, .. } => file.write_all(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stderr => Ok(()),
            Self::File { file, .. } => file.flush(),
        }
    }

    /// Opens a file anew that is no longer under its name.
    fn look(&mut self) -> io::Result<()> {
        let Self::File { path, file } = self else {
            return Ok(());
        };
        let own = file.get_ref().metadata()?;
        let is_own =
            |found: std::fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        if !path.metadata().is_ok_and(is_own) {
            file.flush()?;
            *file = BufWriter::new(open(path)?);
        }
        Ok(())
    }
}

/// Opens a file to append to. Others than its owner and group may not read it.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640).open(path)
}

/// Writes lines until there is no sender any more. After an error it goes on: a disk may have room again.
fn write_all(mut output: Output, waiting: &Receiver<Queued>) {
    let mut looked_at = now();
    let mut has_failed = false;
    let mut is_ended = false;
    while !is_ended {
        let written = match waiting.recv_timeout(LOOK_EVERY) {
            Ok(first) => {
                let mut written = Ok(());
                for queued in std::iter::once(first).chain(waiting.try_iter()) {
                    let done = match queued {
                        Queued::Line(line) => output.write(&line),
                        Queued::Flush(asking) => {
                            let flushed = output.flush();
                            let _ = asking.try_send(());
                            flushed
                        }
                    };
                    written = written.and(done);
                }
                written.and(output.flush())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                is_ended = true;
                output.flush()
            }
        };
        let looked = if looked_at.elapsed() >= LOOK_EVERY {
            looked_at = now();
            output.look()
        } else {
            Ok(())
        };
        let ended = written.and(looked);
        if let Err(error) = &ended
            && !has_failed
        {
            tracing::error!("the access log cannot be written: {error}");
        }
        has_failed = ended.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_testkit::wait_until;

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let writer = LineWriter::open(&LineTarget::File(path.clone())).unwrap();
        writer.write(b"one\n".to_vec());
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let patience = Duration::from_secs(20);
        wait_until("the first line", patience, || {
            (read(&path) == "one\n").then_some(())
        });
        std::fs::rename(&path, folder.path().join("access.log.1")).unwrap();
        wait_until("another file", patience, || path.exists().then_some(()));
        writer.write(b"two\n".to_vec());
        drop(writer);
        assert_eq!(read(&path), "two\n");
        assert_eq!(read(&folder.path().join("access.log.1")), "one\n");
    }
}
