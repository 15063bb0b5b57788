//! Finds in a request what it says about its client. Nothing here is verified.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::Source;

/// A request says several things where one was looked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Several;

pub(crate) type Found<'r> = Result<Option<Cow<'r, str>>, Several>;

/// What a request says in a header, its query or a cookie.
pub(super) fn find<'r>(
    source: &Source,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
) -> Found<'r> {
    match source {
        Source::Header(name) => header(headers, name),
        Source::Query(name) => parameter(query.unwrap_or_default(), name),
        Source::Cookie(name) => cookie(headers, name),
        Source::Jwt(_) | Source::Client(_) => Ok(None),
    }
}

/// The token of a request: without `Bearer` before it, which `Authorization` has to have.
pub(super) fn find_token<'r>(source: &Source, headers: &'r HeaderMap) -> Found<'r> {
    let Some(value) = find(source, headers, None)? else {
        return Ok(None);
    };
    let Source::Header(name) = source else {
        return Ok(Some(value));
    };
    if name == AUTHORIZATION {
        // What is not a bearer's has its scheme before it still.
        let is_token = !value.contains(' ');
        return Ok(Some(value).filter(|_| is_token));
    }
    Ok(Some(without_bearer(value)))
}

fn header<'r>(headers: &'r HeaderMap, name: &HeaderName) -> Found<'r> {
    let values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let value = one(values.map(|value| String::from_utf8_lossy(value.trim_ascii())))?;
    if name == AUTHORIZATION {
        return Ok(value.map(credentials));
    }
    Ok(value)
}

/// Credentials in one form, so that nobody has two by writing the scheme another way: a bearer's token
/// alone, else the scheme in lower case, a space, and the rest.
fn credentials(value: Cow<'_, str>) -> Cow<'_, str> {
    let Some((scheme, rest)) = value.split_once(' ') else {
        return value;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return without_bearer(value);
    }
    Cow::Owned(format!("{} {}", scheme.to_ascii_lowercase(), rest.trim()))
}

fn without_bearer(value: Cow<'_, str>) -> Cow<'_, str> {
    let has_scheme = value
        .split_once(' ')
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if !has_scheme {
        return value;
    }
    let token = |text: &str| text.split_once(' ').map_or(0, |(scheme, _)| scheme.len());
    match value {
        Cow::Borrowed(text) => Cow::Borrowed(text[token(text)..].trim()),
        Cow::Owned(text) => Cow::Owned(text[token(&text)..].trim().to_owned()),
    }
}

fn cookie<'r>(headers: &'r HeaderMap, wanted: &str) -> Found<'r> {
    let fields = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let pairs = fields.flat_map(|field| field.split(|byte| *byte == b';'));
    let values = pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(equals);
        let value = value[1..].trim_ascii();
        let unquoted = value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""));
        (name.trim_ascii() == wanted.as_bytes())
            .then(|| String::from_utf8_lossy(unquoted.unwrap_or(value)))
    });
    one(values)
}

/// The value of a parameter of a query, decoded.
pub(crate) fn parameter<'r>(query: &'r str, wanted: &str) -> Found<'r> {
    let values = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name) == wanted).then(|| decoded(value))
    });
    one(values)
}

/// The one value that all are.
fn one<'r>(mut values: impl Iterator<Item = Cow<'r, str>>) -> Found<'r> {
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.all(|value| value == first) {
        Ok(Some(first))
    } else {
        Err(Several)
    }
}

/// A part of a query as text: a plus is a space, escapes are decoded, and what is none stays.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, behind @ ..]) if let Some(byte) = escaped(*high, *low) => {
                bytes.push(byte);
                rest = behind;
            }
            _ => bytes.push(*first),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
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
        let of_header = |name| Source::Header(HeaderName::from_static(name));
        let of_query = |name: &str| Source::Query(name.to_owned());
        let of_cookie = |name: &str| Source::Cookie(name.to_owned());
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
        let query = Some("key=a%20b+c&twice=1&twice=2&bad=%zz%4&empty=&na%6De=n&flag");
        let text = |text: &'static str| Ok(Some(text.into()));
        let table = [
            (of_header("x-key"), text("k1")),
            (of_header("x-none"), Ok(None)),
            (of_header("x-two"), Err(Several)),
            (of_header("x-same"), text("a")),
            (of_header("authorization"), text("t1")),
            (of_query("key"), text("a b c")),
            (of_query("twice"), Err(Several)),
            (of_query("bad"), text("%zz%4")),
            (of_query("empty"), text("")),
            (of_query("flag"), text("")),
            (of_query("name"), text("n")),
            (of_query("none"), Ok(None)),
            (of_cookie("session"), text("s 1")),
            (of_cookie("a"), text("1")),
            (of_cookie("b"), Err(Several)),
            (of_cookie("ession"), Ok(None)),
        ];
        for (source, expected) in table {
            assert_eq!(find(&source, &headers, query), expected, "{source:?}");
        }
    }

    #[test]
    fn credentials_have_one_form() {
        for (written, form) in [
            ("Basic dTpw", "basic dTpw"),
            ("BASIC   dTpw", "basic dTpw"),
            ("Bearer t", "t"),
            ("bearer   t", "t"),
            ("t", "t"),
        ] {
            assert_eq!(credentials(written.into()), form, "{written}");
        }
    }

    #[test]
    fn only_a_bearer_has_a_token_in_authorization() {
        let source = Source::Header(AUTHORIZATION);
        for (written, token) in [
            ("Bearer t", Some("t")),
            ("Basic dTpw", None),
            ("Bearer", Some("Bearer")),
        ] {
            let headers = headers(&[("authorization", written)]);
            let found = find_token(&source, &headers).unwrap();
            assert_eq!(found.as_deref(), token, "{written}");
        }
        let headers = headers(&[("x-token", "bearer t"), ("x-raw", "t")]);
        for name in ["x-token", "x-raw"] {
            let source = Source::Header(HeaderName::from_static(name));
            assert_eq!(find_token(&source, &headers).unwrap().unwrap(), "t");
        }
    }

    proptest::proptest! {
        /// Whatever a client writes, it is read as something.
        #[test]
        fn nothing_is_too_strange(value in proptest::collection::vec(32..=255_u8, 0..40), query in ".{0,40}") {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(AUTHORIZATION, value.clone());
                headers.append(COOKIE, value);
            }
            let _ = find_token(&Source::Header(AUTHORIZATION), &headers);
            let _ = find(&Source::Cookie("a".to_owned()), &headers, None);
            let _ = parameter(&query, "a");
        }
    }
}
