//! Turns the document into a configuration, and reports all of its problems.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate::address::{TrustedProxies, parse_network};
use tidegate::document::{Entry, Fields, Kind, Node, Place, Problems, Source, Spot, Value};
use tidegate::headers::{HeaderSettings, ResetForm};
use tidegate::path::EncodedSlashes;
use tidegate::rules::{DenialAnswer, OnStoreFailure, RuleSettings};
use tidegate::{Attributes, Micros};
use tidegate_ratelimit::variables::ReadVariables;

use crate::memory_limit::default_max_memory;

use super::size::{activity_memory, at_least_1_mib};
use super::telemetry::{log, otlp};
use super::{
    ActivityMode, Config, Overrides, RulePath, SETTINGS, TlsFiles, access_log, counters,
    descriptors, envoy_ratelimit, gateway, grpc, identify, record, redis, secret, settings, stats,
    tokens, variables, xds,
};

const THROTTLE: &str = "throttle_on_store_failure";
const ON_STORE_FAILURE: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
];
const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];
const ACTIVITY_MODES: [(&str, ActivityMode); 3] = [
    ("on", ActivityMode::On),
    ("off", ActivityMode::Off),
    ("anonymous", ActivityMode::Anonymous),
];
const SLASHES: [(&str, Option<EncodedSlashes>); 2] =
    [("refuse", None), ("keep", Some(EncodedSlashes::Keep))];

pub(super) type TakenField<'n> = Option<(Spot, &'n Node)>;

/// Credentials that anyone could use.
const NO_CLIENTS: &str = "`set_headers` adds credentials to requests, so it needs `clients_file` with the keys of the clients that may use them";

