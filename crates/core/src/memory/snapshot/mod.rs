//! Snapshots: the states of a memory store as a stream of bytes, and a store that goes on from one.
//!
//! `words.rs` has the stream with its checksums, `states.rs` the encoding of a state, `records.rs` that of a stored
//! reservation. The caller decides where a
//! snapshot is kept and when one is written.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod records;
mod states;
#[cfg(test)]
mod tests;
mod words;

use std::io::{self, Read, Write};

use self::records::RecordsBefore;
use self::states::{KeptState, decode, encode, words_of};
use self::words::{WordReader, WordWriter};
use super::keys::KeyHasher;
use super::lock::Lock;
use super::reservation_book::ReservationBook;
use super::resets::Resets;
use super::slot::{KeyHash, Slot};
use super::stripe::Stripe;
use super::stripes::Stripes;
use super::{MemoryStore, MemoryStoreBuilder};
use crate::time::Timestamp;

/// The version of the form. To be raised with every change of it, or of what the words of a state mean.
const VERSION: u64 = 1;
/// The number of slots that are examined under one lock.
const SLOTS_PER_LOCK: usize = 1_024;
/// How many words of states that are kept outside of the table are copied under one lock. One state is
/// always copied whole.
const WORDS_PER_LOCK: usize = 4_096;
/// Nothing expires by the store's clock, because requests brought their own time.
const TIMELESS: u64 = 1;
/// Keys were reset: after the states comes what can no longer be given back.
const RESET: u64 = 2;
/// There are stored reservations: they come last.
const RESERVED: u64 = 4;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// How many keys are in it.
    pub keys: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// When the snapshot was begun, by the clock of the store that wrote it.
    pub written_at: Timestamp,
    /// How many keys the store has from it.
    pub keys: u64,
    /// How many keys had become like fresh ones in the meantime.
    pub expired: u64,
    /// How many keys found no room, because the store holds fewer than the one that wrote it.
    pub evicted: u64,
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Some of it is lost or altered, or it never was a snapshot.
    #[error("it is damaged")]
    Damaged,
    /// It has another form.
    #[error("it has version {found} of the form, and this program reads version {VERSION}")]
    OtherVersion {
        /// The version of its form.
        found: u64,
    },
    /// It was written by a program that hashes keys differently, so that no state in it would be found.
    #[error("it was written by a program that names counters differently")]
    OtherNames,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

impl MemoryStore {
    /// A number that differs whenever a state was changed by a request since it was last asked for.
    ///
    /// To find out whether a new [snapshot](Self::snapshot) would differ from the last one: read this
    /// before each, and compare.
    pub fn changes(&self) -> u64 {
        let of = |stripe: &Lock<Stripe>| u64::from(stripe.lock().changes);
        self.stripes.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// Writes the state of every key, for [`MemoryStoreBuilder::restore`].
    ///
    /// Requests are decided meanwhile: no lock is held for more than 1,024 slots, or one state that is
    /// larger than that, and none while `writer` is called. So this is not the store at one instant, but
    /// each state in it is one that its key had at some instant between the call and the return. Takes
    /// memory for a part of a stripe, and for the largest state.
    ///
    /// It holds the secret under which keys are hashed and the names of permits and reservations: only the user that runs
    /// the process should be able to read it. It does not hold keys. `writer` is called with some 64 KiB
    /// at a time.
    ///
    /// ```
    /// use tidegate_core::{Charge, Limit, MemoryStore, Scope};
    ///
    /// let (scope, limit) = (Scope::new("per-user"), "2/hour".parse::<Limit>()?);
    /// let charge = Charge { scope: &scope, limit: &limit, key: "user_42", cost: 2 };
    /// let store = MemoryStore::new();
    /// assert!(store.charge_one(&charge).allowed);
    ///
    /// let mut file = Vec::new();
    /// store.snapshot(&mut file)?;
    /// let (store, _) = MemoryStore::builder().restore(&file[..])?;
    /// assert!(!store.charge_one(&charge).allowed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, writer: impl Write) -> io::Result<Snapshot> {
        let mut words = WordWriter::new(writer, VERSION)?;
        let timeless = match self.stripes.idle_at() {
            Some(_) => 0,
            None => TIMELESS,
        };
        let has_resets = self.stripes.shared().resets.has_any();
        let records = RecordsBefore::of(self);
        let has_records = if records.has_any() { RESERVED } else { 0 };
        let flags = timeless | has_records | if has_resets { RESET } else { 0 };
        words.words(&[flags, self.now().as_micros(), self.hasher.fingerprint()])?;
        words.words(&self.hasher.secret())?;
        let (mut copied, mut keys) = (Copied::new(), 0);
        for stripe in self.stripes.iter() {
            keys += copied.write(stripe, &mut words)?;
        }
        words.words(&states::END)?;
        words.word(keys)?;
        if has_resets {
            // After the states, as keys may be reset meanwhile.
            write_resets(&self.stripes.shared().resets, &mut words)?;
        }
        if records.has_any() {
            records.write(self, &mut words)?;
        }
        let bytes = words.finish()?;
        Ok(Snapshot { keys, bytes })
    }
}

