//! Length-prefixed messages: five bytes with a flag and the length, then the message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

use crate::CodecError;

/// The length of the prefix: flag and message length.
pub(super) const PREFIX: usize = 5;
/// The largest message, in bytes, unless a call accepts less.
pub const LARGEST: usize = 256 << 10;

/// The bytes of a call that have arrived and are not taken yet.
#[derive(Debug)]
pub struct MessageBuffer {
    largest: usize,
    bytes: BytesMut,
    /// A message that arrived in one piece and need not be copied.
    whole: Option<Bytes>,
}

impl Default for MessageBuffer {
    fn default() -> Self {
        Self::with_largest(LARGEST)
    }
}

impl MessageBuffer {
    /// An empty one, for messages of at most this many bytes.
    pub fn with_largest(largest: usize) -> Self {
        Self {
            largest,
            bytes: BytesMut::new(),
            whole: None,
        }
    }

    /// How many bytes have arrived and are not taken yet.
    pub fn len(&self) -> usize {
        self.whole.as_ref().map_or(self.bytes.len(), Bytes::len)
    }

    /// Whether nothing is left, also no part of a message.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.whole.is_none()
    }

    /// Adds bytes that arrived.
    pub fn put(&mut self, data: Bytes) {
        // Some clients end their call with an empty frame.
        if data.is_empty() {
            return;
        }
        if self.is_empty() {
            self.whole = Some(data);
            return;
        }
        if let Some(whole) = self.whole.take() {
            self.bytes.extend_from_slice(&whole);
        }
        self.bytes.extend_from_slice(&data);
    }

    /// A message without its prefix, if all of it has arrived.
    pub fn take(&mut self) -> Result<Option<Bytes>, CodecError> {
        let there = self.whole.as_deref().unwrap_or(&self.bytes);
        let Some((prefix, rest)) = there.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [flag, length @ ..] = *prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.largest {
            return Err(CodecError::TooLarge {
                given: length,
                most: self.largest,
            });
        }
        match flag {
            0 => {}
            1 => {
                let message = "compressed messages are not supported; send them uncompressed";
                return Err(CodecError::Unsupported(message));
            }
            _ => return Err(CodecError::invalid("this is not a gRPC message")),
        }
        if rest.len() < length {
            return Ok(None);
        }
        let taken = if let Some(whole) = &mut self.whole {
            let taken = whole.split_to(PREFIX + length);
            if whole.is_empty() {
                self.whole = None;
            }
            taken
        } else {
            self.bytes.split_to(PREFIX + length).freeze()
        };
        Ok(Some(taken.slice(PREFIX..)))
    }
}

/// Decodes a message.
pub fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, CodecError> {
    M::decode(bytes)
        .map_err(|error| CodecError::invalid(format!("the message cannot be read: {error}")))
}

/// Encodes a message with its prefix.
pub fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // No message written here is near the limit of the length field.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The capacity was reserved.
    let _ = message.encode(&mut bytes);
    debug_assert_eq!(bytes.remaining(), PREFIX + length, "the length is true");
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(pieces: &[&[u8]]) -> Result<Vec<Bytes>, CodecError> {
        let (mut buffer, mut all) = (MessageBuffer::default(), Vec::new());
        for piece in pieces {
            buffer.put(Bytes::copy_from_slice(piece));
            while let Some(message) = buffer.take()? {
                all.push(message);
            }
        }
        Ok(all)
    }

    #[test]
    fn what_is_no_message_is_named() {
        #[rustfmt::skip]
        let table: [(&[u8], &str); 3] = [
            (&[1, 0, 0, 0, 0],    "compressed messages are not supported; send them uncompressed"),
            (&[2, 0, 0, 0, 0],    "this is not a gRPC message"),
            (&[0, 1, 0, 0, 0],    "a message may have at most 262144 bytes, this has 16777216"),
        ];
        for (bytes, expected) in table {
            assert_eq!(taken(&[bytes]).unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn messages_are_the_same_in_any_pieces(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
            cuts in prop::collection::vec(0_usize..200, 0..6),
        ) {
            let mut bytes = Vec::new();
            for message in &messages {
                bytes.push(0);
                bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(message);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(taken(&pieces).unwrap(), messages);
        }
    }
}
