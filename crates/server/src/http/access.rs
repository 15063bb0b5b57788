//! Who may do what: tokens with scopes, and without any token only this machine.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::request::Parts;
use subtle::{Choice, ConstantTimeEq as _};
use tidegate::address;

use super::problem::Problem;
use crate::config::{Scope, Token};
use crate::listen::Peer;

/// Who may do what.
pub(crate) struct Access {
    tokens: Vec<Token>,
}

/// Why a token does not open what it was shown for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nobody knows it.
    Unknown,
    /// It opens other things, as this says.
    OutOfScope(String),
}

/// Who asks, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: String,
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self { tokens }
    }

    /// Whether a check or a lease may be asked for. Without any token, everybody may.
    pub(crate) fn may_check(&self, parts: &Parts) -> Result<(), Problem> {
        if self.tokens.is_empty() {
            return Ok(());
        }
        self.with_token(parts, &[Scope::Check]).map(drop)
    }

    /// Whether rules and their history may be read.
    pub(crate) fn may_read(&self, parts: &Parts) -> Result<Caller, Problem> {
        self.may_administrate(parts, &[Scope::Read, Scope::Write])
    }

    /// Whether rules may be changed and counters reset.
    pub(crate) fn may_write(&self, parts: &Parts) -> Result<Caller, Problem> {
        self.may_administrate(parts, &[Scope::Write])
    }

    fn may_administrate(&self, parts: &Parts, scopes: &[Scope]) -> Result<Caller, Problem> {
        if self.tokens.is_empty() {
            return from_this_machine(parts);
        }
        self.with_token(parts, scopes)
    }

    /// The caller, if its token has one of the scopes.
    fn with_token(&self, parts: &Parts, scopes: &[Scope]) -> Result<Caller, Problem> {
        let given = parts
            .headers
            .get(AUTHORIZATION)
            .map(http::HeaderValue::as_bytes);
        let Some(secret) = given.and_then(bearer) else {
            return Err(Problem::unauthorized(
                "this server wants a token; send it as `Authorization: Bearer TOKEN`",
            ));
        };
        let token = self
            .opens(secret, scopes)
            .map_err(|refused| match refused {
                Refused::Unknown => Problem::unauthorized(
                    "nobody knows this token; check it for typing errors and spaces",
                ),
                Refused::OutOfScope(problem) => Problem::forbidden(problem),
            })?;
        Ok(Caller {
            name: token.name.clone(),
        })
    }

    /// Whether nobody may ask without a token.
    pub(crate) fn wants_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether who has this secret may check.
    pub(crate) fn may_check_with(&self, secret: &[u8]) -> Result<(), Refused> {
        self.opens(secret, &[Scope::Check]).map(drop)
    }

    /// The token with this secret, if it has one of the scopes.
    fn opens(&self, secret: &[u8], scopes: &[Scope]) -> Result<&Token, Refused> {
        // Every token is compared, so that the time does not tell which ones begin alike.
        let mut found = None;
        for token in &self.tokens {
            let is_same: Choice = token.secret.as_bytes().ct_eq(secret);
            if bool::from(is_same) {
                found = Some(token);
            }
        }
        let token = found.ok_or(Refused::Unknown)?;
        if token.scopes.iter().any(|scope| scopes.contains(scope)) {
            return Ok(token);
        }
        let wanted: Vec<String> = scopes
            .iter()
            .map(|scope| format!("`{}`", scope.name()))
            .collect();
        Err(Refused::OutOfScope(format!(
            "the token `{}` does not have the scope {}",
            token.name,
            wanted.join(" or ")
        )))
    }
}

/// The secret that a header says.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| secret.trim_ascii())
}

