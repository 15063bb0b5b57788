//! Cluster slots: which one a key is in, and a short key for each.

use std::sync::LazyLock;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The slot of a key: of what is in its first pair of braces, if there is anything in it.
pub(crate) fn slot_of(key: &str) -> u16 {
    let bytes = key.as_bytes();
    let hashed = bytes
        .iter()
        .position(|byte| *byte == b'{')
        .and_then(|open| {
            let rest = &bytes[open + 1..];
            let close = rest.iter().position(|byte| *byte == b'}')?;
            (close > 0).then(|| &rest[..close])
        });
    crc16(hashed.unwrap_or(bytes)) % SLOTS
}

/// A short text whose slot is `slot`.
pub(super) fn tag_of(slot: u16) -> &'static str {
    TAGS.get(usize::from(slot % SLOTS)).map_or("", |tag| tag)
}

static TAGS: LazyLock<Vec<Box<str>>> = LazyLock::new(|| {
    let mut tags: Vec<Option<Box<str>>> = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    let mut number: u64 = 0;
    while missing > 0 {
        let tag = base_36(number);
        let place = &mut tags[usize::from(crc16(tag.as_bytes()) % SLOTS)];
        if place.is_none() {
            *place = Some(tag.into());
            missing -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
});

fn base_36(mut number: u64) -> String {
    let mut digits = String::new();
    loop {
        let digit = u32::try_from(number % 36).unwrap_or(0);
        digits.extend(char::from_digit(digit, 36));
        number /= 36;
        if number == 0 {
            return digits;
        }
    }
}

/// CRC-16/XMODEM, by which a cluster assigns slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let index = usize::from((crc >> 8) as u8 ^ byte);
        (crc << 8) ^ TABLE[index]
    })
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As answered by `CLUSTER KEYSLOT`.
        #[rustfmt::skip]
        let table = [
            ("", 0), ("foo", 12_182), ("bar", 5_061), ("hello", 866), ("somekey", 11_058),
            ("foo{hash_tag}", 2_515), ("bar{hash_tag}", 2_515),
            ("{user1000}.following", slot_of("user1000")),
            ("foo{{bar}}zap", slot_of("{bar")),
            ("foo{bar}{zap}", slot_of("bar")),
            ("foo{", slot_of("foo{")),
        ];
        for (key, slot) in table {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in 0..SLOTS {
            let tag = tag_of(slot);
            assert!((1..=4).contains(&tag.len()), "{tag}");
            assert_eq!(slot_of(&format!("tg:{{{tag}}}:lease:0")), slot);
        }
    }
}