#[expect(clippy::too_many_lines, reason = "a line or two for each setting")]
pub(super) fn config(
    source: &Source,
    overrides: &Overrides<'_>,
    replaced: Option<&ReadVariables>,
    problems: &mut Problems,
) -> Option<Config> {
    let written = source.read(problems)?;
    let node = with_overrides(written, replaced, overrides, problems)?;
    let mut fields = Fields::new(&node, Spot::document(), settings::keys(), problems)?;
    let mut notes = Vec::new();
    let gateway = gateway::read(&mut fields, overrides, problems);
    let encoded_slashes = word(&fields, "encoded_slashes", &SLASHES, problems);

    let http = setting(&fields, "http", listen_address, problems);
    let admin = fields.parsed("admin", listen_address, problems);
    let (grpc, grpc_settings) = grpc::read(&fields, problems).unzip();
    let debug = setting(&fields, "debug", address_or_off, problems);
    let resp = fields.parsed("resp", listen_address, problems);
    let throttle_on_store_failure = word(&fields, THROTTLE, &ON_STORE_FAILURE, problems);
    let rules = rule_path(&fields, replaced.is_some(), problems);
    let xds = xds::read(&fields, problems);
    let data_dir = setting(&fields, "data_dir", |path| Ok(path.into()), problems);
    let history = number(&fields, "history", problems);
    let trust_timestamps = flag(&fields, "trust_timestamps", problems);
    let max_keys = number(&fields, "max_keys", problems);
    let max_reservations = number(&fields, "max_reservations", problems);
    let max_memory = fields.parsed("max_memory", at_least_1_mib, problems);
    let key_secret = secret::read(&fields, "key_secret_file", overrides, problems);
    let secret = key_secret.as_ref();
    let redis = redis::read(&mut fields, secret, overrides, &mut notes, problems);
    let (mut redis, redis_tls) = redis.unzip();
    if let (Some(redis), Some(_)) = (&mut redis, replaced) {
        redis.trust_public = true;
    }
    let unless = without_snapshots(redis.is_some(), trust_timestamps);
    let snapshot = counters::read(&fields, unless, &mut notes, problems);
    let mut rule_settings = rule_settings(&fields, problems);
    descriptors::read_rule_settings(&fields, &mut rule_settings, problems);
    let overlay = descriptors::overlay(&fields, problems);
    let instances = number(&fields, "instances", problems);
    let trusted_proxies = trusted_proxies(&fields, problems);
    let open_authorize = flag(&fields, "open_authorize", problems);
    let underscore_headers = identify::underscore_headers(&fields, problems);
    let invalid_credentials = identify::invalid_credentials(&fields, problems);
    let identify = identify::read(&fields, &trusted_proxies, overrides, &mut notes, problems);
    if gateway.as_ref().is_some_and(sets_headers) && identify.clients_file.is_none() {
        problems.error(&node.place, fields.spot(), NO_CLIENTS);
    }
    let headers = headers(&fields, problems);
    let is_in_place = replaced.is_some();
    let answers =
        headers.map(|headers| descriptors::answers(&fields, headers, is_in_place, problems));
    let denied = denied(&fields, problems);
    let tokens = tokens::read(fields.take("tokens"), overrides, &mut notes, problems);
    if is_in_place && tokens.is_empty() {
        for key in ["admin", "resp"] {
            fields.refuse(key, NO_TOKEN, problems);
        }
    }
    let activity = word(&fields, "activity", &ACTIVITY_MODES, problems);
    let activity_memory = setting(&fields, "activity_memory", activity_memory, problems);
    let console = word(&fields, "console", &ON_OFF, problems);
    let [tls_client_ca, http_tls_client_ca] = client_authorities(&fields, problems);
    let tls = tls_files(&fields, ["tls_cert", "tls_key"], problems);
    let drain_timeout = setting(&fields, "drain_timeout", span, problems);
    let drain_delay = setting(&fields, "drain_delay", span, problems);
    let max_connections = number(&fields, "max_connections", problems);
    let body_memory = setting(&fields, "body_memory", at_least_1_mib, problems);
    let log = log(&fields, replaced.is_some(), problems);
    let access_log = access_log::read(&fields, problems);
    let record = record::read(&fields, problems);
    let otlp = otlp(&fields, problems);
    let stats = stats::read(&fields, problems);
    fields.done(problems);
    let named = named_variables(&node);
    variables::check(&overrides.variables, &named, &mut notes, problems);

    rule_settings.described_by =
        identify::described_by(&identify, gateway.as_ref(), &trusted_proxies, &tokens);

    Some(Config {
        http: http?,
        admin,
        grpc: grpc?,
        grpc_settings: grpc_settings?,
        debug: debug?,
        envoy_ratelimit: replaced.map(|read| read.mode),
        resp,
        gateway,
        encoded_slashes: encoded_slashes?,
        throttle_on_store_failure: throttle_on_store_failure?,
        rules,
        xds,
        overlay,
        data_dir: data_dir?,
        history: history?,
        trust_timestamps: trust_timestamps?,
        max_keys: max_keys?,
        max_reservations: max_reservations?,
        max_memory: max_memory.unwrap_or_else(default_max_memory),
        snapshot,
        rule_settings,
        redis,
        redis_tls: redis_tls.unwrap_or_default(),
        key_secret,
        instances: instances?,
        trusted_proxies,
        open_authorize: open_authorize?,
        identify,
        underscore_headers,
        invalid_credentials,
        headers: headers?,
        answers: answers?,
        denied,
        tokens,
        activity: activity?,
        activity_memory: activity_memory?,
        console: console?,
        tls,
        tls_client_ca,
        http_tls_client_ca,
        drain_timeout: drain_timeout?,
        drain_delay: drain_delay?,
        max_connections: max_connections?,
        body_memory: body_memory?,
        log: log?,
        access_log,
        record,
        otlp,
        stats: stats?,
        notes,
        variable_notes: replaced.map_or_else(Vec::new, |read| read.notes.clone()),
    })
}

/// Why a listener is refused that envoyproxy/ratelimit does not have.
const NO_TOKEN: &str = "in place of envoyproxy/ratelimit this needs a token, because without one only its endpoints are served; set TIDEGATE_TOKEN or `tokens`, or leave this out";

/// Whether a route adds headers of the operator's to requests.
fn sets_headers(gateway: &gateway::GatewayConfig) -> bool {
    let mut routes = gateway.routes.iter();
    routes.any(|route| !route.set_headers.is_empty())
}

fn rule_path(fields: &Fields<'_>, is_lenient: bool, problems: &mut Problems) -> Option<RulePath> {
    let ignore_dot_files = flag(fields, "ignore_dot_files", problems);
    Some(RulePath {
        path: fields.text("rules", problems)?.into(),
        ignore_dot_files: ignore_dot_files?,
        is_lenient,
    })
}

