//! A stream of words with checksums: cut into blocks, each with its length before it and its checksum
//! after it. A block that is damaged, missing or out of order is noticed before a word of it is read.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::SnapshotError;

/// The first bytes of every stream, whatever its version.
const MAGIC: [u8; 8] = *b"tgcounts";
/// How many words a block has at the most: 64 KiB.
const BLOCK: usize = 8_192;
const WORD: usize = size_of::<u64>();

/// Writes words. The stream is valid only after [`finish`](Self::finish).
pub(super) struct WordWriter<W> {
    to: W,
    /// The length of the block, and then its words as bytes.
    block: Vec<u8>,
    blocks: u64,
    bytes: u64,
}

impl<W: Write> WordWriter<W> {
    /// Begins a stream of this version.
    pub(super) fn new(mut to: W, version: u64) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&version.to_le_bytes())?;
        Ok(Self {
            to,
            block: empty_block(),
            blocks: 0,
            bytes: 2 * WORD as u64,
        })
    }

    pub(super) fn word(&mut self, word: u64) -> io::Result<()> {
        if self.block.len() == (BLOCK + 1) * WORD {
            self.write_block()?;
        }
        self.block.extend_from_slice(&word.to_le_bytes());
        Ok(())
    }

    pub(super) fn words(&mut self, words: &[u64]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.word(*word))
    }

    /// Ends the stream. Returns how many bytes it has.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if self.block.len() > WORD {
            self.write_block()?;
        }
        // A block without words is the end.
        self.write_block()?;
        self.to.flush()?;
        Ok(self.bytes)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let words = (self.block.len() / WORD - 1) as u64;
        self.block[..WORD].copy_from_slice(&words.to_le_bytes());
        let checksum = checksum(&self.block, self.blocks);
        self.block.extend_from_slice(&checksum.to_le_bytes());
        self.to.write_all(&self.block)?;
        self.bytes += self.block.len() as u64;
        self.blocks += 1;
        self.block.truncate(WORD);
        Ok(())
    }
}

fn empty_block() -> Vec<u8> {
    let mut block = Vec::with_capacity((BLOCK + 2) * WORD);
    block.extend_from_slice(&[0; WORD]);
    block
}

/// Depends on the block's position in the stream.
fn checksum(block: &[u8], number: u64) -> u64 {
    xxh3_64_with_seed(block, number)
}

/// Reads words. Holds one block, whatever the stream says about itself.
pub(super) struct WordReader<R> {
    from: R,
    block: Vec<u8>,
    /// Where the next word is in the block.
    next: usize,
    blocks: u64,
}

impl<R: Read> WordReader<R> {
    /// Begins to read a stream of this version.
    pub(super) fn new(mut from: R, version: u64) -> Result<Self, SnapshotError> {
        if read::<WORD>(&mut from)? != MAGIC {
            return Err(SnapshotError::Damaged);
        }
        let found = u64::from_le_bytes(read(&mut from)?);
        if found != version {
            return Err(SnapshotError::OtherVersion { found });
        }
        Ok(Self {
            from,
            block: empty_block(),
            next: WORD,
            blocks: 0,
        })
    }

    pub(super) fn word(&mut self) -> Result<u64, SnapshotError> {
        if self.next == self.block.len() {
            self.read_block()?;
        }
        let word = self.block[self.next..]
            .first_chunk()
            .ok_or(SnapshotError::Damaged)?;
        self.next += WORD;
        Ok(u64::from_le_bytes(*word))
    }

    /// Checks that every word was read, and nothing comes after the end.
    pub(super) fn finish(mut self) -> Result<(), SnapshotError> {
        if self.next != self.block.len() {
            return Err(SnapshotError::Damaged);
        }
        self.read_block()?;
        let is_end = self.block.len() == WORD && self.from.read(&mut [0])? == 0;
        is_end.then_some(()).ok_or(SnapshotError::Damaged)
    }

    fn read_block(&mut self) -> Result<(), SnapshotError> {
        let length = read::<WORD>(&mut self.from)?;
        let words = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if words > BLOCK {
            return Err(SnapshotError::Damaged);
        }
        self.block.resize((words + 1) * WORD, 0);
        self.block[..WORD].copy_from_slice(&length);
        self.from.read_exact(&mut self.block[WORD..])?;
        let written = u64::from_le_bytes(read(&mut self.from)?);
        if written != checksum(&self.block, self.blocks) {
            return Err(SnapshotError::Damaged);
        }
        self.blocks += 1;
        self.next = WORD;
        Ok(())
    }
}

fn read<const N: usize>(from: &mut impl Read) -> Result<[u8; N], SnapshotError> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(words: u64) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut writer = WordWriter::new(&mut stream, 7).unwrap();
        (0..words).for_each(|word| writer.word(word).unwrap());
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes, stream.len() as u64);
        stream
    }

    fn read_all(stream: &[u8], words: u64) -> Result<(), SnapshotError> {
        let mut reader = WordReader::new(stream, 7)?;
        for word in 0..words {
            assert_eq!(reader.word()?, word);
        }
        reader.finish()
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        let block = BLOCK as u64;
        for words in [0, 1, 2, block - 1, block, block + 1, 3 * block, 20_000] {
            read_all(&stream(words), words).unwrap();
        }
    }

    #[test]
    fn a_block_is_full_with_64_kib() {
        let (head, around_block, end) = (2 * WORD, 2 * WORD, 2 * WORD);
        let one = head + around_block + 65_536 + end;
        assert_eq!(stream(8_191).len(), one - WORD);
        assert_eq!(stream(8_192).len(), one);
        assert_eq!(stream(8_193).len(), one + around_block + WORD);
    }

    #[test]
    fn another_version_is_not_damage() {
        let stream = stream(1);
        let error = WordReader::new(&stream[..], 8).err().unwrap();
        assert!(matches!(error, SnapshotError::OtherVersion { found: 7 }));
    }

    #[test]
    fn words_that_are_left_over_and_bytes_after_the_end_are_damage() {
        assert!(read_all(&stream(3), 2).is_err());
        assert!(read_all(&stream(3), 4).is_err());
        assert!(read_all(&stream(BLOCK as u64 + 1), BLOCK as u64).is_err());
        let mut longer = stream(3);
        longer.push(0);
        assert!(read_all(&longer, 3).is_err());
    }

    #[test]
    fn blocks_that_change_places_are_damage() {
        let mut writer = WordWriter::new(Vec::new(), 7).unwrap();
        (0..BLOCK).for_each(|_| writer.word(5).unwrap());
        writer.write_block().unwrap();
        // Two blocks with the same words have different checksums.
        let first = writer.to[2 * WORD..].to_vec();
        let twice = [&writer.to[..], &first].concat();
        let mut reader = WordReader::new(&twice[..], 7).unwrap();
        (0..BLOCK).for_each(|_| assert_eq!(reader.word().unwrap(), 5));
        assert!(matches!(reader.word(), Err(SnapshotError::Damaged)));
    }
}
