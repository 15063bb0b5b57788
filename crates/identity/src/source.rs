//! Reads values about the client from a request, decoded as services decode them. Nothing here is verified.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::white_space::{plain, trimmed};
use tidegate::{AttributeValue, CredentialError, credentials, credentials_in};

use crate::AttributeSource;
use crate::cookies;
use crate::spelling::{decoded, is_parameter};

/// A request has several different values for one attribute.
#[derive(Debug, PartialEq, Eq)]
pub struct Several;

/// Why a source has no value that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It has several different ones.
    Several,
    /// Servers read different credentials in it, or none.
    Invalid,
}

impl From<Several> for Unusable {
    fn from(Several: Several) -> Self {
        Self::Several
    }
}

impl From<CredentialError> for Unusable {
    fn from(_: CredentialError) -> Self {
        Self::Invalid
    }
}

/// The value, if there is one.
pub type FoundValue<'r> = Result<Option<AttributeValue<'r>>, Several>;

/// The value in a header, the query or a cookie.
pub(crate) fn find<'r>(
    source: &AttributeSource,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
) -> Result<Option<AttributeValue<'r>>, Unusable> {
    Ok(match source {
        AttributeSource::Header(name) if name == AUTHORIZATION => authorization(headers)?,
        AttributeSource::Header(name) => header(headers, name)?,
        AttributeSource::Query(name) => parameter(query.unwrap_or_default(), name)?,
        AttributeSource::Cookie(name) => cookie(headers, name)?,
        AttributeSource::Jwt(_) | AttributeSource::Client(_) => None,
    })
}

/// The token of a request, without the scheme `Bearer`; with any other scheme, after which is a space. Bytes that
/// are not UTF-8 are not a token.
pub(crate) fn find_token<'r>(
    source: &AttributeSource,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
) -> Result<Option<Cow<'r, str>>, Unusable> {
    let Some(value) = find(source, headers, query)? else {
        return Ok(None);
    };
    let value = value.into_form();
    Ok(Some(match source {
        AttributeSource::Header(name) if name != AUTHORIZATION => {
            let value = credentials(value)?;
            let token = value.strip_prefix("bearer ").map(str::to_owned);
            token.map_or(value, Cow::Owned)
        }
        _ => value,
    }))
}

fn header<'r>(headers: &'r HeaderMap, name: &HeaderName) -> FoundValue<'r> {
    let values = headers.get_all(name).iter();
    let values = values.map(|value| trimmed(value.as_bytes()));
    one(values.map(AttributeValue::from))
}

/// The credentials in `Authorization`. Without the scheme `Bearer`, so that they equal the same token in another
/// header.
fn authorization(headers: &HeaderMap) -> Result<Option<AttributeValue<'_>>, Unusable> {
    let mut first = None;
    for value in headers.get_all(AUTHORIZATION) {
        let form = match plain(trimmed(value.as_bytes())) {
            Cow::Borrowed(value) => credentials_in(value)?,
            Cow::Owned(value) => Cow::Owned(credentials_in(&value)?.into_owned()),
        };
        let value = AttributeValue::from(without_bearer(form));
        match &first {
            Some(first) if *first != value => return Err(Unusable::Several),
            _ => first = Some(value),
        }
    }
    Ok(first)
}

/// Credentials without their scheme, if that is `bearer`.
fn without_bearer(credentials: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    const BEARER: &[u8] = b"bearer ";
    match credentials {
        Cow::Borrowed(bytes) => Cow::Borrowed(bytes.strip_prefix(BEARER).unwrap_or(bytes)),
        Cow::Owned(mut bytes) => {
            if bytes.starts_with(BEARER) {
                bytes.drain(..BEARER.len());
            }
            Cow::Owned(bytes)
        }
    }
}

/// The value of a cookie, decoded.
fn cookie<'r>(headers: &'r HeaderMap, wanted: &str) -> FoundValue<'r> {
    let fields = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let pieces = fields.flat_map(|field| field.split(|byte| *byte == b';'));
    let values = pieces.flat_map(|piece| cookies::values(piece, wanted.as_bytes()));
    one(values.map(AttributeValue::from))
}

/// The value of a parameter of a query, decoded. Some servers separate parameters by `;` too, and Express with qs ends
/// the name at the first `]=`.
pub fn parameter<'r>(query: &'r str, wanted: &str) -> FoundValue<'r> {
    let value = |(name, value): (&'r str, &'r str)| {
        let is_it = is_parameter(&decoded(name.as_bytes()), wanted.as_bytes());
        is_it.then(|| AttributeValue::from(decoded(value.as_bytes())))
    };
    let values = query.split('&').flat_map(|pair| {
        let pieces = if pair.contains(';') { pair } else { "" };
        let pairs = std::iter::once(pair).chain(pieces.split(';'));
        let named = pairs.flat_map(|pair| {
            let usual = pair.split_once('=').unwrap_or((pair, ""));
            std::iter::once(usual).chain(after_bracket(pair))
        });
        named.filter_map(value)
    });
    one(values)
}

/// The name and value of a parameter whose name ends with a bracket, which may be encoded.
fn after_bracket(pair: &str) -> Option<(&str, &str)> {
    let mut equals = pair.match_indices('=').map(|(at, _)| at);
    let is_bracket = |name: &str| {
        let encoded = name.len().checked_sub(3).and_then(|at| name.get(at..));
        name.ends_with(']') || encoded.is_some_and(|end| end.eq_ignore_ascii_case("%5d"))
    };
    let at = equals.find(|at| is_bracket(&pair[..*at]))?;
    Some((&pair[..at], &pair[at + 1..]))
}

