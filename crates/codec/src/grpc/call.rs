//! A call of Envoy, borrowed from its bytes or from the decoded prost message.
//!
//! [`RateLimitCall::read`] reads the form that Envoy sends: entries, and hits. Any other message, also an invalid one,
//! is decoded by prost: see `docs/decisions/013-plain-codecs.md`.

use smallvec::SmallVec;

use super::proto::rate_limit::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

/// The first byte of a field: its number, and whether it is a varint or has a length.
const VARINT: u8 = 0;
const WITH_LENGTH: u8 = 2;

/// The content of a [`RateLimitRequest`].
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimitCall<'m> {
    pub(super) domain: &'m str,
    pub(super) descriptors: SmallVec<[CallDescriptor<'m>; 1]>,
    pub(super) hits_addend: u32,
}

/// One set of entries by which a request is limited.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CallDescriptor<'m> {
    pub(super) entries: SmallVec<[CallEntry<'m>; 4]>,
    pub(super) limit: Option<RateLimitOverride>,
    pub(super) hits_addend: Option<u64>,
    pub(super) is_negative_hits: bool,
}

/// The value need not be UTF-8.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CallEntry<'m> {
    pub(super) key: &'m str,
    pub(super) value: &'m [u8],
}

impl<'m> RateLimitCall<'m> {
    /// The call in a message of the usual form; `None` if it has another form or is malformed.
    pub fn read(message: &'m [u8]) -> Option<Self> {
        let mut call = Self {
            domain: "",
            descriptors: SmallVec::new(),
            hits_addend: 0,
        };
        let mut fields = FieldReader { rest: message };
        while let Some(field) = fields.next()? {
            match field {
                (1, ReadField::Bytes(domain)) => call.domain = std::str::from_utf8(domain).ok()?,
                (2, ReadField::Bytes(descriptor)) => {
                    // Filled where it stays: it is large, and each move copies it.
                    call.descriptors.push(CallDescriptor::default());
                    call.descriptors.last_mut()?.read(descriptor)?;
                }
                (3, ReadField::Number(hits)) => call.hits_addend = u32::try_from(hits).ok()?,
                _ => return None,
            }
        }
        Some(call)
    }

    /// The call in a message that prost has decoded.
    pub fn of(message: &'m RateLimitRequest) -> Self {
        Self {
            domain: &message.domain,
            descriptors: message
                .descriptors
                .iter()
                .map(CallDescriptor::from_message)
                .collect(),
            hits_addend: message.hits_addend,
        }
    }

    /// How many descriptors it has.
    pub fn descriptors(&self) -> usize {
        self.descriptors.len()
    }
}

impl<'m> CallDescriptor<'m> {
    fn read(&mut self, bytes: &'m [u8]) -> Option<()> {
        let mut fields = FieldReader { rest: bytes };
        while let Some(field) = fields.next()? {
            match field {
                (1, ReadField::Bytes(entry)) => self.entries.push(CallEntry::read(entry)?),
                _ => return None,
            }
        }
        Some(())
    }

    fn from_message(message: &'m RateLimitDescriptor) -> Self {
        let entries = message.entries.iter().map(|entry| CallEntry {
            key: &entry.key,
            value: &entry.value,
        });
        Self {
            entries: entries.collect(),
            limit: message.limit,
            hits_addend: message.hits_addend.map(|hits| hits.value),
            is_negative_hits: message.is_negative_hits,
        }
    }
}

impl<'m> CallEntry<'m> {
    fn read(bytes: &'m [u8]) -> Option<Self> {
        let mut entry = Self::default();
        let mut fields = FieldReader { rest: bytes };
        while let Some(field) = fields.next()? {
            match field {
                (1, ReadField::Bytes(key)) => entry.key = std::str::from_utf8(key).ok()?,
                (2, ReadField::Bytes(value)) => entry.value = value,
                _ => return None,
            }
        }
        Some(entry)
    }
}

/// The fields of a message, one after the other.
struct FieldReader<'m> {
    rest: &'m [u8],
}

enum ReadField<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

impl<'m> FieldReader<'m> {
    /// The next field with its number: the inner none at the end, the outer none if it cannot be read here.
    #[inline]
    #[expect(clippy::option_option, reason = "the end of a message is not an error")]
    fn next(&mut self) -> Option<Option<(u8, ReadField<'m>)>> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Some(None);
        };
        self.rest = rest;
        // Numbers above 15 take more bytes; no field here has one.
        if tag & 0x80 != 0 {
            return None;
        }
        let field = match tag & 7 {
            VARINT => ReadField::Number(self.varint()?),
            WITH_LENGTH => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.rest.split_at_checked(length)?;
                self.rest = rest;
                ReadField::Bytes(bytes)
            }
            _ => return None,
        };
        Some(Some((tag >> 3, field)))
    }

    /// A number below 2^28, in the fewest bytes or in more.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for index in 0..4 {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::super::proto::rate_limit::{DescriptorEntry, UInt64Value};
    use super::*;

    /// What is read is what prost reads.
    fn compare(message: &[u8]) -> Result<bool, TestCaseError> {
        let decoded = RateLimitRequest::decode(message);
        let Some(read) = RateLimitCall::read(message) else {
            return Ok(false);
        };
        prop_assert!(decoded.is_ok(), "{:?}", decoded);
        let decoded = decoded.as_ref().ok().map(RateLimitCall::of);
        prop_assert_eq!(Some(read), decoded);
        Ok(true)
    }

    fn entry() -> impl Strategy<Value = DescriptorEntry> {
        let value = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        (".{0,20}", value).prop_map(|(key, value)| DescriptorEntry { key, value })
    }

    fn descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
        let limit =
            (any::<u32>(), 0..9_i32).prop_map(|(requests_per_unit, unit)| RateLimitOverride {
                requests_per_unit,
                unit,
            });
        let hits = any::<u64>().prop_map(|value| UInt64Value { value });
        let parts = (
            prop::collection::vec(entry(), 0..6),
            prop::option::weighted(0.1, limit),
            prop::option::weighted(0.1, hits),
            prop::bool::weighted(0.1),
        );
        parts.prop_map(
            |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
                entries,
                limit,
                hits_addend,
                is_negative_hits,
            },
        )
    }

    proptest! {
        #[test]
        fn calls_are_read_as_prost_reads_them(
            domain in ".{0,20}",
            descriptors in prop::collection::vec(descriptor(), 0..4),
            hits_addend in prop_oneof![Just(0), 0..100_u32, any::<u32>()],
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let is_usual = hits_addend < 1 << 28 && descriptors.iter().all(|descriptor| {
                descriptor.limit.is_none() && descriptor.hits_addend.is_none() && !descriptor.is_negative_hits
            });
            let message = RateLimitRequest { domain, descriptors, hits_addend };
            let mut bytes = message.encode_to_vec();
            prop_assert_eq!(compare(&bytes)?, is_usual);
            // Cut or damaged, it may only be read as prost reads it.
            for (index, byte) in changes {
                if !bytes.is_empty() {
                    let index = index.index(bytes.len());
                    compare(&bytes[..index])?;
                    bytes[index] = byte;
                    compare(&bytes)?;
                }
            }
        }

        #[test]
        fn any_bytes_are_read_as_prost_reads_them_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            compare(&bytes)?;
        }
    }
}
