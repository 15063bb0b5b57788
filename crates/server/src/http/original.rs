//! The request that a proxy asks about, from its headers. Read only from trusted proxies; they can claim
//! anything.
//!
//! A proxy writes one header for each fact and passes on what its client sent for the others. If two of them
//! differ, either may be the client's, and the request is refused.

use http::header::FORWARDED;
use http::{HeaderMap, HeaderValue};
use tidegate::address;
use tidegate_tower::ForwardedHeader;

use crate::problem::HttpProblem;

const METHOD: [&str; 2] = ["x-forwarded-method", "x-original-method"];
const URI: [&str; 3] = ["x-forwarded-uri", "x-original-uri", "x-original-url"];
const HOST: &str = "x-forwarded-host";
const ADDRESS: [&str; 2] = ["x-forwarded-for", "forwarded"];

/// Whether a request has a header in which proxies describe another.
pub(super) fn describes_another(headers: &HeaderMap) -> bool {
    let names = METHOD.iter().chain(&URI).chain(&ADDRESS).chain([&HOST]);
    names.into_iter().any(|name| headers.contains_key(*name))
}

/// The original request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) method: Option<String>,
    pub(super) host: Option<String>,
    pub(super) path: Option<String>,
    pub(super) query: Option<String>,
}

impl Original {
    /// Reads the headers of a trusted proxy. `Forwarded` is not read if proxies write the other header.
    pub(super) fn of(headers: &HeaderMap, header: ForwardedHeader) -> Result<Self, HttpProblem> {
        let mut original = Self::default();
        for name in METHOD {
            for value in values(headers, name)? {
                agree(&mut original.method, value, name)?;
            }
        }
        for value in values(headers, HOST)? {
            if value.contains(',') {
                let problem = format!("`{HOST}` names several hosts; the proxy must name one");
                return Err(HttpProblem::bad_request(problem));
            }
            agree(&mut original.host, value, HOST)?;
        }
        let reads_forwarded = header.removed() != Some(FORWARDED.as_str());
        for value in headers
            .get_all(FORWARDED)
            .iter()
            .filter(|_| reads_forwarded)
        {
            let host = address::forwarded_parameter(value.as_bytes(), "host");
            if let Some(host) = host.map(text).transpose()? {
                agree(&mut original.host, host, "forwarded")?;
            }
        }
        original.take_uris(headers)?;
        Ok(original)
    }

    fn take_uris(&mut self, headers: &HeaderMap) -> Result<(), HttpProblem> {
        let mut target = None;
        for name in URI {
            for value in values(headers, name)? {
                let (host, path_and_query) = split_host(value);
                if let Some(host) = host {
                    agree(&mut self.host, host, name)?;
                }
                agree(&mut target, path_and_query, name)?;
            }
        }
        let Some(target) = target else {
            return Ok(());
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target.as_str(), None),
        };
        // Proxies forward a fragment, and most servers drop it.
        let query = query.and_then(|query| query.split('#').next());
        let query = query.map(str::to_owned);
        self.path = Some(path.to_owned());
        self.query = query;
        Ok(())
    }
}

/// The host of an absolute URL, if it is one, and the rest.
fn split_host(uri: &str) -> (Option<&str>, &str) {
    let rest = match uri.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?', '#']) => rest,
        _ => return (None, uri),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    (Some(host), if target.is_empty() { "/" } else { target })
}

/// The values of a header that are not empty.
fn values<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Vec<&'h str>, HttpProblem> {
    let values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let values = values.filter(|value| !value.is_empty());
    values.map(text).collect()
}

fn text(value: &[u8]) -> Result<&str, HttpProblem> {
    str::from_utf8(value)
        .map_err(|_| HttpProblem::bad_request("a header about the original request is not text"))
}