/// The common value of all, if they agree.
fn one<'r>(mut values: impl Iterator<Item = AttributeValue<'r>>) -> FoundValue<'r> {
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.all(|value| value == first) {
        Ok(Some(first))
    } else {
        Err(Several)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = list.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn what_a_request_says_by_hand() {
        let of_header = |name| AttributeSource::Header(HeaderName::from_static(name));
        let of_query = |name: &str| AttributeSource::Query(name.to_owned());
        let of_cookie = |name: &str| AttributeSource::Cookie(name.to_owned());
        let headers = headers(&[
            ("x-key", " k1 "),
            ("x-two", "a"),
            ("x-two", "b"),
            ("x-same", "a"),
            ("x-same", "a"),
            ("authorization", "bEARER  t1"),
            ("cookie", "a=1; session=\"s 1\""),
            ("cookie", "b=2; b=3"),
        ]);
        let query = Some(
            "list[]=a&list[0]=a&list[x]=b&two=a&two[]=b&key=a%20b+c&twice=1&twice=2&bad=%zz%4&empty=&na%6De=n&flag&qs[]%00=%26+x%5b%5d=r&in%5B%5D=1&in=1",
        );
        let text = |text: &'static str| Ok(Some(AttributeValue::from(text)));
        let table = [
            (of_header("x-key"), text("k1")),
            (of_header("x-none"), Ok(None)),
            (of_header("x-two"), Err(Unusable::Several)),
            (of_header("x-same"), text("a")),
            (of_header("authorization"), text("t1")),
            (of_query("key"), text("a b c")),
            (of_query("twice"), Err(Unusable::Several)),
            (of_query("bad"), text("%zz%4")),
            (of_query("empty"), text("")),
            (of_query("flag"), text("")),
            (of_query("name"), text("n")),
            (of_query("none"), Ok(None)),
            (of_query("list"), text("a")),
            (of_query("two"), Err(Unusable::Several)),
            // Express with qs takes `r` for its value.
            (of_query("qs"), Err(Unusable::Several)),
            (of_query("in"), text("1")),
            (of_cookie("session"), text("s 1")),
            (of_cookie("a"), text("1")),
            (of_cookie("b"), Err(Unusable::Several)),
            (of_cookie("ession"), Ok(None)),
        ];
        for (source, expected) in table {
            assert_eq!(find(&source, &headers, query), expected, "{source:?}");
        }
    }

    #[test]
    fn authorization_has_one_form() {
        for (written, form) in [
            ("Basic dTpw", "basic dTpw"),
            ("BASIC   dTpw", "basic dTpw"),
            ("Basic dT~pw=", "basic dTpw"),
            ("Bearer t", "t"),
            ("bearer   t", "t"),
            ("BEARER\tt", "t"),
            ("t", "t"),
            ("Token a b", "token a b"),
        ] {
            let headers = headers(&[("authorization", written)]);
            let found = find(&AttributeSource::Header(AUTHORIZATION), &headers, None);
            assert_eq!(found, Ok(Some(form.into())), "{written}");
        }
        for written in [
            "Bearer t x",
            "bearer\tt\t\tx",
            "Basic !",
            "Basic d-==",
            "Basic dQ==dQ==",
        ] {
            let headers = headers(&[("authorization", written)]);
            let found = find(&AttributeSource::Header(AUTHORIZATION), &headers, None);
            assert_eq!(found, Err(Unusable::Invalid), "{written}");
        }
    }

    #[test]
    fn values_that_are_not_utf8_stay_apart() {
        let of = |bytes: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.append("x-key", HeaderValue::from_bytes(bytes).unwrap());
            let source = AttributeSource::Header(HeaderName::from_static("x-key"));
            let found = find(&source, &headers, None).unwrap().unwrap();
            found.into_form().into_owned()
        };
        assert_eq!(of(b"k\xff"), "k\u{fffd}FF");
        assert_eq!(of(b"k\xfe"), "k\u{fffd}FE");
        let query = |query| parameter(query, "key").unwrap().unwrap().into_form();
        assert_eq!(query("key=k%ff"), "k\u{fffd}FF");
        assert_eq!(query("key=k%FE"), "k\u{fffd}FE");
    }

    #[test]
    fn a_token_in_authorization_is_that_of_a_bearer() {
        let source = AttributeSource::Header(AUTHORIZATION);
        for (written, token) in [
            ("Bearer t", "t"),
            ("Basic dTpw", "basic dTpw"),
            ("Bearer", "Bearer"),
            ("bearer\tt", "t"),
        ] {
            let headers = headers(&[("authorization", written)]);
            let found = find_token(&source, &headers, None).unwrap();
            assert_eq!(found.as_deref(), Some(token), "{written}");
        }
        let headers = headers(&[("x-token", "bearer \tt"), ("x-raw", "t")]);
        for name in ["x-token", "x-raw"] {
            let source = AttributeSource::Header(HeaderName::from_static(name));
            assert_eq!(find_token(&source, &headers, None).unwrap().unwrap(), "t");
        }
    }

    proptest::proptest! {
        /// Any value of a client is read.
        #[test]
        fn nothing_is_too_strange(value in proptest::collection::vec(32..=255_u8, 0..40), query in ".{0,40}") {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(AUTHORIZATION, value.clone());
                headers.append(COOKIE, value);
            }
            let _ = find_token(&AttributeSource::Header(AUTHORIZATION), &headers, None);
            let _ = find(&AttributeSource::Cookie("a".to_owned()), &headers, None);
            let _ = parameter(&query, "a");
        }
    }
}
