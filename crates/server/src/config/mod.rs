//! The configuration of the server: a YAML file, the environment and flags, in rising order of precedence.
//!
//! `settings.rs` has a table of every setting; `read.rs` turns the input into a [`Config`] and reports all problems
//! together. Nothing else reads a configuration file or the environment.

mod access_log;
mod counters;
mod descriptors;
mod envoy_ratelimit;
mod gateway;
mod grpc;
mod identify;
mod jwt;
mod read;
mod record;
mod redis;
mod secret;
mod settings;
mod size;
mod stats;
mod telemetry;
mod tokens;
mod usage;
mod variables;
mod xds;

pub use access_log::{AccessLogSettings, LineTarget};
pub use gateway::GatewayConfig;
pub use grpc::GrpcSettings;
pub use record::RecordSettings;
pub use redis::RedisTlsFiles;
pub use settings::{SETTINGS, Setting, schema};
pub use stats::{PrometheusSettings, StatsSettings, StatsdSettings};
pub(crate) use tokens::{token_in_file, weakness};
pub use usage::UsageConfig;
pub(crate) use usage::read_prices;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidegate::address::TrustedProxies;
use tidegate::document::{self, Place, Problem, Problems};
use tidegate::headers::HeaderSettings;
use tidegate::path::EncodedSlashes;
use tidegate::rules::{DenialAnswer, OnStoreFailure, RuleSettings};
use tidegate::{InvalidCredentials, Micros};
use tidegate_codec::grpc::AnswerSettings;
use tidegate_identity::{IdentifySettings, Secret};
pub use tidegate_ratelimit::EnvoyRatelimit;
pub use tidegate_ratelimit::variables::{
    Effect, KnownVariable, NoteLevel, VARIABLES, without_password,
};
use tidegate_ratelimit::variables::{ReadVariables, VariableNote};
use tidegate_redis::RedisSettings;
use tidegate_tower::UnderscoreHeaders;
use tidegate_xds::XdsSettings;

pub use crate::otlp::OtlpSettings;

