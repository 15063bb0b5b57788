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

/// A new id: 32 hexadecimal digits, different from all others.
pub(crate) fn make() -> HeaderValue {
    let (random, count) = MADE.with(|made| {
        let (random, count) = made.get();
        made.set((random, count.wrapping_add(1)));
        (random, count)
    });
    let mut digits = [0; 32];
    let (first, second) = digits.split_at_mut(16);
    write_hex(random, first);
    write_hex(mixed(random ^ count), second);
    // Hexadecimal digits are a valid value.
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0"))
}

fn is_id(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MOST).contains(&text.len()) && text.iter().all(is_part)
}

fn write_hex(number: u64, digits: &mut [u8]) {
    let bytes = number.to_be_bytes();
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (digit, nibble) in digits.iter_mut().zip(nibbles) {
        *digit = b"0123456789abcdef"[usize::from(nibble)];
    }
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
    fn made_ids_are_well_formed_and_differ_on_all_threads() {
        let make_some = || (0..1_000).map(|_| make()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make_some)).collect();
        let mut seen = HashSet::new();
        for id in threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
        {
            assert!(is_id(id.as_bytes()) && id.len() == 32);
            assert!(seen.insert(id));
        }
    }
}
