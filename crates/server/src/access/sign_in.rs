//! Signing in to the console: a page exchanges a token for a session, or a code that a caller with a token got.

use http::request::Parts;
use tidegate::rules::FrontEnd;
use tidegate::{Clock as _, SystemClock};

use super::sessions::ConsoleSession;
use super::{Access, AccessRefusal, Caller, EVERY_SCOPE, PresentedToken, find, within};
use crate::config::{Token, TokenScope};
use crate::problem::HttpProblem;

/// A session that was just opened.
pub(crate) struct NewSession {
    pub(crate) secret: String,
    pub(crate) caller: Caller,
}

impl NewSession {
    fn new((secret, session): (String, ConsoleSession<'_>)) -> Self {
        Self {
            secret,
            caller: Caller::new(session.token, Some(session.ends)),
        }
    }
}

/// The scopes that may read what the console shows.
const READING: [TokenScope; 2] = [TokenScope::Read, TokenScope::Write];

impl Access {
    /// A code for the caller's token. A session gets none: it would go on for ever.
    pub(crate) fn make_code(&self, parts: &Parts) -> Result<String, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            let token = token_itself(parts, tokens)?;
            let made = self.sessions.make_code(token, SystemClock.now());
            made.map_err(no_random_numbers)
        })
    }

    /// Opens a session of the caller's token. A session opens none: it would go on for ever.
    pub(crate) fn open_session_of_token(&self, parts: &Parts) -> Result<NewSession, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            self.with_token(parts, tokens, &EVERY_SCOPE)?;
            let token = token_itself(parts, tokens)?;
            if within(token, &READING).is_err() {
                return Err(HttpProblem::forbidden(format!(
                    "the token `{}` may only check requests; the console needs the scope `read`",
                    token.name
                )));
            }
            let opened = self.sessions.open_for(token, SystemClock.now());
            opened.map(NewSession::new).map_err(no_random_numbers)
        })
    }

    /// Exchanges a code for a session. Wrong codes count as unknown tokens.
    pub(crate) fn open_session_of_code(
        &self,
        parts: &Parts,
        code: &str,
    ) -> Result<NewSession, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            let opened = self.sessions.open(code, tokens, SystemClock.now());
            let Some(session) = opened.map_err(no_random_numbers)? else {
                let presented = PresentedToken::of(parts, FrontEnd::Http);
                let refusal = AccessRefusal::Unknown;
                self.refusals
                    .note(&refusal, FrontEnd::Http, presented.peer);
                return Err(HttpProblem::unauthorized(
                    "the code is unknown, was used, or is older than 60 seconds; run `tidegate console` again",
                ));
            };
            Ok(NewSession::new(session))
        })
    }

    /// Ends the caller's session. A token that is not a session stays as it is.
    pub(crate) fn end_session(&self, parts: &Parts) {
        if let Some(secret) = PresentedToken::of(parts, FrontEnd::Http).secret {
            self.sessions.end(secret);
        }
    }
}

/// The token that the caller presents, if it is not a session.
fn token_itself<'t>(parts: &Parts, tokens: &'t [Token]) -> Result<&'t Token, HttpProblem> {
    let secret = PresentedToken::of(parts, FrontEnd::Http).secret;
    let token = secret.and_then(|secret| find(secret, tokens));
    token.ok_or_else(|| {
        HttpProblem::forbidden(
            "a session of the console cannot open another one; use the token itself",
        )
    })
}

fn no_random_numbers(error: getrandom::Error) -> HttpProblem {
    HttpProblem::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        format!("the system provides no random numbers: {error}"),
    )
}
