//! Short keyed hashes of secret values, for tables and logs. An operator with the secret can recognise a client;
//! the value itself appears nowhere.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::internal::printable::hexadecimal;

/// How many hexadecimal digits a digest has.
const DIGITS: usize = 12;

/// How many it has in recordings, in which many more clients must not be taken for each other.
const RECORDED_DIGITS: usize = 32;

/// How many characters of a value are shown in front of its digest.
const SHOWN: usize = 4;

/// A value with fewer characters is shown as its digest alone: four of them would give away too much.
const LONG: usize = 20;

/// Separates the two.
const ELLIPSIS: char = '…';

/// Shows secret values as digests: the first 12 hexadecimal digits of HMAC-SHA256 under a secret.
///
/// ```
/// use tidegate::rules::ValueDigest;
///
/// let digest = ValueDigest::new(b"key");
/// let fox = "The quick brown fox jumps over the lazy dog";
/// assert_eq!(digest.of(fox), "f7bc83f43053");
/// assert_eq!(digest.shown(fox), "The …f7bc83f43053");
/// assert_eq!(ValueDigest::read("The …f7bc83f43053"), Some("f7bc83f43053"));
/// ```
#[derive(Clone)]
pub struct ValueDigest(Hmac<Sha256>);

impl ValueDigest {
    /// Digests under this secret, of any length.
    pub fn new(secret: &[u8]) -> Self {
        // HMAC accepts keys of any length; the type does not express that.
        let keyed = Hmac::new_from_slice(secret);
        Self(keyed.unwrap_or_else(|_| Hmac::new(&hmac::digest::Key::<Hmac<Sha256>>::default())))
    }

    /// The digits of a value.
    pub fn of(&self, value: &str) -> String {
        hexadecimal(&self.hash([value])[..DIGITS / 2])
    }

    /// A value as recordings have it: `hmac:` and 32 digits, which begin with those of the [value](Self::of).
    pub fn recorded(&self, value: &str) -> String {
        let digits = hexadecimal(&self.hash([value])[..RECORDED_DIGITS / 2]);
        format!("hmac:{digits}")
    }

    /// The digits of a value in the form that recordings have.
    #[doc(hidden)]
    pub fn of_recorded(text: &str) -> Option<&str> {
        text.strip_prefix("hmac:")?.get(..DIGITS)
    }

    fn hash<const N: usize>(&self, texts: [&str; N]) -> [u8; 32] {
        let mut keyed = self.0.clone();
        for text in texts {
            keyed.update(text.as_bytes());
        }
        keyed.finalize().into_bytes().into()
    }

    /// A number for a key of a name, such as a rule's id: what a [`KeyShare`](super::KeyShare) chooses its keys by.
    pub fn cohort(&self, rule: &str, key: &str) -> u64 {
        let mut keyed = self.0.clone();
        for part in ["rollout\0", rule, "\0", key] {
            keyed.update(part.as_bytes());
        }
        let hash = keyed.finalize().into_bytes();
        let (number, _) = hash.split_at(size_of::<u64>());
        number
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A value as tables show it: its digits, after its first 4 characters if it has at least 20.
    pub fn shown(&self, value: &str) -> String {
        let digits = self.of(value);
        if value.chars().nth(LONG - 1).is_none() {
            return digits;
        }
        let mut shown: String = value.chars().take(SHOWN).collect();
        shown.push(ELLIPSIS);
        shown + &digits
    }

    /// The digits in a text that is written as [`of`](Self::of) or [`shown`](Self::shown) writes it.
    pub fn read(text: &str) -> Option<&str> {
        let digits = match text.rsplit_once(ELLIPSIS) {
            Some((start, digits)) => (start.chars().count() == SHOWN).then_some(digits)?,
            None => text,
        };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.len() == DIGITS && digits.bytes().all(is_digit)).then_some(digits)
    }
}

/// Without the secret.
impl std::fmt::Debug for ValueDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ValueDigest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_values_show_their_beginning() {
        let digest = ValueDigest::new(b"key");
        for (value, start) in [
            ("", ""),
            ("1234567890123456789", ""),
            ("12345678901234567890", "1234…"),
            ("ééééééééééééééééééé", ""),
            ("éééééééééééééééééééé", "éééé…"),
        ] {
            let digits = digest.of(value);
            assert_eq!(digits.len(), 12);
            assert_eq!(digest.shown(value), format!("{start}{digits}"));
            assert_eq!(ValueDigest::read(&digits), Some(digits.as_str()));
            assert_eq!(
                ValueDigest::read(&digest.shown(value)),
                Some(digits.as_str())
            );
        }
    }

    #[test]
    fn a_recorded_digest_begins_with_the_one_that_tables_show() {
        // What `printf %s k1 | openssl dgst -sha256 -hmac key` says.
        let digest = ValueDigest::new(b"key");
        let recorded = digest.recorded("k1");
        assert_eq!(recorded, "hmac:656728bf424da789ef81c427bdd89bb7");
        assert_eq!(recorded["hmac:".len()..][..12], digest.of("k1"));
    }

    #[test]
    fn another_secret_gives_another_digest() {
        let digest = |secret: &[u8]| ValueDigest::new(secret).of("k1");
        assert_ne!(digest(b"one"), digest(b"two"));
        assert_ne!(digest(b""), digest(b"one"));
        assert_eq!(digest(&[7; 200]), digest(&[7; 200]));
        assert!(!format!("{:?}", ValueDigest::new(b"hidden")).contains("hidden"));
    }

    #[test]
    fn what_is_not_a_digest_is_a_value() {
        for text in [
            "",
            "k1",
            "0123456789a",
            "0123456789abc",
            "0123456789AB",
            "abc…0123456789ab",
            "abcde…0123456789ab",
            "…0123456789ab",
            "abcd…",
            "abcd...0123456789ab",
        ] {
            assert_eq!(ValueDigest::read(text), None, "{text}");
        }
        // A value may begin with anything.
        assert_eq!(
            ValueDigest::read("ab……0123456789ab"),
            None,
            "three characters and two separators"
        );
        assert_eq!(
            ValueDigest::read("abc……0123456789ab"),
            Some("0123456789ab"),
            "the fourth character is one"
        );
    }
}
