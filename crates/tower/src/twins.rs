//! Headers that some servers take for others: WSGI and CGI read `X_Api_Key` as `X-Api-Key`. A client
//! could give its key in the first, where no rule looks for it.
//!
//! Which names matter: those that rules read, those that the program says it reads, those of the
//! framing, and those in which proxies describe the client's request.

use http::{HeaderMap, HeaderName};
use tidegate::rules::RuleSet;

use crate::error::RequestError;
use crate::question::HEADER;
use crate::settings::Settings;

/// What happens to a request with a header that differs from one that is read only in `_` for `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnderscoreHeaders {
    /// The header is removed, before the request is decided and passed on.
    #[default]
    Drop,
    /// The request is refused with 400.
    Refuse,
}

/// What says where a message ends, or what its connection is for. Names without `-` have no twin.
const FRAMING: [&str; 4] = [
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
];

/// What proxies say about the request of a client.
const ABOUT_CLIENT: [&str; 2] = ["x-forwarded-", "x-original-"];
const REAL_IP: &str = "x-real-ip";

/// Removes the twins of headers that are read, or refuses the request.
pub(crate) fn screen(
    headers: &mut HeaderMap,
    settings: &Settings,
    rules: &RuleSet,
) -> Result<(), RequestError> {
    let has_underscore = |name: &str| name.as_bytes().contains(&b'_');
    let reads_underscore = || chosen_names(settings, rules).any(has_underscore);
    // Most requests have no such name, and most rules neither.
    if !headers.keys().any(|name| has_underscore(name.as_str())) && !reads_underscore() {
        return Ok(());
    }
    let twins: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_twin(name.as_str(), settings, rules))
        .cloned()
        .collect();
    for name in twins {
        match settings.underscore_headers {
            UnderscoreHeaders::Drop => drop(headers.remove(name)),
            UnderscoreHeaders::Refuse => {
                let name = name.as_str().to_owned();
                return Err(RequestError::UnderscoreHeader { name });
            }
        }
    }
    Ok(())
}

/// Whether a header is read, or is a twin of one that is.
pub(crate) fn is_read_or_twin(name: &str, settings: &Settings, rules: &RuleSet) -> bool {
    read_names(settings, rules).any(|read| read == name) || is_twin(name, settings, rules)
}

/// Whether a header is not read itself, and would be with `-` and `_` exchanged.
fn is_twin(name: &str, settings: &Settings, rules: &RuleSet) -> bool {
    if read_names(settings, rules).any(|read| read == name) {
        return false;
    }
    read_names(settings, rules).any(|read| read.len() == name.len() && begins_with(name, read))
        || (name.contains('_')
            && ABOUT_CLIENT
                .iter()
                .any(|prefix| name.len() > prefix.len() && begins_with(name, prefix)))
}

/// The names of headers that have a meaning here, in lower case.
fn read_names<'s>(settings: &'s Settings, rules: &'s RuleSet) -> impl Iterator<Item = &'s str> {
    let always = FRAMING.into_iter().chain([REAL_IP]);
    chosen_names(settings, rules).chain(always)
}

/// Those that rules and the program read.
fn chosen_names<'s>(settings: &'s Settings, rules: &'s RuleSet) -> impl Iterator<Item = &'s str> {
    let by_rules = rules.header_attributes().iter();
    let by_rules = by_rules.filter_map(|name| name.strip_prefix(HEADER));
    let by_program = settings.read_headers.iter().map(HeaderName::as_str);
    by_rules.chain(by_program)
}

/// Whether a name begins with another, where `_` and `-` are the same.
fn begins_with(name: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let (name, other) = (name.bytes().map(folded), other.bytes().map(folded));
    other.clone().count() <= name.clone().count() && name.zip(other).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn left(mode: UnderscoreHeaders, names: &[&'static str]) -> Result<Vec<String>, RequestError> {
        let text = "rules:\n- {id: a, match: {attributes: {header.x-beta: '1'}}, per: [header.x-api-key, header.x_old], limit: 1/m}\n";
        let rules = RuleSet::from_yaml(text).unwrap();
        let settings = Settings {
            underscore_headers: mode,
            read_headers: vec![HeaderName::from_static("x-user-name")],
            ..Settings::default()
        };
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(*name, HeaderValue::from_static("1"));
        }
        screen(&mut headers, &settings, &rules)?;
        Ok(headers.keys().map(ToString::to_string).collect())
    }

    #[test]
    fn twins_of_headers_that_are_read_are_dropped_or_refused() {
        for twin in [
            "x_api_key",
            "x-api_key",
            "x_api-key",
            "x_beta",
            "x_user_name",
            "transfer_encoding",
            "content_length",
            "x_forwarded_for",
            "x-forwarded_proto",
            "x_original_uri",
            "x_real_ip",
            "x-old",
        ] {
            let dropped = left(UnderscoreHeaders::Drop, &[twin, "accept"]);
            assert_eq!(dropped.unwrap(), ["accept"], "{twin}");
            let refused = left(UnderscoreHeaders::Refuse, &[twin, "accept"]);
            let name = twin.to_owned();
            assert_eq!(refused, Err(RequestError::UnderscoreHeader { name }));
        }
        for other in [
            "x-api-key",
            "x_old",
            "x-beta",
            "x_team",
            "x_api_keys",
            "x_api",
            "x-forwarded-for",
            "content-length",
        ] {
            let kept = left(UnderscoreHeaders::Refuse, &[other]);
            assert_eq!(kept.unwrap(), [other], "{other}");
        }
    }
}
