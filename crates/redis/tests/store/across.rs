//! All or nothing over several slots of a cluster, with many requests at a time.

use tidegate_core::{Algorithm, Limit, Micros, Rate, RemoteStore as _, Request, Scope};
use tidegate_testkit::eventually;
use tidegate_testkit::redis::Cluster;

use crate::{Asked, store};

const USERS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn no_client_gets_more_than_each_of_its_limits_and_what_is_denied_is_given_back() {
    let cluster = Cluster::start();
    let stores = [store(&cluster.url()).await, store(&cluster.url()).await];
    for algorithm in [
        Algorithm::TOKEN_BUCKET,
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
    ] {
        let limit = |count| Limit::new(Rate::new(count, Micros::DAY), algorithm).unwrap();
        let all = Asked::new(Scope::new("all"), &limit(200), "");
        let users: Vec<Asked> = (0..USERS)
            .map(|user| Asked::new(Scope::new("user"), &limit(40), &format!("u{user}")))
            .collect();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..48 {
            let (store, all) = (stores[task % 2].clone(), all.clone());
            let user = users[task % USERS].clone();
            tasks.spawn(async move {
                let mut allowed = 0_u64;
                for _ in 0..40 {
                    let charges = [all.charge(1), user.charge(1)];
                    let outcomes = store.charge(&Request::new(&charges)).await.unwrap();
                    allowed += u64::from(outcomes.iter().all(|outcome| outcome.allowed));
                }
                (task % USERS, allowed)
            });
        }
        let mut by_user = [0; USERS];
        for (user, allowed) in tasks.join_all().await {
            by_user[user] += allowed;
        }
        let name = algorithm.name();
        let admitted: u64 = by_user.iter().sum();
        assert!(
            by_user.iter().all(|allowed| *allowed <= 40),
            "{name}: {by_user:?}"
        );
        assert!(admitted <= 200, "{name}: {by_user:?}");
        // The last give-backs may still be on their way.
        let is_back = async || all.remaining(&stores[0]).await == 200 - admitted;
        eventually(name, is_back).await;
        for (user, allowed) in users.iter().zip(by_user) {
            let is_back = async || user.remaining(&stores[0]).await == 40 - allowed;
            eventually(name, is_back).await;
        }
    }
}
