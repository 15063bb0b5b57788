//! A client's session: authentication, protocol version, and the dispatch of commands.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::rules::FrontEnd;
use tidegate_codec::resp::{Replies, RespCommand, RespVersion, quoted, reservation};

use super::commands;
use super::questions::Questions;
use crate::access::{AccessRefusal, PresentedToken};
use crate::decider::Decider;

/// What a connection does after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the next command.
    Command,
    /// Close after the replies are sent.
    End,
}

/// One client's session.
pub(super) struct Session {
    decider: Arc<Decider>,
    pub(super) questions: Questions,
    id: u64,
    name: Vec<u8>,
    /// Whether it is authenticated, or no token is needed.
    may_ask: bool,
    /// How often it tried to authenticate and failed.
    failed: u32,
    /// The client's address, if known.
    peer: Option<IpAddr>,
}

/// After how many failures to authenticate a connection is closed.
const MOST_FAILED: u32 = 10;

static SESSIONS: AtomicU64 = AtomicU64::new(1);

impl Session {
    pub(super) fn new(decider: Arc<Decider>, peer: Option<IpAddr>) -> Self {
        Self {
            questions: Questions::new(),
            id: SESSIONS.fetch_add(1, Ordering::Relaxed),
            name: Vec::new(),
            may_ask: !decider.access.wants_tokens(),
            failed: 0,
            peer,
            decider,
        }
    }

    /// Whether it may ask: it is authenticated, or no token is needed.
    pub(super) fn may_ask(&self) -> bool {
        self.may_ask
    }

    /// The waiting questions, and the server to ask.
    pub(super) fn asking(&mut self) -> (&mut Questions, &Decider) {
        (&mut self.questions, &self.decider)
    }

    /// Whether a command may join the questions that wait to be asked.
    pub(super) fn joins(&self, command: RespCommand<'_>) -> bool {
        let is_reservation = reservation::is_one(command);
        self.may_ask
            && (is_reservation || is_question(command))
            && self.questions.may_join(is_reservation)
    }

    /// Runs a command: answers it, or queues its question.
    #[inline]
    pub(super) fn answer(&mut self, command: RespCommand<'_>, replies: &mut Replies) -> Next {
        if self.may_ask && command.is(0, "CL.THROTTLE") {
            self.questions.throttle(command, &self.decider, replies);
            return Next::Command;
        }
        if command.is_empty() {
            return Next::Command;
        }
        self.answer_other(command, replies)
    }

    fn answer_other(&mut self, command: RespCommand<'_>, replies: &mut Replies) -> Next {
        let name = command.get(0).to_ascii_uppercase();
        match &name[..] {
            b"AUTH" => {
                self.auth(command, replies);
                return self.unless_guessing();
            }
            b"HELLO" => {
                self.hello(command, replies);
                return self.unless_guessing();
            }
            b"QUIT" => {
                replies.simple("OK");
                return Next::End;
            }
            b"RESET" => self.reset(replies),
            // A web page can make a browser send a form here; no Redis client sends these.
            b"POST" | b"HOST:" => {
                replies.error("ERR", "this is not an HTTP port");
                return Next::End;
            }
            _ if !self.may_ask => {
                let refusals = &self.decider.access.refusals;
                refusals.note(&AccessRefusal::Missing, FrontEnd::Resp, self.peer);
                replies.error("NOAUTH", "Authentication required: send a token with AUTH");
            }
            b"TG.CHECK" => self.questions.check(command, &self.decider, replies),
            b"TG.RESERVE" | b"TG.SETTLE" | b"TG.CANCEL" | b"TG.EXTEND" | b"TG.RELEASE"
            | b"TG.RENEW" => self
                .questions
                .reservation(&name, command, &self.decider, replies),
            b"PING" => match command.len() {
                1 => replies.simple("PONG"),
                2 => replies.bulk(command.get(1)),
                _ => wrong_number(command, replies),
            },
            b"ECHO" if command.len() == 2 => replies.bulk(command.get(1)),
            b"ECHO" => wrong_number(command, replies),
            b"SELECT" => match (command.len(), command.get(1)) {
                (2, b"0") => replies.simple("OK"),
                (2, _) => replies.error("ERR", "DB index is out of range: only 0 exists"),
                _ => wrong_number(command, replies),
            },
            b"CLIENT" => self.client(command, replies),
            b"COMMAND" => commands::command(command, replies),
            b"INFO" => replies.bulk(commands::INFO.as_bytes()),
            _ => replies.error("ERR", &commands::unknown(command)),
        }
        Next::Command
    }

    /// `AUTH [user] token`. The token identifies the caller; the user is ignored.
    fn auth(&mut self, command: RespCommand<'_>, replies: &mut Replies) {
        let secret = match command.len() {
            2 => command.get(1),
            3 => command.get(2),
            _ => return wrong_number(command, replies),
        };
        if self.log_in(secret, replies) {
            replies.simple("OK");
        }
    }

