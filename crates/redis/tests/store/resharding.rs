//! Reservations and permits while a slot of a cluster moves. Its keys lie between two nodes, and neither can tell a key
//! that the other has from one that does not exist: what needs more than it can see is not done at all.

use std::time::Duration;

use tidegate_core::{
    Costs, ExtendAnswer, Limit, MadeReservation, Micros, PermitId, RemoteStore as _, Request,
    ReservationId, ReserveRequest, Reserved, Scope, SettleAnswer, SettleRequest, StoreError,
    Timestamp,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::redis::{Cluster, Migration, slot_of};

use crate::reservations::{adjusted, daily, never_over, tokens};
use crate::{Asked, store, store_within};

const TTL: Micros = Micros::MINUTE;

/// That many seconds after a morning in 2027.
fn after(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000) + Micros::from_seconds(seconds)
}

/// A cluster, a store that is asked while a slot moves, and one with time enough.
struct Moving {
    cluster: Cluster,
    brief: RedisStore,
    store: RedisStore,
}

impl Moving {
    async fn start() -> Self {
        let cluster = Cluster::start();
        Self {
            brief: store_within(&cluster.url(), Duration::from_millis(60)).await,
            store: store(&cluster.url()).await,
            cluster,
        }
    }

    /// Moves the slot of a counter to another node, and asks when the keys of these kinds have moved, and no others.
    async fn between<T>(
        &self,
        asked: &Asked,
        moved: &[&str],
        ask: impl AsyncFnOnce(&RedisStore) -> T,
    ) -> T {
        let migration = migration(&self.cluster, &asked.key);
        for key in migration.keys() {
            if moved.contains(&kind(&key)) {
                migration.move_key(&key);
            }
        }
        let answer = ask(&self.brief).await;
        migration.finish();
        answer
    }

    async fn reserve(&self, asked: &[&Asked], cost: u64, at: Timestamp) -> MadeReservation {
        let group: Vec<_> = asked.iter().map(|asked| tokens(asked, cost)).collect();
        let request = ReserveRequest {
            id: ReservationId::random(),
            groups: &[&group],
            estimate: &Costs::from(cost),
            ttl: TTL,
            at: Some(at),
        };
        match self.store.reserve(&request).await.unwrap() {
            Reserved::Decided { made, .. } => made.unwrap(),
            Reserved::TooMany => unreachable!("Redis has no bound"),
        }
    }

    /// Uses a counter and resets it: the time of that stays with it.
    async fn reset(&self, asked: &Asked, at: Timestamp) {
        charge(&self.store, asked, 1, at).await.unwrap();
        self.forget(asked).await;
    }

    async fn forget(&self, asked: &Asked) {
        let forgotten = self.store.forget(&asked.scope, &asked.limit, &asked.key);
        forgotten.await.unwrap();
    }

    async fn remaining(&self, asked: &Asked, at: Timestamp) -> u64 {
        remaining(&self.store, asked, at).await.unwrap()
    }
}

/// Begins to move the slot of a key.
fn migration<'c>(cluster: &'c Cluster, key: &str) -> Migration<'c> {
    let slot = slot_of(&format!("{{{key}}}"));
    let owner = cluster.master_of(slot).address();
    let mut nodes = cluster.nodes().iter();
    let other = nodes.find(|node| node.address() != owner);
    cluster.migrate(slot, other.unwrap())
}

async fn remaining(store: &RedisStore, asked: &Asked, at: Timestamp) -> Result<u64, StoreError> {
    let charges = [asked.charge(0)];
    let outcomes = store.peek(&Request::new(&charges).at(at)).await?;
    Ok(outcomes[0].remaining)
}

async fn charge(
    store: &RedisStore,
    asked: &Asked,
    cost: u64,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let charges = [asked.charge(cost)];
    let outcomes = store.charge(&Request::new(&charges).at(at)).await?;
    Ok(outcomes[0].allowed)
}

async fn settle(
    store: &RedisStore,
    id: ReservationId,
    cost: u64,
    at: Timestamp,
) -> Result<SettleAnswer, StoreError> {
    let actual = Costs::from(cost);
    let request = SettleRequest {
        id,
        actual: Some(&actual),
        at: Some(at),
    };
    store.settle_reservation(&request).await
}

const KINDS: [&str; 6] = ["counter", "hold", "held", "parts", "reset", "ends"];
const KINDS_OF_PERMITS: [&str; 3] = ["counter", "leases", "lease"];

fn kind(key: &str) -> &str {
    if key.contains(":hold:") {
        return "hold";
    }
    if key.contains(":lease:") {
        return "lease";
    }
    let last = key.rsplit(':').next().unwrap();
    match last {
        "held" | "parts" | "reset" | "leases" | "ends" => last,
        _ => "counter",
    }
}

/// Of these kinds of keys: none has moved, each alone, each but one, all. Each with a name.
fn splits<'k>(kinds: &[&'k str]) -> Vec<(String, Vec<&'k str>)> {
    let only = |is_chosen: &dyn Fn(&str) -> bool| {
        let kinds = kinds.iter().copied();
        kinds.filter(|kind| is_chosen(kind)).collect::<Vec<_>>()
    };
    let mut splits = vec![only(&|_| false), only(&|_| true)];
    for chosen in kinds {
        splits.push(only(&|kind| kind == *chosen));
        splits.push(only(&|kind| kind != *chosen));
    }
    let named = splits.into_iter().map(|moved| {
        let name = format!("moved-{}", moved.join("-"));
        (name, moved)
    });
    named.collect()
}

