//! The ids of permits.

use std::fmt;
use std::str::FromStr;

/// The id of the permits that one request holds under its concurrency limits.
///
/// A caller that knows the id can release the permits, so ids must not be guessable: 128 random
/// bits. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(u128);

impl PermitId {
    /// A new id that cannot be guessed, from the operating system.
    #[cfg(feature = "random-permits")]
    pub fn random() -> Self {
        Self(u128::from(random_word()) << 64 | u128::from(random_word()))
    }

    /// The id with this number: 128 bits from a secure source of random numbers, or an id that was made before.
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// The number of this id.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Shortened: a whole id in a log could be used to release the permit.
impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({:04x}…)", self.0 >> 112)
    }
}

impl FromStr for PermitId {
    type Err = InvalidPermitId;

    fn from_str(text: &str) -> Result<Self, InvalidPermitId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidPermitId);
        }
        u128::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| InvalidPermitId)
    }
}

/// The text is not the id of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a permit is 32 hexadecimal digits")]
pub struct InvalidPermitId;

/// A random secret from the operating system. If that fails, from the random keys of the standard
/// library.
#[cfg(feature = "random-permits")]
pub(crate) fn random_word() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = PermitId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "1", &"g".repeat(32), &"+".repeat(32), &"0".repeat(33)] {
            assert_eq!(bad.parse::<PermitId>(), Err(InvalidPermitId), "{bad}");
        }
    }
}
