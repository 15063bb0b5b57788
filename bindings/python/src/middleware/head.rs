//! The head of a request, from the environ of a WSGI server or the scope of an ASGI server.
//!
//! What the layer reads is read here, and nothing else. A path is taken as the client sent it, if the server says so and
//! the application is called with that path; else as the application gets it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, FORWARDED, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods, PyDict, PyString};
use tidegate::address;
use tidegate::rules::RuleSet;
use tidegate_tower::PeerAddress;

/// What is escaped of a path that the server has decoded.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b';')
    .remove(b':')
    .remove(b'@')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b'!')
    .remove(b',');
/// What is escaped of a path as it was sent that is not valid in a URI.
const INVALID: &AsciiSet = &ESCAPED.remove(b'%').remove(b'?').remove(b'&').remove(b'\\');

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The prefix of attributes that are request headers.
const HEADER: &str = "header.";

/// A request as the layer reads it, and other paths by which the application may know it.
pub(super) struct ReadHead {
    pub(super) parts: Parts,
    pub(super) other_paths: Vec<String>,
}

/// Why there is no head: a request that no server should have passed on, for which its client gets 400, or an error of
/// Python.
pub(super) enum HeadError {
    Malformed(String),
    Python(PyErr),
}

impl<E: Into<PyErr>> From<E> for HeadError {
    fn from(error: E) -> Self {
        Self::Python(error.into())
    }
}

/// What a server says of a path.
struct PathAsGiven<'p> {
    /// As it was sent: a path, or a whole URI.
    raw: Option<&'p [u8]>,
    /// Decoded, with the prefix at which the application is mounted.
    whole: Cow<'p, [u8]>,
    /// Decoded, without that prefix.
    routed: &'p [u8],
}

impl PathAsGiven<'_> {
    /// The URI by which the request is decided, and the other paths by which the application may know it.
    fn read(&self) -> Result<(Uri, Vec<String>), HeadError> {
        // Almost every path has one spelling.
        let is_usual = |raw: &[u8]| {
            let rest = raw.strip_prefix(self.routed);
            rest.is_some_and(|rest| matches!(rest, [] | [b'?', ..])) && !self.routed.contains(&b'%')
        };
        if self.raw.is_some_and(is_usual)
            && self.whole.len() == self.routed.len()
            && let Ok(uri) = Uri::try_from(self.routed)
            && uri.path().len() == self.routed.len()
        {
            return Ok((uri, Vec::new()));
        }
        let mut others = Vec::new();
        let sent = self.raw.and_then(uri_of).and_then(|uri| {
            let decoded: Vec<u8> = percent_decode(uri.path().as_bytes()).collect();
            let is_given = *decoded == *self.whole || *decoded == *self.routed;
            // What is not UTF-8 is refused, and servers do not agree on how to decode it.
            if is_given || std::str::from_utf8(&decoded).is_err() {
                return Some((decoded, uri));
            }
            others.push(uri.path().to_owned());
            None
        });
        let as_given = || {
            let uri = uri_of(escaped(&self.whole).as_bytes())?;
            Some((self.whole.to_vec(), uri))
        };
        let (decoded, uri) = sent.or_else(as_given).ok_or_else(|| {
            HeadError::Malformed("the path is not one, or is too long".to_owned())
        })?;
        for other in [&*self.whole, self.routed] {
            if *other != *decoded && !other.is_empty() {
                others.push(escaped(other));
            }
        }
        Ok((uri, others))
    }
}

fn escaped(path: &[u8]) -> String {
    percent_encode(path, ESCAPED).to_string()
}

/// A path or a whole URI as one. What a URI cannot have is escaped, which changes no meaning.
fn uri_of(sent: &[u8]) -> Option<Uri> {
    if let Ok(uri) = Uri::try_from(sent) {
        return Some(uri);
    }
    let path = sent.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut text = percent_encode(path, INVALID).to_string();
    if !text.starts_with('/') {
        text.insert(0, '/');
    }
    let path = PathAndQuery::try_from(text).ok()?;
    Some(Uri::from(path))
}

