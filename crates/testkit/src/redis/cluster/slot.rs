//! Hash slots, computed without asking a server.

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: of its hash tag, where it has one.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    crc16(tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// A short text whose slot is this one, to be a key or a hash tag.
pub fn tag_of(slot: u16) -> String {
    let mut tags = (0_u32..).map(|number| number.to_string());
    tags.find(|tag| slot_of(tag) == slot % SLOTS)
        .expect("every slot is met before the numbers end")
}

/// CRC-16/XMODEM, which Redis uses.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        let mixed = sum ^ (u16::from(*byte) << 8);
        (0..8).fold(mixed, |sum, _| {
            let shifted = sum << 1;
            if sum & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}
