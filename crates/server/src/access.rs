//! Access control: tokens with scopes. With no token configured, checks are open, and an operator on this
//! machine administers the server with the token that it generated.

mod cross_site;
mod refusals;
mod sessions;
mod sign_in;
mod this_machine;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Parts;
use subtle::{Choice, ConstantTimeEq as _};
use tidegate::rules::FrontEnd;
use tidegate::{Clock as _, SystemClock, Timestamp};
use tidegate_listen::Peer;

use crate::config::{Token, TokenScope};
use crate::problem::HttpProblem;
pub(crate) use refusals::AccessRefusal;
use refusals::TokenRefusals;
pub(crate) use sessions::CODE_LIFETIME;
use sessions::{ConsoleSessions, SessionEnd};

/// The advice where the generated token is not accepted.
const ADVICE: &str = "configure a token (TIDEGATE_TOKEN, or `tokens` in the configuration)";

/// The message for an unknown token.
pub(crate) const UNKNOWN_TOKEN: &str = "unknown token; check it for typos and spaces";

const EVERY_SCOPE: [TokenScope; 3] = [TokenScope::Read, TokenScope::Write, TokenScope::Check];

/// Access control of the API, gRPC and RESP.
pub(crate) struct Access {
    /// The configured tokens. Their number never changes; their secrets may.
    tokens: ArcSwap<Vec<Token>>,
    is_configured: bool,
    /// The token that the server generated, if none is configured.
    made: ArcSwapOption<Token>,
    pub(crate) refusals: TokenRefusals,
    /// Secrets that act as one of the tokens for a while.
    sessions: ConsoleSessions,
}

/// The secret that a caller presents, and where it comes from.
pub(crate) struct PresentedToken<'a> {
    pub(crate) front_end: FrontEnd,
    /// The caller's address, if known.
    pub(crate) peer: Option<IpAddr>,
    /// The secret; an empty one counts as presented.
    pub(crate) secret: Option<&'a [u8]>,
}

impl<'a> PresentedToken<'a> {
    /// The bearer token of a request.
    pub(crate) fn of(parts: &'a Parts, front_end: FrontEnd) -> Self {
        let given = parts.headers.get(AUTHORIZATION);
        Self {
            front_end,
            peer: parts.extensions.get::<Peer>().map(|peer| peer.address.ip()),
            secret: given.and_then(|value| bearer(value.as_bytes())),
        }
    }

    /// The token of a proxy, apart from its client's `Authorization`.
    pub(crate) fn of_proxy(peer: IpAddr, value: &'a HeaderValue) -> Self {
        Self {
            front_end: FrontEnd::Authorize,
            peer: Some(peer),
            secret: Some(value.as_bytes().trim_ascii()),
        }
    }
}

/// The token that a call of the API needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallScope {
    /// Every caller, with or without a token.
    Open,
    /// Every caller: whether the process runs, and whether it is ready.
    Probe,
    /// Tokens with `check`. With no token configured, every caller except the pages of other sites.
    Check,
    /// Tokens with `check`, for a call that moves limits for all clients: with no token configured, it needs the
    /// generated one.
    Feedback,
    /// Tokens with `read` or `write`.
    Read,
    /// Tokens with `write`.
    Write,
    /// Every token.
    AnyToken,
}

/// The caller of a call that needs a token for administration. Empty for other calls.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    /// The name of its token, for the history of the rules.
    pub(crate) name: String,
    pub(crate) scopes: Vec<TokenScope>,
    /// When its session of the console ends; `None` for a token, which does not.
    pub(crate) ends: Option<Timestamp>,
}

