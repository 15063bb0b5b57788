//! All states of some scopes are forgotten, and no others.

use tidegate_core::{Algorithm, Limit, Rate, RemoteStore as _, Scope};
use tidegate_redis::RedisStore;
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::{Asked, store};

async fn forgets_its_own_states_alone(store: &RedisStore) {
    let hourly: Limit = "5/hour".parse().unwrap();
    let log = Limit::new(Rate::per_minute(5), Algorithm::SlidingWindowLog).unwrap();
    let (own, other) = (Scope::new("login.web"), Scope::new("login"));
    let of = |scope: &Scope, limit: &Limit, key: usize| {
        Asked::new(scope.clone(), limit, &format!("user_{key}"))
    };
    for key in 0..20 {
        for asked in [
            of(&own, &hourly, key),
            of(&own, &log, key),
            of(&other, &hourly, key),
        ] {
            asked.ask(store, 5).await.unwrap();
        }
    }
    // A denial that is remembered, and a note that belongs to a state.
    assert!(!of(&own, &hourly, 0).ask(store, 1).await.unwrap().allowed);
    store.forget(&own, &hourly, "user_1").await.unwrap();

    assert_eq!(store.forget_scopes("login.").await.unwrap(), 39);
    assert!(of(&own, &hourly, 0).ask(store, 1).await.unwrap().allowed);
    for key in 1..20 {
        let left = of(&own, &hourly, key).remaining(store).await;
        let of_log = of(&own, &log, key).remaining(store).await;
        let of_other = of(&other, &hourly, key).remaining(store).await;
        assert_eq!((left, of_log, of_other), (5, 5, 0), "{key}");
    }
    assert_eq!(store.forget_scopes("none").await.unwrap(), 0);
}

#[tokio::test]
async fn one_server_forgets_scopes() {
    let redis = RedisServer::start();
    forgets_its_own_states_alone(&store(&redis.url()).await).await;
}

#[tokio::test]
async fn all_masters_of_a_cluster_forget_scopes() {
    let cluster = Cluster::start();
    forgets_its_own_states_alone(&store(&cluster.url()).await).await;
}
