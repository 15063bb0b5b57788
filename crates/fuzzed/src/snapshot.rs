//! Snapshots of the memory store: what is restored is kept as it is, and any states can be charged.

use tidegate::store::{Charge, Request, Scope};
use tidegate::{Algorithm, Limit, ManualClock, MemoryStore, Micros, PermitId, Rate, Timestamp};
use tidegate_core::memory::fuzzing::sealed;

/// How many keys the store of a check holds.
const KEYS: usize = 1_024;
const NOW: Timestamp = Timestamp::from_micros(1_794_770_000_000_000);

/// Reads a stream, and a stream with the right checksums that has the input as its states.
pub fn check(bytes: &[u8]) {
    restore(bytes);
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Some((flags, states)) = words.split_first() else {
        return;
    };
    let Ok(stream) = sealed(*flags, NOW.as_micros(), states) else {
        unreachable!("memory can be written");
    };
    restore(&stream);
}

fn restored(bytes: &[u8]) -> Option<MemoryStore> {
    let builder = MemoryStore::builder()
        .max_keys(KEYS)
        .clock(ManualClock::new(NOW));
    let (store, restored) = builder.restore(bytes).ok()?;
    assert_eq!(store.stats().keys as u64, restored.keys);
    // A state has four words at least.
    let most = bytes.len() as u64 / 32;
    assert!(
        restored.keys + restored.expired + restored.evicted <= most,
        "{restored:?}"
    );
    Some(store)
}

fn written(store: &MemoryStore) -> Vec<u8> {
    let mut stream = Vec::new();
    let snapshot = store.snapshot(&mut stream);
    assert!(snapshot.is_ok_and(|snapshot| snapshot.bytes == stream.len() as u64));
    stream
}

fn restore(bytes: &[u8]) {
    let Some(store) = restored(bytes) else {
        return;
    };
    let first = written(&store);
    let Some(again) = restored(&first) else {
        unreachable!("a snapshot of what was restored is damaged");
    };
    assert_eq!(again.stats().keys, store.stats().keys);
    let second = written(&again);
    let Some(third) = restored(&second) else {
        unreachable!("a snapshot of what was restored is damaged");
    };
    assert_eq!(third.stats().keys, store.stats().keys);
    assert_eq!(first.len(), second.len());
    charge(&store);
}

/// A limit of each algorithm.
fn limits() -> Vec<Limit> {
    let rate = Rate::new(5, Micros::MINUTE);
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::LEAKY_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
    ];
    let limits = algorithms.map(|algorithm| Limit::new(rate, algorithm));
    let mut holders = rate;
    holders.window = None;
    let concurrent = Limit::new(holders, Algorithm::CONCURRENCY);
    limits.into_iter().chain([concurrent]).flatten().collect()
}

/// Each algorithm decides on whatever state its key has.
fn charge(store: &MemoryStore) {
    let scope = Scope::new("rule");
    for limit in &limits() {
        let charge = Charge {
            scope: &scope,
            limit,
            key: "key",
            cost: 1,
        };
        let mut admitted = 0;
        for id in 100..107 {
            // Concurrency is counted by permits.
            let request = Request {
                permit: Some(PermitId::from_u128(id)),
                ..Request::new(std::slice::from_ref(&charge))
            };
            let outcome = store.charge(&request)[0];
            assert_eq!(outcome.limit, 5, "{outcome:?}");
            assert!(outcome.remaining <= 5, "{outcome:?}");
            admitted += u64::from(outcome.allowed);
        }
        assert!(admitted <= 5, "{admitted} of 5 were admitted by {limit:?}");
    }
    store.sweep();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of the states in a snapshot of one block, without their end.
    fn states(stream: &[u8]) -> Vec<u8> {
        const HEAD: usize = 2 + 1 + 7;
        const END: usize = 4 + 1 + 1 + 2;
        stream[HEAD * 8..stream.len() - END * 8].to_vec()
    }

    #[test]
    fn states_of_every_algorithm_are_restored_and_charged() {
        let store = restored(&sealed(0, NOW.as_micros(), &[]).unwrap()).unwrap();
        let scope = Scope::new("rule");
        for (limit, cost) in limits().iter().zip([1, 2, 3, 1, 2, 3, 1]) {
            let charge = |key, cost| Charge {
                scope: &scope,
                limit,
                key,
                cost,
            };
            for key in ["key", "another"] {
                let charges = [charge(key, cost)];
                let permit = Some(PermitId::from_u128(7));
                let request = Request {
                    permit,
                    ..Request::new(&charges)
                };
                assert!(store.charge(&request)[0].allowed);
            }
        }
        let stream = written(&store);
        assert_eq!(limits().len(), 7);
        assert_eq!(restored(&stream).unwrap().stats().keys, 14);
        check(&stream);
        let input = [&0_u64.to_le_bytes()[..], &states(&stream)].concat();
        let words: Vec<u64> = input
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let again = sealed(words[0], NOW.as_micros(), &words[1..]).unwrap();
        assert_eq!(
            restored(&again).unwrap().stats().keys,
            14,
            "the states are read"
        );
        check(&input);
    }
}