fn rule_settings(fields: &Fields<'_>, problems: &mut Problems) -> RuleSettings {
    let mut settings = RuleSettings::default();
    settings.merge_domains = flag(fields, "merge_domains", problems) == Some(true);
    settings.secret_attributes = fields.list("secret_attributes", attribute_name, problems);
    if let Some(prefix) = number(fields, "ipv6_prefix", problems) {
        settings.ipv6_prefix = prefix;
    }
    settings
}

/// The document, with the values of the environment and the flags in place of its own.
fn with_overrides(
    written: Node,
    replaced: Option<&ReadVariables>,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<Node> {
    let mut entries = match written.value {
        Value::Map(entries) => entries,
        Value::Null => Vec::new(),
        Value::Scalar(_) | Value::List(_) => {
            let message = format!(
                "this must be a map of settings such as `http: 127.0.0.1:8080`, not {}",
                written.kind()
            );
            problems.error(&written.place, &Spot::document(), message);
            return None;
        }
    };
    if let Some(read) = replaced {
        envoy_ratelimit::add(&mut entries, read, overrides);
    }
    for setting in SETTINGS.iter().filter(|setting| setting.is_in_file()) {
        let key = setting.key.name;
        let flag = overrides.flags.iter().find(|(given, _)| *given == key);
        let variable = setting.variable().and_then(|name| {
            let value = (overrides.environment)(&name).filter(|value| !value.is_empty())?;
            let is_of_image = replaced
                .is_some_and(|read| envoy_ratelimit::is_of_image(read, key, (&name, &value)));
            (!is_of_image).then_some((name, value))
        });
        let (name, value) = match (flag, variable) {
            (Some((_, value)), _) => {
                let flag = setting.flag().map(|(flag, _)| format!("--{flag}"));
                (flag.unwrap_or_else(|| key.to_owned()), value.clone())
            }
            (None, Some(variable)) => variable,
            (None, None) => continue,
        };
        entries.retain(|entry| entry.key != key);
        entries.push(Entry {
            key: key.to_owned(),
            value: override_value(&setting.key.kind, &name, &value),
            key_place: Place::Setting(name),
        });
    }
    Some(Node {
        value: Value::Map(entries),
        place: written.place,
    })
}

/// The environment variables that the document names in `token_env`, `secret_env` and `env`, at any depth.
fn named_variables(node: &Node) -> Vec<String> {
    match &node.value {
        Value::Map(entries) => {
            let named = entries.iter().flat_map(|entry| match &entry.value.value {
                Value::Scalar(name)
                    if matches!(&*entry.key, "token_env" | "secret_env" | "env") =>
                {
                    vec![name.text.clone()]
                }
                _ => named_variables(&entry.value),
            });
            named.collect()
        }
        Value::List(items) => items.iter().flat_map(named_variables).collect(),
        Value::Null | Value::Scalar(_) => Vec::new(),
    }
}

/// The value of a variable or flag as a node: lists are separated by commas, and a map is given by its one
/// value.
fn override_value(kind: &Kind, name: &str, value: &str) -> Node {
    let place = Place::Setting(name.to_owned());
    let value = match kind {
        Kind::Map([only]) => Value::Map(vec![Entry {
            key: only.name.to_owned(),
            key_place: place.clone(),
            value: Node::setting(name, value),
        }]),
        Kind::OneOrMore(..) => {
            let items = value.split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty());
            Value::List(items.map(|item| Node::setting(name, item)).collect())
        }
        _ => return Node::setting(name, value),
    };
    Node { value, place }
}

/// Reads a setting, or its default from the table, with `read`. `None` after a problem, and if there is neither.
fn or_default<T>(
    fields: &Fields<'_>,
    key: &str,
    read: impl FnOnce(&Spot, &Node) -> Option<T>,
) -> Option<T> {
    match (fields.take(key), fields.default_of(key)) {
        (Some((spot, node)), _) => read(&spot, node),
        (None, "") => None,
        (None, default) => read(fields.spot(), &Node::setting(key, default)),
    }
}

pub(super) fn setting<T>(
    fields: &Fields<'_>,
    key: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    problems: &mut Problems,
) -> Option<T> {
    or_default(fields, key, |spot, node| spot.parsed(node, parse, problems))
}

pub(super) fn number<T: TryFrom<u64>>(
    fields: &Fields<'_>,
    key: &str,
    problems: &mut Problems,
) -> Option<T> {
    let number = match fields.take(key) {
        Some(_) => fields.integer(key, problems),
        None => fields.default_of(key).parse().ok(),
    };
    T::try_from(number?).ok()
}

