//! A state as words: its slot, and its spilled state if it has one.

use std::io::Read;

use super::SnapshotError;
use super::words::WordReader;
use crate::algorithm::{HeldPermit, HeldPermits, Log, MAX_RING, Slots};
use crate::memory::forms::SpilledState;
use crate::memory::slot::{KeyHash, Slot};
use crate::permit::PermitId;
use crate::time::{Micros, Timestamp};

/// The bits of a hash that a slot has no room for.
const LOW_BITS: u64 = 0xffff;
const LOG: u64 = 1;
const SLOTS: u64 = 2;
const PERMITS: u64 = 3;

/// The end of the states, where another could be.
pub(super) const END: [u64; 4] = [0; 4];

/// A state that was kept.
pub(super) struct KeptState {
    pub(super) slot: Slot,
    /// The spilled state, with the key's whole hash.
    pub(super) spilled: Option<(KeyHash, SpilledState)>,
}

/// How many words [`encode`] will add at the most.
pub(super) fn words_of(state: &SpilledState) -> usize {
    let parts = match state {
        SpilledState::Log(log) => log.len() * 2,
        SpilledState::Slots(slots) => slots.len(),
        SpilledState::HeldPermits(permits) => permits.len() * 5,
    };
    parts + 6
}

/// Adds a state that does not fit into its slot.
pub(super) fn encode(slot: Slot, hash: KeyHash, state: &SpilledState, words: &mut Vec<u64>) {
    let (kind, count) = match state {
        SpilledState::Log(log) => (LOG, log.len()),
        SpilledState::Slots(slots) => (SLOTS, slots.len()),
        SpilledState::HeldPermits(permits) => (PERMITS, permits.len()),
    };
    let [home, rest_and_tag, fresh_at, _] = slot.to_raw();
    let second = kind << 16 | hash.rest & LOW_BITS;
    words.extend([home, rest_and_tag, fresh_at, second, count as u64]);
    match state {
        SpilledState::Log(log) => {
            words.extend(log.iter().flat_map(|(at, cost)| [at.as_micros(), cost]));
        }
        SpilledState::Slots(slots) => {
            words.push(slots.changed_at().as_micros());
            words.extend(slots.counts().map(u64::from));
        }
        SpilledState::HeldPermits(permits) => {
            words.push(permits.changed_at().as_micros());
            words.extend(permits.iter().flat_map(permit_words));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each half is taken on purpose"
)]
fn permit_words(permit: &HeldPermit) -> [u64; 5] {
    let id = permit.id.as_u128();
    let (cost, ends_at, ttl) = (permit.cost, permit.ends_at.as_micros(), permit.ttl.get());
    [id as u64, (id >> 64) as u64, cost, ends_at, ttl]
}

/// The next state; none at the end.
pub(super) fn decode(from: &mut WordReader<impl Read>) -> Result<Option<KeptState>, SnapshotError> {
    let raw = [from.word()?, from.word()?, from.word()?, from.word()?];
    if raw == END {
        return Ok(None);
    }
    let slot = Slot::from_raw(raw)
        .filter(|slot| !slot.is_empty())
        .ok_or(SnapshotError::Damaged)?;
    if slot.spilled_at().is_none() {
        return Ok(Some(KeptState {
            slot,
            spilled: None,
        }));
    }
    let (kind, low_bits) = (raw[3] >> 16, raw[3] & LOW_BITS);
    let count = from.word()?;
    let state = match kind {
        LOG => SpilledState::Log(decode_log(count, from)?),
        SLOTS => SpilledState::Slots(decode_slots(count, from)?),
        PERMITS => SpilledState::HeldPermits(decode_permits(count, from)?),
        _ => return Err(SnapshotError::Damaged),
    };
    let hash = KeyHash {
        rest: slot.hash().rest | low_bits,
        ..slot.hash()
    };
    Ok(Some(KeptState {
        slot,
        spilled: Some((hash, state)),
    }))
}

// Nothing is allocated for a count before as many words were read.

fn decode_log(count: u64, from: &mut WordReader<impl Read>) -> Result<Log, SnapshotError> {
    let mut log = Log::default();
    for _ in 0..count {
        let (at, cost) = (time(from)?, from.word()?);
        if !log.append(at, cost) {
            return Err(SnapshotError::Damaged);
        }
    }
    Ok(log)
}

fn decode_slots(count: u64, from: &mut WordReader<impl Read>) -> Result<Slots, SnapshotError> {
    if count > MAX_RING as u64 {
        return Err(SnapshotError::Damaged);
    }
    let changed_at = time(from)?;
    let mut counts = Vec::new();
    for _ in 0..count {
        counts.push(u32::try_from(from.word()?).map_err(|_| SnapshotError::Damaged)?);
    }
    Slots::from_counts(changed_at, counts.into()).ok_or(SnapshotError::Damaged)
}

fn decode_permits(
    count: u64,
    from: &mut WordReader<impl Read>,
) -> Result<HeldPermits, SnapshotError> {
    let mut permits = HeldPermits::changed(time(from)?);
    for _ in 0..count {
        let id = u128::from(from.word()?) | u128::from(from.word()?) << 64;
        let permit = HeldPermit {
            id: PermitId::from_u128(id),
            cost: from.word()?,
            ends_at: time(from)?,
            ttl: Micros::new(from.word()?),
        };
        if !permits.append(permit) {
            return Err(SnapshotError::Damaged);
        }
    }
    Ok(permits)
}

fn time(from: &mut WordReader<impl Read>) -> Result<Timestamp, SnapshotError> {
    Ok(Timestamp::from_micros(from.word()?))
}
