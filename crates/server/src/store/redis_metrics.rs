//! The metrics of the Redis store. Exported only with one.

use prometheus_client::registry::Registry;
use tidegate::store::RemoteStore as _;
use tidegate_redis::RedisStore;

use crate::telemetry::{gauge, register_counter};

pub(super) fn register(registry: &mut Registry, store: &RedisStore) {
    registry.register(
        "redis_up",
        "1 if Redis answers, 0 if rules decide without it",
        gauge(u64::from(store.is_up())),
    );
    registry.register(
        "redis_waiting",
        "Requests that wait to be sent to Redis",
        gauge(store.waiting() as u64),
    );
    registry.register(
        "instances",
        "Known servers that share this Redis",
        gauge(store.instances().unwrap_or(0)),
    );
    registry.register(
        "lease_units",
        "Units that this server has taken in advance and not used",
        gauge(store.units_on_lease()),
    );
    let stats = store.stats();
    register_counter(
        registry,
        "redis_connects",
        "Connections made to Redis",
        &stats.connects,
    );
    register_counter(
        registry,
        "redis_falls",
        "How often a connection went from up to down",
        &stats.falls,
    );
    register_counter(registry, "redis_calls", "Calls sent to Redis", &stats.calls);
    register_counter(
        registry,
        "redis_steps",
        "Requests sent with these calls",
        &stats.steps,
    );
    register_counter(
        registry,
        "redis_failures",
        "Calls that failed or were late",
        &stats.failures,
    );
    register_counter(
        registry,
        "redis_shed",
        "Requests not sent because they could not have been answered in time",
        &stats.shed,
    );
    register_counter(
        registry,
        "redis_bad_states",
        "Decisions that met a value in Redis that is not a counter of their rule",
        &stats.bad_states,
    );
    register_counter(
        registry,
        "redis_repaired_states",
        "Values in Redis that were removed or repaired, because Tidegate does not write them",
        &stats.repaired_states,
    );
    register_counter(
        registry,
        "redis_redirects",
        "Times that a slot of the cluster had moved to another node",
        &stats.redirects,
    );
    register_counter(
        registry,
        "given_back",
        "Charges given back because another slot of the cluster denied",
        &stats.given_back,
    );
    register_counter(
        registry,
        "denials_remembered",
        "Denials answered from memory, without a call to Redis",
        &stats.remembered_denials,
    );
    register_counter(
        registry,
        "leased_decisions",
        "Decisions answered from units taken in advance",
        &stats.leased_decisions,
    );
}
