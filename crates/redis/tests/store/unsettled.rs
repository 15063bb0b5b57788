//! Reservations that end before they are settled everywhere, and what their records take.

use std::time::Duration;

use tidegate_core::{
    Costs, MadeReservation, Micros, RemoteStore as _, Request, ReservationId, ReserveRequest,
    Reserved, ReservedCharge, Scope, SettleAnswer, SettleRequest, StoreError, Timestamp,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::eventually;
use tidegate_testkit::redis::{Cluster, RedisServer, slot_of};

use crate::reservations::{adjusted, daily, tokens};
use crate::{Asked, store, store_within};

async fn reserve(
    store: &RedisStore,
    asked: &[&Asked],
    ttl: Micros,
    at: Option<Timestamp>,
) -> Option<MadeReservation> {
    let part = |asked| ReservedCharge {
        label: "tokens-per-key\napi_key=0123456789ab",
        ..tokens(asked, 60)
    };
    let group: Vec<_> = asked.iter().copied().map(part).collect();
    let request = ReserveRequest {
        id: ReservationId::random(),
        groups: &[&group],
        estimate: &Costs::from(60),
        ttl,
        at,
    };
    match store.reserve(&request).await.unwrap() {
        Reserved::Decided { made, .. } => made,
        Reserved::TooMany => None,
    }
}

async fn settle(
    store: &RedisStore,
    made: MadeReservation,
    cost: u64,
    at: Option<Timestamp>,
) -> Result<SettleAnswer, StoreError> {
    let actual = Costs::from(cost);
    let request = SettleRequest {
        id: made.id,
        actual: Some(&actual),
        at,
    };
    store.settle_reservation(&request).await
}

fn giving_back(name: &str, key: &str) -> Asked {
    Asked::new(Scope::new(name).giving_back(), &daily(100), key)
}

/// A key on another node than the slot of `main`.
fn key_elsewhere(cluster: &Cluster, main: u16) -> String {
    let node = cluster.master_of(main).address();
    let mut keys = (0..).map(|number| format!("k{number}"));
    let is_elsewhere =
        |key: &String| cluster.master_of(slot_of(&format!("{{{key}}}"))).address() != node;
    keys.find(is_elsewhere).unwrap()
}

/// Settles with `first` while the node of one counter refuses to write. Its part ends and is given back; `next` is reserved
/// there. Then the settlement is repeated: what it did, and what is left.
async fn settled_late(
    cluster: &Cluster,
    name: &str,
    first: u64,
    next: u64,
) -> ((u64, u64, u64), u64) {
    let brief = store_within(&cluster.url(), Duration::from_millis(300)).await;
    let store = store(&cluster.url()).await;
    let one = giving_back(&format!("{name}-one"), "one");
    let main = slot_of("{one}");
    let other = giving_back(&format!("{name}-other"), &key_elsewhere(cluster, main));
    // The record of the slot that is charged last leads to the other: the scarcest is charged first.
    let ttl = Micros::from_millis(1_500);
    let made = reserve(&store, &[&one, &other], ttl, None).await.unwrap();
    let is_main_one = u16::try_from(made.id.as_u128() >> 114).unwrap() == main;
    let far = if is_main_one { &other } else { &one };
    let node = cluster.master_of(slot_of(&format!("{{{}}}", far.key)));
    let _: String = node.query(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = settle(&brief, made, first, None).await;
    assert!(refused.is_err(), "{refused:?}");
    let _: String = node.query(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let is_back = async || {
        let charges = [far.charge(0)];
        let asked = store.peek(&Request::new(&charges)).await;
        asked.is_ok_and(|asked| asked[0].remaining == 100)
    };
    eventually("its part ends", is_back).await;
    assert!(far.ask(&store, next).await.unwrap().allowed);
    let settled = settle(&store, made, first, None).await.unwrap();
    let SettleAnswer::Settled { reservation, .. } = &settled else {
        unreachable!("its main record is settled");
    };
    let part = usize::from(is_main_one);
    let done = reservation.parts[part].adjusted;
    let left = far.remaining(&store).await;
    let again = settle(&store, made, first, None).await.unwrap();
    assert_eq!(adjusted(&again), adjusted(&settled));
    assert_eq!(far.remaining(&store).await, left, "repeated");
    ((done.given_back, done.overrun, done.uncharged), left)
}

/// Never over: what was given back at the end is not given back again, and what was spent is charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_ended_while_its_node_refused_to_settle_it_is_given_back_once() {
    let cluster = Cluster::start();
    #[rustfmt::skip]
    let table = [
        // Spent, and charged by others since: given back, overrun, uncharged; left.
        (0,  60, (60, 0, 0),   40),
        (25, 60, (35, 0, 0),   15),
        (60, 30, (0, 0, 0),    10),
        (60, 60, (0, 0, 20),   0),
        (80, 10, (0, 20, 0),   10),
        (80, 30, (0, 10, 10),  0),
    ];
    for (spent, since, done, left) in table {
        let name = format!("late-{spent}-{since}");
        let found = settled_late(&cluster, &name, spent, since).await;
        assert_eq!(found, (done, left), "{name}");
    }
}

/// A value that this program has not written fails the requests that read it, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_counter_does_not_keep_other_reservations_from_ending() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let at = |seconds: u64| Some(Timestamp::from_seconds(1_800_000_000 + seconds));
    for value in ["unreadable", "of another type"] {
        let [bad, good] = ["bad", "good"].map(|name| giving_back(&format!("{name} {value}"), "k"));
        let lost = reserve(&store, &[&bad], Micros::MINUTE, at(0))
            .await
            .unwrap();
        let ended = reserve(&store, &[&good], Micros::MINUTE, at(0))
            .await
            .unwrap();
        let keys: Vec<String> = server.query(&["KEYS", "*bad*"]);
        let _: u64 = server.query(&["DEL", &keys[0]]);
        if value == "unreadable" {
            let _: String = server.query(&["SET", &keys[0], "of another version"]);
        } else {
            let _: u64 = server.query(&["SADD", &keys[0], "of another version"]);
        }
        let charges = [good.charge(0)];
        let asked = store
            .peek(&Request {
                at: at(60),
                ..Request::new(&charges)
            })
            .await;
        assert_eq!(asked.unwrap()[0].remaining, 100, "{value}");
        for made in [lost, ended] {
            let settled = settle(&store, made, 0, None).await;
            assert!(
                !matches!(settled, Ok(SettleAnswer::Settled { .. })),
                "{value}: {settled:?}"
            );
        }
    }
}

/// In one piece of memory, which Redis keeps as long as each field is short.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_takes_few_bytes() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let memory = |pattern: &str| -> Vec<u64> {
        let keys: Vec<String> = server.query(&["KEYS", pattern]);
        let usage = |key: &String| server.query(&["MEMORY", "USAGE", key]);
        keys.iter().map(usage).collect()
    };
    let scope = |name: &str| Scope::new(name).with_secret_keys();
    let bucket = "100000/minute".parse().unwrap();
    let limits = [daily(5_000_000), bucket];
    let names = ["tokens-per-key@api_key", "requests-per-key@api_key"];
    let asked: Vec<Asked> = names
        .iter()
        .zip(&limits)
        .map(|(name, limit)| Asked::new(scope(name), limit, "a-secret"))
        .collect();
    for (counters, bound) in [(1, 344), (2, 504)] {
        let asked: Vec<&Asked> = asked[..counters].iter().collect();
        reserve(&store, &asked, Micros::MINUTE, None).await.unwrap();
        let found = memory("*:hold:*");
        assert!(found[0] <= bound, "{found:?} for {counters}");
        let _: String = server.query(&["FLUSHALL"]);
    }
    let held = Asked::new(scope(names[0]).giving_back(), &limits[1], "a-secret");
    reserve(&store, &[&held], Micros::MINUTE, None)
        .await
        .unwrap();
    let found = [
        memory("*:hold:*")[0],
        memory("*:held")[0],
        memory("*:held:parts")[0],
    ];
    assert!(
        found[0] <= 376 && found[1] <= 200 && found[2] <= 264,
        "{found:?}"
    );
}
