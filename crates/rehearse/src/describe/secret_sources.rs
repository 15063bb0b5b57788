//! The attributes that have the value of a secret one in another place: the header that a key is read from, the field
//! that `--map` takes it from, and other attributes that are read from the same place.

use std::collections::BTreeSet;

use tidegate::rules::RuleSettings;
use tidegate_identity::AttributeSource;

use super::FieldMap;
use crate::input::InputSettings;
use crate::read::FieldSource;

/// Attributes that `--map` may let stand in for a secret one, and which stay what they are.
const PUBLIC: [&str; 7] = [
    "ip",
    "client_host",
    "method",
    "path",
    "host",
    "user_id",
    "tier",
];

/// The names of these attributes.
pub(crate) fn secret_sources(settings: &RuleSettings, input: &InputSettings) -> Vec<String> {
    let mut read: Vec<(&str, BTreeSet<String>)> = Vec::new();
    if let Some(identity) = &input.identity {
        for (name, sources) in identity.sources() {
            read.push((name, sources.iter().filter_map(identified).collect()));
        }
    }
    for (name, sources) in input.map.iter() {
        read.push((name, sources.iter().flat_map(mapped).collect()));
    }
    let mut secret: BTreeSet<String> = BTreeSet::new();
    loop {
        let before = secret.len();
        for (name, places) in &read {
            let is_secret = |name: &str| settings.is_secret(name) || secret.contains(name);
            if is_secret(name) {
                secret.extend(places.iter().cloned());
            } else if places.iter().any(|place| is_secret(place)) {
                secret.insert((*name).to_owned());
            }
        }
        if secret.len() == before {
            return secret.into_iter().collect();
        }
    }
}

/// Whether an attribute stands in for another by `--map`, and is not secret for that.
pub(crate) fn is_public_stand_in(name: &str, map: &FieldMap) -> bool {
    PUBLIC.contains(&name) && map.reads(name)
}

fn identified(source: &AttributeSource) -> Option<String> {
    match source {
        AttributeSource::Header(name) => Some(format!("header.{name}")),
        _ => None,
    }
}

/// The names that the attribute of a field may have.
fn mapped(source: &FieldSource) -> Vec<String> {
    let name = match source {
        FieldSource::Attribute(name) if PUBLIC.contains(&name.as_str()) => return Vec::new(),
        FieldSource::Attribute(name) => return vec![name.clone()],
        FieldSource::Name(name) => name.clone(),
        FieldSource::Pointer(steps) => steps.join("."),
    };
    let lower = name.to_ascii_lowercase();
    let mut headers = vec![lower.rsplit('.').next().unwrap_or_default().to_owned()];
    headers.extend(
        lower
            .strip_prefix("http_")
            .map(|name| name.replace('_', "-")),
    );
    headers.extend(lower.strip_prefix("request_").map(str::to_owned));
    if let Some((names, _)) = lower
        .strip_prefix("req(")
        .and_then(|rest| rest.split_once(')'))
    {
        headers.extend(names.split('?').map(str::to_owned));
    }
    let headers = headers.into_iter().map(|name| format!("header.{name}"));
    [name, lower.clone()].into_iter().chain(headers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(map: &[&str]) -> Vec<String> {
        let input = InputSettings {
            map: FieldMap::read_all(map.iter().copied()).unwrap(),
            ..InputSettings::default()
        };
        secret_sources(&RuleSettings::default(), &input)
    }

    #[test]
    fn places_of_secrets_by_hand() {
        let has = |map: &[&str], name: &str| sources(map).iter().any(|known| known == name);
        assert!(has(&["api_key=token"], "token"));
        assert!(has(&["api_key=$http_x_api_key"], "header.x-api-key"));
        assert!(has(
            &["api_key=request.headers.X-Api-Key"],
            "header.x-api-key"
        ));
        assert!(has(
            &["api_key=/request/headers/X-Api-Key"],
            "header.x-api-key"
        ));
        assert!(has(&["api_key=request_X-Api-Key"], "header.x-api-key"));
        assert!(has(&["api_key=$REQ(X-API-KEY?X-KEY):20"], "header.x-key"));
        assert!(has(&["user_id=@api_key"], "user_id"));
        assert!(has(&["user_id=token", "api_key=token"], "user_id"));
        assert!(has(&["api_key=@token"], "token"));
        assert!(sources(&["api_key=@ip"]).is_empty());
        assert!(sources(&["user_id=token"]).is_empty());
    }
}