/// Two counters of one slot, which no other split has.
fn pair(name: &str, gives_back: bool) -> [Asked; 2] {
    ["one", "two"].map(|scope| {
        let scope = Scope::new(scope);
        let scope = if gives_back {
            scope.giving_back()
        } else {
            scope
        };
        Asked::new(scope, &daily(100), name)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_whose_slot_moves_is_settled_whole_or_not_at_all() {
    let moving = Moving::start().await;
    for gives_back in [false, true] {
        for (name, moved) in splits(&KINDS) {
            let name = format!("{name}-{gives_back}");
            let both = pair(&name, gives_back);
            moving.reset(&both[0], after(0)).await;
            let made = moving.reserve(&[&both[0], &both[1]], 60, after(1)).await;
            let settling = async |store: &RedisStore| settle(store, made.id, 25, after(2)).await;
            if let Ok(answer) = moving.between(&both[0], &moved, settling).await {
                assert_eq!(adjusted(&answer), [(35, 0), (35, 0)], "{name}");
            }
            let settled = settle(&moving.store, made.id, 25, after(2)).await;
            assert_eq!(adjusted(&settled.unwrap()), [(35, 0), (35, 0)], "{name}");
            for asked in &both {
                assert_eq!(moving.remaining(asked, after(2)).await, 75, "{name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_was_not_settled_while_its_slot_moved_is_given_back_at_its_end() {
    let moving = Moving::start().await;
    for (name, moved) in splits(&KINDS) {
        let both = pair(&name, true);
        moving.reset(&both[1], after(0)).await;
        let made = moving.reserve(&[&both[0], &both[1]], 60, after(1)).await;
        let asking = async |store: &RedisStore| {
            let later = store
                .extend_reservation(made.id, TTL, Some(after(10)))
                .await;
            let settled = settle(store, made.id, 60, after(20)).await;
            assert!(settled.is_err(), "{name}: {settled:?}");
            // Due, but neither node may know that.
            let _ = remaining(store, &both[1], after(61)).await;
            later
        };
        // What a busy machine does not answer in time may be done.
        let left = match moving.between(&both[0], &moved, asking).await {
            Ok(ExtendAnswer::Until(_)) => vec![40],
            Err(StoreError::TimedOut(_)) => vec![40, 100],
            _ => vec![100],
        };
        for asked in &both {
            let remaining = moving.remaining(asked, after(61)).await;
            assert!(left.contains(&remaining), "{name}: {remaining}");
            assert_eq!(moving.remaining(asked, after(71)).await, 100, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reset_forgave_is_not_given_back_while_its_slot_moves() {
    let moving = Moving::start().await;
    for (name, moved) in splits(&KINDS) {
        let [asked, _] = pair(&name, true);
        let made = moving.reserve(&[&asked], 60, after(0)).await;
        let ended = moving.reserve(&[&asked], 20, after(0)).await;
        moving.forget(&asked).await;
        assert!(charge(&moving.store, &asked, 100, after(1)).await.unwrap());
        let asking = async |store: &RedisStore| {
            let _ = settle(store, made.id, 0, after(2)).await;
            let _ = remaining(store, &asked, after(60)).await;
        };
        moving.between(&asked, &moved, asking).await;
        let settled = settle(&moving.store, made.id, 0, after(2)).await.unwrap();
        assert_eq!(adjusted(&settled), [(0, 0)], "{name}");
        assert_eq!(moving.remaining(&asked, after(60)).await, 0, "{name}");
        let settled = settle(&moving.store, ended.id, 0, after(60)).await;
        assert_eq!(settled.unwrap(), SettleAnswer::Unknown, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_whose_slot_moves_is_neither_lost_nor_kept() {
    let moving = Moving::start().await;
    let limit = Limit::concurrent(1).unwrap();
    let splits = || splits(&KINDS_OF_PERMITS).into_iter();
    let renewals = splits().map(|split| (true, split));
    for (is_renewed, (name, moved)) in renewals.chain(splits().map(|split| (false, split))) {
        let name = format!("{name}-{is_renewed}");
        let held = Asked::new(Scope::new("held"), &limit, &name);
        let charges = [held.charge(1)];
        let is_taken = async |permit: PermitId| {
            let request = Request::new(&charges).under(permit);
            moving.store.charge(&request).await.unwrap()[0].allowed
        };
        let [permit, other] = [(); 2].map(|()| moving.store.permit_for(&charges));
        assert!(is_taken(permit).await);
        let asking = async |store: &RedisStore| {
            if is_renewed {
                store.renew(permit).await
            } else {
                store.release(permit).await
            }
        };
        let answer = moving.between(&held, &moved, asking).await;
        assert!(!matches!(answer, Ok(false)), "{name}");
        if is_renewed {
            assert!(!is_taken(other).await, "{name}: it is held still");
            assert!(moving.store.renew(permit).await.unwrap(), "{name}");
        }
        moving.store.release(permit).await.unwrap();
        assert!(is_taken(other).await, "{name}: it is free");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_held_or_used_than_the_limit_though_a_slot_moves() {
    let cluster = Cluster::start();
    let stores = [store(&cluster.url()).await, store(&cluster.url()).await];
    never_over(stores, || {
        let migration = migration(&cluster, "u1");
        std::thread::sleep(Duration::from_millis(20));
        for key in migration.keys() {
            migration.move_key(&key);
            std::thread::sleep(Duration::from_millis(2));
        }
        migration.finish();
    })
    .await;
}
