//! Every setting, once: its key in the file, its environment variable, and its flag if it has one.

/// A setting of the server.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key in the YAML file.
    pub key: &'static str,
    /// The environment variable, for what fits into one.
    pub variable: Option<&'static str>,
    /// The flag of `tidegate serve`.
    pub flag: Option<&'static str>,
    /// What it does, in one line.
    pub about: &'static str,
}

const fn setting(
    key: &'static str,
    variable: Option<&'static str>,
    flag: Option<&'static str>,
    about: &'static str,
) -> Setting {
    Setting {
        key,
        variable,
        flag,
        about,
    }
}

/// All of them, in the order of the reference page.
pub const SETTINGS: [Setting; 53] = [
    setting(
        "http",
        Some("TIDEGATE_HTTP"),
        Some("--http"),
        "where HTTP is served; 127.0.0.1:8080",
    ),
    setting(
        "grpc",
        Some("TIDEGATE_GRPC"),
        Some("--grpc"),
        "where gRPC is served, or `off`; 127.0.0.1:8081",
    ),
    setting(
        "resp",
        Some("TIDEGATE_RESP"),
        Some("--resp"),
        "where the Redis protocol is served; nowhere",
    ),
    setting(
        "throttle_on_store_failure",
        Some("TIDEGATE_THROTTLE_ON_STORE_FAILURE"),
        None,
        "what CL.THROTTLE does without Redis: `local`, `allow` or `deny`; local",
    ),
    setting(
        "gateway",
        Some("TIDEGATE_GATEWAY"),
        Some("--gateway"),
        "where the gateway listens; nowhere",
    ),
    setting(
        "upstream",
        Some("TIDEGATE_UPSTREAM"),
        Some("--upstream"),
        "the server that the gateway stands before, for everything that no route is for",
    ),
    setting(
        "routes",
        None,
        None,
        "servers that the gateway stands before, by host and path; a list",
    ),
    setting(
        "gateway_tls_cert",
        Some("TIDEGATE_GATEWAY_TLS_CERT"),
        None,
        "the certificate of the gateway, a PEM file; that of tls_cert",
    ),
    setting(
        "gateway_tls_key",
        Some("TIDEGATE_GATEWAY_TLS_KEY"),
        None,
        "its private key, a PEM file",
    ),
    setting(
        "encoded_slashes",
        Some("TIDEGATE_ENCODED_SLASHES"),
        None,
        "what the gateway and forward-auth do with %2f in a path: `refuse` or `keep`; refuse",
    ),
    setting(
        "upstream_ca",
        Some("TIDEGATE_UPSTREAM_CA"),
        None,
        "whose certificates to trust behind the gateway, a PEM file; the usual authorities",
    ),
    setting(
        "upstream_health",
        None,
        None,
        "how servers behind the gateway are asked whether they are well; {path, interval}",
    ),
    setting(
        "body_min_rate",
        Some("TIDEGATE_BODY_MIN_RATE"),
        None,
        "how fast clients of the gateway must send bodies, over 30s, or `off`; 256B/s",
    ),
    setting(
        "max_upstream_connections",
        Some("TIDEGATE_MAX_UPSTREAM_CONNECTIONS"),
        None,
        "how many connections to servers the gateway has; half of the free file descriptors",
    ),
    setting(
        "max_upstream_connections_per_client",
        Some("TIDEGATE_MAX_UPSTREAM_CONNECTIONS_PER_CLIENT"),
        None,
        "how many of them the requests of one client address may have; 256",
    ),
    setting(
        "redis",
        Some("TIDEGATE_REDIS"),
        Some("--redis"),
        "the Redis or Valkey that servers share; none: each counts for itself",
    ),
    setting(
        "namespace",
        Some("TIDEGATE_NAMESPACE"),
        None,
        "what separates this deployment from others in the same Redis; none",
    ),
    setting(
        "redis_user",
        Some("TIDEGATE_REDIS_USER"),
        None,
        "the user to log in to Redis as, instead of the one in the URL",
    ),
    setting(
        "redis_password_file",
        Some("TIDEGATE_REDIS_PASSWORD_FILE"),
        None,
        "a file with the password of Redis, instead of the one in the URL",
    ),
    setting(
        "redis_sentinel_user",
        Some("TIDEGATE_REDIS_SENTINEL_USER"),
        None,
        "the user to log in to the sentinels as",
    ),
    setting(
        "redis_sentinel_password_file",
        Some("TIDEGATE_REDIS_SENTINEL_PASSWORD_FILE"),
        None,
        "a file with the password of the sentinels",
    ),
    setting(
        "redis_ca",
        Some("TIDEGATE_REDIS_CA"),
        None,
        "whose certificates to trust in Redis, a PEM file; the usual authorities",
    ),
    setting(
        "redis_cert",
        Some("TIDEGATE_REDIS_CERT"),
        None,
        "the certificate to show to Redis, a PEM file",
    ),
    setting(
        "redis_key",
        Some("TIDEGATE_REDIS_KEY"),
        None,
        "its private key, a PEM file",
    ),
    setting(
        "redis_deadline",
        Some("TIDEGATE_REDIS_DEADLINE"),
        None,
        "how long a decision waits for Redis; 15ms",
    ),
    setting(
        "rules",
        Some("TIDEGATE_RULES"),
        Some("--rules"),
        "the file with the rules, watched; none: they are kept in data_dir",
    ),
    setting(
        "data_dir",
        Some("TIDEGATE_DATA_DIR"),
        Some("--data-dir"),
        "where the server keeps what a restart needs: rules, the made token; tidegate-data",
    ),
    setting(
        "history",
        Some("TIDEGATE_HISTORY"),
        None,
        "how many versions of the rules are kept; 100",
    ),
    setting(
        "trust_timestamps",
        Some("TIDEGATE_TRUST_TIMESTAMPS"),
        Some("--trust-timestamps"),
        "whether a request may bring its own time, for replays and tests; false",
    ),
    setting(
        "max_keys",
        Some("TIDEGATE_MAX_KEYS"),
        None,
        "how many keys the in-memory store holds at the most; 10000000",
    ),
    setting(
        "counters",
        Some("TIDEGATE_SNAPSHOT"),
        None,
        "how often the in-memory store is written to data_dir, or `off`; {snapshot: 10s}",
    ),
    setting(
        "ipv6_prefix",
        Some("TIDEGATE_IPV6_PREFIX"),
        None,
        "how many bits of an IPv6 address make a key; 64",
    ),
    setting(
        "secret_attributes",
        Some("TIDEGATE_SECRET_ATTRIBUTES"),
        None,
        "attributes whose values nobody may read in a shared store, beside api_key; []",
    ),
    setting(
        "key_secret_file",
        Some("TIDEGATE_KEY_SECRET_FILE"),
        None,
        "a file with the secret under which keys are hashed, the same on every server",
    ),
    setting(
        "instances",
        Some("TIDEGATE_INSTANCES"),
        None,
        "how many servers share a store, until the store tells; 1",
    ),
    setting(
        "trusted_proxies",
        Some("TIDEGATE_TRUSTED_PROXIES"),
        None,
        "networks whose word about a client and its request counts; []",
    ),
    setting(
        "forwarded_header",
        Some("TIDEGATE_FORWARDED_HEADER"),
        None,
        "in which header trusted proxies name the client: `both`, `x-forwarded-for` or `forwarded`; both",
    ),
    setting(
        "underscore_headers",
        Some("TIDEGATE_UNDERSCORE_HEADERS"),
        None,
        "what happens to `X_Api_Key` where `X-Api-Key` is read: `drop` or `refuse`; drop",
    ),
    setting(
        "identify",
        None,
        None,
        "where api_key, user_id, tier and ip of a client come from; a map of sources",
    ),
    setting(
        "jwt",
        None,
        None,
        "how tokens are verified whose claims `identify` takes",
    ),
    setting(
        "clients_file",
        Some("TIDEGATE_CLIENTS_FILE"),
        None,
        "the table of clients: what belongs to which api_key; none",
    ),
    setting(
        "headers",
        Some("TIDEGATE_HEADERS"),
        None,
        "which headers tell of a decision; [x, draft-10, retry-after]",
    ),
    setting(
        "reset_header",
        Some("TIDEGATE_RESET_HEADER"),
        None,
        "X-RateLimit-Reset as `unix` seconds or `delta` seconds; unix",
    ),
    setting(
        "tokens",
        None,
        None,
        "who may do what; a list of {name, token_file or token_env, scopes}",
    ),
    setting(
        "tls_cert",
        Some("TIDEGATE_TLS_CERT"),
        None,
        "the certificate to serve with, a PEM file",
    ),
    setting(
        "tls_key",
        Some("TIDEGATE_TLS_KEY"),
        None,
        "its private key, a PEM file",
    ),
    setting(
        "tls_client_ca",
        Some("TIDEGATE_TLS_CLIENT_CA"),
        None,
        "authorities whose certificates clients of gRPC must show, a PEM file",
    ),
    setting(
        "drain_timeout",
        Some("TIDEGATE_DRAIN_TIMEOUT"),
        None,
        "how long what is in flight may take at shutdown; 10s",
    ),
    setting(
        "drain_delay",
        Some("TIDEGATE_DRAIN_DELAY"),
        None,
        "how long to go on after /readyz says no at shutdown; 0s",
    ),
    setting(
        "max_connections",
        Some("TIDEGATE_MAX_CONNECTIONS"),
        None,
        "how many connections there may be at once; 10000",
    ),
    setting(
        "log_format",
        Some("TIDEGATE_LOG_FORMAT"),
        Some("--log-format"),
        "`text` or `json`; text",
    ),
    setting(
        "log_level",
        Some("TIDEGATE_LOG_LEVEL"),
        Some("--log-level"),
        "`error`, `warn`, `info`, `debug`, `trace`, or directives by target; info",
    ),
    setting(
        "config",
        Some("TIDEGATE_CONFIG"),
        Some("--config"),
        "the YAML file with these settings; not a key of the file itself",
    ),
];
