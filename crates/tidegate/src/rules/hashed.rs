//! Values that a rule names by their hash, so that the rule contains no secret: `sha256:` and 64 hexadecimal digits.

use sha2::{Digest as _, Sha256};

use crate::internal::printable::hexadecimal;

const PREFIX: &str = "sha256:";
const DIGITS: usize = 64;

/// How overrides name values by their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashedOverrides {
    /// None does.
    None,
    /// Some do.
    Named,
    /// Requests have such a hash in place of the value: those of recordings.
    Recorded,
}

impl HashedOverrides {
    pub(super) fn of<'k>(mut values: impl Iterator<Item = &'k String>) -> Self {
        if values.any(|value| is_hash(value)) {
            Self::Named
        } else {
            Self::None
        }
    }

    /// Whether the hash of a value has to be looked up.
    pub(super) fn any(self) -> bool {
        self != Self::None
    }
}

/// Whether a text is a hash as it is kept: in lower case.
pub(super) fn is_hash(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// Parses a hash. `None` if the text is a plain value.
pub(super) fn read(written: &str) -> Option<Result<String, String>> {
    let digits = written.strip_prefix(PREFIX)?;
    let hash = written.to_ascii_lowercase();
    Some(if is_hash(&hash) {
        Ok(hash)
    } else {
        Err(format!(
            "after `{PREFIX}` this must have the {DIGITS} hexadecimal digits of the value's hash, not {} characters; `printf %s VALUE | sha256sum` writes them",
            digits.chars().count()
        ))
    })
}

/// The hash of a value, as it is kept.
pub(super) fn hash_of(value: &str) -> String {
    format!("{PREFIX}{}", hexadecimal(&Sha256::digest(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_by_hand() {
        // What `printf %s k2 | sha256sum` says.
        let digits = "015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
        let hash = format!("sha256:{digits}");
        assert_eq!(hash_of("k2"), hash);
        assert!(is_hash(&hash));
        assert_eq!(read(&hash), Some(Ok(hash.clone())));
        let upper = format!("sha256:{}", digits.to_uppercase());
        assert!(!is_hash(&upper));
        assert_eq!(read(&upper), Some(Ok(hash)));
        assert_eq!(read("k2"), None);
        assert_eq!(read(digits), None);
        for wrong in [
            "sha256:",
            "sha256:k2",
            &format!("sha256:{digits}0"),
            "sha256:é",
        ] {
            assert!(!is_hash(wrong));
            assert!(matches!(read(wrong), Some(Err(_))), "{wrong}");
        }
    }
}