/// Takes the value of a header; an error if an earlier header differs.
fn agree(known: &mut Option<String>, value: &str, name: &str) -> Result<(), HttpProblem> {
    match known {
        Some(known) if known != value => Err(HttpProblem::bad_request(format!(
            "`{name}` contradicts another header about the same thing; the proxy must write one of them and remove the others"
        ))),
        _ => {
            *known = Some(value.to_owned());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    /// Headers of a proxy.
    type Said = &'static [(&'static str, &'static str)];

    fn of(list: &[(&'static str, &str)]) -> Result<Original, HttpProblem> {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        Original::of(&headers, ForwardedHeader::Both)
    }

    #[test]
    fn what_proxies_say_by_hand() {
        #[rustfmt::skip]
        let table: [(&str, Said, [&str; 4]); 11] = [
            // name                     headers                                                 method  host    path        query
            ("nothing",                 &[],                                                    ["",    "",     "",         ""]),
            ("Traefik, Caddy",          &[("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/a?b=c"), ("x-forwarded-host", "h:8080")],
                                                                                                ["PUT", "h:8080", "/a",     "b=c"]),
            ("nginx",                   &[("x-original-method", "GET"), ("x-original-uri", "/a")], ["GET", "",  "/a",       ""]),
            ("a whole URL",             &[("x-original-url", "https://u@h:1/a?b=://")],         ["",    "h:1",  "/a",       "b=://"]),
            ("a URL of a host alone",   &[("x-original-url", "http://h")],                      ["",    "h",    "/",        ""]),
            ("a path with a URL in it", &[("x-original-uri", "/a/http://x/b")],                 ["",    "",     "/a/http://x/b", ""]),
            ("a fragment",              &[("x-original-uri", "/a?b=c#d")],                      ["",    "",     "/a",       "b=c"]),
            ("a query in a fragment",   &[("x-original-uri", "/a#b?c=d#e")],                    ["",    "",     "/a#b",     "c=d"]),
            ("the same twice",          &[("x-original-uri", "/a"), ("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/a")], ["", "", "/a", ""]),
            ("empty is missing",        &[("x-forwarded-uri", ""), ("x-original-uri", "/a")],   ["",    "",     "/a",       ""]),
            ("the nearest proxy",       &[("forwarded", "host=x, for=1.1.1.1;host=\"h\"")],     ["",    "h",    "",         ""]),
        ];
        for (name, headers, expected) in table {
            let original = of(headers).unwrap();
            let parts = [
                original.method,
                original.host,
                original.path,
                original.query,
            ];
            assert_eq!(parts.map(Option::unwrap_or_default), expected, "{name}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let table: [&[(&str, &str)]; 8] = [
            &[("x-forwarded-uri", "/a"), ("x-original-uri", "/b")],
            &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/b")],
            &[("x-original-url", "http://h/a"), ("x-original-uri", "/b")],
            &[("x-original-url", "http://h/a"), ("x-forwarded-host", "i")],
            &[("forwarded", "host=h"), ("x-forwarded-host", "i")],
            &[("x-forwarded-host", "h, i")],
            &[("x-forwarded-method", "GET"), ("x-original-method", "POST")],
            &[
                ("x-forwarded-method", "GET"),
                ("x-forwarded-method", "POST"),
            ],
        ];
        for headers in table {
            assert!(of(headers).is_err(), "{headers:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_read_that_the_header_does_not_have(name in 0..7_usize, value in proptest::collection::vec(32..=255_u8, 0..40)) {
            let name = [METHOD[0], METHOD[1], URI[0], URI[1], URI[2], HOST, "forwarded"][name];
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
            if let Ok(original) = Original::of(&headers, ForwardedHeader::Both) {
                let text = String::from_utf8_lossy(&value);
                let Original { method, host, path, query } = original;
                for part in [method, host, path, query].into_iter().flatten() {
                    // The path of a URL without one.
                    proptest::prop_assert!(part == "/" || text.contains(&part), "{part} of {text}");
                }
            }
        }
    }
}
