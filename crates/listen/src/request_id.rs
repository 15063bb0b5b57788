//! The id of a request: the one that it comes with, if it is well formed, or a new one.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that names a request, in requests and answers.
pub static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How many bytes an id may have.
const MOST: usize = 64;

thread_local! {
    /// A random number of this thread, and how many ids it has made.
    static MADE: Cell<(u64, u64)> = Cell::new((RandomState::new().hash_one(0), 0));
}

/// The id that a request comes with. None if it has none, several, or one that is not `[A-Za-z0-9._-]{1,64}`.
pub(crate) fn given(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut given = headers.get_all(&X_REQUEST_ID).iter();
    match (given.next(), given.next()) {
        (Some(id), None) if is_id(id.as_bytes()) => Some(id.clone()),
        _ => None,
    }
}

/// A new id: 16 hexadecimal digits. A thread makes none twice.
pub(crate) fn make() -> HeaderValue {
    let (random, count) = MADE.with(|made| {
        let (random, count) = made.get();
        made.set((random, count.wrapping_add(1)));
        (random, count)
    });
    let mixed = mixed(random.wrapping_add(count)).to_be_bytes();
    let mut digits = [0; 16];
    for (eight, four) in digits.chunks_exact_mut(8).zip(mixed.chunks_exact(4)) {
        let four = four
            .iter()
            .fold(0, |four, byte| four << 8 | u32::from(*byte));
        eight.copy_from_slice(&hex(four));
    }
    // Hexadecimal digits are a valid value.
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0"))
}

fn is_id(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MOST).contains(&text.len()) && text.iter().all(is_part)
}

/// The digits of a number, all eight at once.
fn hex(number: u32) -> [u8; 8] {
    let mut nibbles = u64::from(number);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte whose nibble is a letter.
    let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * 0x27).to_be_bytes()
}

/// Scatters numbers; no two become the same (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn only_one_well_formed_id_is_kept() {
        let long = "x".repeat(64);
        let too_long = "x".repeat(65);
        #[rustfmt::skip]
        let table = [
            (vec!["a-1_B.c"],       true),
            (vec![long.as_str()],   true),
            (vec![&too_long],       false),
            (vec![""],              false),
            (vec!["a b"],           false),
            (vec!["a\"b"],          false),
            (vec!["é"],             false),
            (vec!["a", "b"],        false),
            (vec![],                false),
        ];
        for (values, is_kept) in table {
            let mut headers = HeaderMap::new();
            for value in &values {
                headers.append(&X_REQUEST_ID, HeaderValue::try_from(*value).unwrap());
            }
            assert_eq!(given(&headers).is_some(), is_kept, "{values:?}");
        }
    }

    #[test]
    fn digits_by_hand() {
        for (number, digits) in [
            (0, "00000000"),
            (0x0123_4567, "01234567"),
            (0x89ab_cdef, "89abcdef"),
            (u32::MAX, "ffffffff"),
        ] {
            assert_eq!(hex(number), digits.as_bytes());
        }
    }

    #[test]
    fn made_ids_are_well_formed_and_differ_on_all_threads() {
        let make_some = || (0..1_000).map(|_| make()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make_some)).collect();
        let mut seen = HashSet::new();
        for id in threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
        {
            assert!(is_id(id.as_bytes()) && id.len() == 16);
            assert!(seen.insert(id));
        }
    }
}