/// Writes up to when charges to any key cannot be given back, then the same for keys that were reset, with their count.
fn write_resets<W: Write>(resets: &Resets, to: &mut WordWriter<W>) -> io::Result<()> {
    let (all_up_to, by_key) = resets.copy();
    to.words(&[all_up_to.as_micros(), by_key.len() as u64])?;
    for (key, last_charge) in by_key {
        to.words(&[key.home, key.rest, last_charge.as_micros()])?;
    }
    Ok(())
}

fn read_resets<R: Read>(from: &mut WordReader<R>, resets: &Resets) -> Result<(), SnapshotError> {
    resets.add_all_up_to(Timestamp::from_micros(from.word()?));
    for _ in 0..from.word()? {
        let (home, rest) = (from.word()?, from.word()?);
        let last_charge = Timestamp::from_micros(from.word()?);
        resets.add(KeyHash { home, rest }, last_charge);
    }
    Ok(())
}

/// What was copied under a lock. The room for it is there before the lock is taken.
struct Copied {
    slots: Vec<Slot>,
    spilled: Vec<KeyHash>,
    words: Vec<u64>,
}

impl Copied {
    fn new() -> Self {
        Self {
            slots: Vec::with_capacity(SLOTS_PER_LOCK),
            spilled: Vec::with_capacity(SLOTS_PER_LOCK),
            words: Vec::with_capacity(WORDS_PER_LOCK),
        }
    }

    /// Writes the states of a stripe, and counts them.
    fn write<W: Write>(
        &mut self,
        stripe: &Lock<Stripe>,
        to: &mut WordWriter<W>,
    ) -> io::Result<u64> {
        let (mut from, mut keys) = (Some(0), 0);
        while let Some(home) = from {
            self.slots.clear();
            self.spilled.clear();
            from = stripe
                .lock()
                .copy(home, SLOTS_PER_LOCK, &mut self.slots, &mut self.spilled);
            keys += self.slots.len() as u64;
            for slot in &self.slots {
                to.words(&slot.to_raw())?;
            }
            while !self.spilled.is_empty() {
                keys += self.copy_spilled(stripe);
                to.words(&self.words)?;
            }
        }
        Ok(keys)
    }

    /// Copies some of the states that are kept outside of the table, and counts them.
    fn copy_spilled(&mut self, stripe: &Lock<Stripe>) -> u64 {
        self.words.clear();
        let (mut keys, mut missing) = (0, 0);
        let locked = stripe.lock();
        while let Some(hash) = self.spilled.last() {
            // A state that is gone meanwhile is like a fresh one.
            if let Some((slot, hash, state)) = locked.spilled_state(*hash) {
                let free = self.words.capacity() - self.words.len();
                if words_of(state) > free {
                    missing = words_of(state);
                    break;
                }
                encode(slot, hash, state, &mut self.words);
                keys += 1;
            }
            self.spilled.pop();
        }
        drop(locked);
        if keys == 0 && missing > 0 {
            // It may grow until it is looked at again.
            self.words.reserve(missing + missing / 8);
        }
        keys
    }
}

impl MemoryStoreBuilder {
    /// The store, with the states of a [snapshot](MemoryStore::snapshot).
    ///
    /// Its counters go on as if they had been here all the time: time that has passed since has passed
    /// for them, too, and keys that have become like fresh ones are left out. If this store's clock is
    /// behind the one that wrote the snapshot, what holds for every clock that is set back holds here:
    /// nothing is given, and nothing is frozen. Permits are released and renewed under their names. If
    /// there are more keys than this store may hold, those that will be missed the least are left out.
    ///
    /// Any bytes may be read: what is not a whole snapshot is an error, and takes no more memory than
    /// what was read.
    pub fn restore(self, reader: impl Read) -> Result<(MemoryStore, Restored), SnapshotError> {
        let mut words = WordReader::new(reader, VERSION)?;
        let (flags, written_at) = (words.word()?, Timestamp::from_micros(words.word()?));
        let fingerprint = words.word()?;
        let secret = [words.word()?, words.word()?, words.word()?, words.word()?];
        let hasher = KeyHasher::new(secret);
        if hasher.fingerprint() != fingerprint {
            return Err(SnapshotError::OtherNames);
        }
        let stripes = Stripes::new(
            self.max_keys,
            self.max_memory,
            self.clock,
            self.is_clock_of_requests,
        );
        let reservations = ReservationBook::new(self.max_reservations);
        if flags & TIMELESS != 0 {
            stripes.shared().stop_expiring();
        }
        let idle_at = stripes.idle_at();
        let (mut read, mut expired) = (0_u64, 0_u64);
        while let Some(KeptState { slot, spilled }) = decode(&mut words)? {
            read += 1;
            if idle_at.is_some_and(|now| slot.fresh_at() <= now) {
                expired += 1;
            } else {
                stripes.restore(slot, spilled, idle_at);
            }
        }
        if words.word()? != read {
            return Err(SnapshotError::Damaged);
        }
        if flags & RESET != 0 {
            read_resets(&mut words, &stripes.shared().resets)?;
        }
        let store = MemoryStore {
            stripes,
            hasher,
            reservations,
        };
        if flags & RESERVED != 0 {
            records::read(&mut words, &store)?;
        }
        words.finish()?;
        let stats = store.stats();
        let restored = Restored {
            written_at,
            keys: stats.keys as u64,
            expired,
            evicted: stats.evicted,
        };
        Ok((store, restored))
    }
}
