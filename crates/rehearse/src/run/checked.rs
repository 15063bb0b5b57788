//! Whether files could be read at all.

use std::io;

use super::simulate::SimulateError;
use crate::input::{OpenLogError, ReadFile};

/// An error if a file could not be read, or has a line that strict reading refuses.
pub(crate) fn check_files(files: &[ReadFile], is_strict: bool) -> Result<(), SimulateError> {
    for file in files {
        if let Some(error) = file.error() {
            return Err(SimulateError::Open(OpenLogError::Io {
                file: file.name.clone(),
                source: io::Error::new(error.kind(), error.to_string()),
            }));
        }
        if is_strict && let Some(note) = file.first_strict() {
            return Err(SimulateError::Strict {
                file: file.name.clone(),
                line: note.line,
                reason: note.reason.clone(),
            });
        }
    }
    Ok(())
}

/// An error if a file has lines and none of them could be read.
pub(crate) fn check_readable(files: &[ReadFile]) -> Result<(), SimulateError> {
    for file in files {
        let counts = file.counts();
        if counts.malformed > 0
            && counts.requests + counts.refused + counts.outside + file.real_ignored() == 0
        {
            let note = file.notes().first();
            return Err(SimulateError::Unreadable {
                file: file.name.clone(),
                format: file.format.name(),
                lines: counts.lines,
                line: note.map_or(1, |note| note.line),
                reason: note.map(|note| note.reason.clone()).unwrap_or_default(),
            });
        }
    }
    Ok(())
}
