//! The table of variables: the name of each, how its value is read, its default in envoyproxy/ratelimit, and what it
//! becomes. What a value becomes exactly is in the file of its group: `listeners.rs`, `rules.rs`, `redis.rs`,
//! `answers.rs`, `sinks.rs`, `telemetry.rs`.

/// A variable of envoyproxy/ratelimit.
#[derive(Debug, Clone, Copy)]
pub struct KnownVariable {
    /// Its name.
    pub name: &'static str,
    /// How its value is read.
    pub(super) value: ValueKind,
    /// Its default in envoyproxy/ratelimit; empty if it has none.
    pub default: &'static str,
    /// What it becomes.
    pub effect: Effect,
    /// Whether envoyproxy/ratelimit itself reads it. Others are read by its libraries, or only set by those who deploy it.
    pub is_own: bool,
}

/// How the value of a variable is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    /// Text that must not be shown.
    Secret,
    /// Text that may have a password in front of an `@`.
    Url,
    Boolean,
    Whole,
    /// A whole number from 0 to 65535, or what Kubernetes sets for a service of that name.
    Port,
    Number,
    Duration,
    /// `k:v,k2:v2`. Values are not shown where they may be secrets.
    Map,
}

/// What a variable becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// One of these settings, or a part of it. A secret is a variable of Tidegate.
    Settings(&'static [&'static str]),
    /// What has no setting: it is in force in this mode alone.
    Mode(&'static str),
    /// Nothing, for this reason.
    Nothing(NoteLevel, &'static str),
}

/// How loudly a variable without effect is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteLevel {
    /// Its loss changes no decision.
    Info,
    /// Its loss changes something.
    Warn,
}

use Effect::{Mode, Nothing, Settings};
use NoteLevel::{Info, Warn};
use ValueKind::{Boolean, Duration, Map, Number, Port, Secret, Text, Url, Whole};

const XDS: Effect = Settings(&["xds"]);
const STATSD: Effect = Settings(&["statsd"]);
const SINKS: Effect = Settings(&["statsd", "prometheus"]);
const PROMETHEUS: Effect = Settings(&["prometheus"]);
const HEADERS: Effect = Settings(&["envoy_headers"]);
const REDIS: Effect = Settings(&["redis"]);
const HEALTH: Effect = Mode("`/healthcheck`");
const SECOND_REDIS: Effect = Nothing(
    Warn,
    "there is no second Redis: limits per second are in the Redis of `REDIS_URL` with the others",
);
const POOLS: Effect = Nothing(
    Info,
    "a decision waits `TIDEGATE_REDIS_DEADLINE` (15 ms) for Redis, and a start never waits for it",
);
const MEMCACHED: Effect = Nothing(Info, "there are no counters in memcached");
const BACKOFF: Effect = Nothing(
    Info,
    "the pauses are those of `XDS_CLIENT_BACKOFF_INITIAL_INTERVAL` and `XDS_CLIENT_BACKOFF_MAX_INTERVAL`",
);

const fn own(
    name: &'static str,
    value: ValueKind,
    default: &'static str,
    effect: Effect,
) -> KnownVariable {
    let is_own = true;
    KnownVariable {
        name,
        value,
        default,
        effect,
        is_own,
    }
}

const fn foreign(
    name: &'static str,
    value: ValueKind,
    default: &'static str,
    effect: Effect,
) -> KnownVariable {
    let is_own = false;
    KnownVariable {
        name,
        value,
        default,
        effect,
        is_own,
    }
}

