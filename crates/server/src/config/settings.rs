//! The table of settings: the key of each in the file, its values, whether it has an environment variable and a
//! flag, and the keys of settings that are maps. To add a setting, add its row here, read it in `read.rs` and
//! describe it in `docs/reference/config.md`; flags, suggestions and the JSON Schema follow from the row.

use serde_json::Value;
use tidegate::document::{Key, Kind, Schema, SchemaForm};
use tidegate::rules::DENIED;
use tidegate_ratelimit::EnvoyRatelimit;

/// A setting of the server.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its key in the YAML file.
    pub key: Key,
    given: SettingSource,
}

/// Where a setting can be given.
#[derive(Debug, Clone, Copy)]
enum SettingSource {
    /// Only in the file.
    File,
    /// Also in the environment.
    Variable,
    /// Also as a flag; the name of its value in the help, empty if it takes none.
    Flag(&'static str),
}

impl Setting {
    /// The environment variable. A map of one key is given by the value of that key.
    pub fn variable(&self) -> Option<String> {
        let name = match self.key.kind {
            Kind::Map([only]) => only.name,
            _ => self.key.name,
        };
        let has_variable = !matches!(self.given, SettingSource::File);
        has_variable.then(|| format!("TIDEGATE_{}", name.to_uppercase()))
    }

    /// The flag of `tidegate serve`, without `--`, and the name of its value.
    pub fn flag(&self) -> Option<(String, &'static str)> {
        let SettingSource::Flag(value) = self.given else {
            return None;
        };
        Some((self.key.name.replace('_', "-"), value))
    }

    /// Whether it is a key of the file: `config`, which names the file, and `as`, which is about variables, are not.
    pub fn is_in_file(&self) -> bool {
        !matches!(self.key.name, "config" | "as")
    }
}

/// The keys of the file.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> {
    let settings = SETTINGS.iter().filter(|setting| setting.is_in_file());
    settings.map(|setting| &setting.key)
}

/// The JSON Schema of the configuration file.
pub fn schema() -> Value {
    let mut schema = Schema::new(SchemaForm::Yaml);
    let root = schema.map(keys());
    schema.file("Settings of Tidegate", root)
}

const ADDRESS: Kind = Kind::Pattern(":[0-9]{1,5}$");
const PATH: Kind = Kind::Text("");
const SPAN: Kind = Kind::Named("Span", &Kind::Pattern(r"^\s*[0-9]+\s*[A-Za-z]+\s*$"));
const SIZE: Kind = Kind::Pattern(r"^[0-9]+\s*(B|kB|KB|KiB|MB|MiB|GB|GiB)$");
const OFF: Kind = Kind::Words(&["off"]);
const UPSTREAM: Kind = Kind::Pattern("^(http|https|h2c)://");
const SOURCE: Kind = Kind::Named("Source", &Kind::Map(&SOURCES));
const NAMES: Kind = Kind::OneOrMore(0, &Kind::Text(""));
const USAGE: Kind = Kind::Named(
    "Usage",
    &Kind::Any(&[
        Kind::Words(&["openai", "anthropic", "gemini", "auto", "off"]),
        Kind::Map(&OWN_FORM),
    ]),
);
const TEXTS: Kind = Kind::MapOf("", &Kind::Text(""));
const INCLUDE_USAGE: Kind = Kind::Words(&["add", "leave"]);
const CONNECTIONS: Kind = Kind::Whole(1, 1 << 30);

const fn file(key: Key) -> Setting {
    let given = SettingSource::File;
    Setting { key, given }
}

const fn variable(key: Key) -> Setting {
    let given = SettingSource::Variable;
    Setting { key, given }
}

const fn flag(value: &'static str, key: Key) -> Setting {
    let given = SettingSource::Flag(value);
    Setting { key, given }
}

