//! Stored reservations as words. One is open in a snapshot only if its charge is in it and its settlement is not: those
//! that were open before and after the states were copied.

use std::collections::HashSet;
use std::io::{self, Read, Write};

use super::SnapshotError;
use super::words::{WordReader, WordWriter};
use crate::costs::{CostUnit, Costs};
use crate::limit::{Algorithm, Anchor, Limit, Rate, Window};
use crate::memory::MemoryStore;
use crate::memory::reservation_book::{BookedPart, BookedReservation, BookedReservations};
use crate::memory::slot::KeyHash;
use crate::reservation::{Adjusted, ReservationId};
use crate::time::{Micros, Timestamp};

/// More than any text or list of a reservation has.
const MOST: u64 = 65_536;
const SUPPLIED: u64 = 1;
const SETTLED: u64 = 2;

/// The reservations that were there before the states are copied.
pub(super) struct RecordsBefore {
    all: Vec<ReservationId>,
    open: HashSet<ReservationId>,
}

impl RecordsBefore {
    pub(super) fn of(store: &MemoryStore) -> Self {
        let kept = store.reservations.lock();
        let open = kept.iter().filter(|(_, booked)| booked.settled.is_none());
        Self {
            open: open.map(|(id, _)| id).collect(),
            all: kept.iter().map(|(id, _)| id).collect(),
        }
    }

    pub(super) fn has_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Writes those that are as they were, and those that are settled by now. Each is copied under a lock of its own.
    pub(super) fn write<W: Write>(
        &self,
        store: &MemoryStore,
        to: &mut WordWriter<W>,
    ) -> io::Result<()> {
        let mut words = Vec::new();
        for id in &self.all {
            words.clear();
            let kept = store.reservations.lock();
            let booked = kept.get(*id);
            let is_written =
                |booked: &&BookedReservation| booked.settled.is_some() || self.open.contains(id);
            if let Some(booked) = booked.filter(is_written) {
                encode(*id, booked, &mut words);
            }
            drop(kept);
            to.words(&words)?;
        }
        to.words(&[0, 0])
    }
}

/// Reads reservations into a store.
pub(super) fn read<R: Read>(
    from: &mut WordReader<R>,
    store: &MemoryStore,
) -> Result<(), SnapshotError> {
    let mut kept = store.reservations.lock();
    loop {
        let id = u128::from(from.word()?) | u128::from(from.word()?) << 64;
        if id == 0 {
            return Ok(());
        }
        let booked = decode(from, &mut kept)?;
        if booked.settled.is_none() {
            store.reservations.count_restored();
        }
        store.put(&mut kept, ReservationId::from_u128(id), booked);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each half is taken on purpose"
)]
fn encode(id: ReservationId, booked: &BookedReservation, words: &mut Vec<u64>) {
    let id = id.as_u128();
    let supplied = if booked.is_supplied { SUPPLIED } else { 0 };
    let settled = booked.settled.as_ref().map_or(0, |_| SETTLED);
    words.extend([
        id as u64,
        (id >> 64) as u64,
        booked.created_at.as_micros(),
        booked.expires_at.as_micros(),
        supplied | settled,
    ]);
    encode_text(&booked.estimate.to_string(), words);
    if let Some((cost, until)) = &booked.settled {
        encode_text(&cost.to_string(), words);
        words.push(until.as_micros());
    }
    words.push(booked.parts.len() as u64);
    for part in &booked.parts {
        words.extend([part.hash.home, part.hash.rest]);
        words.extend(limit_words(&part.limit));
        words.extend([
            part.cost,
            part.charged_at.as_micros(),
            part.delay.get(),
            u64::from(part.gives_back),
            part.unit_cost,
            part.settled,
            part.adjusted.given_back,
            part.adjusted.overrun,
            part.adjusted.uncharged,
            part.adjusted.remaining,
        ]);
        encode_text(part.unit.as_str(), words);
        encode_text(&part.label, words);
    }
}

fn decode<R: Read>(
    from: &mut WordReader<R>,
    kept: &mut BookedReservations,
) -> Result<BookedReservation, SnapshotError> {
    let (created_at, expires_at) = (time(from)?, time(from)?);
    let flags = from.word()?;
    let estimate = cost(from)?;
    let settled = match flags & SETTLED {
        0 => None,
        _ => Some((cost(from)?, time(from)?)),
    };
    let mut parts = Vec::new();
    for _ in 0..bounded(from.word()?)? {
        let (home, rest) = (from.word()?, from.word()?);
        let limit = read_limit(from)?;
        let (cost, charged_at, delay) = (from.word()?, time(from)?, Micros::new(from.word()?));
        let gives_back = from.word()? != 0;
        let (unit_cost, settled) = (from.word()?, from.word()?);
        let adjusted = Adjusted {
            given_back: from.word()?,
            overrun: from.word()?,
            uncharged: from.word()?,
            remaining: from.word()?,
        };
        let unit = CostUnit::new(&text(from)?).map_err(|_| SnapshotError::Damaged)?;
        let label = text(from)?;
        parts.push(BookedPart {
            hash: KeyHash { home, rest },
            limit: kept.limit(&limit),
            cost,
            charged_at,
            delay,
            gives_back,
            unit,
            unit_cost,
            label: label.into(),
            settled,
            adjusted,
        });
    }
    Ok(BookedReservation {
        created_at,
        expires_at,
        is_supplied: flags & SUPPLIED != 0,
        estimate,
        settled,
        parts: parts.into(),
    })
}

