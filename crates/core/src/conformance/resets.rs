//! What a reset means for requests that were charged before it: nothing of them is given back to what was charged
//! since.

use std::collections::HashMap;

use crate::{Algorithm, Limit, Micros, Outcomes, PermitId, Rate, Request, Store, Timestamp};

use super::{Asker, ModelState, Random, START, limits_of};

/// A request that waits or holds a receipt, a reset, and others that are charged before it leaves.
pub async fn gives_back_nothing_from_before_a_reset(store: &Store) {
    let asker = Asker::new(store, "reset");
    let later = START + Micros::SECOND;
    let mut limits = limits_of(60);
    let delayed = Algorithm::TokenBucket {
        max_delay: Micros::HOUR,
    };
    limits.push(Limit::new(Rate::per_hour(60), delayed).unwrap());
    for limit in &limits {
        let name = format!("{:?}", limit.algorithm());
        // Buckets with and without a delay have the same states.
        let key = name.as_str();
        let taken = |cost| [asker.asking(limit, key, cost)];
        let (all, some, others) = (taken(60), taken(10), taken(50));
        if matches!(limit.algorithm(), Algorithm::TokenBucket { max_delay } if !max_delay.is_zero())
        {
            // So that the next one waits.
            asker.charge(&all, 1).await;
        }
        let before = Request::new(&some).at(START).under(PermitId::from_u128(2));
        let outcomes = store.charge(&before).await.unwrap();
        assert!(outcomes[0].allowed, "{name}");
        store.forget(&asker.scope, limit, key).await.unwrap();
        let since = Request::new(&others)
            .at(later)
            .under(PermitId::from_u128(3));
        let charged = store.charge(&since).await.unwrap();
        assert_eq!(
            (charged[0].allowed, charged[0].remaining),
            (true, 10),
            "{name}"
        );
        store.give_back(&before, &outcomes).await.unwrap();
        assert_eq!(remaining(&asker, (limit, key), later).await, 10, "{name}");
        store.give_back(&since, &charged).await.unwrap();
        assert_eq!(remaining(&asker, (limit, key), later).await, 60, "{name}");
    }
}

async fn remaining(asker: &Asker<'_>, (limit, key): (&Limit, &str), at: Timestamp) -> u64 {
    let charges = [asker.asking(limit, key, 0)];
    let outcomes = asker.store.peek(&Request::new(&charges).at(at)).await;
    outcomes.unwrap()[0].remaining
}

/// A charge that can be given back, and before how many resets of its key it was made.
struct Kept {
    limit: usize,
    cost: u64,
    at: Timestamp,
    outcomes: Outcomes,
    resets: u64,
}

/// Random charges, settlements, resets and late returns: the store agrees with a model that knows for each charge
/// whether its key was reset since.
pub async fn resets_agree_with_a_model(store: &Store, seed: u64, steps: usize) {
    let asker = Asker::new(store, "resets");
    let mut limits = limits_of(20);
    limits.retain(|limit| !limit.is_concurrency());
    let mut states: HashMap<usize, (ModelState, u64)> = HashMap::new();
    let mut kept: Vec<Kept> = Vec::new();
    let (mut random, mut now) = (Random(seed | 1), START);
    for step in 0..steps {
        now = now + Micros::new(1 + random.below(60_000_000));
        let index = usize::try_from(random.below(limits.len() as u64)).unwrap_or(0);
        let (limit, cost) = (&limits[index], random.below(8));
        let fresh = || (ModelState::fresh(limit.form()), 0);
        let (state, resets) = states.entry(index).or_insert_with(fresh);
        let charges = [asker.asking(limit, "key", cost)];
        let request = Request::new(&charges).at(now);
        let mut changed = index;
        match random.below(10) {
            0 => {
                store.forget(&asker.scope, limit, "key").await.unwrap();
                (*state, *resets) = (ModelState::fresh(limit.form()), *resets + 1);
            }
            1 => {
                store.settle(&request).await.unwrap();
                state.settle(limit.form(), cost, now);
            }
            2..5 if !kept.is_empty() => {
                let oldest = random.below(kept.len() as u64);
                let kept = kept.swap_remove(usize::try_from(oldest).unwrap_or(0));
                changed = kept.limit;
                let limit = &limits[changed];
                let charges = [asker.asking(limit, "key", kept.cost)];
                let request = Request::new(&charges).at(now);
                store.give_back(&request, &kept.outcomes).await.unwrap();
                let fresh = || (ModelState::fresh(limit.form()), 0);
                let (state, resets) = states.entry(kept.limit).or_insert_with(fresh);
                if *resets == kept.resets {
                    state.give_back(limit.form(), kept.cost, kept.at, now);
                }
            }
            _ => {
                let outcomes = store.charge(&request).await.unwrap();
                let id = PermitId::from_u128(1);
                let expected = state.charge(limit.form(), cost, now, id);
                assert_eq!(outcomes[0], expected, "step {step} of seed {seed:#x}");
                if expected.allowed && cost > 0 && kept.len() < 100 {
                    kept.push(Kept {
                        limit: index,
                        cost,
                        // What waits flows back only when its turn has come.
                        at: expected.at + expected.delay,
                        outcomes,
                        resets: *resets,
                    });
                }
            }
        }
        let (limit, (state, _)) = (&limits[changed], &states[&changed]);
        let expected = state.ask(limit.form(), 0, now).remaining;
        let name = limit.algorithm().name();
        let found = remaining(&asker, (limit, "key"), now).await;
        assert_eq!(found, expected, "{name}, step {step} of seed {seed:#x}");
    }
}