/// All settings, in the order of the reference page.
#[rustfmt::skip]
pub static SETTINGS: [Setting; 102] = [
    flag("ADDR", Key::new("http", ADDRESS, "where HTTP is served").or("127.0.0.1:8080")),
    flag("ADDR", Key::new("admin", ADDRESS, "where the whole HTTP API is served with the console and the metrics, so that `http` has only what services and probes call; off if not set")),
    flag("ADDR|off", Key::new("grpc", Kind::Any(&[OFF, ADDRESS, Kind::Pattern("^unix:///.")]), "where gRPC is served: an address, `unix:///path` for a Unix socket, or `off`").or("127.0.0.1:8081")),
    variable(Key::new("grpc_tls_cert", PATH, "the certificate of gRPC alone, a PEM file; `tls_cert` if not set")),
    variable(Key::new("grpc_tls_key", PATH, "its private key, a PEM file")),
    variable(Key::new("grpc_tls_client_ca", PATH, "with `grpc_tls_cert`: the authorities of the client certificates that gRPC requires, a PEM file")),
    variable(Key::new("grpc_tls_client_name", Kind::Text(""), "the DNS name that those client certificates must be for")),
    variable(Key::new("grpc_max_connection_age", Kind::Any(&[OFF, SPAN]), "how old a connection of gRPC may get, a tenth more or less, or `off`").or("off")),
    variable(Key::new("grpc_max_connection_age_grace", Kind::Any(&[OFF, SPAN]), "after that: how long its calls may take before it is cut, or `off`").or("1h")),
    flag("ADDR|off", Key::new("debug", Kind::Any(&[OFF, ADDRESS]), "where the limits in force are shown to every caller, as envoyproxy/ratelimit does, or `off`").or("off")),
    flag("ADDR", Key::new("resp", ADDRESS, "where the Redis protocol is served; off if not set")),
    variable(Key::new("throttle_on_store_failure", Kind::Words(&["local", "allow", "deny"]), "what CL.THROTTLE does while Redis cannot answer").or("local")),
    flag("ADDR", Key::new("gateway", ADDRESS, "where the gateway listens; off if not set")),
    flag("URL", Key::new("upstream", UPSTREAM, "the server behind the gateway, for requests that match no route").like("http://127.0.0.1:3000").needs(&["gateway"])),
    file(Key::new("routes", Kind::List(0, &Kind::Map(&ROUTE)), "servers behind the gateway, by host and path").or("[]").needs(&["gateway"])),
    variable(Key::new("gateway_tls_cert", PATH, "the certificate of the gateway, a PEM file; `tls_cert` if not set").needs(&["gateway"])),
    variable(Key::new("gateway_tls_key", PATH, "its private key, a PEM file").needs(&["gateway"])),
    variable(Key::new("encoded_slashes", Kind::Words(&["refuse", "keep"]), "what the gateway and forward-auth do with `%2f` in a path").or("refuse")),
    variable(Key::new("upstream_ca", PATH, "the authorities to trust behind the gateway, a PEM file; the public ones if not set").needs(&["gateway"])),
    file(Key::new("upstream_health", Kind::Map(&HEALTH), "how servers behind the gateway are checked").like(r#"{"path": "/healthz", "interval": "5s"}"#).needs(&["gateway"])),
    variable(Key::new("body_min_rate", Kind::Any(&[OFF, Kind::Pattern(r"^[0-9]+\s*(B|kB|KB|KiB|MB|MiB)\s*/s$")]), "how fast clients of the gateway must send bodies, over 30 seconds, or `off`").or("256B/s").needs(&["gateway"])),
    variable(Key::new("max_upstream_connections", CONNECTIONS, "how many connections to servers the gateway may have; half of the free file descriptors if not set").needs(&["gateway"])),
    variable(Key::new("max_upstream_connections_per_client", CONNECTIONS, "how many of them the requests of one client address may have; 256, or three quarters of them if that is less, if not set").needs(&["gateway"])),
    variable(Key::new("max_background_requests", Kind::Whole(0, 1_000_000), "how many requests that hold permits of concurrency limits may continue after their client has left").or("1024").needs(&["gateway"])),
    file(Key::new("usage", USAGE, "what the gateway reads of the cost of requests to `upstream`: the form of a language model, `auto` by the path, a form of your own, or `off`").or("off").needs(&["gateway"])),
    variable(Key::new("include_usage", INCLUDE_USAGE, "whether streams of `upstream` are asked to include their usage").or("add").needs(&["gateway"])),
    file(Key::new("estimate", Kind::Map(&ESTIMATE), "what a request to a language model is charged before it is answered").needs(&["gateway"])),
    variable(Key::new("body_limit", SIZE, "the longest body of a request that is read for its cost").or("8MiB").needs(&["gateway"])),
    variable(Key::new("denied_body", Kind::Words(&["form", "problem", "openai", "anthropic", "gemini"]), "the body of denials: that of the form in `usage`, a problem document, or that of one provider").or("form").needs(&["gateway"])),
    variable(Key::new("prices_file", PATH, "the prices of models per million tokens, for rules that count `money`").needs(&["gateway"])),
    variable(Key::new("money_unit", Kind::Text(r"^0?\.0[0-9]+$"), "what 1 of the unit `money` is worth, from 0.000001 to 0.01").or("0.0001").needs(&["gateway"])),
    flag("URL", Key::new("redis", Kind::Pattern(r"^(rediss?(\+(sentinel|cluster))?|(redis\+)?unix)://"), "the Redis or Valkey that servers share; without one, each server counts for itself").like("redis://127.0.0.1:6379")),
    variable(Key::new("namespace", Kind::Text("^[A-Za-z0-9-]{1,32}$"), "the name that separates this deployment from others in the same Redis")),
    variable(Key::new("redis_user", Kind::Text(""), "the user to log in to Redis as, instead of the one in the URL").needs(&["redis"])),
    variable(Key::new("redis_password_file", PATH, "a file with the password of Redis, instead of the one in the URL").needs(&["redis"])),
    variable(Key::new("redis_sentinel_user", Kind::Text(""), "the user to log in to the sentinels as").needs(&["redis"])),
    variable(Key::new("redis_sentinel_password_file", PATH, "a file with the password of the sentinels").needs(&["redis"])),
    variable(Key::new("redis_ca", PATH, "the authorities to trust for Redis, a PEM file; the public ones if not set").needs(&["redis"])),
    variable(Key::new("redis_cert", PATH, "the client certificate for Redis, a PEM file").needs(&["redis"])),
    variable(Key::new("redis_key", PATH, "its private key, a PEM file").needs(&["redis"])),
    variable(Key::new("redis_name_check", Kind::Flag, "whether the certificate of Redis must be for the name that is connected to").or("true").needs(&["redis"])),
    variable(Key::new("redis_deadline", SPAN, "how long a decision waits for Redis").or("15ms").needs(&["redis"])),
    flag("FILE", Key::new("rules", PATH, "the file with the rules, or a folder of descriptor files of envoyproxy/ratelimit, watched for changes; without one, rules are stored in `data_dir`")),
    variable(Key::new("ignore_dot_files", Kind::Flag, "whether files and folders whose names begin with `.` are left out, if `rules` is a folder").or("false")),
    variable(Key::new("merge_domains", Kind::Flag, "whether descriptors of a domain may come from several files, documents or resources").or("false")),
    file(Key::new("xds", Kind::Map(&XDS), "the management server that the rules come from, instead of `rules`").like(r#"{"server": "envoy-gateway:18001"}"#)),
    variable(Key::new("overlay", PATH, "a file that says how limits are counted that come in the form of envoyproxy/ratelimit, watched for changes")),
    variable(Key::new("units", Kind::Words(&["calendar", "epoch"]), "where windows of weeks, months and years begin, of limits in the form of envoyproxy/ratelimit: with the calendar, or at multiples of 7, 30 and 365 days since 1970").or("calendar")),
    variable(Key::new("all_or_nothing", Kind::Flag, "whether a call of Envoy by such limits charges nothing if one of its descriptors is denied").or("false")),
    variable(Key::new("quota", Kind::Flag, "whether all such limits are quotas: a call is denied if it is over all of them").or("false")),
    variable(Key::new("shadow", Kind::Flag, "whether every call by such limits passes; the statuses keep their codes").or("false")),
    flag("DIR", Key::new("data_dir", PATH, "where the server keeps what a restart needs, such as rules and counters").or("tidegate-data")),
    variable(Key::new("history", Kind::Whole(1, 1_000_000), "how many versions of the rules are kept").or("100")),
    flag("", Key::new("trust_timestamps", Kind::Flag, "whether a request may carry its own timestamp, for replays and tests").or("false")),
    variable(Key::new("max_keys", Kind::Whole(1, 1 << 40), "the most keys that the in-memory store holds").or("10000000")),
    variable(Key::new("max_reservations", Kind::Whole(1, 1 << 40), "the most open reservations that the in-memory store keeps").or("100000")),
    variable(Key::new("max_memory", SIZE, "the most memory that the counters and permits of the in-memory store take, at least `1MiB`; a quarter of what the process may use if not set, and at least `64MiB`").like("512MiB")),
    variable(Key::new("counters", Kind::Map(&COUNTERS), "whether counters survive a restart").or(r#"{"snapshot": "10s"}"#)),
    variable(Key::new("ipv6_prefix", Kind::Whole(1, 128), "how many bits of an IPv6 address make a key").or("64")),
    variable(Key::new("secret_attributes", NAMES, "attributes whose values a shared store must not see, in addition to `api_key`").or("[]")),
    variable(Key::new("key_secret_file", PATH, "a file with the secret with which keys are hashed, the same on every server")),
    variable(Key::new("instances", Kind::Whole(1, 1_000_000), "the least number of servers that share the store").or("1")),
    variable(Key::new("trusted_proxies", Kind::OneOrMore(0, &Kind::Pattern("[.:]")), "networks of proxies that are trusted to describe a client and its request").or("[]")),
    variable(Key::new("open_authorize", Kind::Flag, "whether `/v1/authorize` answers callers that are no proxies, although tokens are configured").or("false")),
    variable(Key::new("forwarded_header", Kind::Words(&["both", "x-forwarded-for", "forwarded"]), "in which header trusted proxies name the client").or("both")),
    variable(Key::new("underscore_headers", Kind::Words(&["drop", "refuse"]), "what happens to `X_Api_Key` where `X-Api-Key` is read").or("drop")),
    file(Key::new("identify", Kind::MapOf("", &Kind::OneOrMore(1, &SOURCE)), "where `api_key`, `user_id`, `tier` and other attributes of a client come from").like(r#"{"api_key": {"header": "x-api-key"}}"#)),
    file(Key::new("jwt", Kind::Map(&JWT), "how tokens are verified whose claims `identify` reads")),
    variable(Key::new("clients_file", PATH, "the table of clients: the attributes of each `api_key`")),
    variable(Key::new("clients_complete", Kind::Flag, "whether `clients_file` has all keys, so that any other is invalid and not missing").or("false")),
    variable(Key::new("invalid_credentials", Kind::Words(&["deny", "missing"]), "what credentials are that are there and not valid: a reason to deny the request, or missing ones").or("deny")),
    variable(Key::new("headers", Kind::OneOrMore(0, &Kind::Words(&["x", "draft-10", "retry-after", "openai", "anthropic"])), "which headers an answer carries").or(r#"["x", "draft-10", "retry-after"]"#)),
    variable(Key::new("envoy_headers", Kind::Any(&[Kind::Map(&ENVOY_HEADERS), Kind::Pattern("^(limit|remaining|reset):")]), "the names of three headers that answers to Envoy carry, as those of envoyproxy/ratelimit do; none if not set").like(r#"{"limit": "RateLimit-Limit"}"#)),
    variable(Key::new("dynamic_metadata", Kind::Flag, "whether answers to Envoy carry metadata about the call; only those under a quota if not set").like("true")),
    variable(Key::new("reset_header", Kind::Words(&["unix", "delta"]), "X-RateLimit-Reset as a point in time or as seconds from now").or("unix")),
    file(Key::new("denied", Kind::Named("Denied", &Kind::Map(&DENIED)), "what denied clients get from the gateway and forward-auth, for rules without a `denied` of their own").like(r#"{"title": "Too many requests"}"#)),
    file(Key::new("tokens", Kind::List(0, &Kind::Map(&TOKEN)), "the tokens of the API and their scopes").or("[]")),
    variable(Key::new("activity", Kind::Words(&["on", "off", "anonymous"]), "whether live activity is counted; `anonymous` shows keys as digests only").or("on")),
    variable(Key::new("activity_memory", SIZE, "the most memory for live activity, at least `1MiB`").or("64MiB")),
    variable(Key::new("console", Kind::Words(&["on", "off"]), "whether the web console is served below `/console/`").or("on")),
    variable(Key::new("tls_cert", PATH, "the certificate to serve with, a PEM file")),
    variable(Key::new("tls_key", PATH, "its private key, a PEM file")),
    variable(Key::new("tls_client_ca", PATH, "the authorities of the client certificates that gRPC requires, a PEM file")),
    variable(Key::new("http_tls_client_ca", PATH, "the authorities of the client certificates that HTTP requires, a PEM file")),
    variable(Key::new("drain_timeout", SPAN, "at shutdown: how long requests in flight may take").or("10s")),
    variable(Key::new("drain_delay", SPAN, "at shutdown: how long to keep accepting after /readyz reports 503").or("0s")),
    variable(Key::new("max_connections", CONNECTIONS, "how many connections may be open at a time, on each port").or("10000")),
    variable(Key::new("body_memory", SIZE, "the most memory for the bodies of requests that are held at a time, at least `1MiB`").or("256MiB")),
    flag("text|json", Key::new("log_format", Kind::Words(&["text", "json"]), "how log lines look: `text` or `json`").or("text")),
    flag("LEVEL", Key::new("log_level", Kind::Text(""), "what is logged: `error`, `warn`, `info`, `debug`, `trace` or `off`, or levels by target").or("info")),
    variable(Key::new("access_log", Kind::Text(""), "where requests of the API and the gateway are logged, as JSON lines: `off`, `stderr` or a file").or("off")),
    variable(Key::new("access_log_headers", NAMES, "the headers of requests that the access log has").or("[]")),
    variable(Key::new("record", Kind::Any(&[PATH, Kind::Map(&RECORD)]), "where decisions are recorded, for `tidegate simulate`: `off`, a file, or a map").or("off")),
    variable(Key::new("otlp", Kind::Pattern("^https?://"), "the collector that traces and metrics are sent to, over OTLP/HTTP; none if not set").like("http://127.0.0.1:4318")),
    variable(Key::new("otlp_sampling", Kind::Text(r"^(0|1|0?\.[0-9]+|1\.0+)$"), "the share of requests that are traced, from 0 to 1, if their caller has not decided").or("0.01").needs(&["otlp"])),
    variable(Key::new("otlp_service", Kind::Any(&[Kind::Text(""), Kind::Map(&OTLP_SERVICE)]), "the name of this service in telemetry; or a map with its namespace and the instance").or("tidegate").needs(&["otlp"])),
    variable(Key::new("statsd", Kind::OneOrMore(0, &STATSD_SERVER), "the server of statsd that stats are sent to, as envoyproxy/ratelimit does: `off`, a host and a port, a map, or a list of these").or("off")),
    variable(Key::new("prometheus", Kind::Any(&[OFF, ADDRESS, Kind::Map(&PROMETHEUS)]), "where the stats of envoyproxy/ratelimit are served for Prometheus, with all other metrics: `off`, an address, or a map").or("off")),
    variable(Key::new("near_limit_ratio", Kind::Text(r"^[0-9.]+(e-?[0-9]+)?$"), "from which share of a limit its use counts as near it, in these stats").or("0.8")),
    variable(Key::new("stat_names", Kind::Whole(0, 1_000_000), "how many names of these stats values of requests may make").or("10000")),
    flag("FILE", Key::new("config", PATH, "the YAML file with these settings")),
    flag("NAME", Key::new("as", Kind::Words(&[EnvoyRatelimit::NAME]), "the server to run in place of: `envoy-ratelimit` reads the variables of envoyproxy/ratelimit")),
];

const STATSD_SERVER: Kind = Kind::Any(&[OFF, ADDRESS, Kind::Map(&STATSD)]);
const TAGS: Kind = Kind::MapOf("", &Kind::Text(""));

#[rustfmt::skip]
pub(super) static STATSD: [Key; 6] = [
    Key::new("address", ADDRESS, "its host and port").or("localhost:8125"),
    Key::new("protocol", Kind::Words(&["tcp", "udp"]), "how it is sent to; `udp` with `dialect: dogstatsd`, otherwise `tcp` if not set"),
    Key::new("interval", SPAN, "how often, `1ms` to `24h`").or("10s"),
    Key::new("dialect", Kind::Words(&["statsd", "dogstatsd"]), "how tags are written").or("statsd"),
    Key::new("tags", TAGS, "the tags of each line").or("{}"),
    Key::new("mogrifiers", Kind::List(0, &Kind::Map(&MOGRIFIER)), "how names are rewritten for DogStatsD; the first that matches counts").or("[]"),
];

#[rustfmt::skip]
pub(super) static MOGRIFIER: [Key; 3] = [
    Key::new("pattern", Kind::Text(""), "a regular expression for names").required().like(r"^ratelimit\.(.*)$"),
    Key::new("name", Kind::Text(""), "the new name, with `$1` for the first group").required().like("rl.$1"),
    Key::new("tags", TAGS, "the tags, with `$1` in their values").or("{}"),
];

#[rustfmt::skip]
pub(super) static PROMETHEUS: [Key; 5] = [
    Key::new("address", ADDRESS, "where it is served").or("127.0.0.1:9090"),
    Key::new("path", Kind::Pattern("^/"), "the path of the page").or("/metrics"),
    Key::new("mapping", PATH, "a file of `statsd_exporter` that names the series; the built-in names if not set"),
    Key::new("response_time", Kind::Words(&["seconds", "milliseconds"]), "what the built-in names show times of calls in").or("seconds"),
    Key::new("tags", TAGS, "the labels of each series").or("{}"),
];

#[rustfmt::skip]
pub(super) static OTLP_SERVICE: [Key; 3] = [
    Key::new("name", Kind::Text(""), "the name of the service").or("tidegate"),
    Key::new("namespace", Kind::Text(""), "the namespace of the service; none if not set"),
    Key::new("instance", Kind::Text(""), "the id of this server; a random one if not set"),
];

#[rustfmt::skip]
pub(super) static ROUTE: [Key; 12] = [
    Key::new("host", Kind::Text(""), "the host of the request, or `*.example.com` for all below it; any host if not set"),
    Key::new("prefix", Kind::Pattern("^/"), "what the path begins with, in whole segments").or("/"),
    Key::new("upstreams", Kind::OneOrMore(1, &UPSTREAM), "the servers that answer").required().like(r#"["http://10.0.0.1:3000"]"#),
    Key::new("timeout", SPAN, "how long the head of an answer may take").or("30s"),
    Key::new("connect_timeout", SPAN, "how long a connection may take").or("2s"),
    Key::new("idle_timeout", SPAN, "how long a body or a WebSocket may be silent").or("5m"),
    Key::new("retries", Kind::Whole(0, 10), "how often a request is sent again").or("1"),
    Key::new("host_header", Kind::Words(&["pass", "upstream"]), "`pass` the client's `Host`, or send the name of the `upstream`").or("pass"),
    Key::new("strip_prefix", Kind::Flag, "whether the server sees paths without the prefix").or("false"),
    Key::new("usage", USAGE, "what is read of the cost of its requests").or("off"),
    Key::new("include_usage", INCLUDE_USAGE, "whether its streams are asked to include their usage").or("add"),
    Key::new("set_headers", Kind::MapOf("", &Kind::Map(&SET_HEADER)), "headers that are replaced for the server, such as its credentials; only clients with a key of `clients_file` are let through").like(r#"{"authorization": {"env": "OPENAI_AUTHORIZATION"}}"#),
];

#[rustfmt::skip]
pub(super) static SET_HEADER: [Key; 2] = [
    Key::new("env", Kind::Text(""), "an environment variable with the value").like("OPENAI_AUTHORIZATION"),
    Key::new("file", PATH, "a file with the value"),
];

#[rustfmt::skip]
pub(super) static ESTIMATE: [Key; 4] = [
    Key::new("output", Kind::Whole(1, 1 << 40), "the tokens of the output, where a request has no maximum").or("1000"),
    Key::new("output_cap", Kind::Any(&[Kind::Words(&["none"]), Kind::Whole(1, 1 << 40)]), "the most tokens of the output of one answer, whatever its maximum").or("none"),
    Key::new("bytes_per_token", Kind::Whole(1, 1_000), "how many bytes of the body are one token of the input").or("4"),
    Key::new("media", Kind::Whole(0, 1 << 40), "the tokens of a picture or another medium").or("1000"),
];

#[rustfmt::skip]
pub(super) static OWN_FORM: [Key; 5] = [
    Key::new("maximum", NAMES, "where a request has the most tokens of its output; the first that is present counts"),
    Key::new("times", NAMES, "where it has the number of answers; the largest counts"),
    Key::new("input", NAMES, "where an answer has the tokens of the input; items are added up, `a|b` is one or the other").like(r#"["usage.input_tokens"]"#),
    Key::new("cached", NAMES, "where it has those that were read from a cache"),
    Key::new("output", NAMES, "where it has the tokens of the output").like(r#"["usage.output_tokens"]"#),
];

#[rustfmt::skip]
pub(super) static HEALTH: [Key; 2] = [
    Key::new("path", Kind::Pattern("^/"), "the path to ask for").required().like("/healthz"),
    Key::new("interval", SPAN, "how often").or("5s"),
];

#[rustfmt::skip]
pub(super) static ENVOY_HEADERS: [Key; 3] = [
    Key::new("limit", Kind::Text(HEADER_NAME), "the header with the requests per unit of time").or("RateLimit-Limit"),
    Key::new("remaining", Kind::Text(HEADER_NAME), "the header with how many are left").or("RateLimit-Remaining"),
    Key::new("reset", Kind::Text(HEADER_NAME), "the header with the seconds until the limit is whole again").or("RateLimit-Reset"),
];
const HEADER_NAME: &str = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";

#[rustfmt::skip]
pub(super) static COUNTERS: [Key; 1] = [
    Key::new("snapshot", Kind::Any(&[OFF, SPAN]), "how often the in-memory store is written to `data_dir`, `1s` to `1h`, or `off`").required().like("10s"),
];

#[rustfmt::skip]
pub(super) static XDS: [Key; 11] = [
    Key::new("server", Kind::Text("."), "its host and port").required().like("envoy-gateway:18001"),
    Key::new("node", Kind::Text(""), "the id of this node").or("default"),
    Key::new("metadata", TEXTS, "what the server gets to know about this node besides"),
    Key::new("headers", TEXTS, "headers of each stream"),
    Key::new("tls", Kind::Flag, "whether TLS is used").or("false"),
    Key::new("cert", PATH, "the certificate of this client, a PEM file"),
    Key::new("key", PATH, "its private key, a PEM file"),
    Key::new("ca", PATH, "authorities to trust in addition to the public ones, a PEM file"),
    Key::new("server_name", Kind::Text(""), "the name that the certificate of the server must have; the host of `server` if not set"),
    Key::new("backoff", Kind::Map(&RETRY), "the pauses between attempts"),
    Key::new("max_message", SIZE, "the largest message that is read").or("64MiB"),
];

#[rustfmt::skip]
pub(super) static RETRY: [Key; 3] = [
    Key::new("initial", SPAN, "the first pause").or("1s"),
    Key::new("max", SPAN, "the longest").or("60s"),
    Key::new("jitter", Kind::Flag, "whether each pause is between half and all of its time").or("true"),
];

#[rustfmt::skip]
pub(super) static RECORD: [Key; 4] = [
    Key::new("file", PATH, "the file, to which lines are added").required().like("/var/lib/tidegate/record.jsonl"),
    Key::new("sample", Kind::Text(r"^[0-9]{1,3}(\.[0-9]{1,2})?\s*%$"), "the share of the clients whose requests are recorded").or("100%"),
    Key::new("sample_by", NAMES, "the attributes that tell clients apart; needed below `100%`").like(r#"["ip"]"#),
    Key::new("rotate", Kind::Map(&ROTATE), "when another file is begun, and how many are kept"),
];

#[rustfmt::skip]
pub(super) static ROTATE: [Key; 2] = [
    Key::new("size", SIZE, "the size at which the file becomes `FILE.1`, at least `1KiB`").or("100MiB"),
    Key::new("keep", Kind::Whole(1, 1_000), "how many such files are kept, the newest ones").or("10"),
];

/// Where an attribute is in a request, or which column of the client table has it.
#[rustfmt::skip]
pub(super) static SOURCES: [Key; 5] = [
    Key::new("header", Kind::Text(""), "a header").like("x-api-key"),
    Key::new("query", Kind::Text(""), "a parameter of the query"),
    Key::new("cookie", Kind::Text(""), "a cookie"),
    Key::new("jwt", Kind::Text(""), "a claim of a verified token").like("sub"),
    Key::new("client", Kind::Text(""), "a column of the table of clients").like("tier"),
];

#[rustfmt::skip]
pub(super) static JWT: [Key; 11] = [
    Key::new("key_file", PATH, "a public key, a PEM file"),
    Key::new("jwks_file", PATH, "a JSON Web Key Set, a file"),
    Key::new("secret_file", PATH, "a file with the secret that the issuer shares"),
    Key::new("jwks_ca", PATH, "the authorities to trust for `jwks_url`, a PEM file"),
    Key::new("jwks_url", Kind::Text(""), "where to fetch a JSON Web Key Set"),
    Key::new("secret_env", Kind::Text(""), "an environment variable with the secret that the issuer shares"),
    Key::new("algorithms", Kind::OneOrMore(0, &Kind::Words(&["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256", "HS384", "HS512"])), "the accepted algorithms; all that the key can be used with if not set"),
    Key::new("issuer", NAMES, "the accepted issuers; any if not set"),
    Key::new("audience", NAMES, "the accepted audiences; any if not set"),
    Key::new("leeway", SPAN, "how much the clock of the issuer may differ, up to an hour").or("30s"),
    Key::new("from", SOURCE, "where a request has its token").or(r#"{"header": "authorization"}"#),
];

#[rustfmt::skip]
pub(super) static TOKEN: [Key; 4] = [
    Key::new("name", Kind::Text(""), "the name of the token's owner").required(),
    Key::new("token_file", PATH, "the file with the token"),
    Key::new("token_env", Kind::Text(""), "the environment variable with the token"),
    Key::new("scopes", Kind::OneOrMore(1, &Kind::Words(&["read", "write", "check"])), "what the token allows").required(),
];
