//! Fetches a JSON Web Key Set: bounded in time and size, and only from the configured server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::JwksUrl;

/// The timeout, redirects included.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest set that is read, in bytes.
const LARGEST: usize = 1 << 20;
/// How many redirects are followed.
const REDIRECTS: usize = 3;

/// Builds a TLS configuration that trusts these authorities, in PEM form; by default the public ones.
pub type ClientTls = fn(Option<&[u8]>) -> Result<ClientConfig, rustls::Error>;

/// Fetches one set.
pub(crate) struct Fetcher {
    url: JwksUrl,
    tls: TlsConnector,
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
    Redirect(JwksUrl),
    Done(Fetched),
}

impl Fetcher {
    pub(crate) fn new(
        url: JwksUrl,
        authorities: Option<&[u8]>,
        client_tls: ClientTls,
    ) -> Result<Self, rustls::Error> {
        let mut config = client_tls(authorities)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { url, tls })
    }

    pub(crate) fn url(&self) -> &JwksUrl {
        &self.url
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

    async fn ask(&self, url: &JwksUrl) -> Result<FetchStep, String> {
        let stream = connect(url).await.map_err(|error| error.to_string())?;
        if !url.is_tls {
            return exchange(stream, url).await;
        }
        let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
        let stream = self.tls.connect(name, stream).await;
        exchange(stream.map_err(|error| error.to_string())?, url).await
    }
}

/// Opens a connection. Without TLS only to this machine, whatever the name resolves to.
async fn connect(url: &JwksUrl) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((url.host.as_str(), url.port)).await?;
    let mut last = None;
    for address in addresses.filter(|address| url.is_tls || address.ip().is_loopback()) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the host has no usable address")))
}

async fn exchange<T>(stream: T, url: &JwksUrl) -> Result<FetchStep, String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let asking = async {
        let request = Request::get(url.path.as_str())
            .header(HOST, url.authority.as_str())
            .header(ACCEPT, "application/json, application/jwk-set+json")
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await;
        read(answer.map_err(|error| error.to_string())?, url).await
    };
    // Driven by this task, so that a timeout drops it.
    tokio::pin!(asking);
    tokio::select! {
        step = &mut asking => step,
        ended = connection => match ended {
            // Received bytes are read to the end.
            Ok(()) => asking.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

async fn read(answer: Response<Incoming>, url: &JwksUrl) -> Result<FetchStep, String> {
    let status = answer.status();
    if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        let to = answer
            .headers()
            .get(LOCATION)
            .and_then(|to| to.to_str().ok());
        let to = to.and_then(|to| resolve(to, url));
        return to
            .map(FetchStep::Redirect)
            .ok_or_else(|| "its redirect cannot be followed".to_owned());
    }
    if status != StatusCode::OK {
        return Err(format!("it answers with the status {}", status.as_u16()));
    }
    let max_age = max_age(answer.headers());
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    match body {
        Ok(body) => Ok(FetchStep::Done(Fetched {
            body: body.to_bytes(),
            max_age,
        })),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(format!("its answer has more than {LARGEST} bytes"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The target of a redirect. A path alone is on the same server.
fn resolve(to: &str, from: &JwksUrl) -> Option<JwksUrl> {
    let uri: Uri = to.parse().ok()?;
    if uri.scheme().is_some() {
        return to.parse().ok();
    }
    // `//host/path` would be another host.
    let is_path = to.starts_with('/') && !to.starts_with("//");
    is_path.then(|| JwksUrl {
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
        let from: JwksUrl = "https://a.example/keys".parse().unwrap();
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
