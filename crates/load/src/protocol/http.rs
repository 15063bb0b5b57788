//! Requests over HTTP/1.1, one at a time on each connection.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::{Lane, LoadAnswer};
use crate::connect::Endpoint;
use crate::error::LoadRunError;
use crate::template::KeyTemplate;

/// A request that is sent again and again, with another key in it.
#[derive(Clone)]
pub struct HttpTarget {
    inner: Arc<HttpRequest>,
}

struct HttpRequest {
    endpoint: Endpoint,
    method: Method,
    /// Path and query.
    path: KeyTemplate,
    shown: String,
    headers: Vec<(HeaderName, KeyTemplate, bool)>,
    body: KeyTemplate,
}

impl HttpTarget {
    /// Requests of this method for a URL, which may have `{key}` in its path and query.
    pub fn new(endpoint: Endpoint, method: Method, path: &str) -> Result<Self, LoadRunError> {
        let sample = KeyTemplate::new(path).fill(0);
        if !path.starts_with('/') || sample.parse::<Uri>().is_err() {
            return Err(LoadRunError::Invalid(format!(
                "`{path}` is not the path of a URL; write it percent-encoded and with a slash first"
            )));
        }
        let without_query = path.split('?').next().unwrap_or_default();
        let shown = format!(
            "{method} {}://{}{without_query}",
            endpoint.scheme(),
            endpoint.authority()
        );
        let host = KeyTemplate::new(&endpoint.authority());
        Ok(Self {
            inner: Arc::new(HttpRequest {
                endpoint: endpoint.with_protocol(b"http/1.1"),
                method,
                path: KeyTemplate::new(path),
                shown,
                headers: vec![(header::HOST, host, false)],
                body: KeyTemplate::new(""),
            }),
        })
    }

    /// The same requests with another header, in whose value `{key}` is replaced. Given again, it replaces the
    /// earlier one.
    pub fn header(self, name: &str, value: &str) -> Result<Self, LoadRunError> {
        let invalid = || LoadRunError::Invalid(format!("the header `{name}` cannot be sent"));
        let name = HeaderName::try_from(name).map_err(|_| invalid())?;
        let template = KeyTemplate::new(value);
        HeaderValue::try_from(template.fill(0)).map_err(|_| invalid())?;
        let is_secret = name == header::AUTHORIZATION || name == header::COOKIE;
        Ok(self.with(|request| {
            request.headers.retain(|(earlier, _, _)| *earlier != name);
            request.headers.push((name, template, is_secret));
        }))
    }

    /// The same requests with a body, in which `{key}` is replaced.
    #[must_use]
    pub fn body(self, body: &str) -> Self {
        let body = KeyTemplate::new(body);
        self.with(|request| request.body = body)
    }

    fn with(self, change: impl FnOnce(&mut HttpRequest)) -> Self {
        let mut request = Arc::unwrap_or_clone(self.inner);
        change(&mut request);
        Self {
            inner: Arc::new(request),
        }
    }

    pub(crate) fn lane(&self) -> impl Lane + use<> {
        HttpLane {
            request: Arc::clone(&self.inner),
            sender: None,
        }
    }
}

impl Clone for HttpRequest {
    fn clone(&self) -> Self {
        Self {
            endpoint: self.endpoint.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            shown: self.shown.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
        }
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.shown)
    }
}

impl HttpRequest {
    fn build(&self, key: u64) -> Result<Request<Full<Bytes>>, LoadRunError> {
        let mut request = Request::new(Full::from(self.body.fill(key)));
        let invalid = || LoadRunError::Invalid("a key makes an invalid request".to_owned());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.fill(key).parse().map_err(|_| invalid())?;
        for (name, value, is_secret) in &self.headers {
            let mut value = HeaderValue::try_from(value.fill(key)).map_err(|_| invalid())?;
            value.set_sensitive(*is_secret);
            request.headers_mut().insert(name.clone(), value);
        }
        Ok(request)
    }
}

struct HttpLane {
    request: Arc<HttpRequest>,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl HttpLane {
    async fn sender(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, LoadRunError> {
        let ready = match self.sender.take() {
            // A server may close an idle connection.
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let sender = if let Some(sender) = ready {
            sender
        } else {
            let stream = TokioIo::new(self.request.endpoint.connect().await?);
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(connection);
            sender
        };
        Ok(self.sender.insert(sender))
    }
}

impl Lane for HttpLane {
    async fn exchange(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(LoadAnswer) + Send,
    ) -> Result<(), LoadRunError> {
        for key in keys {
            let request = self.request.build(*key)?;
            let response = self.sender().await?.send_request(request).await?;
            let status = response.status();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            answered(match status {
                StatusCode::TOO_MANY_REQUESTS => LoadAnswer::Denied,
                status if status.is_success() || status.is_redirection() => LoadAnswer::Allowed,
                status => LoadAnswer::Other(format!("HTTP {}", status.as_u16())),
            });
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.sender = None;
    }
}
