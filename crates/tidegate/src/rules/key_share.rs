//! A share of keys, chosen by a keyed hash: those that a rule's candidate, or the rule itself, is enforced for, and those that are
//! recorded.

use std::fmt;
use std::str::FromStr;

use super::digest::ValueDigest;

/// A share of keys, in hundredths of a percent.
///
/// Which keys it has follows from a hash of a name, such as the rule's id, and the key: they are the same on every instance and after a
/// restart, differ from rule to rule, and a larger share has all keys of a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyShare(u16);

/// Hundredths of a percent in the whole.
const WHOLE: u16 = 10_000;

impl KeyShare {
    /// All keys.
    pub const ALL: Self = Self(WHOLE);

    /// Its hundredths of a percent: 10,000 are all keys.
    pub fn hundredths(self) -> u16 {
        self.0
    }

    /// The share in percent: `12.5`.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The share as a part of one: `0.125`.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Whether it has a key with this [number](ValueDigest::cohort).
    pub fn has(self, cohort: u64) -> bool {
        u128::from(cohort) * u128::from(WHOLE) < u128::from(self.0) << u64::BITS
    }

    /// Whether it has a key of a name, by the secret of `digest`.
    pub fn has_key(self, digest: &ValueDigest, name: &str, key: &str) -> bool {
        match self.0 {
            0 => false,
            WHOLE => true,
            _ => self.has(digest.cohort(name, key)),
        }
    }
}

impl FromStr for KeyShare {
    type Err = String;

    /// Reads `10%` or `0.25%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is not a share of keys; write a percentage from `0%` to `100%` with at most two decimals, for example `10%` or `0.25%`"
            )
        };
        let Some(number) = text.strip_suffix('%') else {
            return Err(match hundredths(text) {
                Some(_) => format!("the sign `%` is missing; write `{text}%`"),
                None => refused(),
            });
        };
        hundredths(number).map(Self).ok_or_else(refused)
    }
}

/// The hundredths of a decimal number from 0 to 100 with at most two decimals.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, decimals) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || !is_digits(whole) {
        return None;
    }
    if decimals.len() > 2 || !is_digits(decimals) {
        return None;
    }
    let number = format!("{whole}{decimals:0<2}").parse::<u32>().ok()?;
    u16::try_from(number).ok().filter(|number| *number <= WHOLE)
}

impl fmt::Display for KeyShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.0 / 100, self.0 % 100);
        match decimals {
            0 => write!(f, "{whole}%"),
            _ if decimals.is_multiple_of(10) => write!(f, "{whole}.{}%", decimals / 10),
            _ => write!(f, "{whole}.{decimals:02}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(text: &str) -> KeyShare {
        text.parse().unwrap()
    }

    #[test]
    fn shares_by_hand() {
        for (text, hundredths, written) in [
            ("0%", 0, "0%"),
            ("100%", 10_000, "100%"),
            ("100.00%", 10_000, "100%"),
            ("010%", 1_000, "10%"),
            ("0.25%", 25, "0.25%"),
            ("0.05%", 5, "0.05%"),
            ("33.3%", 3_330, "33.3%"),
        ] {
            let share = rollout(text);
            assert_eq!(
                (share.0, share.to_string().as_str()),
                (hundredths, written),
                "{text}"
            );
        }
        for text in [
            "", "%", "10", "10 %", "100.01%", "101%", "1000%", "1.234%", ".5%", "5.%", "-1%",
            "+1%", "1e1%", "ten%", "10%%", "١%",
        ] {
            assert!(text.parse::<KeyShare>().is_err(), "{text}");
        }
        let unsigned = "12.5".parse::<KeyShare>().unwrap_err();
        assert_eq!(unsigned, "the sign `%` is missing; write `12.5%`");
    }

    #[test]
    fn the_ends_have_none_and_all() {
        let digest = ValueDigest::new(b"secret");
        for number in [0, 1, u64::MAX] {
            assert!(!rollout("0%").has(number), "{number}");
            assert!(rollout("100%").has(number), "{number}");
        }
        assert!(rollout("50%").has((1 << 63) - 1) && !rollout("50%").has(1 << 63));
        assert!(!rollout("0%").has_key(&digest, "a", "k"));
        assert!(rollout("100%").has_key(&digest, "a", "k"));
    }

    #[test]
    fn a_share_has_as_many_keys_and_raising_it_takes_none_out() {
        const KEYS: u32 = 100_000;
        let digest = ValueDigest::new(b"secret");
        for rule in ["per-user", "per-ip"] {
            let shares = ["0.5%", "1%", "10%", "33.33%", "50%", "90%", "99.99%"].map(rollout);
            let mut counts = [0_u32; 7];
            for key in 0..KEYS {
                let number = digest.cohort(rule, &format!("user-{key}"));
                let has = shares.map(|share| share.has(number));
                assert!(has.is_sorted(), "{rule} {key}: {has:?}");
                for (count, has) in counts.iter_mut().zip(has) {
                    *count += u32::from(has);
                }
            }
            for (share, count) in shares.iter().zip(counts) {
                let actual = f64::from(count) / f64::from(KEYS);
                let difference = (actual - share.ratio()).abs();
                assert!(difference < 0.01, "{rule} {share}: {actual}");
            }
        }
    }

    #[test]
    fn the_keys_of_a_share_are_the_same_after_a_restart() {
        // Computed with Python: HMAC-SHA256 of `rollout`, the id and the key, with zero bytes between them.
        let digest = ValueDigest::new(b"key");
        assert_eq!(digest.cohort("per-user", "u1"), 0xc99f_cac2_e8d0_d7d7);
        assert_ne!(digest.cohort("a", "bc"), digest.cohort("ab", "c"));
        let other = ValueDigest::new(b"other");
        assert_ne!(digest.cohort("a", "b"), other.cohort("a", "b"));
    }
}
