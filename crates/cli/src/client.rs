//! The HTTP client of the commands: sends a call, and returns a reply or an error that helps.
//!
//! Each command decides which statuses it accepts; [`Reply::accept`] turns all others into errors.

mod identity;
mod refused;
mod settings;

pub(crate) use identity::identity;
pub(crate) use refused::Refused;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use identity::client_certificate;
use serde_json::Value;
use settings::{base_url, bearer, is_loopback, local_server, roots_in, why_no_token};
use ureq::http::{HeaderValue, Method, Request, Response, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use crate::arguments::ServerArgs;
use crate::output::plain;

/// How long a call may take, from the DNS lookup to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is read, in bytes.
const MAX_BODY: u64 = 64 << 20;

/// A client of one server.
pub(crate) struct ApiClient {
    agent: Agent,
    /// The address as given, for messages.
    pub(crate) server: String,
    /// Where calls are sent.
    pub(crate) base: String,
    /// Where services send checks: not the admin listener of a server on this machine.
    pub(crate) checks: String,
    token: Option<HeaderValue>,
    /// Why there is no token, if there is none.
    no_token: String,
}

/// The reply of a server, as JSON.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    /// Null if there was no body.
    pub(crate) body: Value,
    /// The call, for messages.
    call: Call,
}

/// A call to a server.
#[derive(Debug, Clone)]
struct Call {
    method: Method,
    path: String,
    server: String,
    /// Why it was sent without a token, if it was.
    no_token: Option<String>,
}

