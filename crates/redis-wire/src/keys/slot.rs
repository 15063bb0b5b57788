//! Cluster slots: which one a key is in, and a short key for each.

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The slot of a key. Only the text in its first pair of braces counts, if that is not empty.
pub fn slot_of(key: &str) -> u16 {
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
pub fn tag_of(slot: u16) -> &'static str {
    let tag = &TAGS[usize::from(slot % SLOTS)];
    let length = tag.iter().position(|byte| *byte == 0).unwrap_or(LONGEST);
    // All of it is digits and letters.
    std::str::from_utf8(&tag[..length]).unwrap_or_default()
}

/// The longest tag.
const LONGEST: usize = 4;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The tag of every slot, padded with zeros: the first number, in base 36 with the lowest digit first, that
/// is in the slot. Computed at compile time, because it takes longer than a decision may.
static TAGS: [[u8; LONGEST]; SLOTS as usize] = {
    let mut tags = [[0; LONGEST]; SLOTS as usize];
    let mut missing = SLOTS;
    let mut number: usize = 0;
    while missing > 0 {
        let (mut tag, mut length, mut rest, mut crc) = ([0; LONGEST], 0, number, 0_u16);
        while length == 0 || rest > 0 {
            let digit = DIGITS[rest % 36];
            tag[length] = digit;
            crc = (crc << 8) ^ TABLE[((crc >> 8) as u8 ^ digit) as usize];
            rest /= 36;
            length += 1;
        }
        let slot = (crc % SLOTS) as usize;
        if tags[slot][0] == 0 {
            tags[slot] = tag;
            missing -= 1;
        }
        number += 1;
    }
    tags
};

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

    /// Counted in time of the processor, which a busy machine does not change.
    #[test]
    fn the_first_tag_costs_no_more_than_any_other() {
        use rustix::time::{ClockId, clock_gettime};
        let start = clock_gettime(ClockId::ThreadCPUTime);
        assert_eq!(tag_of(1), "emj");
        let end = clock_gettime(ClockId::ThreadCPUTime);
        let nanos = (end.tv_sec - start.tv_sec) * 1_000_000_000 + end.tv_nsec - start.tv_nsec;
        assert!(nanos < 1_000_000, "{nanos} ns");
    }

    /// Other versions find leases under these names.
    #[test]
    fn tags_stay_as_they_are() {
        let some = [0, 1, 2, 12_182, SLOTS - 1].map(tag_of);
        assert_eq!(some, ["la2", "emj", "sd7", "foo", "hia"]);
        let all: Vec<&str> = (0..SLOTS).map(tag_of).collect();
        let all = sha1_smol::Sha1::from(all.join(",")).digest().to_string();
        assert_eq!(all, "9f39908912526f470fce6aa41d0592b114596064");
    }
}
