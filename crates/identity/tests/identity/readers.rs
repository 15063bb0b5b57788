//! Services read identities in their own ways. Two requests that one of them takes for the same client
//! must never have two counters: models of WSGI, Express and nginx read what is passed on to them.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use proptest::prelude::*;
use regex::Regex;
use tidegate::rules::RuleSet;
use tidegate::{Gate, MemoryStore};
use tidegate_tower::{RateLimitLayer, UnderscoreHeaders};
use tower::{Layer as _, ServiceExt as _};

use tidegate_identity::Identity;

use crate::Place;

/// Identities that the service knows.
const KNOWN: [&str; 4] = ["abcdef", "A1-b_c.9~", "k/+=:x", "é9"];

/// One place where a request names its client.
#[derive(Debug, Clone)]
enum Claim {
    Header(&'static str, Vec<u8>),
    Query(&'static str, Vec<u8>),
    Cookie(Vec<u8>),
}

/// What a service got: its headers, and its query.
type Got = (HeaderMap, String);

type Reader = fn(&Got, Spot) -> Option<String>;

/// Where a service looks for an identity.
#[derive(Debug, Clone, Copy)]
enum Spot {
    Header,
    Query,
    Cookie,
}

const ORDERS: [[Spot; 3]; 3] = [
    [Spot::Header, Spot::Query, Spot::Cookie],
    [Spot::Query, Spot::Cookie, Spot::Header],
    [Spot::Cookie, Spot::Header, Spot::Query],
];

const READERS: [(&str, Reader); 6] = [
    ("WSGI, the first parameter", wsgi_first),
    ("WSGI, the last parameter", wsgi_last),
    ("Flask", flask),
    ("Express", express),
    ("PHP", php),
    ("nginx", nginx),
];

/// Headers and cookies as most servers hand them on: bytes as the first 256 characters.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn header_values(headers: &HeaderMap, is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let of_name = headers.iter().filter(|(name, _)| is_it(name.as_str()));
    of_name
        .map(|(_, value)| latin1(value.as_bytes()).trim().to_owned())
        .collect()
}

/// The pairs of the cookies, as text.
fn cookie_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    pairs_in(&header_values(headers, |name| name == "cookie").join("; "))
}

fn pairs_in(fields: &str) -> Vec<(String, String)> {
    let pairs = fields.split(';').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// `%XX` and, in a query, `+` decoded; none if that is not UTF-8 or an escape is malformed and must not be.
fn percent_decoded(text: &str, plus: bool, is_strict: bool) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let escape = rest.strip_prefix('%').and_then(|digits| digits.get(..2));
        let escape = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = &rest[character.len_utf8()..];
        match (character, escape) {
            ('%', Some(byte)) => {
                bytes.push(byte);
                rest = &rest[2..];
            }
            ('%', None) if is_strict => return None,
            ('+', _) if plus => bytes.push(b' '),
            _ => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    String::from_utf8(bytes).ok()
}

fn query_values(query: &str, is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let decoded = |text| percent_decoded(text, true, false).unwrap_or_default();
    pairs
        .filter(|(name, _)| is_it(&decoded(name)))
        .map(|(_, value)| decoded(value))
        .collect()
}

fn wsgi_first(got: &Got, spot: Spot) -> Option<String> {
    wsgi(got, spot, |values| values.first().cloned())
}

fn wsgi_last(got: &Got, spot: Spot) -> Option<String> {
    wsgi(got, spot, |values| values.last().cloned())
}

/// Names of headers have `_` for `-`, several values are joined; cookies are read by `http.cookies`, as in
/// Bottle and aiohttp.
fn wsgi(
    (headers, query): &Got,
    spot: Spot,
    pick: fn(&[String]) -> Option<String>,
) -> Option<String> {
    match spot {
        Spot::Header => {
            let environ = |name: &str| name.replace('-', "_") == "x_api_key";
            Some(header_values(headers, environ).join(","))
        }
        Spot::Query => pick(&query_values(query, |name| name == "api_key")),
        Spot::Cookie => {
            let fields = header_values(headers, |name| name == "cookie").join("; ");
            let pairs = python_pairs(&fields);
            let found = pairs.iter().rev().find(|(name, _)| name == "key");
            found.map(|(_, value)| python_unquoted(value))
        }
    }
}

/// `http.cookies.BaseCookie.__parse_string`, without the attributes of cookies.
fn python_pairs(text: &str) -> Vec<(String, String)> {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
        let key = r"[\w!\#%&'~`><@,:/$*+\-.^|)(?}{=]";
        let value = r"[\w!\#%&'~`><@,:/$*+\-.^|)(?}{=\[\]]";
        let quoted = r#""(?:[^\\"]|\\.)*""#;
        let all =
            format!(r"\A\s*(?P<key>{key}+?)(\s*=\s*(?P<val>{quoted}|{value}*))?\s*(\s+|;|\z)");
        // As for Python's `re.ASCII`, which is about letters and white space only.
        let all = all.replace(r"\w", "A-Za-z0-9_").replace(r"\s", "[ \t]");
        Regex::new(&all).unwrap()
    });
    const RESERVED: [&str; 8] = [
        "expires",
        "path",
        "comment",
        "domain",
        "max-age",
        "version",
        "samesite",
        "partitioned",
    ];
    let (mut pairs, mut rest) = (Vec::new(), text);
    while let Some(found) = PATTERN.captures(rest).filter(|_| !rest.is_empty()) {
        let (key, value) = (found["key"].to_owned(), found.name("val"));
        let lower = key.to_lowercase();
        let is_flag = matches!(lower.as_str(), "secure" | "httponly");
        let is_attribute = is_flag || RESERVED.contains(&lower.as_str()) || key.starts_with('$');
        match value {
            _ if is_attribute && !key.starts_with('$') && pairs.is_empty() => return Vec::new(),
            None if !is_flag && !key.starts_with('$') => return Vec::new(),
            Some(value) if !is_attribute => pairs.push((key, value.as_str().to_owned())),
            _ => {}
        }
        rest = &rest[found[0].len()..];
    }
    pairs
}

