//! Headers that some servers treat as others: WSGI and CGI read `X_Api_Key` as `X-Api-Key`, some of them `X.Api~Key`
//! too. A client could give its key in the first, where no rule looks for it.
//!
//! The names that matter: headers that rules read, headers that the program reads, headers of the framing, and headers
//! in which proxies describe the client's request.

use http::{HeaderMap, HeaderName};
use tidegate::rules::RuleSet;

use crate::error::RequestError;
use crate::question::HEADER;
use crate::settings::Settings;

/// The handling of a header that differs from one that is read only in characters that are neither letters nor digits,
/// such as `_` for `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnderscoreHeaders {
    /// The header is removed, before the request is decided and passed on.
    #[default]
    Drop,
    /// The request is refused with 400.
    Refuse,
}

/// Headers that determine the end of a message or the use of its connection. Names without `-` have no twin.
const FRAMING: [&str; 4] = [
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
];

/// Prefixes of the headers in which proxies describe the request of a client.
const ABOUT_CLIENT: [&str; 2] = ["x-forwarded-", "x-original-"];
const REAL_IP: &str = "x-real-ip";

/// Removes the twins of headers that are read, or refuses the request.
pub(crate) fn screen(
    headers: &mut HeaderMap,
    settings: &Settings,
    rules: &RuleSet,
) -> Result<(), RequestError> {
    let reads_unusual = || chosen_names(settings, rules).any(is_unusual);
    // Most requests have no such name, and most rules neither.
    if !headers.keys().any(|name| is_unusual(name.as_str())) && !reads_unusual() {
        return Ok(());
    }
    let twins: Vec<(HeaderName, String)> = headers
        .keys()
        .filter_map(|name| Some((name.clone(), twin_of(name.as_str(), settings, rules)?)))
        .collect();
    for (name, read) in twins {
        match settings.underscore_headers {
            UnderscoreHeaders::Drop => drop(headers.remove(name)),
            UnderscoreHeaders::Refuse => {
                let name = name.as_str().to_owned();
                return Err(RequestError::TwinHeader { name, read });
            }
        }
    }
    Ok(())
}

/// Whether a header is read, or is a twin of one that is.
pub(crate) fn is_read_or_twin(name: &str, settings: &Settings, rules: &RuleSet) -> bool {
    read_names(settings, rules).any(|read| read == name) || twin_of(name, settings, rules).is_some()
}

/// Whether a name has a character that some servers take for `-`.
fn is_unusual(name: &str) -> bool {
    name.bytes()
        .any(|byte| byte != b'-' && !byte.is_ascii_alphanumeric())
}

/// The header that some servers take this one for, if that is read and this is not.
fn twin_of(name: &str, settings: &Settings, rules: &RuleSet) -> Option<String> {
    if read_names(settings, rules).any(|read| read == name) {
        return None;
    }
    let is_same = |read: &&str| read.len() == name.len() && begins_with(name, read);
    if let Some(read) = read_names(settings, rules).find(is_same) {
        return Some(read.to_owned());
    }
    let begins = |prefix: &&str| name.len() > prefix.len() && begins_with(name, prefix);
    let is_about_client = is_unusual(name) && ABOUT_CLIENT.iter().any(begins);
    is_about_client.then(|| name.bytes().map(folded_byte).map(char::from).collect())
}

/// The names of headers that have a meaning here, in lower case.
fn read_names<'s>(settings: &'s Settings, rules: &'s RuleSet) -> impl Iterator<Item = &'s str> {
    let always = FRAMING.into_iter().chain([REAL_IP]);
    chosen_names(settings, rules).chain(always)
}

/// The headers that rules and the program read.
fn chosen_names<'s>(settings: &'s Settings, rules: &'s RuleSet) -> impl Iterator<Item = &'s str> {
    let by_rules = rules.header_attributes().iter();
    let by_rules = by_rules.filter_map(|name| name.strip_prefix(HEADER));
    let by_program = settings.read_headers.iter().map(HeaderName::as_str);
    by_rules.chain(by_program)
}

/// A byte of a header name as CGI servers read it: all characters that are neither letters nor digits are equal.
pub fn folded_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte
    } else {
        b'-'
    }
}

/// Whether a name begins with another, in the reading of CGI servers.
fn begins_with(name: &str, other: &str) -> bool {
    let (name, other) = (
        name.bytes().map(folded_byte),
        other.bytes().map(folded_byte),
    );
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
        for (twin, read) in [
            ("x_api_key", "x-api-key"),
            ("x-api_key", "x-api-key"),
            ("x_api-key", "x-api-key"),
            ("x.api.key", "x-api-key"),
            ("x~api_key", "x-api-key"),
            ("x'api!key", "x-api-key"),
            ("x+api-key", "x-api-key"),
            ("x_beta", "x-beta"),
            ("x_user_name", "x-user-name"),
            ("transfer_encoding", "transfer-encoding"),
            ("content.length", "content-length"),
            ("x_forwarded_for", "x-forwarded-for"),
            ("x.forwarded.for", "x-forwarded-for"),
            ("x-forwarded_proto", "x-forwarded-proto"),
            ("x_original~uri", "x-original-uri"),
            ("x_real_ip", "x-real-ip"),
            ("x-old", "x_old"),
            ("x.old", "x_old"),
        ] {
            let dropped = left(UnderscoreHeaders::Drop, &[twin, "accept"]);
            assert_eq!(dropped.unwrap(), ["accept"], "{twin}");
            let refused = left(UnderscoreHeaders::Refuse, &[twin, "accept"]);
            let (name, read) = (twin.to_owned(), read.to_owned());
            assert_eq!(refused, Err(RequestError::TwinHeader { name, read }));
        }
        for other in [
            "x-api-key",
            "x_old",
            "x-beta",
            "x_team",
            "x_api_keys",
            "x_api",
            "x.team",
            "xxapixkey",
            "x-forwarded-for",
            "content-length",
        ] {
            let kept = left(UnderscoreHeaders::Refuse, &[other]);
            assert_eq!(kept.unwrap(), [other], "{other}");
        }
    }
}