/// The validated configuration of the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where HTTP is served.
    pub http: SocketAddr,
    /// Where the whole API is served, if it has a listener of its own.
    pub admin: Option<SocketAddr>,
    /// Where gRPC is served, if it is served over TCP.
    pub grpc: Option<SocketAddr>,
    /// How it is served, and where over a Unix socket.
    pub grpc_settings: GrpcSettings,
    /// Where the limits in force are shown to every caller, if they are.
    pub debug: Option<SocketAddr>,
    /// Whether, and how, it runs in place of envoyproxy/ratelimit.
    pub envoy_ratelimit: Option<EnvoyRatelimit>,
    /// Where the Redis protocol is served, if it is.
    pub resp: Option<SocketAddr>,
    /// The gateway, if there is one.
    pub gateway: Option<GatewayConfig>,
    /// How `%2f` in a path is read by the gateway and forward-auth; `None` refuses it.
    pub encoded_slashes: Option<EncodedSlashes>,
    /// The action of `CL.THROTTLE` while the store is unavailable.
    pub throttle_on_store_failure: OnStoreFailure,
    /// The file with the rules, or the folder of such files, if they come from one.
    pub rules: Option<RulePath>,
    /// The management server that the rules come from, if they do.
    pub xds: Option<XdsSettings>,
    /// The file that says how limits are counted that come in the form of envoyproxy/ratelimit.
    pub overlay: Option<PathBuf>,
    /// Where rules are stored otherwise, and everything that survives a restart.
    pub data_dir: PathBuf,
    /// How many versions of the rules are kept.
    pub history: usize,
    /// The shared Redis, if there is one.
    pub redis: Option<RedisSettings>,
    /// The files that its certificates come from.
    pub redis_tls: RedisTlsFiles,
    /// The secret with which keys are hashed where others can read them.
    pub key_secret: Option<Secret>,
    /// Whether a request may carry its own timestamp.
    pub trust_timestamps: bool,
    /// The most keys that the in-memory store holds.
    pub max_keys: usize,
    /// The most open reservations of the in-memory store.
    pub max_reservations: usize,
    /// The most memory that the states of the in-memory store take, in bytes.
    pub max_memory: usize,
    /// How often the store is written to the data directory, if at all. Never with Redis or with timestamps of
    /// requests.
    pub snapshot: Option<Micros>,
    /// The settings with which rules are read.
    pub rule_settings: RuleSettings,
    /// How many servers share the store, until the store reports the number.
    pub instances: u64,
    /// The proxies that may name a client's address.
    pub trusted_proxies: TrustedProxies,
    /// Whether `/v1/authorize` answers callers that are no proxies, although tokens are configured.
    pub open_authorize: bool,
    /// Where the identity of a client comes from.
    pub identify: IdentifySettings,
    /// The handling of headers that some servers treat as the same as a header that is read.
    pub underscore_headers: UnderscoreHeaders,
    /// The handling of invalid credentials.
    pub invalid_credentials: InvalidCredentials,
    /// Which rate limit headers answers carry.
    pub headers: HeaderSettings,
    /// What answers to Envoy have besides the decision.
    pub answers: AnswerSettings,
    /// The answer to denied clients, if it is not the usual one.
    pub denied: Option<DenialAnswer>,
    /// The tokens. Without any, every caller may check, and an operator on this machine uses the token that the
    /// server generates.
    pub tokens: Vec<Token>,
    /// Whether live activity is counted.
    pub activity: ActivityMode,
    /// The most memory for it, in bytes.
    pub activity_memory: usize,
    /// Whether the console is served.
    pub console: bool,
    /// The certificate and the key to serve with, as PEM files.
    pub tls: Option<TlsFiles>,
    /// The authorities of client certificates that gRPC requires, as a PEM file.
    pub tls_client_ca: Option<PathBuf>,
    /// The same for HTTP, with the admin listener and without probes.
    pub http_tls_client_ca: Option<PathBuf>,
    /// How long connections may take to finish when the server shuts down.
    pub drain_timeout: Micros,
    /// How long the server keeps accepting after it reports that it is not ready.
    pub drain_delay: Micros,
    /// The most connections open at a time, per port.
    pub max_connections: usize,
    /// The most memory for request bodies that are held at a time, in bytes.
    pub body_memory: usize,
    /// The format and level of logs.
    pub log: LogSettings,
    /// The access log, if there is one.
    pub access_log: Option<AccessLogSettings>,
    /// Where decisions are recorded, if they are.
    pub record: Option<RecordSettings>,
    /// Where telemetry is sent over OTLP, if it is.
    pub otlp: Option<OtlpSettings>,
    /// What is counted as envoyproxy/ratelimit counts it, and where it goes.
    pub stats: StatsSettings,
    /// Settings without effect, to be logged.
    pub notes: Vec<String>,
    /// The same of the variables of envoyproxy/ratelimit, if they are read.
    pub variable_notes: Vec<VariableNote>,
}

/// A file with rules, or a folder of such files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePath {
    /// Where it is.
    pub path: PathBuf,
    /// Whether names in the folder are left out that begin with `.`.
    pub ignore_dot_files: bool,
    /// Whether a server starts although the files are wrong, and without any, as envoyproxy/ratelimit does.
    pub is_lenient: bool,
}

/// Whether live activity is counted, and how keys are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivityMode {
    /// It is, and keys are shown by the values of their attributes; secret ones as digests.
    #[default]
    On,
    /// It is not.
    Off,
    /// It is, and keys are shown as digests only.
    Anonymous,
}

/// A token and its scopes.
#[derive(Clone)]
pub struct Token {
    /// The name of its owner; shown in the history of rules.
    pub name: String,
    /// The secret.
    pub secret: String,
    /// The file that it is read from, if any; reloaded when that changes.
    pub file: Option<PathBuf>,
    /// Its scopes.
    pub scopes: Vec<TokenScope>,
}

