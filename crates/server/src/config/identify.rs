//! The settings that identify clients: `identify` and `clients_file`; `jwt` has a file of its own. Files are
//! named here and read when the server is opened.

use std::path::PathBuf;

use http::HeaderName;
use tidegate::InvalidCredentials;
use tidegate::address::{ForwardedHeader, TrustedProxies};
use tidegate::document::{Fields, Node, Problems, Spot, Value};
use tidegate::rules::DescribingFrontEnd;
use tidegate_gateway::RouteConfig;
use tidegate_identity::{AttributeSource, IdentifySettings};
use tidegate_tower::UnderscoreHeaders;
use tidegate_usage::{UsageSetting, UsageUnit};

use super::jwt;
use super::read::{attribute_name, flag, word};
use super::settings::SOURCES;
use super::{GatewayConfig, Overrides, Token, TokenScope};

/// The attribute that a request has where its usage is read.
const MODEL: &str = "model";

fn reads_usage(route: &RouteConfig) -> bool {
    route.usage != UsageSetting::Off
}

/// The front end that describes requests by these settings, if one is in use.
pub(super) fn described_by(
    identify: &IdentifySettings,
    gateway: Option<&GatewayConfig>,
    trusted_proxies: &TrustedProxies,
    tokens: &[Token],
) -> Option<DescribingFrontEnd> {
    let may_check = |token: &Token| token.scopes.contains(&TokenScope::Check);
    // A proxy may be trusted by a token, which callers of the API send too: these have no use for `identify`.
    let trusts_tokens = || !identify.attributes.is_empty() && tokens.iter().any(may_check);
    let place = if gateway.is_some() {
        "at the gateway"
    } else if !trusted_proxies.is_empty() || trusts_tokens() {
        // Only forward-auth has a use for them.
        "for forward-auth"
    } else {
        return None;
    };
    let names = identify.attributes.iter().map(|(name, _)| name.clone());
    let reads = |gateway: &GatewayConfig| gateway.routes.iter().any(reads_usage);
    let reads_usage = gateway.is_some_and(reads);
    let unread = UsageUnit::ALL.into_iter().map(UsageUnit::name);
    Some(DescribingFrontEnd {
        place,
        identified: names.chain(reads_usage.then(|| MODEL.to_owned())).collect(),
        unread_units: unread
            .filter(|_| gateway.is_some() && !reads_usage)
            .collect(),
    })
}

