//! The bytes of a log: as they are, or decompressed if their first bytes say gzip or zstd.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER: usize = 1 << 17;

/// Counts what is read.
struct CountedReader {
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// The decompressed bytes of a log. What is read of the file is added to `bytes`.
pub(super) fn decompressed(
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + Send>> {
    let mut reader = BufReader::with_capacity(BUFFER, CountedReader { inner, bytes });
    let start = reader.fill_buf()?;
    if start.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(reader)));
    }
    if start.starts_with(&ZSTD) {
        return Ok(Box::new(ZstdFrames::new(reader)));
    }
    Ok(Box::new(reader))
}

/// Frames of zstd, one after the other.
struct ZstdFrames<R: BufRead> {
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
    /// The file, between two frames.
    source: Option<R>,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self {
            frame: None,
            source: Some(source),
        }
    }

    /// Begins the next frame. False at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while let Some(mut source) = self.source.take() {
            let start = source.fill_buf()?;
            if start.is_empty() {
                return Ok(false);
            }
            if matches!(start, [first, 0x2a, 0x4d, 0x18, ..] if first >> 4 == 5) {
                let mut header = [0; 8];
                source.read_exact(&mut header)?;
                let [.., a, b, c, d] = header;
                let length = u64::from(u32::from_le_bytes([a, b, c, d]));
                io::copy(&mut (&mut source).take(length), &mut io::sink())?;
                self.source = Some(source);
                continue;
            }
            let frame = StreamingDecoder::new(source);
            let invalid = |error: FrameDecoderError| {
                io::Error::new(io::ErrorKind::InvalidData, error.to_string())
            };
            self.frame = Some(frame.map_err(invalid)?);
            return Ok(true);
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let count = frame.read(buffer)?;
                if count > 0 {
                    return Ok(count);
                }
            }
            if let Some(frame) = self.frame.take() {
                self.source = Some(frame.into_inner());
            }
            if !self.begin()? {
                return Ok(0);
            }
        }
    }
}