/// Werkzeug: cookies are text in UTF-8, and white space of Unicode is cut; the last one counts.
fn flask(got: &Got, spot: Spot) -> Option<String> {
    let (headers, _) = got;
    if !matches!(spot, Spot::Cookie) {
        return wsgi_first(got, spot);
    }
    let fields = headers.get_all("cookie").iter().map(HeaderValue::as_bytes);
    let fields: Vec<&[u8]> = fields.collect();
    let text = String::from_utf8(fields.join(&b"; "[..])).ok()?;
    let pairs = pairs_in(&text);
    let (_, value) = pairs.iter().find(|(name, _)| name == "key")?;
    Some(python_unquoted(value))
}

/// `$_GET` and `$_COOKIE`: names in which a dot or a space is `_`, lists of one item, the last one counts; of
/// cookies the first.
fn php((headers, query): &Got, spot: Spot) -> Option<String> {
    let mangled = |name: &str| name.trim_start_matches(' ').replace([' ', '.'], "_");
    match spot {
        Spot::Header => wsgi(&(headers.clone(), String::new()), spot, |_| None),
        Spot::Query => {
            let is_it = |name: &str| {
                let name = mangled(name);
                matches!(name.as_str(), "api_key" | "api_key[]" | "api_key[0]")
            };
            query_values(query, is_it).pop()
        }
        Spot::Cookie => {
            let pairs = cookie_pairs(headers);
            let (_, value) = pairs.iter().find(|(name, _)| mangled(name) == "key")?;
            percent_decoded(value, false, false)
        }
    }
}