/// The handling of headers that some servers treat as the same as a header that is read.
pub(super) fn underscore_headers(
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> UnderscoreHeaders {
    let words = [
        ("drop", UnderscoreHeaders::Drop),
        ("refuse", UnderscoreHeaders::Refuse),
    ];
    word(fields, "underscore_headers", &words, problems).unwrap_or_default()
}

/// The handling of invalid credentials.
pub(super) fn invalid_credentials(
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> InvalidCredentials {
    let words = [
        ("deny", InvalidCredentials::Deny),
        ("missing", InvalidCredentials::Missing),
    ];
    word(fields, "invalid_credentials", &words, problems).unwrap_or_default()
}

pub(super) fn read(
    fields: &Fields<'_>,
    trusted_proxies: &TrustedProxies,
    overrides: &Overrides<'_>,
    notes: &mut Vec<String>,
    problems: &mut Problems,
) -> IdentifySettings {
    let mut settings = IdentifySettings::default();
    let words = [
        ("both", ForwardedHeader::Both),
        ("x-forwarded-for", ForwardedHeader::XForwardedFor),
        ("forwarded", ForwardedHeader::Forwarded),
    ];
    let header = word(fields, "forwarded_header", &words, problems);
    settings.forwarded_header = header.unwrap_or_default();
    settings.clients_file = fields.text("clients_file", problems).map(PathBuf::from);
    let is_complete = flag(fields, "clients_complete", problems);
    settings.clients_complete = is_complete.unwrap_or(false);
    if settings.clients_complete && settings.clients_file.is_none() {
        notes
            .push("the setting `clients_complete` has no effect without `clients_file`".to_owned());
    }
    let jwt = fields.take("jwt");
    let has_jwt = jwt.is_some();
    settings.jwt = jwt.and_then(|(spot, node)| jwt::read(node, &spot, overrides, problems));
    let Some((spot, node)) = fields.take("identify") else {
        for key in ["jwt", "clients_file"] {
            if fields.key(key).is_some() {
                notes.push(format!(
                    "the setting `{key}` has no effect without `identify`"
                ));
            }
        }
        return settings;
    };
    let entries = spot.entries(node, problems);
    if entries.is_empty() && matches!(node.value, Value::Map(_)) {
        let message = "say where an attribute comes from, such as `api_key: {header: x-api-key}`, or leave this out";
        problems.error(&node.place, &spot, message);
    }
    let known = AvailableSources {
        has_jwt,
        has_clients: settings.clients_file.is_some(),
        has_key: entries.iter().any(|entry| entry.key == "api_key"),
    };
    for entry in entries {
        let spot = spot.field(&entry.key);
        let sources = sources(&entry.value, &spot, problems);
        if let Err(message) = identifiable(&entry.key) {
            problems.error(&entry.key_place, &spot, message);
        } else if entry.key == "ip" {
            settings.ip = addresses(sources, &spot, problems);
            if *trusted_proxies == TrustedProxies::default() {
                notes.push(
                    "`identify.ip` has no effect without `trusted_proxies`: only trusted proxies may name a client's address".to_owned(),
                );
            }
        } else {
            for (source, spot, node) in &sources {
                if let Err(message) = known.suffices(source, &entry.key) {
                    problems.error(&node.place, spot, message);
                }
            }
            let sources = sources.into_iter().map(|(source, ..)| source).collect();
            settings.attributes.push((entry.key.clone(), sources));
        }
    }
    note_what_is_not_used(&settings, notes);
    settings
}

/// The settings that a source may depend on.
struct AvailableSources {
    has_jwt: bool,
    has_clients: bool,
    has_key: bool,
}

impl AvailableSources {
    /// Checks that the settings suffice for a source of this attribute.
    fn suffices(&self, source: &AttributeSource, name: &str) -> Result<(), &'static str> {
        match source {
            AttributeSource::Jwt(_) if !self.has_jwt => {
                Err("this needs the setting `jwt`, which says how tokens are verified")
            }
            AttributeSource::Client(_) if name == "api_key" => {
                Err("clients are found by their `api_key`, so it cannot come from their table")
            }
            AttributeSource::Client(_) if !self.has_clients => {
                Err("this needs the setting `clients_file`, the table of clients")
            }
            AttributeSource::Client(_) if !self.has_key => Err(
                "clients are found by their `api_key`; say in `identify.api_key` where that comes from",
            ),
            _ => Ok(()),
        }
    }
}

fn note_what_is_not_used(settings: &IdentifySettings, notes: &mut Vec<String>) {
    let sources = || settings.attributes.iter().flat_map(|(_, sources)| sources);
    if settings.jwt.is_some() && !sources().any(|source| matches!(source, AttributeSource::Jwt(_)))
    {
        notes.push("no attribute of `identify` comes from `{jwt: ...}`, so the setting `jwt` has no effect".to_owned());
    }
    let has_key = settings
        .attributes
        .iter()
        .any(|(name, _)| name == "api_key");
    if settings.clients_file.is_some() && !has_key {
        notes.push("`identify` does not say where `api_key` comes from, so the setting `clients_file` has no effect".to_owned());
    }
}

/// Checks that `identify` may set an attribute.
fn identifiable(name: &str) -> Result<(), String> {
    if matches!(name, "method" | "path" | "host") || name.starts_with("header.") {
        return Err(format!(
            "`{name}` is always that of the request; leave this out"
        ));
    }
    attribute_name(name).map(drop)
}

type Sources<'n> = Vec<(AttributeSource, Spot, &'n Node)>;

/// One source, or a list of them.
fn sources<'n>(node: &'n Node, spot: &Spot, problems: &mut Problems) -> Sources<'n> {
    let items: Vec<(Spot, &Node)> = match &node.value {
        Value::List(items) => {
            let spot = |(index, item)| (spot.item(index), item);
            items.iter().enumerate().map(spot).collect()
        }
        _ => vec![(spot.clone(), node)],
    };
    if items.is_empty() {
        problems.error(
            &node.place,
            spot,
            "give at least one source, such as `{header: x-api-key}`",
        );
    }
    let one = |(spot, node): (Spot, &'n Node)| {
        let source = source(node, &spot, problems)?;
        Some((source, spot, node))
    };
    items.into_iter().filter_map(one).collect()
}

pub(super) fn source(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<AttributeSource> {
    let fields = Fields::new(node, spot.clone(), &SOURCES, problems)?;
    let keys = SOURCES.iter().map(|row| row.name);
    let given: Vec<&str> = keys.filter(|key| fields.take(key).is_some()).collect();
    let all_known = fields.done(problems);
    let [key] = given[..] else {
        if all_known {
            let message = "a source is one of `{header: ...}`, `{query: ...}`, `{cookie: ...}`, `{jwt: ...}` and `{client: ...}`; several are a list";
            problems.error(&node.place, spot, message);
        }
        return None;
    };
    let make = match key {
        "header" => {
            let name = fields.parsed(key, header_name, problems);
            return name.map(AttributeSource::Header);
        }
        "query" => AttributeSource::Query,
        "cookie" => AttributeSource::Cookie,
        "jwt" => AttributeSource::Jwt,
        _ => AttributeSource::Client,
    };
    fields.parsed(key, name, problems).map(make)
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text).map_err(|_| format!("`{text}` cannot be the name of a header"))
}

pub(super) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("this has no name".to_owned());
    }
    Ok(text.to_owned())
}

fn addresses(sources: Sources<'_>, spot: &Spot, problems: &mut Problems) -> Vec<HeaderName> {
    let mut headers = Vec::with_capacity(sources.len());
    for (source, _, node) in sources {
        if let AttributeSource::Header(name) = source {
            headers.push(name);
        } else {
            let message = "an address can only come from a header that trusted proxies write: `{header: ...}`";
            problems.error(&node.place, spot, message);
        }
    }
    headers
}