    /// Ends a connection that failed to authenticate too often: it guesses.
    fn unless_guessing(&self) -> Next {
        if self.failed < MOST_FAILED {
            return Next::Command;
        }
        self.decider.access.refusals.note_guessing(self.peer);
        Next::End
    }

    /// Authenticates with a token; on failure writes the error.
    fn log_in(&mut self, secret: &[u8], replies: &mut Replies) -> bool {
        if !self.decider.access.wants_tokens() {
            replies.error(
                "ERR",
                "AUTH called, but this server has no tokens: are you sure that its configuration is correct?",
            );
            return false;
        }
        let asked = PresentedToken {
            front_end: FrontEnd::Resp,
            peer: self.peer,
            secret: Some(secret),
        };
        let opened = self.decider.access.check_token(&asked);
        self.failed += u32::from(opened.is_err());
        match opened {
            Ok(()) => self.may_ask = true,
            Err(AccessRefusal::Missing | AccessRefusal::Unknown) => {
                self.may_ask = false;
                replies.error("WRONGPASS", "unknown token");
            }
            Err(AccessRefusal::OutOfScope(problem)) => {
                self.may_ask = false;
                replies.error("NOPERM", &problem);
            }
        }
        self.may_ask
    }

    /// `HELLO [version [AUTH user token] [SETNAME name]]`.
    fn hello(&mut self, command: RespCommand<'_>, replies: &mut Replies) {
        let protocol = match (command.len(), command.get(1)) {
            (1, _) => replies.protocol,
            (_, b"2") => RespVersion::Resp2,
            (_, b"3") => RespVersion::Resp3,
            _ => {
                return replies.error("NOPROTO", "unsupported protocol version; expected 2 or 3");
            }
        };
        let mut place = 2;
        let mut name = None;
        while place < command.len() {
            if command.is(place, "AUTH") && place + 2 < command.len() {
                if !self.log_in(command.get(place + 2), replies) {
                    return;
                }
                place += 3;
            } else if command.is(place, "SETNAME") && place + 1 < command.len() {
                name = Some(command.get(place + 1));
                place += 2;
            } else {
                let option = quoted(command.get(place));
                let problem = format!("Syntax error in HELLO option '{option}'");
                return replies.error("ERR", &problem);
            }
        }
        if !self.may_ask {
            return replies.error(
                "NOAUTH",
                "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <token> option can be used",
            );
        }
        if name.is_some_and(|name| !self.set_name(name, replies)) {
            return;
        }
        replies.protocol = protocol;
        commands::hello(self.id, replies);
    }

    fn client(&mut self, command: RespCommand<'_>, replies: &mut Replies) {
        let word = command.get(1).to_ascii_uppercase();
        match (&word[..], command.len()) {
            (b"SETNAME", 3) => {
                if self.set_name(command.get(2), replies) {
                    replies.simple("OK");
                }
            }
            (b"GETNAME", 2) if self.name.is_empty() => replies.null(),
            (b"GETNAME", 2) => replies.bulk(&self.name),
            (b"ID", 2) => replies.integer(i64::try_from(self.id).unwrap_or(i64::MAX)),
            // Accepted and ignored.
            (b"SETINFO", 4) | (b"NO-EVICT" | b"NO-TOUCH", 3) => replies.simple("OK"),
            _ => replies.error(
                "ERR",
                "unknown subcommand or wrong number of arguments; expected one of SETNAME, GETNAME, SETINFO, ID, NO-EVICT, NO-TOUCH",
            ),
        }
    }

    /// Checks the name of a client; on failure writes the error.
    fn set_name(&mut self, name: &[u8], replies: &mut Replies) -> bool {
        const LONGEST: usize = 128;
        let is_sound = name.iter().all(u8::is_ascii_graphic) && name.len() <= LONGEST;
        if is_sound {
            self.name = name.to_vec();
        } else {
            let problem = "Client names cannot contain spaces, newlines or special characters, and have at most 128 bytes";
            replies.error("ERR", problem);
        }
        is_sound
    }

    fn reset(&mut self, replies: &mut Replies) {
        self.may_ask = !self.decider.access.wants_tokens();
        self.name = Vec::new();
        replies.protocol = RespVersion::Resp2;
        replies.simple("RESET");
    }
}

fn is_question(command: RespCommand<'_>) -> bool {
    command.is(0, "CL.THROTTLE") || command.is(0, "TG.CHECK")
}

fn wrong_number(command: RespCommand<'_>, replies: &mut Replies) {
    let name = quoted(command.get(0)).to_ascii_lowercase();
    let problem = format!("wrong number of arguments for '{name}' command");
    replies.error("ERR", &problem);
}
