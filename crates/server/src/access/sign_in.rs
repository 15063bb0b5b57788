//! Signing in to the console: a caller with a token gets a code, and a page exchanges it for a session.

use http::request::Parts;
use tidegate::rules::FrontEnd;
use tidegate::{Clock as _, SystemClock};

use super::{Access, AccessRefusal, Caller, PresentedToken, find};
use crate::problem::HttpProblem;

/// A session that was just opened.
pub(crate) struct NewSession {
    pub(crate) secret: String,
    pub(crate) caller: Caller,
}

impl Access {
    /// A code for the caller's token. A session gets none: it would go on for ever.
    pub(crate) fn make_code(&self, parts: &Parts) -> Result<String, HttpProblem> {
        self.by_admin_tokens(parts, |tokens| {
            let secret = PresentedToken::of(parts, FrontEnd::Http).secret;
            let Some(token) = secret.and_then(|secret| find(secret, tokens)) else {
                return Err(HttpProblem::forbidden(
                    "a session of the console cannot open another one; use the token itself",
                ));
            };
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
                caller: Caller::new(session.token, Some(session.ends)),
            })
        })
    }

    /// Ends the caller's session. A token that is not a session stays as it is.
    pub(crate) fn end_session(&self, parts: &Parts) {
        if let Some(secret) = PresentedToken::of(parts, FrontEnd::Http).secret {
            self.sessions.end(secret);
        }
    }
}

fn no_random_numbers(error: getrandom::Error) -> HttpProblem {
    HttpProblem::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        format!("the system provides no random numbers: {error}"),
    )
}