fn request(
    method: &[u8],
    path: &PathAsGiven<'_>,
    peer: Option<IpAddr>,
) -> Result<ReadHead, HeadError> {
    let (mut parts, ()) = Request::new(()).into_parts();
    let Ok(method) = Method::from_bytes(method) else {
        let problem = "the method has a character that is not allowed in one";
        return Err(HeadError::Malformed(problem.to_owned()));
    };
    let (uri, other_paths) = path.read()?;
    parts.method = method;
    parts.uri = uri;
    if let Some(peer) = peer {
        parts.extensions.insert(PeerAddress(peer));
    }
    Ok(ReadHead { parts, other_paths })
}

/// A value as the layer reads it. One that cannot be read must not be left out: a rule may count by it.
fn header_value(name: &HeaderName, value: &[u8]) -> Result<HeaderValue, HeadError> {
    HeaderValue::from_bytes(value).map_err(|_| {
        HeadError::Malformed(format!("the header `{name}` has a control character in it"))
    })
}

/// The head of a request in a WSGI environ. Headers that no rule reads are left out.
pub(super) fn of_environ<'py>(
    environ: &Bound<'py, PyDict>,
    rules: &RuleSet,
    is_forwarded: bool,
) -> Result<ReadHead, HeadError> {
    let py = environ.py();
    let text = |name: &Bound<'py, PyString>| Variable::read(environ, name);
    let method = text(intern!(py, "REQUEST_METHOD"))?;
    let mut raw = text(intern!(py, "RAW_URI"))?;
    if raw.is_none() {
        raw = text(intern!(py, "REQUEST_URI"))?;
    }
    let mounted = text(intern!(py, "SCRIPT_NAME"))?;
    let mounted = mounted.as_ref().map(Variable::bytes).unwrap_or_default();
    let routed = text(intern!(py, "PATH_INFO"))?;
    let routed = routed.as_ref().map(Variable::bytes).unwrap_or_default();
    let whole = if mounted.is_empty() {
        Cow::Borrowed(&*routed)
    } else {
        Cow::Owned([&*mounted, &*routed].concat())
    };
    let raw = raw.as_ref().map(Variable::bytes);
    let path = PathAsGiven {
        raw: raw.as_deref(),
        whole,
        routed: &routed,
    };
    let peer = text(intern!(py, "REMOTE_ADDR"))?;
    let peer = peer.as_ref().map(Variable::bytes);
    let peer = peer.and_then(|peer| address_of(&peer));
    let method = method.as_ref().map(Variable::bytes).unwrap_or_default();
    let mut head = request(&method, &path, peer)?;

    let headers = &mut head.parts.headers;
    let mut add = |name: HeaderName, variable: &Bound<'py, PyString>| -> Result<(), HeadError> {
        if let Some(value) = text(variable)? {
            let value = header_value(&name, &value.bytes())?;
            headers.insert(name, value);
        }
        Ok(())
    };
    add(HOST, intern!(py, "HTTP_HOST"))?;
    add(CONTENT_TYPE, intern!(py, "CONTENT_TYPE"))?;
    if is_forwarded {
        add(X_FORWARDED_FOR, intern!(py, "HTTP_X_FORWARDED_FOR"))?;
        add(FORWARDED, intern!(py, "HTTP_FORWARDED"))?;
    }
    for attribute in rules.header_attributes() {
        let name = attribute.strip_prefix(HEADER).unwrap_or(attribute);
        let Ok(header) = HeaderName::try_from(name) else {
            continue;
        };
        let mut variable = name.replace('-', "_").to_ascii_uppercase();
        if header != CONTENT_TYPE && header != CONTENT_LENGTH {
            variable.insert_str(0, "HTTP_");
        }
        add(header, &PyString::new(py, &variable))?;
    }
    Ok(head)
}