/// The algorithm, the rate, and what else the algorithm has.
fn limit_words(limit: &Limit) -> [u64; 6] {
    let rate = limit.rate();
    let window = match rate.window {
        None => 0,
        Some(Window::Month) => 1,
        Some(Window::Year) => 2,
        Some(Window::Span(span)) => span.get(),
    };
    let (kind, first, second) = match limit.algorithm() {
        Algorithm::FixedWindow { anchor } => {
            let anchor = match anchor {
                Anchor::Clock => 0,
                Anchor::FirstRequest => 1,
                Anchor::Epoch => 2,
            };
            (0, anchor, 0)
        }
        Algorithm::SlidingWindowLog => (1, 0, 0),
        Algorithm::SlidingWindowCounter => (2, 0, 0),
        Algorithm::SlidingWindowSlots { slots, strict } => {
            (3, u64::from(slots.unwrap_or(0)), u64::from(strict))
        }
        Algorithm::TokenBucket { .. } if limit.is_portable() => (4, 0, 0),
        Algorithm::TokenBucket { max_delay } => (5, max_delay.get(), 0),
        Algorithm::LeakyBucket { shape } => (6, u64::from(shape), 0),
        Algorithm::Concurrency { lease_ttl } => (7, lease_ttl.get(), 0),
    };
    let burst = rate.burst.map_or(0, |burst| burst.saturating_add(1));
    [kind, rate.count, window, burst, first, second]
}

fn read_limit<R: Read>(from: &mut WordReader<R>) -> Result<Limit, SnapshotError> {
    let [kind, count, window, burst] = [from.word()?, from.word()?, from.word()?, from.word()?];
    let (first, second) = (from.word()?, from.word()?);
    let rate = Rate {
        count,
        window: match window {
            0 => None,
            1 => Some(Window::Month),
            2 => Some(Window::Year),
            span => Some(Window::Span(Micros::new(span))),
        },
        burst: burst.checked_sub(1),
    };
    let algorithm = match kind {
        0 => {
            let window = rate.window.ok_or(SnapshotError::Damaged)?;
            let anchor = match first {
                0 => Anchor::Clock,
                1 => Anchor::FirstRequest,
                2 => Anchor::Epoch,
                _ => return Err(SnapshotError::Damaged),
            };
            let limit = Limit::fixed_window(count, window, anchor);
            return limit.map_err(|_| SnapshotError::Damaged);
        }
        1 => Algorithm::SlidingWindowLog,
        2 => Algorithm::SlidingWindowCounter,
        3 => Algorithm::SlidingWindowSlots {
            slots: Some(u32::try_from(first).map_err(|_| SnapshotError::Damaged)?)
                .filter(|slots| *slots > 0),
            strict: second != 0,
        },
        4 => {
            let (Some(Window::Span(window)), Some(burst)) = (rate.window, rate.burst) else {
                return Err(SnapshotError::Damaged);
            };
            let limit = Limit::portable_bucket(count, window, burst);
            return limit.map_err(|_| SnapshotError::Damaged);
        }
        5 => Algorithm::TokenBucket {
            max_delay: Micros::new(first),
        },
        6 => Algorithm::LeakyBucket { shape: first != 0 },
        7 => Algorithm::Concurrency {
            lease_ttl: Micros::new(first),
        },
        _ => return Err(SnapshotError::Damaged),
    };
    Limit::new(rate, algorithm).map_err(|_| SnapshotError::Damaged)
}

/// Its length, then its bytes, eight to a word.
fn encode_text(text: &str, words: &mut Vec<u64>) {
    words.push(text.len() as u64);
    for chunk in text.as_bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        words.push(u64::from_le_bytes(bytes));
    }
}

fn text<R: Read>(from: &mut WordReader<R>) -> Result<String, SnapshotError> {
    let length = bounded(from.word()?)?;
    let mut bytes = Vec::new();
    for _ in 0..length.div_ceil(8) {
        bytes.extend(from.word()?.to_le_bytes());
    }
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    String::from_utf8(bytes).map_err(|_| SnapshotError::Damaged)
}

fn cost<R: Read>(from: &mut WordReader<R>) -> Result<Costs, SnapshotError> {
    text(from)?.parse().map_err(|_| SnapshotError::Damaged)
}

fn time<R: Read>(from: &mut WordReader<R>) -> Result<Timestamp, SnapshotError> {
    Ok(Timestamp::from_micros(from.word()?))
}

fn bounded(count: u64) -> Result<u64, SnapshotError> {
    (count <= MOST)
        .then_some(count)
        .ok_or(SnapshotError::Damaged)
}