/// Without the secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// The permissions of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenScope {
    /// Reading rules and their history.
    Read,
    /// Changing rules, and resetting usage.
    Write,
    /// Checks and leases.
    Check,
}

impl TokenScope {
    /// The word in configuration and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Check => "check",
        }
    }
}

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's own first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The format and level of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Whether each line is a JSON object.
    pub json: bool,
    /// Whether its keys are those of envoyproxy/ratelimit.
    pub has_keys_of_envoy_ratelimit: bool,
    /// A level, or directives by target such as `info,tidegate_server=debug`.
    pub level: String,
}

/// Settings from outside the file: the environment, as a function, and flags.
pub struct Overrides<'a> {
    /// The value of an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all environment variables, to find misspelt ones.
    pub variables: Vec<String>,
    /// Flags by the key of their setting, as `("http", "127.0.0.1:0")`.
    pub flags: Vec<(&'static str, String)>,
}

/// Why the configuration is invalid: all problems, ready to be printed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// What the variables of envoyproxy/ratelimit become, if they are read. Values that cannot be used are problems of
/// [`Config::load`].
pub fn read_variables(overrides: &Overrides<'_>) -> Option<ReadVariables> {
    envoy_ratelimit::read(overrides, &mut Problems::new())
}

impl Config {
    /// Whether gRPC is served.
    pub(crate) fn has_grpc(&self) -> bool {
        self.grpc.is_some() || self.grpc_settings.socket.is_some()
    }

    /// Reads the file, if there is one, and applies the overrides.
    pub fn load(overrides: &Overrides<'_>) -> Result<Self, ConfigError> {
        let named = |key| overrides.flags.iter().find(|(flag, _)| *flag == key);
        let file = named("config")
            .map(|(_, path)| path.clone())
            .or_else(|| (overrides.environment)("TIDEGATE_CONFIG").filter(|path| !path.is_empty()));
        let source = match file {
            Some(path) => source_of(Path::new(&path))?,
            None => document::Source::new("configuration", ""),
        };
        let mut problems = Problems::new();
        let replaced = envoy_ratelimit::read(overrides, &mut problems);
        let secret = |name: &str| {
            let mut secrets = replaced.iter().flat_map(|read| &read.secrets);
            secrets
                .find(|(known, _)| *known == name)
                .map(|(_, secret)| secret.clone())
        };
        let environment = |name: &str| {
            let given = (overrides.environment)(name);
            let is_given = given.as_ref().is_some_and(|value| !value.is_empty());
            if is_given {
                given
            } else {
                secret(name).or(given)
            }
        };
        let overrides = &Overrides {
            environment: &environment,
            variables: overrides.variables.clone(),
            flags: overrides.flags.clone(),
        };
        let config = read::config(&source, overrides, replaced.as_ref(), &mut problems);
        match config {
            Some(config) if !problems.has_errors() => Ok(config),
            _ => {
                problems.sort();
                let hides = |problem: &Problem| is_near_a_secret(problem, &source);
                Err(ConfigError(problems.render_hiding(&source, hides)))
            }
        }
    }
}

/// Whether the line that a problem points at may contain a token or a password.
fn is_near_a_secret(problem: &Problem, source: &document::Source) -> bool {
    let Place::Text { line, .. } = problem.place else {
        return false;
    };
    let line = source
        .text
        .lines()
        .nth(line.saturating_sub(1))
        .unwrap_or_default();
    let keys = [
        "tokens",
        "redis",
        "key_secret",
        "upstream",
        "routes",
        "xds.headers",
    ];
    let words = ["://", "token", "password", "secret"];
    keys.iter().any(|key| problem.field.starts_with(key))
        || words.iter().any(|word| line.contains(word))
}

fn source_of(path: &Path) -> Result<document::Source, ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(document::Source::new(path.display().to_string(), text)),
        Err(error) => Err(ConfigError(format!(
            "error: cannot read the configuration `{}`: {error}; give the path of a YAML file with --config\n",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests;
