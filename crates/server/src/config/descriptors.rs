//! The settings of rules in the form of envoyproxy/ratelimit, and of answers to Envoy.

use std::path::PathBuf;

use http::HeaderName;
use tidegate::document::{Fields, Node, Problems, Spot, Value};
use tidegate::headers::HeaderSettings;
use tidegate::rules::{RuleSettings, Units};
use tidegate_codec::grpc::{AnswerSettings, EnvoyHeaders, MetadataCalls};

use super::read::{flag, word};
use super::settings::ENVOY_HEADERS;

const UNITS: [(&str, Units); 2] = [("calendar", Units::Calendar), ("epoch", Units::Epoch)];

/// Reads how such rules are meant.
pub(super) fn read_rule_settings(
    fields: &Fields<'_>,
    settings: &mut RuleSettings,
    problems: &mut Problems,
) {
    settings.all_or_nothing = flag(fields, "all_or_nothing", problems).unwrap_or_default();
    settings.quota = flag(fields, "quota", problems).unwrap_or_default();
    settings.units = word(fields, "units", &UNITS, problems).unwrap_or_default();
}

/// The file with the overlay, if there is one.
pub(super) fn overlay(fields: &Fields<'_>, problems: &mut Problems) -> Option<PathBuf> {
    fields.text("overlay", problems).map(PathBuf::from)
}

/// What answers to Envoy have besides the decision. In place of envoyproxy/ratelimit only what is asked for.
pub(super) fn answers(
    fields: &Fields<'_>,
    headers: HeaderSettings,
    is_in_place: bool,
    problems: &mut Problems,
) -> AnswerSettings {
    let are_given = fields.key("headers").is_some();
    let metadata = fields
        .take("dynamic_metadata")
        .and_then(|(spot, node)| spot.boolean(node, problems));
    let has_own = are_given || !is_in_place;
    AnswerSettings {
        headers: if has_own {
            headers
        } else {
            HeaderSettings::NONE
        },
        has_reasons: !is_in_place || are_given && headers != HeaderSettings::NONE,
        envoy_headers: fields
            .take("envoy_headers")
            .and_then(|(spot, node)| envoy_headers(&spot, node, problems)),
        metadata: match metadata {
            Some(true) => MetadataCalls::All,
            Some(false) => MetadataCalls::None,
            None if is_in_place => MetadataCalls::None,
            None => MetadataCalls::OfQuotas,
        },
        shadow: flag(fields, "shadow", problems).unwrap_or_default(),
    }
}

/// The names of a map; in a variable of a text such as `limit:X-Limit,reset:X-Reset`. Those that are left out have the
/// names of envoyproxy/ratelimit.
fn envoy_headers(spot: &Spot, node: &Node, problems: &mut Problems) -> Option<EnvoyHeaders> {
    let before = problems.error_count();
    let parsed;
    let node = match &node.value {
        Value::Scalar(_) => {
            parsed = spot.parsed(node, |text| map_of(text, node), problems)?;
            &parsed
        }
        _ => node,
    };
    let fields = Fields::new(node, spot.clone(), &ENVOY_HEADERS, problems)?;
    let mut name = |key: &str| match fields.take(key) {
        Some((spot, node)) => spot.parsed(node, header_name, problems).unwrap_or_default(),
        None => fields.default_of(key).to_owned(),
    };
    let names = EnvoyHeaders {
        limit: name("limit"),
        remaining: name("remaining"),
        reset: name("reset"),
    };
    fields.done(problems);
    (problems.error_count() == before).then_some(names)
}

fn map_of(text: &str, node: &Node) -> Result<Node, String> {
    let entry = |pair: &str| {
        let (key, value) = pair.split_once(':')?;
        Some(tidegate::document::Entry {
            key: key.trim().to_owned(),
            key_place: node.place.clone(),
            value: Node {
                place: node.place.clone(),
                ..Node::of_text(value.trim())
            },
        })
    };
    let entries: Option<Vec<_>> = text.split(',').map(entry).collect();
    let entries = entries.ok_or_else(|| {
        format!("`{text}` names no headers; write for example `limit:RateLimit-Limit,remaining:RateLimit-Remaining,reset:RateLimit-Reset`")
    })?;
    Ok(Node {
        value: Value::Map(entries),
        place: node.place.clone(),
    })
}

fn header_name(text: &str) -> Result<String, String> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!(
            "`{text}` is not the name of a header; write for example `RateLimit-Limit`"
        )),
    }
}