/// All variables, by their groups.
#[rustfmt::skip]
pub static VARIABLES: [KnownVariable; 117] = [
    own("HOST", Text, "0.0.0.0", Settings(&["http"])),
    own("PORT", Port, "8080", Settings(&["http"])),
    own("GRPC_HOST", Text, "0.0.0.0", Settings(&["grpc"])),
    own("GRPC_PORT", Port, "8081", Settings(&["grpc"])),
    own("GRPC_UDS", Text, "", Settings(&["grpc"])),
    own("DEBUG_HOST", Text, "0.0.0.0", Settings(&["debug"])),
    own("DEBUG_PORT", Port, "6070", Settings(&["debug"])),
    own("GRPC_MAX_CONNECTION_AGE", Duration, "24h", Settings(&["grpc_max_connection_age"])),
    own("GRPC_MAX_CONNECTION_AGE_GRACE", Duration, "1h", Settings(&["grpc_max_connection_age_grace"])),
    own("GRPC_SERVER_USE_TLS", Boolean, "false", Settings(&["grpc_tls_cert", "grpc_tls_key"])),
    own("GRPC_SERVER_TLS_CERT", Text, "", Settings(&["grpc_tls_cert"])),
    own("GRPC_SERVER_TLS_KEY", Text, "", Settings(&["grpc_tls_key"])),
    own("GRPC_CLIENT_TLS_CACERT", Text, "", Settings(&["grpc_tls_client_ca"])),
    own("GRPC_CLIENT_TLS_SAN", Text, "", Settings(&["grpc_tls_client_name"])),
    foreign("GRPC_SERVER_TLS_CA_CERT", Text, "", Nothing(Info, "envoyproxy/ratelimit does not read it; `GRPC_CLIENT_TLS_CACERT` requires client certificates")),
    own("CONFIG_TYPE", Text, "FILE", Settings(&["rules", "xds"])),
    own("FORCE_START_WITHOUT_INITIAL_CONFIG", Boolean, "false", HEALTH),
    own("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Boolean, "false", HEALTH),
    own("RUNTIME_ROOT", Text, "/srv/runtime_data/current", Settings(&["rules"])),
    own("RUNTIME_SUBDIRECTORY", Text, "", Settings(&["rules"])),
    own("RUNTIME_APPDIRECTORY", Text, "config", Settings(&["rules"])),
    own("RUNTIME_IGNOREDOTFILES", Boolean, "false", Settings(&["ignore_dot_files"])),
    own("RUNTIME_WATCH_ROOT", Boolean, "true", Nothing(Info, "links and files are both followed")),
    own("MERGE_DOMAIN_CONFIG", Boolean, "false", Settings(&["merge_domains"])),
    own("CONFIG_GRPC_XDS_SERVER_URL", Text, "localhost:18000", XDS),
    own("CONFIG_GRPC_XDS_NODE_ID", Text, "default", XDS),
    own("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", XDS),
    own("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Map, "", XDS),
    own("CONFIG_GRPC_XDS_SERVER_USE_TLS", Boolean, "false", XDS),
    own("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", XDS),
    own("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", XDS),
    own("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", XDS),
    own("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", XDS),
    own("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Duration, "3s", BACKOFF),
    own("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", XDS),
    own("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", XDS),
    own("XDS_CLIENT_BACKOFF_JITTER", Boolean, "true", XDS),
    own("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Number, "0.5", BACKOFF),
    own("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Whole, "", XDS),
    own("REDIS_SOCKET_TYPE", Text, "unix", REDIS),
    own("REDIS_TYPE", Text, "SINGLE", REDIS),
    own("REDIS_URL", Url, "/var/run/nutcracker/ratelimit.sock", REDIS),
    own("REDIS_AUTH", Secret, "", Settings(&["redis_user", "TIDEGATE_REDIS_PASSWORD"])),
    own("REDIS_SENTINEL_AUTH", Secret, "", Settings(&["redis_sentinel_user", "TIDEGATE_REDIS_SENTINEL_PASSWORD"])),
    own("REDIS_TLS", Boolean, "false", REDIS),
    own("REDIS_TLS_CLIENT_CERT", Text, "", Settings(&["redis_cert"])),
    own("REDIS_TLS_CLIENT_KEY", Text, "", Settings(&["redis_key"])),
    own("REDIS_TLS_CACERT", Text, "", Settings(&["redis_ca"])),
    own("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Boolean, "false", Settings(&["redis_name_check"])),
    own("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Boolean, "false", HEALTH),
    own("REDIS_PERSECOND", Boolean, "false", SECOND_REDIS),
    own("REDIS_PERSECOND_SOCKET_TYPE", Text, "unix", SECOND_REDIS),
    own("REDIS_PERSECOND_TYPE", Text, "SINGLE", SECOND_REDIS),
    own("REDIS_PERSECOND_URL", Url, "/var/run/nutcracker/ratelimitpersecond.sock", SECOND_REDIS),
    own("REDIS_PERSECOND_POOL_SIZE", Whole, "10", SECOND_REDIS),
    own("REDIS_PERSECOND_AUTH", Secret, "", SECOND_REDIS),
    own("REDIS_PERSECOND_SENTINEL_AUTH", Secret, "", SECOND_REDIS),
    own("REDIS_PERSECOND_TLS", Boolean, "false", SECOND_REDIS),
    own("REDIS_PERSECOND_TIMEOUT", Duration, "10s", SECOND_REDIS),
    own("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Text, "", SECOND_REDIS),
    own("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", SECOND_REDIS),
    own("REDIS_PERSECOND_PIPELINE_LIMIT", Whole, "0", SECOND_REDIS),
    own("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Whole, "", SECOND_REDIS),
    own("REDIS_TIMEOUT", Duration, "10s", POOLS),
    own("REDIS_POOL_SIZE", Whole, "10", POOLS),
    own("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, "", POOLS),
    own("REDIS_PIPELINE_WINDOW", Duration, "0", POOLS),
    own("REDIS_PIPELINE_LIMIT", Whole, "0", POOLS),
    own("REDIS_CLUSTER_PIPELINE_PARALLELISM", Whole, "", POOLS),
    own("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "", POOLS),
    own("REDIS_STARTUP_MAX_INTERVAL", Duration, "", POOLS),
    own("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "", POOLS),
    own("CACHE_KEY_PREFIX", Text, "", Settings(&["namespace"])),
    own("BACKEND_TYPE", Text, "redis", REDIS),
    own("MEMCACHE_HOST_PORT", Text, "", MEMCACHED),
    own("MEMCACHE_MAX_IDLE_CONNS", Whole, "2", MEMCACHED),
    own("MEMCACHE_SRV", Text, "", MEMCACHED),
    own("MEMCACHE_SRV_REFRESH", Duration, "0", MEMCACHED),
    own("MEMCACHE_TLS", Boolean, "false", MEMCACHED),
    own("MEMCACHE_TLS_CLIENT_CERT", Text, "", MEMCACHED),
    own("MEMCACHE_TLS_CLIENT_KEY", Text, "", MEMCACHED),
    own("MEMCACHE_TLS_CACERT", Text, "", MEMCACHED),
    own("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Boolean, "false", MEMCACHED),
    own("LOCAL_CACHE_SIZE_IN_BYTES", Whole, "0", Nothing(Info, "denials are remembered anyway")),
    own("EXPIRATION_JITTER_MAX_SECONDS", Whole, "300", Nothing(Info, "keys expire by themselves")),
    own("NEAR_LIMIT_RATIO", Number, "0.8", Settings(&["near_limit_ratio"])),
    own("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Boolean, "false", Settings(&["all_or_nothing"])),
    own("LIMIT_RESPONSE_HEADERS_ENABLED", Boolean, "false", HEADERS),
    own("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", HEADERS),
    own("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", HEADERS),
    own("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", HEADERS),
    own("SHADOW_MODE", Boolean, "false", Settings(&["shadow"])),
    own("QUOTA_MODE", Boolean, "false", Settings(&["quota"])),
    own("RESPONSE_DYNAMIC_METADATA", Boolean, "false", Settings(&["dynamic_metadata"])),
    own("USE_STATSD", Boolean, "true", STATSD),
    own("STATSD_HOST", Text, "localhost", STATSD),
    own("STATSD_PORT", Port, "8125", STATSD),
    foreign("STATSD_PROTOCOL", Text, "tcp", STATSD),
    own("STATS_FLUSH_INTERVAL", Duration, "10s", STATSD),
    own("EXTRA_TAGS", Map, "", SINKS),
    own("DISABLE_STATS", Boolean, "false", SINKS),
    own("USE_DOG_STATSD", Boolean, "false", STATSD),
    own("USE_DOG_STATSD_MOGRIFIERS", Text, "", STATSD),
    own("USE_PROMETHEUS", Boolean, "false", PROMETHEUS),
    own("PROMETHEUS_ADDR", Text, ":9090", PROMETHEUS),
    own("PROMETHEUS_PATH", Text, "/metrics", PROMETHEUS),
    own("PROMETHEUS_MAPPER_YAML", Text, "", PROMETHEUS),
    own("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Boolean, "false", PROMETHEUS),
    own("LOG_LEVEL", Text, "WARN", Settings(&["log_level"])),
    own("LOG_FORMAT", Text, "text", Settings(&["log_format"])),
    own("TRACING_ENABLED", Boolean, "false", Settings(&["otlp"])),
    foreign("OTEL_EXPORTER_OTLP_ENDPOINT", Url, "http://localhost:4318", Settings(&["otlp"])),
    own("TRACING_SAMPLING_RATE", Number, "1", Settings(&["otlp_sampling"])),
    own("TRACING_SERVICE_NAME", Text, "RateLimit", Settings(&["otlp_service"])),
    own("TRACING_SERVICE_NAMESPACE", Text, "", Settings(&["otlp_service"])),
    own("TRACING_SERVICE_INSTANCE_ID", Text, "", Settings(&["otlp_service"])),
    own("TRACING_EXPORTER_PROTOCOL", Text, "http", Nothing(Info, "traces are sent over HTTP")),
];

impl KnownVariable {
    /// The variable with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        VARIABLES.iter().find(|variable| variable.name == name)
    }
}