/// `http.cookies._unquote`.
fn python_unquoted(value: &str) -> String {
    let inside = value.strip_prefix('"');
    let Some(inside) = inside.and_then(|inside| inside.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut text = String::new();
    let mut rest = inside;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        let octal = rest
            .get(..3)
            .filter(|digits| matches!(digits.as_bytes(), [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7']));
        match (character, octal, rest.chars().next()) {
            ('\\', Some(digits), _) => {
                text.extend(u8::from_str_radix(digits, 8).map(char::from));
                rest = &rest[3..];
            }
            ('\\', None, Some(escaped)) => {
                text.push(escaped);
                rest = &rest[escaped.len_utf8()..];
            }
            _ => text.push(character),
        }
    }
    text
}

/// cookie-parser 1.4.6: what begins with a quote loses its first and last character, and is decoded if
/// it can be.
fn express((headers, query): &Got, spot: Spot) -> Option<String> {
    match spot {
        Spot::Header => Some(header_values(headers, |name| name == "x-api-key").join(", ")),
        Spot::Query => {
            const NAMES: [&str; 4] = ["api_key", "[api_key]", "api_key[]", "api_key[0]"];
            let in_list = |name: &str| NAMES.contains(&name);
            Some(query_values(query, in_list).join(","))
        }
        Spot::Cookie => {
            let pairs = cookie_pairs(headers);
            let (_, value) = pairs.iter().find(|(name, _)| name == "key")?;
            let mut inside = value.chars();
            let value = if value.starts_with('"') {
                inside.next();
                inside.next_back();
                inside.as_str()
            } else {
                value
            };
            Some(percent_decoded(value, false, true).unwrap_or_else(|| value.to_owned()))
        }
    }
}

/// `$http_…`, `$arg_…` and `$cookie_…`: nothing is decoded, the first counts, in any case; a comma ends a
/// cookie of another name. Headers with `_` are dropped.
fn nginx((headers, query): &Got, spot: Spot) -> Option<String> {
    match spot {
        Spot::Header => header_values(headers, |name| name == "x-api-key")
            .first()
            .cloned(),
        Spot::Query => {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let found = pairs.find(|(name, _)| name.eq_ignore_ascii_case("api_key"));
            // A plus is one to nginx alone.
            let found = found.filter(|(_, value)| !value.contains('+'));
            found.map(|(_, value)| value.to_owned())
        }
        Spot::Cookie => {
            let fields = header_values(headers, |name| name == "cookie").join("; ");
            let mut rest = fields.as_str();
            while !rest.is_empty() {
                let found = rest.split_once('=');
                let found = found.filter(|(name, _)| name.trim().eq_ignore_ascii_case("key"));
                if let Some((_, value)) = found {
                    let end = value.find(';').unwrap_or(value.len());
                    return Some(value[..end].trim().to_owned());
                }
                let end = rest.find([';', ',']).map_or(rest.len(), |end| end + 1);
                rest = &rest[end..];
            }
            None
        }
    }
}

/// An identity in some spelling: characters as they are, as `%XX` or in octal digits, in quotes or not.
fn any_spelling() -> impl Strategy<Value = Vec<u8>> {
    let ways = proptest::collection::vec(0..6_u8, 12);
    let around = prop_oneof![
        3 => Just(("", "")),
        2 => Just(("\"", "\"")),
        1 => Just((" ", " ")),
        1 => Just(("\"", "x")),
        1 => Just(("\"", "")),
        1 => Just(("\u{a0}", "\u{2003}\u{3000}")),
    ];
    let spelled = (prop::sample::select(&KNOWN[..]), ways, around);
    let spelled = spelled.prop_map(|(known, ways, (before, after))| {
        let mut spelled = before.as_bytes().to_vec();
        for (byte, way) in known.bytes().zip(ways.into_iter().cycle()) {
            match way {
                0 => spelled.extend(format!("%{byte:02x}").bytes()),
                1 => spelled.extend(format!("%{byte:02X}").bytes()),
                2 => spelled.extend(format!("\\{byte:03o}").bytes()),
                3 => spelled.extend([b'\\', byte]),
                _ => spelled.push(byte),
            }
        }
        spelled.extend(after.bytes());
        spelled
    });
    prop_oneof![
        6 => spelled.clone(),
        1 => spelled.prop_map(|spelled| [b"\xa0", spelled.as_slice(), b"\x85\xa0"].concat()),
    ]
}

/// What may follow or precede a cookie within its piece.
fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let names = vec!["key", "key", "key", "Key", "KEY", "\u{a0}key", "other"];
    let around = vec![
        ("", ""),
        ("", ""),
        ("", ""),
        ("", " Path=/1"),
        ("", " secure"),
        ("", " x"),
        ("", " \"x"),
        ("", "; a"),
        ("a=1 ", ""),
        ("a=1, ", ""),
        ("key=junk ", ""),
        ("key=junk,", ""),
        ("a=\"1\" b=2 ", " c = 3"),
        ("$Version=1; ", ""),
    ];
    let names = prop::sample::select(names);
    let around = prop::sample::select(around);
    (names, around, any_spelling()).prop_map(|(name, (before, after), value)| {
        let name = format!("{before}{name}=");
        [name.as_bytes(), &value, after.as_bytes()].concat()
    })
}

fn any_claim() -> impl Strategy<Value = Claim> {
    let names = vec!["x-api-key", "x_api_key", "x-api_key", "x_api-key"];
    let parameters = vec![
        "api_key",
        "api%5fkey",
        "%61pi_key",
        "api_key[]",
        "api_key%5b0]",
        "[api_key]",
        "API_KEY",
        "+api.key",
        "other",
    ];
    prop_oneof![
        (prop::sample::select(names), any_spelling())
            .prop_map(|(name, value)| Claim::Header(name, value)),
        (prop::sample::select(parameters), any_spelling())
            .prop_map(|(name, value)| Claim::Query(name, value)),
        any_piece().prop_map(Claim::Cookie),
    ]
}

fn request(claims: &[Claim]) -> Option<Request<()>> {
    let mut headers = HeaderMap::new();
    let mut query: Vec<String> = Vec::new();
    for claim in claims {
        match claim {
            Claim::Header(name, value) => {
                headers.append(*name, HeaderValue::from_bytes(value).ok()?);
            }
            Claim::Query(name, value) => {
                let value = latin1(value).replace(' ', "%20");
                query.push(format!("{name}={value}"));
            }
            Claim::Cookie(piece) => {
                let name = HeaderName::from_static("cookie");
                headers.append(name, HeaderValue::from_bytes(piece).ok()?);
            }
        }
    }
    let mut request = Request::builder().uri(format!("/?{}", query.join("&")));
    request.headers_mut()?.extend(headers);
    request.body(()).ok()
}

/// What a service got behind a layer, and the attribute by which the request was counted. None if it was
/// refused.
fn passed_on(
    attribute: &'static str,
    mode: UnderscoreHeaders,
    request: Request<()>,
) -> Option<(Got, Option<String>)> {
    static IDENTITY: LazyLock<Arc<Identity>> = LazyLock::new(|| {
        let sources = "[{header: x-api-key}, {query: api_key}, {cookie: key}]";
        let identity = Place::new().open(&format!("identify: {{api_key: {sources}}}"));
        Arc::new(identity.unwrap())
    });
    static GATE: LazyLock<Arc<Gate>> = LazyLock::new(|| {
        let text = "rules:\n- {id: k, per: [api_key], limit: 1000000/s}\n- {id: a, per: [header.authorization], limit: 1000000/s}\n";
        let rules = RuleSet::from_yaml(text).unwrap();
        Arc::new(Gate::new(MemoryStore::new(), rules))
    });
    let (identity, gate) = (&*IDENTITY, Arc::clone(&GATE));
    let key = Arc::new(Mutex::new(None));
    let (describing, seen) = (Arc::clone(identity), Arc::clone(&key));
    let layer = RateLimitLayer::new(gate)
        .forwarded_header(identity.forwarded_header())
        .reads_headers(identity.headers())
        .underscore_headers(mode)
        .attributes(move |request, attributes| {
            describing.describe(&request.headers, request.uri.query(), attributes)?;
            *seen.lock().unwrap() = attributes.get(attribute).map(str::to_owned);
            Ok(())
        });
    let got = Arc::new(Mutex::new(None));
    let getting = Arc::clone(&got);
    let service = layer.layer(tower::service_fn(move |request: Request<()>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        *getting.lock().unwrap() = Some((request.headers().clone(), query));
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    }));
    let answer = service.oneshot(request).now_or_never().unwrap().unwrap();
    let got = got.lock().unwrap().take();
    let is_refused = matches!(answer.status().as_u16(), 400 | 401);
    assert_eq!(got.is_none(), is_refused, "{answer:?}");
    let key = key.lock().unwrap().take();
    Some((got?, key))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever a client writes: if a service knows it by an identity, then that is what it is counted by.
    #[test]
    fn requests_of_one_client_to_wsgi_express_or_nginx_are_never_two_counters(
        claims in proptest::collection::vec(any_claim(), 1..4),
        refuses in any::<bool>(),
    ) {
        let mode = if refuses { UnderscoreHeaders::Refuse } else { UnderscoreHeaders::Drop };
        let Some(request) = request(&claims) else {
            return Ok(());
        };
        let Some((got, key)) = passed_on("api_key", mode, request) else {
            return Ok(());
        };
        for (name, reader) in READERS {
            for order in ORDERS {
                let mut found = order.iter().filter_map(|spot| reader(&got, *spot));
                let client = found.find(|value| !value.is_empty());
                if let Some(client) = client.filter(|client| KNOWN.contains(&client.as_str())) {
                    prop_assert_eq!(
                        key.as_deref(), Some(client.as_str()),
                        "{} takes {:?} for {:?}, looking in {:?}", name, &claims, &client, order
                    );
                }
            }
        }
    }
    /// The same for credentials: however they are written, a token that a service accepts is counted once.
    #[test]
    fn credentials_of_one_client_to_wsgi_or_express_are_never_two_counters(
        values in proptest::collection::vec("[ \\t]{0,2}[Bb][eE][aA][rR][eE][rR][ \\t]{1,3}[ ~]{0,2}(t1|T1|t2)[ \\t~]{0,2}", 1..3),
    ) {
        let mut builder = Request::builder().uri("/");
        for value in &values {
            // A no-break space, as Latin-1 has it.
            let bytes = value.bytes().map(|byte| if byte == b'~' { 0xa0 } else { byte });
            let bytes: Vec<u8> = bytes.collect();
            builder = builder.header("authorization", HeaderValue::from_bytes(&bytes).unwrap());
        }
        let passed = passed_on("header.authorization", UnderscoreHeaders::Drop, builder.body(()).unwrap());
        let Some(((headers, _), key)) = passed else {
            return Ok(());
        };
        let values = header_values(&headers, |name| name == "authorization");
        // Node keeps the first, WSGI servers join them.
        for value in [values[0].clone(), values.join(",")] {
            let words: Vec<&str> = value.split_whitespace().collect();
            if let [scheme, token @ ("t1" | "T1" | "t2")] = words.as_slice()
                && scheme.eq_ignore_ascii_case("bearer")
            {
                let form = format!("bearer {token}");
                prop_assert_eq!(key.as_deref(), Some(form.as_str()), "{:?}", &values);
            }
        }
    }
}
