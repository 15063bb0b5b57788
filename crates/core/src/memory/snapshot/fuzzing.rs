//! Snapshots with any states and the checksums that these need, for the fuzzers. Not a part of the API.

use std::io;

use super::states::{END, decode};
use super::words::{WordReader, WordWriter};
use super::{RESET, VERSION};
use crate::memory::keys::KeyHasher;

/// A stream with the words of the head, the `states`, their end and their count.
///
/// `flags` and `written_at` are as given; the rest of the head is right. Errors are those of writing to memory.
pub fn sealed(flags: u64, written_at: u64, states: &[u64]) -> io::Result<Vec<u8>> {
    let secret = [1, 2, 3, 4];
    let head = [flags, written_at, KeyHasher::new(secret).fingerprint()];
    let write = |count: u64| {
        let mut stream = Vec::new();
        let mut words = WordWriter::new(&mut stream, VERSION)?;
        words.words(&head)?;
        words.words(&secret)?;
        words.words(states)?;
        words.words(&END)?;
        words.word(count)?;
        if flags & RESET != 0 {
            // Of no key.
            words.words(&[0, 0])?;
        }
        words.finish()?;
        Ok::<Vec<u8>, io::Error>(stream)
    };
    let mut count = 0;
    let stream = write(count)?;
    let head_length = head.len() + secret.len();
    if let Ok(mut words) = WordReader::new(&stream[..], VERSION)
        && (0..head_length).all(|_| words.word().is_ok())
    {
        while let Ok(Some(_)) = decode(&mut words) {
            count += 1;
        }
    }
    write(count)
}
