//! The file of a recording: begun with a header, continued after a restart, rotated at its size. A line is in it whole
//! or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_codec::record::{LONGEST_LINE, RecordHeader, write_lost, write_rules_version};

use crate::config::RecordSettings;

/// The mode of the file: it says what clients do.
const MODE: u32 = 0o600;

/// How each file begins.
const BEGIN: &[u8] = br#"{"tidegate_record":"#;

/// The file, open or not.
pub(super) struct RecordFile {
    path: PathBuf,
    size: u64,
    keep: u32,
    /// What the next lines are; none before the rules are known.
    header: Option<Arc<RecordHeader>>,
    open: Option<OpenRecord>,
    /// The lines that are missing after the last one.
    gap: u64,
}

struct OpenRecord {
    file: File,
    length: u64,
    /// The length of the header, if nothing follows it yet.
    fresh: Option<u64>,
    /// Not a pipe or a device, which is neither measured nor rotated.
    is_regular: bool,
}

impl RecordFile {
    pub(super) fn new(settings: &RecordSettings) -> Self {
        Self {
            path: settings.file.clone(),
            size: settings.size,
            keep: settings.keep,
            header: None,
            open: None,
            gap: 0,
        }
    }

    /// Lines that follow are by other rules.
    pub(super) fn put_under(&mut self, header: Arc<RecordHeader>) -> io::Result<()> {
        let version = header.rules_version;
        let before = self.header.replace(header);
        let Some(open) = &mut self.open else {
            return self.opened().map(drop);
        };
        if open.is_fresh() && open.is_regular {
            // With another header, as if it had not been there.
            open.file.set_len(0)?;
            return self.reopen();
        }
        if before.is_some_and(|before| before.rules_version == version) {
            return Ok(());
        }
        open.write(&line(|out| write_rules_version(out, version)))
    }

    /// So many lines are missing before the next one.
    pub(super) fn lose(&mut self, lines: u64) {
        self.gap += lines;
    }

    /// Writes the mark of a gap, if there is one.
    pub(super) fn mark_gap(&mut self) -> io::Result<()> {
        if self.gap > 0 {
            let mark = line(|out| write_lost(out, self.gap));
            self.opened()?.write(&mark)?;
            self.gap = 0;
        }
        Ok(())
    }

    /// Opens the file under its name, which may be another one now.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.open = None;
        self.opened().map(drop)
    }

    /// Adds whole lines, and rotates the file where it is full. Returns how many bytes were written.
    pub(super) fn append(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while written < lines.len() {
            match self.append_some(&lines[written..]) {
                Ok(bytes) => written += bytes,
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// Adds the lines for which the file has room, or begins another one.
    fn append_some(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.mark_gap()?;
        let size = self.size;
        let open = self.opened()?;
        let end = open.end_of_fitting(lines, size);
        if end == 0 {
            self.rotate()?;
        } else {
            open.write(&lines[..end])?;
        }
        Ok(end)
    }

    fn opened(&mut self) -> io::Result<&mut OpenRecord> {
        if self.open.is_none() {
            self.open = Some(self.open_file()?);
        }
        self.open
            .as_mut()
            .ok_or_else(|| io::Error::other("the file is not open"))
    }

    fn open_file(&self) -> io::Result<OpenRecord> {
        let Some(header) = &self.header else {
            return Err(io::Error::other("the rules are not known yet"));
        };
        let mut open = OpenRecord::at(&self.path)?;
        if open.length > 0 {
            if open.continues(header)? {
                open.cut_last_line()?;
                open.write(&line(|out| write_rules_version(out, header.rules_version)))?;
                return Ok(open);
            }
            drop(open);
            self.move_away()?;
            open = OpenRecord::at(&self.path)?;
        }
        open.begin(header)?;
        Ok(open)
    }

    /// Makes the file `FILE.1`, and the next lines begin another one.
    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        self.move_away()
    }

    fn move_away(&self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            match fs::rename(self.rotated(number), self.rotated(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.rotated(1))?;
        // More were kept before.
        let mut beyond = (self.keep + 1)..;
        while beyond
            .next()
            .is_some_and(|number| fs::remove_file(self.rotated(number)).is_ok())
        {}
        Ok(())
    }

    fn rotated(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl OpenRecord {
    /// The file at this path, which no other process records to.
    fn at(path: &PathBuf) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true).mode(MODE);
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        let is_regular = metadata.is_file();
        if is_regular {
            file.try_lock().map_err(|error| match error {
                fs::TryLockError::WouldBlock => {
                    io::Error::other("another process records to it; name another file")
                }
                fs::TryLockError::Error(error) => error,
            })?;
            if metadata.permissions().mode() & 0o777 != MODE {
                file.set_permissions(Permissions::from_mode(MODE))?;
            }
        }
        Ok(Self {
            file,
            length: if is_regular { metadata.len() } else { 0 },
            fresh: None,
            is_regular,
        })
    }

    /// Writes the header of an empty file.
    fn begin(&mut self, header: &RecordHeader) -> io::Result<()> {
        self.length = 0;
        self.write(&line(|out| header.write(out)))?;
        self.fresh = Some(self.length);
        Ok(())
    }

    /// Whether it has nothing but its header.
    fn is_fresh(&self) -> bool {
        self.fresh == Some(self.length)
    }

    /// Whether the file can be continued under this header. An error if it is not a recording.
    fn continues(&self, header: &RecordHeader) -> io::Result<bool> {
        let mut begin = vec![0; LONGEST_LINE];
        let read = self.file.read_at(&mut begin, 0)?;
        let mut lines = begin[..read].split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        if lines.next().is_none() && first.starts_with(BEGIN) {
            // Its header was not written to the end.
            return Ok(false);
        }
        header.continues(first).ok_or_else(|| {
            io::Error::other("the file is there and is not a recording; name another file")
        })
    }

    /// Removes a line without its end, which a killed process may leave.
    fn cut_last_line(&mut self) -> io::Result<()> {
        let mut tail = vec![0; LONGEST_LINE];
        let from = self.length.saturating_sub(tail.len() as u64);
        let read = self.file.read_at(&mut tail, from)?;
        let end = tail[..read].iter().rposition(|byte| *byte == b'\n');
        self.length = from + end.map_or(0, |end| end as u64 + 1);
        self.file.set_len(self.length)
    }

    /// Where the lines end for which the file has room: all, none, or at least one if it has no other.
    fn end_of_fitting(&self, lines: &[u8], size: u64) -> usize {
        let room = usize::try_from(size.saturating_sub(self.length)).unwrap_or(usize::MAX);
        if !self.is_regular || lines.len() <= room {
            return lines.len();
        }
        let is_end = |byte: &u8| *byte == b'\n';
        let last = lines[..room].iter().rposition(is_end);
        let first = || {
            lines
                .iter()
                .position(is_end)
                .filter(|_| self.fresh == Some(self.length))
        };
        last.or_else(first).map_or(0, |end| end + 1)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // So that the next line does not begin in the middle of another.
            if self.is_regular {
                self.file.set_len(self.length)?;
            }
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn line(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut line = Vec::new();
    write(&mut line);
    line
}

#[cfg(test)]
mod tests;
