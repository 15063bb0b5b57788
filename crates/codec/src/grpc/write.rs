//! Writes a protobuf message field by field, with the prefix of gRPC, into one buffer.
//!
//! The bytes are the same as those of prost: fields in the order of their numbers, without defaults.

use bytes::Bytes;

use super::frame::PREFIX;

/// Room for most messages.
const USUAL: usize = 256;

/// A message that is being written.
pub(super) struct MessageWriter {
    bytes: Vec<u8>,
}

impl MessageWriter {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::with_capacity(USUAL);
        bytes.extend_from_slice(&[0; PREFIX]);
        Self { bytes }
    }

    /// The message with its prefix.
    pub(super) fn framed(mut self) -> Bytes {
        let length = self.bytes.len() - PREFIX;
        // No message written here is near the limit of the length field.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.bytes[1..PREFIX].copy_from_slice(&length.to_be_bytes());
        self.bytes.into()
    }

    /// A field with a whole number, a boolean or an enum.
    pub(super) fn number(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.bytes.push(field << 3);
            self.varint(value);
        }
    }

    /// A field with text.
    pub(super) fn text(&mut self, field: u8, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    /// A field with an encoded message, also if it is empty.
    pub(super) fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.bytes.push(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// A field with the message that `write` writes.
    pub(super) fn message(&mut self, field: u8, write: impl FnOnce(&mut Self)) {
        // The length is mostly one byte.
        self.bytes.extend_from_slice(&[field << 3 | 2, 0]);
        let start = self.bytes.len();
        write(self);
        let length = self.bytes.len() - start;
        if length < 0x80 {
            self.bytes[start - 1] = low_byte(length as u64);
            return;
        }
        let message = self.bytes.split_off(start);
        self.bytes.pop();
        self.varint(length as u64);
        self.bytes.extend_from_slice(&message);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(low_byte(value) | 0x80);
            value >>= 7;
        }
        self.bytes.push(low_byte(value));
    }
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::proto::rate_limit::{CurrentLimit, DescriptorStatus};
    use super::*;

    #[test]
    fn fields_are_written_as_prost_writes_them() {
        for (length, number) in [(0, 0), (1, 1), (120, 127), (130, 128), (20_000, u32::MAX)] {
            let name = "x".repeat(length);
            let mut out = MessageWriter::new();
            out.number(1, u64::from(number));
            out.message(2, |out| {
                out.number(1, u64::from(number));
                out.text(3, &name);
            });
            let limit = CurrentLimit {
                requests_per_unit: number,
                unit: 0,
                name,
            };
            let message = DescriptorStatus {
                code: number.cast_signed(),
                current_limit: Some(limit),
                ..DescriptorStatus::default()
            };
            // An enum is signed, and would take ten bytes.
            if number < u32::MAX {
                assert_eq!(out.framed(), super::super::framed(&message), "{length}");
            } else {
                let read = DescriptorStatus::decode(out.framed().slice(PREFIX..)).unwrap();
                assert_eq!(read, message);
            }
        }
    }
}