/// Without tokens, an operator is somebody on this machine: not a proxy that passes on what others
/// send, and not a page that a browser on this machine has open.
fn from_this_machine(parts: &Parts) -> Result<Caller, Problem> {
    const ADVICE: &str = "set a token (TIDEGATE_TOKEN, or `tokens` in the configuration) to administrate from elsewhere";
    let refused = |why: &str| Err(Problem::forbidden(format!("{why}; {ADVICE}")));
    let peer = parts.extensions.get::<Peer>();
    if !peer.is_some_and(|Peer(peer)| address::canonical(peer.ip()).is_loopback()) {
        return refused("without a token, only this machine may administrate");
    }
    let is_forwarded = |name: &http::HeaderName| {
        name == http::header::FORWARDED || name.as_str().starts_with("x-forwarded-")
    };
    if parts.headers.keys().any(is_forwarded) {
        return refused("this came through a proxy, so it is not known to be from this machine");
    }
    let hosts = parts
        .headers
        .get_all(HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or_default());
    let named: Vec<&str> = hosts
        .chain(parts.uri.authority().map(http::uri::Authority::as_str))
        .collect();
    if named.is_empty() || !named.iter().all(|host| is_loopback_name(host)) {
        return refused("`Host` is not a name of this machine such as `localhost`");
    }
    let sends = matches!(
        parts.method,
        http::Method::POST | http::Method::PUT | http::Method::PATCH
    ) || parts.headers.contains_key(CONTENT_TYPE);
    if sends && !is_json(parts) {
        return refused("the body must be sent as `Content-Type: application/json`");
    }
    Ok(Caller {
        name: "localhost".to_owned(),
    })
}

fn is_json(parts: &Parts) -> bool {
    let value = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|ip| address::canonical(ip).is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(peer: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::put("/v1/rules");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(Peer(peer.parse().unwrap()));
        parts
    }

    #[test]
    fn without_tokens_only_this_machine_administrates() {
        const HERE: &str = "127.0.0.1:5000";
        const JSON: (&str, &str) = ("content-type", "application/json");
        let access = Access::new(Vec::new());
        #[rustfmt::skip]
        let table = [
            ("a local call",            HERE,                       vec![("host", "localhost:8080"), JSON],                             true),
            ("by address",              HERE,                       vec![("host", "127.0.0.1:8080"), JSON],                             true),
            ("over IPv6",               "[::1]:5000",               vec![("host", "[::1]:8080"), JSON],                                 true),
            ("a mapped address",        "[::ffff:127.0.0.1]:5000",  vec![("host", "[::1]"), JSON],                                      true),
            ("with a charset",          HERE,                       vec![("host", "localhost"), ("content-type", "application/json; charset=utf-8")], true),
            ("from elsewhere",          "203.0.113.7:5000",         vec![("host", "localhost"), JSON],                                  false),
            ("through a proxy",         HERE,                       vec![("host", "localhost"), JSON, ("x-forwarded-for", "1.2.3.4")],  false),
            ("through another proxy",   HERE,                       vec![("host", "localhost"), JSON, ("forwarded", "for=1.2.3.4")],    false),
            ("with a foreign name",     HERE,                       vec![("host", "evil.example"), JSON],                               false),
            ("with a name like ours",   HERE,                       vec![("host", "localhost.evil.example"), JSON],                     false),
            ("without a host",          HERE,                       vec![JSON],                                                         false),
            ("a form of a page",        HERE,                       vec![("host", "localhost"), ("content-type", "text/plain")],        false),
            ("a body without a type",   HERE,                       vec![("host", "localhost"), ("content-length", "2")],               false),
        ];
        for (name, peer, headers, may) in table {
            assert_eq!(
                access.may_write(&parts(peer, &headers)).is_ok(),
                may,
                "{name}"
            );
        }
        let anyone = parts("203.0.113.7:5000", &[]);
        assert!(access.may_check(&anyone).is_ok());
    }

    #[test]
    fn a_token_opens_what_its_scopes_say() {
        let token = |name: &str, scopes: &[Scope]| Token {
            name: name.to_owned(),
            secret: format!("secret-of-{name}"),
            scopes: scopes.to_vec(),
        };
        let access = Access::new(vec![
            token("reader", &[Scope::Read]),
            token("writer", &[Scope::Write]),
            token("checker", &[Scope::Check]),
        ]);
        let may = |secret: &str| {
            let authorization = format!("Bearer {secret}");
            let parts = parts(
                "127.0.0.1:5000",
                &[("host", "localhost"), ("authorization", &authorization)],
            );
            (
                access.may_read(&parts).is_ok(),
                access.may_write(&parts).is_ok(),
                access.may_check(&parts).is_ok(),
            )
        };
        assert_eq!(may("secret-of-reader"), (true, false, false));
        assert_eq!(may("secret-of-writer"), (true, true, false));
        assert_eq!(may("secret-of-checker"), (false, false, true));
        assert_eq!(may("secret-of-nobody"), (false, false, false));
        let none = parts("127.0.0.1:5000", &[("host", "localhost")]);
        assert!(access.may_check(&none).is_err() && access.may_read(&none).is_err());
    }
}