impl Caller {
    fn new(token: &Token, ends: Option<Timestamp>) -> Self {
        Self {
            name: token.name.clone(),
            scopes: token.scopes.clone(),
            ends,
        }
    }
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self {
            is_configured: !tokens.is_empty(),
            tokens: ArcSwap::from_pointee(tokens),
            made: ArcSwapOption::empty(),
            refusals: TokenRefusals::new(),
            sessions: ConsoleSessions::new(),
        }
    }

    /// Sets the token that the server generated.
    pub(crate) fn set_made(&self, secret: String) {
        self.made.store(Some(Arc::new(Token {
            name: crate::data_dir::made_token::FILE.to_owned(),
            secret,
            file: None,
            scopes: EVERY_SCOPE.to_vec(),
        })));
    }

    /// The name and file of each configured token that is read from a file.
    pub(crate) fn token_files(&self) -> Vec<(String, PathBuf)> {
        let tokens = self.tokens.load();
        let in_file = |token: &Token| Some((token.name.clone(), token.file.clone()?));
        tokens.iter().filter_map(in_file).collect()
    }

    /// Sets the secret of the configured token with this name. Returns whether it changed.
    pub(crate) fn set_secret(&self, name: &str, secret: &str) -> bool {
        let is_new = |token: &Token| token.name == name && token.secret != secret;
        if !self.tokens.load().iter().any(is_new) {
            return false;
        }
        self.tokens.rcu(|tokens| {
            let mut tokens = Vec::clone(tokens);
            for token in tokens.iter_mut().filter(|token| token.name == name) {
                secret.clone_into(&mut token.secret);
            }
            tokens
        });
        true
    }

    /// Allows a call of the API.
    pub(crate) fn may_call(&self, scope: CallScope, parts: &Parts) -> Result<Caller, HttpProblem> {
        match scope {
            CallScope::Open | CallScope::Probe => Ok(Caller::default()),
            CallScope::Check => {
                self.may_check(parts)?;
                Ok(Caller::default())
            }
            CallScope::Feedback => self.may_administer(parts, &[TokenScope::Check]),
            CallScope::Read => self.may_administer(parts, &[TokenScope::Read, TokenScope::Write]),
            CallScope::Write => self.may_administer(parts, &[TokenScope::Write]),
            CallScope::AnyToken => self.may_administer(parts, &EVERY_SCOPE),
        }
    }

    fn may_check(&self, parts: &Parts) -> Result<(), HttpProblem> {
        if !self.is_configured {
            return cross_site::refuse(parts);
        }
        let tokens = self.tokens.load();
        self.with_token(parts, &tokens, &[TokenScope::Check])
            .map(drop)
    }

    fn may_administer(&self, parts: &Parts, scopes: &[TokenScope]) -> Result<Caller, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            let (token, ends) = self.with_token(parts, tokens, scopes)?;
            Ok(Caller::new(token, ends))
        })
    }

    /// Does `act` with the tokens that administer the server, if the request comes from where they may be used.
    fn by_admin_tokens<T>(
        &self,
        parts: &Parts,
        act: impl FnOnce(&[Token]) -> Result<T, HttpProblem>,
    ) -> Result<T, HttpProblem> {
        if self.is_configured {
            return act(&self.tokens.load());
        }
        if let Some(why) = this_machine::refusal(parts) {
            let problem = format!("{why}; {ADVICE} to administer the server from elsewhere");
            return Err(HttpProblem::forbidden(problem));
        }
        match &*self.made.load() {
            Some(made) => act(std::slice::from_ref(&**made)),
            None => Err(HttpProblem::forbidden(format!(
                "this server has no token and could not generate one; {ADVICE}"
            ))),
        }
    }

    /// The caller's token, if it is known and has one of the scopes, and when its session ends.
    fn with_token<'t>(
        &self,
        parts: &Parts,
        tokens: &'t [Token],
        scopes: &[TokenScope],
    ) -> Result<(&'t Token, Option<Timestamp>), HttpProblem> {
        let token = self.opens(&PresentedToken::of(parts, FrontEnd::Http), tokens, scopes);
        token.map_err(|refused| match refused {
            AccessRefusal::Missing if !self.is_configured => HttpProblem::unauthorized(
                "this call needs the token in the file `admin-token` of the data directory; send it as `Authorization: Bearer TOKEN`",
            ),
            AccessRefusal::Missing => HttpProblem::unauthorized(
                "this server requires a token; send it as `Authorization: Bearer TOKEN`",
            ),
            AccessRefusal::Unknown => HttpProblem::unauthorized(self.unknown(parts)),
            AccessRefusal::OutOfScope(problem) => HttpProblem::forbidden(problem),
        })
    }

    /// The message for the unknown token of a request.
    fn unknown(&self, parts: &Parts) -> &'static str {
        let secret = PresentedToken::of(parts, FrontEnd::Http).secret;
        match secret.and_then(|secret| self.sessions.end_of(secret)) {
            Some(SessionEnd::Ended) => "the session of the console has ended; sign in again",
            Some(SessionEnd::OtherRun) => {
                "the server was restarted since this session was opened, or another server answers; sign in again"
            }
            None => UNKNOWN_TOKEN,
        }
    }

    /// Whether every caller needs a token.
    pub(crate) fn wants_tokens(&self) -> bool {
        self.is_configured
    }

    /// Allows checks with the presented secret.
    pub(crate) fn check_token(&self, asked: &PresentedToken<'_>) -> Result<(), AccessRefusal> {
        let tokens = self.tokens.load();
        self.opens(asked, &tokens, &[TokenScope::Check]).map(drop)
    }

    /// The token that a secret is or acts as, if it has one of the scopes, and when its session ends. Counts refusals.
    fn opens<'t>(
        &self,
        asked: &PresentedToken<'_>,
        tokens: &'t [Token],
        scopes: &[TokenScope],
    ) -> Result<(&'t Token, Option<Timestamp>), AccessRefusal> {
        let opened = match asked.secret {
            Some(secret) => find(secret, tokens)
                .map(|token| (token, None))
                .or_else(|| self.session_token(secret, asked.front_end, tokens))
                .ok_or(AccessRefusal::Unknown)
                .and_then(|(token, ends)| Ok((within(token, scopes)?, ends))),
            None => Err(AccessRefusal::Missing),
        };
        if let Err(refusal) = &opened {
            self.refusals.note(refusal, asked.front_end, asked.peer);
        }
        opened
    }

    /// The token that a session of the console acts as, and its end. Sessions are for the HTTP API alone.
    fn session_token<'t>(
        &self,
        secret: &[u8],
        front_end: FrontEnd,
        tokens: &'t [Token],
    ) -> Option<(&'t Token, Option<Timestamp>)> {
        if front_end != FrontEnd::Http {
            return None;
        }
        let session = self.sessions.find(secret, tokens, SystemClock.now());
        session.map(|session| (session.token, Some(session.ends)))
    }
}

