//! Signing in to the console: a caller with a token gets a code, a page exchanges it for a session, and either
//! can ask what its token may do.

use http::request::Parts;
use tidegate::rules::FrontEnd;
use tidegate::{Clock as _, SystemClock, Timestamp};

use super::{Access, AccessRefusal, PresentedToken, find};
use crate::config::{Token, TokenScope};
use crate::problem::HttpProblem;

const EVERY_SCOPE: [TokenScope; 3] = [TokenScope::Read, TokenScope::Write, TokenScope::Check];

/// What a caller's token allows.
#[derive(Debug)]
pub(crate) struct SignedIn {
    /// The name of the token.
    pub(crate) name: String,
    pub(crate) scopes: Vec<TokenScope>,
    /// When the session ends; `None` for a token, which does not.
    pub(crate) ends: Option<Timestamp>,
}

/// A session that was just opened.
pub(crate) struct NewSession {
    pub(crate) secret: String,
    pub(crate) signed_in: SignedIn,
}

impl SignedIn {
    fn new(token: &Token, ends: Option<Timestamp>) -> Self {
        Self {
            name: token.name.clone(),
            scopes: token.scopes.clone(),
            ends,
        }
    }
}

impl Access {
    /// What the caller's token allows, whatever its scopes are.
    pub(crate) fn signed_in(&self, parts: &Parts) -> Result<SignedIn, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            let token = self.with_token(parts, tokens, &EVERY_SCOPE)?;
            let secret = PresentedToken::of(parts, FrontEnd::Http).secret;
            let session = secret.and_then(|secret| {
                let now = SystemClock.now();
                self.sessions.find(secret, tokens, now)
            });
            Ok(SignedIn::new(token, session.map(|session| session.ends)))
        })
    }

    /// A code for the caller's token. A session gets none: it would go on for ever.
    pub(crate) fn make_code(&self, parts: &Parts) -> Result<String, HttpProblem> {
        let scopes = [TokenScope::Read, TokenScope::Write];
        self.by_admin_tokens(parts, |tokens| {
            let token = self.with_token(parts, tokens, &scopes)?;
            let secret = PresentedToken::of(parts, FrontEnd::Http).secret;
            if secret.and_then(|secret| find(secret, tokens)).is_none() {
                return Err(HttpProblem::forbidden(
                    "a session of the console cannot open another one; use the token itself",
                ));
            }
            let made = self.sessions.make_code(token, SystemClock.now());
            made.map_err(no_random_numbers)
        })
    }

    /// Exchanges a code for a session. Wrong codes count as unknown tokens.
    pub(crate) fn open_session(
        &self,
        parts: &Parts,
        code: &str,
    ) -> Result<NewSession, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            let opened = self.sessions.open(code, tokens, SystemClock.now());
            let Some((secret, session)) = opened.map_err(no_random_numbers)? else {
                let presented = PresentedToken::of(parts, FrontEnd::Http);
                let refusal = AccessRefusal::Unknown;
                self.refusals
                    .note(&refusal, FrontEnd::Http, presented.peer);
                return Err(HttpProblem::unauthorized(
                    "the code is unknown, was used, or is older than 60 seconds; run `tidegate console` again",
                ));
            };
            Ok(NewSession {
                secret,
                signed_in: SignedIn::new(session.token, Some(session.ends)),
            })
        })
    }

    /// Ends the caller's session. A token that is not a session stays as it is.
    pub(crate) fn end_session(&self, parts: &Parts) -> Result<(), HttpProblem> {
        self.signed_in(parts)?;
        if let Some(secret) = PresentedToken::of(parts, FrontEnd::Http).secret {
            self.sessions.end(secret);
        }
        Ok(())
    }
}

fn no_random_numbers(error: getrandom::Error) -> HttpProblem {
    HttpProblem::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        format!("the system provides no random numbers: {error}"),
    )
}
