//! Codes and sessions of the console: random secrets that act as a token for a while. They are kept in memory
//! and hashed, so that they end with the process, and they end when the secret of their token changes.

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tidegate::printable::hexadecimal;
use tidegate::{Micros, Timestamp};

use crate::config::Token;

/// How long a code can be exchanged for a session.
pub(crate) const CODE_LIFETIME: Micros = Micros::from_seconds(60);

/// How long a session lasts.
const SESSION_LIFETIME: Micros = Micros::from_seconds(12 * 3_600);

/// The most codes, and the most sessions, of one token. A further one ends the oldest.
const MAX_PER_TOKEN: usize = 32;

/// The prefix of sessions, so that a leaked one is recognised.
const SESSION_PREFIX: &str = "tgs_";

/// The random bytes in a code and in a session.
const RANDOM_BYTES: usize = 32;

/// The random bytes that name a run of the server, at the beginning of its sessions.
const RUN_BYTES: usize = 4;

type SecretHash = [u8; 32];

/// The codes and sessions of a server.
pub(super) struct ConsoleSessions {
    codes: Secrets,
    sessions: Secrets,
}

/// Why a secret with the form of a session is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// This run of the server does not have it: it ended.
    Ended,
    /// Another run of the server, or another server, opened it.
    OtherRun,
}

/// The token that a secret acts as, and until when.
pub(super) struct ConsoleSession<'t> {
    pub(super) token: &'t Token,
    pub(super) ends: Timestamp,
}

impl ConsoleSessions {
    pub(super) fn new() -> Self {
        let secrets = |prefix, lifetime| Secrets {
            prefix,
            lifetime,
            kept: Mutex::default(),
        };
        // Zeros if there are no random numbers: then no session is opened either.
        let mut run = [0; RUN_BYTES];
        let _ = getrandom::fill(&mut run);
        let prefix = format!("{SESSION_PREFIX}{}", hexadecimal(&run));
        Self {
            codes: secrets(String::new(), CODE_LIFETIME),
            sessions: secrets(prefix, SESSION_LIFETIME),
        }
    }

    /// A code that can be exchanged once for a session of this token.
    pub(super) fn make_code(
        &self,
        token: &Token,
        now: Timestamp,
    ) -> Result<String, getrandom::Error> {
        Ok(self.codes.make(token, now)?.0)
    }

    /// Exchanges a code for a new session. `None` if the code is unknown, used or too old.
    pub(super) fn open<'t>(
        &self,
        code: &str,
        tokens: &'t [Token],
        now: Timestamp,
    ) -> Result<Option<(String, ConsoleSession<'t>)>, getrandom::Error> {
        let Some(found) = self.codes.find(code.as_bytes(), tokens, now, true) else {
            return Ok(None);
        };
        self.open_for(found.token, now).map(Some)
    }

    /// A new session of this token.
    pub(super) fn open_for<'t>(
        &self,
        token: &'t Token,
        now: Timestamp,
    ) -> Result<(String, ConsoleSession<'t>), getrandom::Error> {
        let (secret, ends) = self.sessions.make(token, now)?;
        Ok((secret, ConsoleSession { token, ends }))
    }

    /// The session with this secret.
    pub(super) fn find<'t>(
        &self,
        secret: &[u8],
        tokens: &'t [Token],
        now: Timestamp,
    ) -> Option<ConsoleSession<'t>> {
        if !secret.starts_with(self.sessions.prefix.as_bytes()) {
            return None;
        }
        self.sessions.find(secret, tokens, now, false)
    }

    /// Why a secret that is [no session](Self::find) is none, if it has the form of one.
    pub(super) fn end_of(&self, secret: &[u8]) -> Option<SessionEnd> {
        if secret.starts_with(self.sessions.prefix.as_bytes()) {
            return Some(SessionEnd::Ended);
        }
        let is_session = secret.starts_with(SESSION_PREFIX.as_bytes());
        is_session.then_some(SessionEnd::OtherRun)
    }

    /// Ends the session with this secret.
    pub(super) fn end(&self, secret: &[u8]) {
        let hash = hash(secret);
        let mut kept = self.sessions.kept.lock();
        kept.retain(|other| !other.has(&hash));
    }
}

/// Random secrets of one kind.
struct Secrets {
    prefix: String,
    lifetime: Micros,
    /// In the order in which they were made.
    kept: Mutex<Vec<KeptSecret>>,
}

struct KeptSecret {
    hash: SecretHash,
    /// The name of the token, and the hash of its secret at the time.
    token: (String, SecretHash),
    ends: Timestamp,
}

impl KeptSecret {
    fn has(&self, hash: &SecretHash) -> bool {
        self.hash.ct_eq(hash).into()
    }
}

