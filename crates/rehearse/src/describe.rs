//! From what a line says to the attributes of a request: as a front end reads them, then identities, `--map` and `-a`.

mod identity;
mod map;
mod refused;
mod secret_sources;

pub use map::{FieldMap, FieldMapError};
pub(crate) use refused::reason_of;
pub(crate) use secret_sources::{is_public_stand_in, secret_sources};

use std::borrow::Cow;
use std::sync::Arc;

use tidegate::path::EncodedSlashes;
use tidegate::{AttributeError, AttributeValue, Attributes, address};
use tidegate_identity::Identity;

use crate::read::{LineRequest, is_absent};
use crate::run::NamedValues;
use identity::headers_of;

/// The attribute of a client that the log has by its name instead of its address.
const CLIENT_HOST: &str = "client_host";

/// Whether an attribute is of use to the rules.
pub(crate) type WantedAttributes = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// What lines are described by.
#[derive(Clone)]
pub(crate) struct Describer {
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) map: FieldMap,
    /// The attributes that every request has.
    pub(crate) constants: Arc<[(String, String)]>,
    pub(crate) wants: WantedAttributes,
    /// Whether any header is of use.
    pub(crate) reads_headers: bool,
    /// The values that the rules name.
    pub(crate) named: Arc<NamedValues>,
}

/// The parts of a request's target.
struct TargetParts<'t> {
    host: Option<&'t [u8]>,
    path: Option<&'t [u8]>,
    query: Option<&'t str>,
}

impl Describer {
    /// Describes the request of a line, and reads the attributes of each of its parts. An error is a request that the
    /// server would refuse; what was read of it before does not count.
    pub(crate) fn describe(
        &self,
        line: &LineRequest<'_>,
        mut read: impl FnMut(&Attributes<'_>),
    ) -> Result<(), AttributeError> {
        for part in &line.parts {
            let mut attributes = Attributes::new();
            for (name, value) in &part.attributes {
                take_recorded(name.clone(), value, &mut attributes);
            }
            self.complete(line, &mut attributes)?;
            if let Some(costs) = &part.costs {
                attributes.set_cost(costs.clone());
            }
            read(&attributes);
        }
        if !line.parts.is_empty() {
            return Ok(());
        }
        let headers = self.identity.as_ref().map(|_| headers_of(line));
        let target = line
            .target
            .as_deref()
            .map(|target| parts_of(target, line.method.as_deref()));
        let mut attributes = Attributes::new();
        self.take_address(line, headers.as_ref(), &mut attributes)?;
        if let Some(method) = line.method.as_deref() {
            attributes.insert("method", method)?;
        }
        if let Some(path) = target.as_ref().and_then(|target| target.path) {
            take_path(path, &mut attributes)?;
        }
        let host = line.host.as_deref().or_else(|| target.as_ref()?.host);
        if let Some(host) = host {
            attributes.insert("host", host)?;
        }
        if self.reads_headers {
            self.take_headers(line, &mut attributes)?;
        }
        for (name, value) in &line.attributes {
            if line.is_recorded {
                take_recorded(name.clone(), value, &mut attributes);
            } else if is_name(name) && (self.wants)(name) {
                attributes.set(name.clone(), AttributeValue::from(&**value))?;
            }
        }
        if let (Some(identity), Some(headers)) = (&self.identity, &headers) {
            let query = target.as_ref().and_then(|target| target.query);
            identity.describe(headers, query, &mut attributes)?;
        }
        self.complete(line, &mut attributes)?;
        if let Some(costs) = &line.costs {
            attributes.set_cost(costs.clone());
        }
        read(&attributes);
        Ok(())
    }

    /// Adds what `--map` and `-a` say.
    fn complete<'r>(
        &'r self,
        line: &'r LineRequest<'_>,
        attributes: &mut Attributes<'r>,
    ) -> Result<(), AttributeError> {
        self.map.apply(line, attributes)?;
        for (name, value) in &*self.constants {
            attributes.set(name.as_str(), value.as_str())?;
        }
        Ok(())
    }