/// The head of a request in an ASGI scope, of HTTP or a WebSocket, with all its headers.
pub(super) fn of_scope(scope: &Bound<'_, PyDict>) -> Result<ReadHead, HeadError> {
    let py = scope.py();
    let text = |name: &Bound<'_, PyString>| -> PyResult<Option<Cow<'_, str>>> {
        let value = scope.get_item(name)?.filter(|value| !value.is_none());
        let value = value.map(|value| Ok::<_, PyErr>(value.cast_into::<PyString>()?));
        let value = value.transpose()?;
        Ok(value.map(|value| Cow::Owned(value.to_string_lossy().into_owned())))
    };
    let method = text(intern!(py, "method"))?;
    let whole = text(intern!(py, "path"))?.unwrap_or_default();
    let mounted = text(intern!(py, "root_path"))?.unwrap_or_default();
    let raw = scope.get_item(intern!(py, "raw_path"))?;
    let raw = raw.filter(|raw| !raw.is_none());
    let raw = raw.map(|raw| Ok::<_, PyErr>(raw.cast_into::<PyBytes>()?));
    let raw = raw.transpose()?;
    let rest = whole.strip_prefix(&*mounted).unwrap_or(&whole);
    let is_mounted = rest.is_empty() || rest.starts_with('/');
    let path = PathAsGiven {
        raw: raw.as_ref().map(PyBytesMethods::as_bytes),
        whole: Cow::Borrowed(whole.as_bytes()),
        routed: if is_mounted { rest } else { &whole }.as_bytes(),
    };
    let peer = peer_of_scope(scope)?;
    let method = method.as_deref().unwrap_or("GET");
    let mut head = request(method.as_bytes(), &path, peer)?;
    let Some(headers) = scope.get_item(intern!(py, "headers"))? else {
        return Ok(head);
    };
    for pair in headers.try_iter()? {
        // Some servers give tuples, others lists.
        let pair = pair?;
        let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
        let (name, value) = (name.cast::<PyBytes>()?, value.cast::<PyBytes>()?);
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            let problem = "a header has a name that is not one";
            return Err(HeadError::Malformed(problem.to_owned()));
        };
        let value = header_value(&name, value.as_bytes())?;
        if head.parts.headers.try_append(name, value).is_err() {
            let problem = "the request has too many headers";
            return Err(HeadError::Malformed(problem.to_owned()));
        }
    }
    Ok(head)
}

fn peer_of_scope(scope: &Bound<'_, PyDict>) -> PyResult<Option<IpAddr>> {
    let client = scope.get_item(intern!(scope.py(), "client"))?;
    let Some(client) = client.filter(|client| !client.is_none()) else {
        return Ok(None);
    };
    let host = client.get_item(0)?;
    let host = host.cast::<PyString>()?.to_string_lossy();
    Ok(address_of(host.as_bytes()))
}

/// The address of a peer; none of a connection by a socket in the file system.
fn address_of(peer: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(peer).ok()?;
    // A link-local address has the name of its interface.
    address::parse(text.split('%').next().unwrap_or_default())
}

/// A variable of WSGI: a text in which each character is a byte.
struct Variable<'py>(Bound<'py, PyString>);

impl<'py> Variable<'py> {
    fn read(environ: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Option<Self>> {
        let found = environ.get_item(name)?;
        let found = found.map(|found| Ok::<_, PyErr>(found.cast_into::<PyString>()?));
        Ok(found.transpose()?.map(Self))
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        if let Ok(text) = self.0.to_str()
            && text.is_ascii()
        {
            return Cow::Borrowed(text.as_bytes());
        }
        let text = self.0.to_string_lossy();
        let bytes = text
            .chars()
            .map(|found| u8::try_from(found).unwrap_or(b'?'));
        Cow::Owned(bytes.collect())
    }
}