/// The token with this secret.
fn find<'t>(secret: &[u8], tokens: &'t [Token]) -> Option<&'t Token> {
    // Every token is compared, so that the time taken does not reveal a common prefix.
    let mut found = None;
    for token in tokens {
        let is_same: Choice = token.secret.as_bytes().ct_eq(secret);
        if bool::from(is_same) {
            found = Some(token);
        }
    }
    found
}

/// The token, if it has one of the scopes.
fn within<'t>(token: &'t Token, scopes: &[TokenScope]) -> Result<&'t Token, AccessRefusal> {
    if token.scopes.iter().any(|scope| scopes.contains(scope)) {
        return Ok(token);
    }
    let wanted: Vec<String> = scopes
        .iter()
        .map(|scope| format!("`{}`", scope.name()))
        .collect();
    Err(AccessRefusal::OutOfScope(format!(
        "the token `{}` does not have the scope {}",
        token.name,
        wanted.join(" or ")
    )))
}

/// The secret of an `Authorization: Bearer` header, after spaces or tabs.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii_start();
    let blank = value.iter().position(u8::is_ascii_whitespace)?;
    let (scheme, secret) = value.split_at(blank);
    scheme
        .eq_ignore_ascii_case(b"bearer")
        .then(|| secret.trim_ascii())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The head of a PUT of rules from this address.
    pub(crate) fn parts(peer: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::put("/v1/rules");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let peer: std::net::SocketAddr = peer.parse().unwrap();
        parts.extensions.insert(Peer::from(peer));
        parts
    }

    const HERE: &str = "127.0.0.1:5000";
    const LOCAL: [(&str, &str); 2] = [("host", "localhost"), ("content-type", "application/json")];

    #[test]
    fn with_no_token_configured_the_made_one_administrates_from_this_machine() {
        let access = Access::new(Vec::new());
        let with = |secret: &str| format!("Bearer {secret}");
        let status = |authorization: Option<&str>, more: &[(&str, &str)]| {
            let mut headers = LOCAL.to_vec();
            headers.extend(authorization.map(|value| ("authorization", value)));
            headers.extend(more);
            let parts = parts(HERE, &headers);
            assert!(access.may_call(CallScope::Check, &parts).is_ok());
            [CallScope::Read, CallScope::Write, CallScope::Feedback].map(|scope| {
                let asked = access.may_call(scope, &parts);
                asked.map_or_else(|problem| problem.reply().status().as_u16(), |_| 200)
            })
        };
        assert_eq!(
            status(Some(&with("made")), &[]),
            [403, 403, 403],
            "none could be made"
        );
        access.set_made("made".to_owned());
        assert_eq!(status(Some(&with("made")), &[]), [200, 200, 200]);
        assert_eq!(status(Some(&with("mad")), &[]), [401, 401, 401]);
        assert_eq!(status(None, &[]), [401, 401, 401]);
        assert_eq!(
            status(Some(&with("made")), &[("via", "1.1 x")]),
            [403, 403, 403]
        );
        access.set_made("made anew".to_owned());
        assert_eq!(status(Some(&with("made")), &[]), [401, 401, 401]);
        assert!(!access.wants_tokens());
    }

    #[test]
    fn a_made_token_opens_nothing_once_one_is_configured() {
        let token = Token {
            name: "ops".to_owned(),
            secret: "configured".to_owned(),
            file: None,
            scopes: vec![TokenScope::Write],
        };
        let access = Access::new(vec![token]);
        access.set_made("made".to_owned());
        for (secret, may) in [("made", false), ("configured", true)] {
            let authorization = format!("Bearer {secret}");
            let parts = parts(HERE, &[LOCAL[0], ("authorization", &authorization)]);
            let asked = access.may_call(CallScope::Write, &parts);
            assert_eq!(asked.is_ok(), may, "{secret}");
        }
    }

    #[test]
    fn a_secret_is_found_whatever_white_space_is_around_it() {
        for header in ["Bearer s", "bearer  s ", "BEARER\ts", " Bearer \t s"] {
            assert_eq!(bearer(header.as_bytes()), Some(&b"s"[..]), "{header}");
        }
        assert_eq!(bearer(b"Bearer "), Some(&b""[..]));
        for header in ["", "Bearer", "Bearers", "Basic s", "s"] {
            assert_eq!(bearer(header.as_bytes()), None, "{header}");
        }
    }

    #[test]
    fn a_token_opens_what_its_scopes_say() {
        let token = |name: &str, scopes: &[TokenScope]| Token {
            name: name.to_owned(),
            secret: format!("secret-of-{name}"),
            file: None,
            scopes: scopes.to_vec(),
        };
        let access = Access::new(vec![
            token("reader", &[TokenScope::Read]),
            token("writer", &[TokenScope::Write]),
            token("checker", &[TokenScope::Check]),
        ]);
        let may = |secret: &str| {
            let authorization = format!("Bearer {secret}");
            let parts = parts(
                "127.0.0.1:5000",
                &[("host", "localhost"), ("authorization", &authorization)],
            );
            let may = |scope| access.may_call(scope, &parts).is_ok();
            (
                may(CallScope::Read),
                may(CallScope::Write),
                may(CallScope::Check) && may(CallScope::Feedback),
            )
        };
        assert_eq!(may("secret-of-reader"), (true, false, false));
        assert_eq!(may("secret-of-writer"), (true, true, false));
        assert_eq!(may("secret-of-checker"), (false, false, true));
        assert_eq!(may("unknown-secret"), (false, false, false));
        let none = parts("127.0.0.1:5000", &[("host", "localhost")]);
        for scope in [CallScope::Check, CallScope::Read, CallScope::Feedback] {
            assert!(access.may_call(scope, &none).is_err());
        }
    }
}
