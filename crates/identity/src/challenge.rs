//! How a client is asked for its identity: the value of `WWW-Authenticate`.

use http::HeaderValue;
use http::header::AUTHORIZATION;

use crate::settings::AttributeSource;

const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"tidegate\"");
const API_KEY: HeaderValue = HeaderValue::from_static("ApiKey realm=\"tidegate\"");

/// The challenge for an attribute with these sources: a token if that can provide it, else the first source. For an
/// attribute from the table of clients, the API key.
pub(crate) fn challenge(sources: &[AttributeSource], api_key: &[AttributeSource]) -> HeaderValue {
    let is_token = |source: &AttributeSource| match source {
        AttributeSource::Jwt(_) => true,
        AttributeSource::Header(name) => *name == AUTHORIZATION,
        _ => false,
    };
    if sources.iter().any(is_token) {
        return BEARER;
    }
    let (kind, name) = match sources.first() {
        Some(AttributeSource::Header(name)) => ("header", name.as_str()),
        Some(AttributeSource::Query(name)) => ("query", name.as_str()),
        Some(AttributeSource::Cookie(name)) => ("cookie", name.as_str()),
        Some(AttributeSource::Client(_)) if !api_key.is_empty() && api_key != sources => {
            return challenge(api_key, &[]);
        }
        _ => return API_KEY,
    };
    let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!("ApiKey realm=\"tidegate\", {kind}=\"{quoted}\"");
    HeaderValue::from_str(&text).unwrap_or(API_KEY)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn a_client_is_asked_for_a_token_or_for_its_first_source() {
        let header = |name| AttributeSource::Header(HeaderName::from_static(name));
        let key = [
            header("x-api-key"),
            AttributeSource::Query("key".to_owned()),
        ];
        for (sources, expected) in [
            (&key[..], "ApiKey realm=\"tidegate\", header=\"x-api-key\""),
            (&key[1..], "ApiKey realm=\"tidegate\", query=\"key\""),
            (
                &[AttributeSource::Cookie("a\"b".to_owned())],
                "ApiKey realm=\"tidegate\", cookie=\"a\\\"b\"",
            ),
            (
                &[header("x-api-key"), AttributeSource::Jwt("sub".to_owned())],
                "Bearer realm=\"tidegate\"",
            ),
            (&[header("authorization")], "Bearer realm=\"tidegate\""),
            (
                &[AttributeSource::Client("user_id".to_owned())],
                "ApiKey realm=\"tidegate\", header=\"x-api-key\"",
            ),
            (
                &[AttributeSource::Query("caf\u{e9}\n".to_owned())],
                "ApiKey realm=\"tidegate\"",
            ),
        ] {
            assert_eq!(challenge(sources, &key), expected);
        }
    }
}