pub(super) fn flag(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Option<bool> {
    or_default(fields, key, |spot, node| spot.boolean(node, problems))
}

pub(super) fn word<T: Copy>(
    fields: &Fields<'_>,
    key: &str,
    words: &[(&str, T)],
    problems: &mut Problems,
) -> Option<T> {
    or_default(fields, key, |spot, node| spot.one_of(node, words, problems))
}

pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.replacen("localhost:", "127.0.0.1:", 1);
    text.parse().map_err(|_| {
        format!("`{text}` is not an address to listen on; write an IP address and a port, for example `127.0.0.1:8080` or `0.0.0.0:80`")
    })
}

pub(super) fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    let address = listen_address(text).map(Some);
    address.map_err(|problem| format!("{problem}, or `off`"))
}

pub(super) fn span(text: &str) -> Result<Micros, String> {
    text.parse()
        .map_err(|error: tidegate::LimitError| error.to_string())
}

/// A name in the form that attributes have in rules.
pub(super) fn attribute_name(text: &str) -> Result<String, String> {
    let mut attributes = Attributes::new();
    match attributes.insert(text, "") {
        Ok(()) if text.starts_with("header.") => Ok(text.to_ascii_lowercase()),
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn trusted_proxies(fields: &Fields<'_>, problems: &mut Problems) -> TrustedProxies {
    let networks = fields.list("trusted_proxies", parse_network, problems);
    networks.into_iter().collect()
}

fn denied(fields: &Fields<'_>, problems: &mut Problems) -> Option<DenialAnswer> {
    let (spot, node) = fields.take("denied")?;
    DenialAnswer::read(node, spot, problems)
}

/// The setting with which counters of the memory store are not kept.
fn without_snapshots(has_redis: bool, trust_timestamps: Option<bool>) -> Option<&'static str> {
    match trust_timestamps {
        _ if has_redis => Some("redis"),
        Some(true) => Some("trust_timestamps"),
        _ => None,
    }
}

/// Makes settings send one form of headers.
type SendHeaders = fn(&mut HeaderSettings);

fn headers(fields: &Fields<'_>, problems: &mut Problems) -> Option<HeaderSettings> {
    let mut settings = HeaderSettings::default();
    if let Some((spot, node)) = fields.take("headers") {
        settings = HeaderSettings::NONE;
        for (spot, node) in spot.items(node, problems) {
            let words: [(&str, SendHeaders); 5] = [
                ("x", |settings| settings.x = true),
                ("draft-10", |settings| settings.draft_10 = true),
                ("retry-after", |settings| settings.retry_after = true),
                ("openai", |settings| settings.openai = true),
                ("anthropic", |settings| settings.anthropic = true),
            ];
            if let Some(send) = spot.one_of(node, &words, problems) {
                send(&mut settings);
            }
        }
    }
    let words = [
        ("unix", ResetForm::UnixSeconds),
        ("delta", ResetForm::DeltaSeconds),
    ];
    settings.reset = word(fields, "reset_header", &words, problems)?;
    Some(settings)
}

fn client_authorities(fields: &Fields<'_>, problems: &mut Problems) -> [Option<PathBuf>; 2] {
    ["tls_client_ca", "http_tls_client_ca"].map(|key| {
        let taken = fields.take(key);
        if let (Some((spot, node)), None) = (&taken, fields.key("tls_cert")) {
            let message =
                "clients present certificates only over TLS; give `tls_cert` and `tls_key` too";
            problems.error(&node.place, spot, message);
        }
        fields.text(key, problems).map(PathBuf::from)
    })
}

pub(super) fn tls_files(
    fields: &Fields<'_>,
    [cert, key]: [&str; 2],
    problems: &mut Problems,
) -> Option<TlsFiles> {
    need_both(fields, [cert, key], problems);
    Some(TlsFiles {
        cert: fields.text(cert, problems)?.into(),
        key: fields.text(key, problems)?.into(),
    })
}

/// Reports the one of two settings that is there without the other.
pub(super) fn need_both(fields: &Fields<'_>, [one, other]: [&str; 2], problems: &mut Problems) {
    for (key, lacking) in [(one, other), (other, one)] {
        if let (Some((spot, node)), None) = (fields.take(key), fields.take(lacking)) {
            let message = format!("this goes together with `{lacking}`; give both");
            problems.error(&node.place, &spot, message);
        }
    }
}
