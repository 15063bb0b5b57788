//! A share of clients, chosen by a keyed hash: the same on every instance with the same secret, and after a restart.

use std::fmt;
use std::str::FromStr;

use super::digest::ValueDigest;

/// How many hundredths of a percent all clients are.
const ALL: u16 = 10_000;

/// A share of clients: a client is in it if a keyed 64-bit hash of a name and of the client's key is below the
/// percentage times 2⁶⁴ / 100.
///
/// The hash is the beginning of HMAC-SHA256 under the secret of [digests](ValueDigest). A larger share has all clients
/// of a smaller one. Shares under different names have different clients.
///
/// ```
/// use tidegate::rules::{Cohort, ValueDigest};
///
/// let digest = ValueDigest::new(b"secret");
/// let cohort: Cohort = "12.5%".parse()?;
/// let is_in = |key: &String| cohort.has("per-user", key, &digest);
/// let users = (0..10_000).map(|number| format!("user_{number}"));
/// let share = users.filter(is_in).count();
/// assert!((1_150..1_350).contains(&share));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cohort {
    hundredths: u16,
}

impl Cohort {
    /// All clients.
    pub const ALL: Self = Self { hundredths: ALL };

    /// Its hundredths of a percent: 10,000 are all clients.
    pub fn hundredths(self) -> u16 {
        self.hundredths
    }

    /// Whether the client with this key is in the share of this name.
    pub fn has(self, name: &str, key: &str, digest: &ValueDigest) -> bool {
        let below = u128::from(self.hundredths) << u64::BITS;
        u128::from(digest.number(name, key)) * u128::from(ALL) < below
    }
}

/// From `0%` to `100%`, with up to two decimals.
impl FromStr for Cohort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        hundredths_in(text)
            .map(|hundredths| Self { hundredths })
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a share; write a percentage from `0%` to `100%` with up to two decimals, such as `10%`"
                )
            })
    }
}

fn hundredths_in(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?.trim_end();
    let (whole, decimals) = match number.split_once('.') {
        Some((whole, decimals)) => (whole, decimals),
        None => (number, "0"),
    };
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 2 {
        return None;
    }
    let decimals: u16 = format!("{decimals:0<2}").parse().ok()?;
    let hundredths = whole.parse::<u16>().ok()?.checked_mul(100)?;
    let hundredths = hundredths.checked_add(decimals)?;
    (hundredths <= ALL).then_some(hundredths)
}

impl fmt::Display for Cohort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.hundredths / 100, self.hundredths % 100);
        match decimals {
            0 => write!(f, "{whole}%"),
            tenths if tenths % 10 == 0 => write!(f, "{whole}.{}%", tenths / 10),
            _ => write!(f, "{whole}.{decimals:02}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("0%", 0, "0%"), ("100%", 10_000, "100%"), ("10%", 1_000, "10%"), ("0.25%", 25, "0.25%"),
            ("12.5%", 1_250, "12.5%"), ("12.50%", 1_250, "12.5%"), ("7.05 %", 705, "7.05%"), ("100.00%", 10_000, "100%"),
        ];
        for (text, hundredths, shown) in table {
            let cohort: Cohort = text.parse().unwrap();
            assert_eq!(cohort.hundredths(), hundredths, "{text}");
            assert_eq!(cohort.to_string(), shown);
        }
        for text in [
            "",
            "%",
            "10",
            "0.1",
            "-1%",
            "+1%",
            "100.01%",
            "101%",
            "1.005%",
            ".5%",
            "5.%",
            "1e1%",
            "ten%",
            "99999999999%",
            "655.36%",
        ] {
            let error = text.parse::<Cohort>().unwrap_err();
            assert!(error.contains("such as `10%`"), "{error}");
        }
    }

    #[test]
    fn a_share_has_so_many_clients_and_a_larger_one_has_them_too() {
        let digest = ValueDigest::new(b"s3cret");
        let keys: Vec<String> = (0..100_000).map(|n| format!("192.0.2.{n}")).collect();
        let mut before = vec![false; keys.len()];
        for (percent, least, most) in [(10, 9_000, 11_000), (50, 49_000, 51_000)] {
            let cohort: Cohort = format!("{percent}%").parse().unwrap();
            let is_in: Vec<bool> = keys
                .iter()
                .map(|key| cohort.has("r", key, &digest))
                .collect();
            let count = is_in.iter().filter(|is_in| **is_in).count();
            assert!((least..=most).contains(&count), "{percent}%: {count}");
            assert!(
                before
                    .iter()
                    .zip(&is_in)
                    .all(|(before, now)| !before || *now)
            );
            before = is_in;
        }
        let (none, all): (Cohort, Cohort) = ("0%".parse().unwrap(), Cohort::ALL);
        let mut few = keys.iter().take(1_000);
        assert!(few.all(|key| all.has("r", key, &digest) && !none.has("r", key, &digest)));
    }

    #[test]
    fn another_name_or_secret_has_other_clients() {
        let (one, other) = (ValueDigest::new(b"one"), ValueDigest::new(b"other"));
        let half: Cohort = "50%".parse().unwrap();
        let members = |name: &str, digest: &ValueDigest| {
            let keys = (0..64).map(|key| half.has(name, &key.to_string(), digest));
            keys.collect::<Vec<bool>>()
        };
        assert_eq!(members("a", &one), members("a", &ValueDigest::new(b"one")));
        assert_ne!(members("a", &one), members("b", &one));
        assert_ne!(members("a", &one), members("a", &other));
    }
}