    fn take_address<'r>(
        &self,
        line: &'r LineRequest<'_>,
        headers: Option<&http::HeaderMap>,
        attributes: &mut Attributes<'r>,
    ) -> Result<(), AttributeError> {
        let Some(text) = line.address.as_deref() else {
            return Ok(());
        };
        let peer = std::str::from_utf8(text).ok().and_then(address::parse);
        match (peer, &self.identity, headers) {
            (Some(peer), Some(identity), Some(headers)) => {
                attributes.insert_address(identity.client_address(peer, headers)?)
            }
            (Some(_), ..) => attributes.insert("ip", text),
            (None, ..) => attributes.insert(CLIENT_HOST, text),
        }
    }

    fn take_headers<'r>(
        &self,
        line: &'r LineRequest<'_>,
        attributes: &mut Attributes<'r>,
    ) -> Result<(), AttributeError> {
        for (index, (name, value)) in line.headers.iter().enumerate() {
            let attribute = format!("header.{}", name.to_ascii_lowercase());
            let is_same = |other: &Cow<'_, str>| other.eq_ignore_ascii_case(name);
            let is_repeated = line.headers[..index]
                .iter()
                .any(|(other, _)| is_same(other));
            if is_repeated || !is_name(&attribute) || !(self.wants)(&attribute) {
                continue;
            }
            let separator: &[u8] = if name.eq_ignore_ascii_case("cookie") {
                b"; "
            } else {
                b", "
            };
            let mut later = line.headers[index + 1..]
                .iter()
                .filter(|(other, _)| is_same(other))
                .peekable();
            if later.peek().is_none() {
                attributes.set(attribute, &**value)?;
                continue;
            }
            let mut joined = value.to_vec();
            for (_, value) in later {
                joined.extend_from_slice(separator);
                joined.extend_from_slice(value);
            }
            attributes.set(attribute, joined)?;
        }
        Ok(())
    }
}

fn take_path<'r>(path: &'r [u8], attributes: &mut Attributes<'r>) -> Result<(), AttributeError> {
    match std::str::from_utf8(path) {
        Ok(path) => attributes.insert_path(path, EncodedSlashes::Decode),
        Err(_) => attributes.insert("path", path),
    }
}

/// Adds an attribute as a server has recorded it, which is its normal form already, or a digest.
fn take_recorded<'r>(name: Cow<'r, str>, value: &'r [u8], attributes: &mut Attributes<'r>) {
    // The form of an address is kept besides the text.
    if name != "ip" || attributes.insert(name.clone(), value).is_err() {
        attributes.push(name, String::from_utf8_lossy(value));
    }
}

/// Whether a name can be that of an attribute.
fn is_name(name: &str) -> bool {
    (1..=tidegate::MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The host, the path and the query of a target, which may be a whole URL. That of CONNECT is a host.
fn parts_of<'t>(target: &'t [u8], method: Option<&[u8]>) -> TargetParts<'t> {
    if method.is_some_and(|method| method.eq_ignore_ascii_case(b"connect")) {
        return TargetParts {
            host: Some(target),
            path: None,
            query: None,
        };
    }
    let after_scheme = || {
        let at = memchr::memmem::find(target, b"://")?;
        let is_scheme = at > 0 && target[..at].iter().all(u8::is_ascii_alphanumeric);
        is_scheme.then(|| &target[at + 3..])
    };
    let (host, rest) = match target.first() {
        Some(b'/') | None => (None, target),
        Some(_) => match after_scheme() {
            Some(rest) => {
                let end = rest
                    .iter()
                    .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
                let (host, rest) = rest.split_at(end.unwrap_or(rest.len()));
                let host = &host[memchr::memchr(b'@', host).map_or(0, |at| at + 1)..];
                (Some(host), if rest.is_empty() { &b"/"[..] } else { rest })
            }
            None => (None, target),
        },
    };
    let query = memchr::memchr(b'?', rest).map(|at| &rest[at + 1..]);
    let query = query.map(|query| &query[..memchr::memchr(b'#', query).unwrap_or(query.len())]);
    TargetParts {
        host: host.filter(|host| !is_absent(host)),
        path: Some(rest),
        query: query.and_then(|query| std::str::from_utf8(query).ok()),
    }
}
