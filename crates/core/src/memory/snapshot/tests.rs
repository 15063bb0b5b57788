//! Snapshots that were never written: right checksums over anything at all.

use proptest::prelude::*;

use super::*;
use crate::limit::{Algorithm, Anchor, Limit, Rate};
use crate::memory::keys::random_secret;
use crate::store::{Charge, Request, Scope};
use crate::time::Micros;
use crate::{ManualClock, PermitId};

const NOW: Timestamp = Timestamp::from_seconds(1_794_700_800);

/// A limit of every algorithm.
fn limits() -> Vec<Limit> {
    let rate = Rate::new(10, Micros::MINUTE);
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::TokenBucket {
            max_delay: Micros::SECOND,
        },
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::SlidingWindowSlots {
            slots: Some(10),
            strict: true,
        },
    ];
    let limits = algorithms.map(|algorithm| Limit::new(rate, algorithm).unwrap());
    let others = [
        Limit::concurrent(10).unwrap(),
        Limit::portable_bucket(10, Micros::MINUTE, 5).unwrap(),
        "10/month".parse().unwrap(),
    ];
    limits.into_iter().chain(others).collect()
}

/// A stream with a good beginning and end, and these words between.
fn stream(hasher: &KeyHasher, states: &[u64], keys: u64) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut words = WordWriter::new(&mut stream, VERSION).unwrap();
    words
        .words(&[0, NOW.as_micros(), hasher.fingerprint()])
        .unwrap();
    words.words(&hasher.secret()).unwrap();
    words.words(states).unwrap();
    words.words(&states::END).unwrap();
    words.word(keys).unwrap();
    words.finish().unwrap();
    stream
}

fn restore(stream: &[u8]) -> Result<MemoryStore, SnapshotError> {
    let builder = MemoryStore::builder()
        .max_keys(50)
        .clock(ManualClock::new(NOW));
    builder.restore(stream).map(|(store, _)| store)
}

/// Does everything to a key, of which it does not matter what comes of it.
fn use_all(store: &MemoryStore, scope: &Scope, limit: &Limit, cost: u64) {
    for cost in [1, cost, 0] {
        let charges = [Charge {
            scope,
            limit,
            key: "key",
            cost,
        }];
        let request = Request::new(&charges).under(PermitId::from_u128(1));
        let outcomes = store.charge(&request);
        store.peek(&request);
        store.settle(&request);
        store.give_back(&request, &outcomes);
    }
    store.renew(PermitId::from_u128(1));
    store.release(PermitId::from_u128(1));
    store.sweep();
}

/// Words that look like states more often than chance would have it.
fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..8_u64,
        Just(u64::MAX),
        // Tags, kinds and times.
        (any::<u64>(), 0..4_u64).prop_map(|(word, tag)| word & !0xffff | tag << 12),
        (1..5_u64).prop_map(|kind| kind << 16),
        (0..100_000_000_u64).prop_map(|span| NOW.as_micros() + span),
    ]
}

proptest! {
    #[test]
    fn no_words_at_all_make_it_panic(states in prop::collection::vec(any_word(), 0..200)) {
        let hasher = KeyHasher::new(random_secret());
        if let Ok(store) = restore(&stream(&hasher, &states, 1)) {
            store.sweep();
        }
    }

    /// States that no algorithm would have made, found under the right name.
    #[test]
    fn no_state_makes_an_algorithm_panic(
        index in 0..12_usize, tag in 0..0x1000_u64, words: [u64; 2], cost: u64,
        kind in 1..4_u64, body in prop::collection::vec(any_word(), 0..40),
    ) {
        let hasher = KeyHasher::new(random_secret());
        let (scope, limit) = (Scope::new("hostile"), &limits()[index]);
        let charge = Charge { scope: &scope, limit, key: "key", cost: 1 };
        let hash = hasher.hash(&charge);
        let (low, rest) = (hash.rest & 0xffff, hash.rest & !0xffff);
        let inline = [hash.home, rest | 0x1000 | tag, words[0], words[1]];
        let spilled = [hash.home, rest | 0x2000 | tag, words[0], kind << 16 | low];
        for mut state in [inline.to_vec(), spilled.to_vec()] {
            if state[1] & 0x2000 != 0 {
                // A log and permits need their own order, which chance has for short ones.
                let per_entry = [2, 1, 5][usize::try_from(kind).unwrap() - 1];
                let head = usize::from(kind > 1);
                let entries = body.len().saturating_sub(head) / per_entry;
                state.push(entries as u64);
                state.extend(&body[..(head + entries * per_entry).min(body.len())]);
            }
            if let Ok(store) = restore(&stream(&hasher, &state, 1)) {
                use_all(&store, &scope, limit, cost);
            }
        }
    }
}

