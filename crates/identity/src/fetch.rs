//! Fetches a JSON Web Key Set: bounded in time and size, and only from the configured server.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, LOCATION};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Full;
use tidegate_listen::{HttpCaller, HttpUrl, TlsError};

use crate::parse_jwks_url;

/// The timeout, redirects included.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest set that is read, in bytes.
const LARGEST: usize = 1 << 20;
/// How many redirects are followed.
const REDIRECTS: usize = 3;

/// Fetches one set.
pub(crate) struct Fetcher {
    pub(crate) url: HttpUrl,
    pub(crate) caller: HttpCaller,
}

/// A fetched set.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) body: Bytes,
    /// How long it may be cached, if its server says so.
    pub(crate) max_age: Option<Duration>,
}

/// The result of one request.
enum FetchStep {
    Redirect(HttpUrl),
    Done(Fetched),
}

impl Fetcher {
    pub(crate) fn new(url: HttpUrl, authorities: Option<&Path>) -> Result<Self, TlsError> {
        let caller = HttpCaller::new(authorities, |address| address.is_loopback())?;
        Ok(Self { url, caller })
    }

    /// Fetches the set.
    pub(crate) async fn fetch(&self) -> Result<Fetched, String> {
        match tokio::time::timeout(PATIENCE, self.follow()).await {
            Ok(fetched) => fetched,
            Err(_) => Err(format!(
                "no complete answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }

    async fn follow(&self) -> Result<Fetched, String> {
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTS {
            match self.ask(&url).await? {
                FetchStep::Done(fetched) => return Ok(fetched),
                FetchStep::Redirect(to) if to.is_same_server(&self.url) => url = to,
                FetchStep::Redirect(_) => {
                    return Err(
                        "it redirects to another server, which is not followed; name that one in `jwks_url`"
                            .to_owned(),
                    );
                }
            }
        }
        Err(format!("more than {REDIRECTS} redirects"))
    }

    async fn ask(&self, url: &HttpUrl) -> Result<FetchStep, String> {
        let request = Request::get(url.path.as_str())
            .header(ACCEPT, "application/json, application/jwk-set+json")
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answer = self.caller.call(url, request, LARGEST).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            let to = answer.headers().get(LOCATION);
            let to = to.and_then(|to| resolve(to.to_str().ok()?, url));
            return to
                .map(FetchStep::Redirect)
                .ok_or_else(|| "its redirect cannot be followed".to_owned());
        }
        if status != StatusCode::OK {
            return Err(format!("it answers with the status {}", status.as_u16()));
        }
        let max_age = max_age(answer.headers());
        let body = answer.into_body();
        Ok(FetchStep::Done(Fetched { body, max_age }))
    }
}

/// The target of a redirect. A path alone is on the same server.
fn resolve(to: &str, from: &HttpUrl) -> Option<HttpUrl> {
    let uri: Uri = to.parse().ok()?;
    if uri.scheme().is_some() {
        return parse_jwks_url(to).ok();
    }
    // `//host/path` would be another host.
    let is_path = to.starts_with('/') && !to.starts_with("//");
    is_path.then(|| HttpUrl {
        path: uri
            .path_and_query()
            .cloned()
            .unwrap_or_else(|| from.path.clone()),
        ..from.clone()
    })
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(','));
    directives.find_map(|directive| {
        let (name, seconds) = directive.trim().split_once('=')?;
        let is_age = name.trim().eq_ignore_ascii_case("max-age");
        let seconds = seconds.trim().trim_matches('"').parse().ok()?;
        is_age.then(|| Duration::from_secs(seconds))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_its_server_or_names_another() {
        let from = parse_jwks_url("https://a.example/keys").unwrap();
        #[rustfmt::skip]
        let table = [
            ("/other?x=1",                  Some(("https://a.example/other", true))),
            ("https://a.example/other",     Some(("https://a.example/other", true))),
            ("https://A.EXAMPLE:443/other", Some(("https://A.EXAMPLE:443/other", true))),
            ("https://b.example/keys",      Some(("https://b.example/keys", false))),
            ("https://a.example:444/keys",  Some(("https://a.example:444/keys", false))),
            ("http://127.0.0.1/keys",       Some(("http://127.0.0.1/keys", false))),
            ("http://a.example/keys",       None),
            ("//b.example/keys",            None),
            ("other",                       None),
        ];
        for (to, expected) in table {
            let found = resolve(to, &from);
            let found = found.map(|url| (url.to_string(), url.is_same_server(&from)));
            let found = found
                .as_ref()
                .map(|(url, is_same)| (url.as_str(), *is_same));
            assert_eq!(found, expected, "{to}");
        }
    }

    #[test]
    fn max_age_is_found_in_any_of_the_headers() {
        #[rustfmt::skip]
        let table: [(&[&str], Option<u64>); 6] = [
            (&[],                                        None),
            (&["no-cache"],                              None),
            (&["public, max-age=600"],                   Some(600)),
            (&["no-transform", "Max-Age = \"90\",must-revalidate"], Some(90)),
            (&["s-maxage=5, max-age=7"],                 Some(7)),
            (&["max-age=soon"],                          None),
        ];
        for (values, seconds) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CACHE_CONTROL, value.parse().unwrap());
            }
            assert_eq!(
                max_age(&headers),
                seconds.map(Duration::from_secs),
                "{values:?}"
            );
        }
    }
}
