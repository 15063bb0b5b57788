//! The strict framing reader, for the fuzzers. Not a part of the API.

use crate::framing::FramingReader;

/// The verdict of the reader on the bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramingVerdict {
    /// How many bytes are passed on.
    pub passed: usize,
    /// Whether a head is ambiguous. Nothing after it is passed on.
    pub is_refused: bool,
    /// Whether the framing of a body is invalid.
    pub is_invalid: bool,
    /// Where complete requests end. Known only if bytes arrive one by one.
    pub ends: Vec<usize>,
}

/// Reads bytes that arrive in pieces of `step` bytes.
pub fn read_framing(bytes: &[u8], step: usize) -> FramingVerdict {
    let mut reader = FramingReader::new();
    let mut verdict = FramingVerdict {
        passed: 0,
        is_refused: false,
        is_invalid: false,
        ends: Vec::new(),
    };
    let mut is_within = false;
    for piece in bytes.chunks(step.max(1)) {
        let Ok(length) = reader.look(piece) else {
            verdict.is_invalid = true;
            break;
        };
        verdict.passed += length;
        verdict.is_refused = reader.has_refused();
        if verdict.is_refused {
            break;
        }
        let was_within = std::mem::replace(&mut is_within, reader.is_within_request());
        if was_within && !is_within {
            verdict.ends.push(verdict.passed);
        }
    }
    verdict
}