impl Secrets {
    /// A new secret that acts as `token`, and when it ends.
    fn make(&self, token: &Token, now: Timestamp) -> Result<(String, Timestamp), getrandom::Error> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        let secret = format!("{}{}", self.prefix, hexadecimal(&bytes));
        let ends = now + self.lifetime;
        let mut kept = self.kept.lock();
        kept.retain(|other| other.ends > now);
        let is_of_token = |other: &KeptSecret| other.token.0 == token.name;
        if kept.iter().filter(|other| is_of_token(other)).count() >= MAX_PER_TOKEN
            && let Some(oldest) = kept.iter().position(is_of_token)
        {
            kept.remove(oldest);
        }
        kept.push(KeptSecret {
            hash: hash(secret.as_bytes()),
            token: (token.name.clone(), hash(token.secret.as_bytes())),
            ends,
        });
        Ok((secret, ends))
    }

    /// The token that a secret acts as, if its secret is still what it was. With `once`, the secret is used up.
    fn find<'t>(
        &self,
        secret: &[u8],
        tokens: &'t [Token],
        now: Timestamp,
        once: bool,
    ) -> Option<ConsoleSession<'t>> {
        let presented = hash(secret);
        let mut kept = self.kept.lock();
        // Every one is compared, so that the time taken does not reveal which is near.
        let mut found = None;
        for (index, other) in kept.iter().enumerate() {
            if other.has(&presented) {
                found = Some(index);
            }
        }
        let index = found?;
        let KeptSecret { ends, token, .. } = &kept[index];
        let ends = *ends;
        let is_same = |other: &&Token| {
            other.name == token.0 && bool::from(hash(other.secret.as_bytes()).ct_eq(&token.1))
        };
        let token = tokens.iter().find(is_same);
        if once || ends <= now || token.is_none() {
            kept.remove(index);
        }
        let token = token.filter(|_| ends > now)?;
        Some(ConsoleSession { token, ends })
    }
}

fn hash(secret: &[u8]) -> SecretHash {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use crate::config::TokenScope;

    use super::*;

    const START: Timestamp = Timestamp::from_seconds(1_000_000);

    fn token(name: &str, secret: &str) -> Token {
        Token {
            name: name.to_owned(),
            secret: secret.to_owned(),
            file: None,
            scopes: vec![TokenScope::Read],
        }
    }

    fn after(seconds: u64) -> Timestamp {
        START + Micros::from_seconds(seconds)
    }

    #[test]
    fn a_code_is_exchanged_once_within_a_minute() {
        let sessions = ConsoleSessions::new();
        let tokens = [token("a", "secret"), token("b", "other")];
        let code = sessions.make_code(&tokens[1], START).unwrap();
        assert_eq!(code.len(), 64);
        let open = |code: &str, now| {
            let opened = sessions.open(code, &tokens, now).unwrap();
            opened.map(|(secret, session)| (secret, session.token.name.clone()))
        };
        assert!(open("", START).is_none() && open(&"0".repeat(64), START).is_none());
        let (session, name) = open(&code, after(59)).unwrap();
        assert_eq!(name, "b");
        assert!(open(&code, after(59)).is_none(), "it is used up");
        let late = sessions.make_code(&tokens[0], START).unwrap();
        assert!(open(&late, after(60)).is_none());
        assert!(open(&late, START).is_none(), "an attempt uses it up");

        let is_open = |secret: &str, now| sessions.find(secret.as_bytes(), &tokens, now).is_some();
        assert!(is_open(&session, after(59 + 12 * 3_600 - 1)));
        assert!(!is_open(&session, after(59 + 12 * 3_600)));
        assert!(!is_open(&code, START), "a code is not a session");
    }

    #[test]
    fn a_session_ends_with_its_token_and_when_it_is_ended() {
        let sessions = ConsoleSessions::new();
        let before = [token("a", "first")];
        let open = || {
            let code = sessions.make_code(&before[0], START).unwrap();
            sessions.open(&code, &before, START).unwrap().unwrap().0
        };
        let is_open = |secret: &str, tokens: &[Token]| {
            let found = sessions.find(secret.as_bytes(), tokens, START);
            found.is_some()
        };
        let session = open();
        assert!(is_open(&session, &before));
        assert!(!is_open(&session, &[token("a", "second")]));
        assert!(!is_open(&session, &before), "it does not come back");
        let session = open();
        assert!(!is_open(&session, &[token("b", "first")]));
        let session = open();
        sessions.end(session.as_bytes());
        assert!(!is_open(&session, &before));
        let end_of = |secret: &str| sessions.end_of(secret.as_bytes());
        assert_eq!(end_of(&session), Some(SessionEnd::Ended));
        let (other, _) = ConsoleSessions::new().open_for(&before[0], START).unwrap();
        assert!(!is_open(&other, &before));
        assert_eq!(end_of(&other), Some(SessionEnd::OtherRun));
        assert_eq!(end_of("first"), None);
    }

    #[test]
    fn a_token_that_opens_many_sessions_ends_its_own_oldest() {
        let sessions = ConsoleSessions::new();
        let tokens = [token("a", "first"), token("b", "second")];
        let open = |token: &Token| {
            let code = sessions.make_code(token, START).unwrap();
            sessions.open(&code, &tokens, START).unwrap().unwrap().0
        };
        let is_open = |secret: &String| {
            let found = sessions.find(secret.as_bytes(), &tokens, START);
            found.is_some()
        };
        let other = open(&tokens[1]);
        let all: Vec<String> = (0..=MAX_PER_TOKEN).map(|_| open(&tokens[0])).collect();
        assert!(!is_open(&all[0]));
        assert!(all[1..].iter().all(is_open) && is_open(&other));
        assert_eq!(sessions.sessions.kept.lock().len(), MAX_PER_TOKEN + 1);
    }
}