#[test]
fn a_count_that_is_not_true_is_damage_and_takes_no_memory() {
    let hasher = KeyHasher::new(random_secret());
    for kind in 1..=3_u64 {
        let state = [5, 0x2000, NOW.as_micros(), kind << 16, u64::MAX, 1, 2, 3];
        let error = restore(&stream(&hasher, &state, 1)).unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged), "{error:?}");
    }
    let error = restore(&stream(&hasher, &[], 1)).unwrap_err();
    assert!(matches!(error, SnapshotError::Damaged), "{error:?}");
}

#[test]
fn a_snapshot_of_a_program_that_hashes_differently_is_not_used() {
    let (hasher, other) = (
        KeyHasher::new(random_secret()),
        KeyHasher::new(random_secret()),
    );
    let mut stream = Vec::new();
    let mut words = WordWriter::new(&mut stream, VERSION).unwrap();
    words.words(&[0, 0, other.fingerprint()]).unwrap();
    words.words(&hasher.secret()).unwrap();
    words.words(&states::END).unwrap();
    words.word(0).unwrap();
    words.finish().unwrap();
    let error = restore(&stream).unwrap_err();
    assert!(matches!(error, SnapshotError::OtherNames), "{error:?}");
}

#[test]
fn a_later_state_of_a_key_takes_the_place_of_an_earlier_one() {
    let hasher = KeyHasher::new(random_secret());
    let (scope, limit) = (Scope::new("twice"), "10/month".parse::<Limit>().unwrap());
    let store = MemoryStore {
        stripes: Stripes::new(
            10,
            usize::MAX,
            std::sync::Arc::new(ManualClock::new(NOW)),
            false,
        ),
        hasher: KeyHasher::new(hasher.secret()),
        reservations: ReservationBook::new(1),
    };
    let charge = Charge {
        scope: &scope,
        limit: &limit,
        key: "key",
        cost: 2,
    };
    let mut states = Vec::new();
    for _ in 0..2 {
        store.charge_one(&charge);
        let mut copied = Copied::new();
        let (slots, spilled) = (&mut copied.slots, &mut copied.spilled);
        store.stripes.iter().for_each(|stripe| {
            stripe.lock().copy(0, usize::MAX, slots, spilled);
        });
        states.extend(copied.slots[0].to_raw());
    }
    let store = restore(&stream(&hasher, &states, 2)).unwrap();
    assert_eq!(store.stats().keys, 1);
    assert_eq!(store.charge_one(&charge).remaining, 4);
}

#[cfg(feature = "fuzzing")]
#[test]
fn a_sealed_stream_is_read_with_all_of_its_states() {
    let state = |key: u64| [key << 32, key << 16 | 0x1300, NOW.as_micros(), 0];
    for keys in 0..5 {
        let states: Vec<u64> = (1..=keys).flat_map(state).collect();
        let stream = fuzzing::sealed(0, NOW.as_micros(), &states).unwrap();
        assert_eq!(restore(&stream).unwrap().stats().keys as u64, keys);
    }
}