impl ApiClient {
    pub(crate) fn new(args: &ServerArgs) -> anyhow::Result<Self> {
        let server = base_url(&args.server)?;
        let given = args.token.clone().filter(|token| !token.trim().is_empty());
        let local = local_server(&server, Path::new(&args.data_dir));
        let made = local.as_ref().and_then(|local| local.token.clone());
        let is_made = given.is_none() && made.is_some();
        let (base, checks) = match local {
            Some(local) if is_made || local.has_admin => (local.api, local.checks),
            _ => (server.clone(), server.clone()),
        };
        let token = given.or(made).as_deref().map(bearer).transpose()?;
        let no_token = why_no_token(&server, Path::new(&args.data_dir));
        let roots = args.ca_file.as_deref().map(roots_in).transpose()?;
        let identity = identity(args)?;
        let identity = identity.as_ref().map(client_certificate).transpose()?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(roots.unwrap_or(RootCerts::WebPki))
            .client_cert(identity)
            .build();
        // A proxy cannot reach this machine's own addresses for us.
        let proxy = if is_loopback(&server) {
            None
        } else {
            Proxy::try_from_env()
        };
        let config = Agent::config_builder()
            .tls_config(tls)
            .proxy(proxy)
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // A redirect must not carry the token to another server, and would turn a POST into a GET.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            agent: config.new_agent(),
            server,
            base,
            checks,
            token,
            no_token,
        })
    }

    /// The value of the `Authorization` header.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_ref().and_then(|token| token.to_str().ok())
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Reply> {
        self.ask(Method::GET, path, None, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Reply> {
        self.ask(Method::POST, path, Some(body), None)
    }

    /// Replaces the resource at `path`, if it still has this tag.
    pub(crate) fn put(
        &self,
        path: &str,
        body: &Value,
        if_match: Option<&str>,
    ) -> anyhow::Result<Reply> {
        self.ask(Method::PUT, path, Some(body), if_match)
    }

    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<Reply> {
        self.ask(Method::DELETE, path, None, None)
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> anyhow::Result<Reply> {
        let call = Call {
            method: method.clone(),
            path: path.to_owned(),
            server: self.server.clone(),
            no_token: self.token.is_none().then(|| self.no_token.clone()),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, application/problem+json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token.clone());
        }
        if let Some(tag) = if_match {
            request = request.header(header::IF_MATCH, tag);
        }
        let answer = match body {
            Some(body) => self.agent.run(request.body(body.to_string())?),
            None => self.agent.run(request.body(())?),
        };
        let answer = answer.map_err(|error| unreachable(&self.server, error))?;
        read(answer, call)
    }
}

impl Reply {
    /// The reply if its status is one of these; otherwise the server's error.
    pub(crate) fn accept(self, statuses: &[u16]) -> anyhow::Result<Self> {
        if statuses.contains(&self.status) {
            return Ok(self);
        }
        Err(Refused::new(&self.call, self.status, &self.body).into())
    }

    /// The reply about a client that was named; otherwise the server's error, with a tip if an attribute was meant.
    pub(crate) fn accept_client(self, client: Option<&str>) -> anyhow::Result<Self> {
        let attribute = client.filter(|client| self.status == 422 && client.contains('='));
        let accepted = self.accept(&[200]);
        match attribute {
            Some(attribute) => accepted.map_err(|error| {
                anyhow!("{error}; an attribute is written `-a {}`", plain(attribute))
            }),
            None => accepted,
        }
    }

    /// The part of the body under `key`.
    pub(crate) fn part(&self, key: &str) -> anyhow::Result<&Value> {
        let part = self.body.get(key);
        part.with_context(|| self.unlike(&format!("its JSON has no `{key}`")))
    }

    /// The list under `key`.
    pub(crate) fn list(&self, key: &str) -> anyhow::Result<&[Value]> {
        let list = self.part(key)?.as_array().map(Vec::as_slice);
        list.with_context(|| self.unlike(&format!("its `{key}` is not a list")))
    }

    fn unlike(&self, why: &str) -> String {
        self.call.unlike(self.status, why)
    }
}

impl Call {
    /// The error for a reply that is probably not from Tidegate.
    fn unlike(&self, status: u16, why: &str) -> String {
        let Self {
            method,
            path,
            server,
            ..
        } = self;
        format!(
            "{server} does not look like a Tidegate server: it answered {method} {path} with {status}, and {why}; check --server URL"
        )
    }
}

fn read(mut answer: Response<Body>, call: Call) -> anyhow::Result<Reply> {
    let status = answer.status();
    let header = |name| {
        let value = answer.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let etag = header(header::ETAG);
    if status.is_redirection() {
        let target = header(header::LOCATION).unwrap_or_else(|| "another place".to_owned());
        bail!(
            "{} redirects to {}; give the server's own address (--server URL)",
            call.server,
            crate::output::plain(&target)
        );
    }
    let text = answer
        .body_mut()
        .with_config()
        .limit(MAX_BODY)
        .lossy_utf8(true)
        .read_to_string()
        .map_err(|error| unreachable(&call.server, error))?;
    let body = match serde_json::from_str(&text) {
        Ok(body) => body,
        Err(_) if text.is_empty() && status.as_u16() == 204 => Value::Null,
        Err(_) => bail!(call.unlike(status.as_u16(), "that is not JSON")),
    };
    Ok(Reply {
        status: status.as_u16(),
        etag,
        body,
        call,
    })
}

/// The error of a failed call.
fn unreachable(server: &str, error: ureq::Error) -> anyhow::Error {
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => anyhow!(
            "no server answers at {server}; is `tidegate serve` running there? (--server URL)"
        ),
        ureq::Error::HostNotFound => {
            anyhow!("the host of {server} is unknown; check --server URL")
        }
        ureq::Error::Timeout(_) => {
            anyhow!("no answer from {server} within {} s", TIMEOUT.as_secs())
        }
        ureq::Error::Protocol(error) if server.starts_with("http://") => anyhow!(
            "{server} does not answer as HTTP ({error}); if it uses TLS, write https:// (--server URL)"
        ),
        error if is_not_tls(&error) => {
            anyhow!("{server} does not use TLS; write http:// (--server URL)")
        }
        error if is_certificate(&error) => anyhow::Error::new(error).context(format!(
            "the certificate of {server} is not trusted; give that of its authority with --ca-file PEM"
        )),
        error => anyhow::Error::new(error).context(format!("cannot ask {server}")),
    }
}

fn is_certificate(error: &ureq::Error) -> bool {
    matches!(tls(error), Some(rustls::Error::InvalidCertificate(_)))
}

/// Whether the answer to a TLS handshake was something else, such as HTTP.
fn is_not_tls(error: &ureq::Error) -> bool {
    let wrong = rustls::InvalidMessage::InvalidContentType;
    matches!(tls(error), Some(rustls::Error::InvalidMessage(message)) if *message == wrong)
}

fn tls(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
