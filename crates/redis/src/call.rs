//! A question on its way to a server, and what can come of it.

use std::sync::Arc;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tidegate_core::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::monotonic::now;
use crate::url::RedisNode;
use crate::wire::{LuaStep, StepError, StepOutcome};

/// A question with a deadline, and where its answer goes.
pub(crate) struct Job {
    pub(crate) work: CallBody,
    /// Whether the server is to answer for a slot that it is about to get.
    pub(crate) is_asking: bool,
    /// Since when it waits.
    pub(crate) asked_at: Instant,
    pub(crate) deadline: Instant,
    /// Nothing once it was answered.
    reply: Option<oneshot::Sender<Result<CallReply, CallError>>>,
}

impl Job {
    /// A question that waits from now on, and where its answer will be.
    pub(crate) fn new(
        work: CallBody,
        is_asking: bool,
        deadline: Instant,
    ) -> (Self, oneshot::Receiver<Result<CallReply, CallError>>) {
        let (reply, answer) = oneshot::channel();
        let job = Self {
            work,
            is_asking,
            asked_at: now(),
            deadline,
            reply: Some(reply),
        };
        (job, answer)
    }

    /// Answers it, unless that was done already.
    pub(crate) fn answer(&mut self, answer: Result<CallReply, CallError>) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(answer);
        }
    }

    /// Whether an answer is still waited for.
    pub(crate) fn is_open(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    /// Whether it was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.is_none()
    }
}

/// What is asked.
#[derive(Clone)]
pub(crate) enum CallBody {
    /// A step of the script, which goes with others in one call.
    Step(Arc<LuaStep>),
    /// A command on its own.
    Command(Arc<Cmd>),
}

/// What was answered.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all replies are the large ones"
)]
pub(crate) enum CallReply {
    Step(StepReply),
    Command(Value),
}

/// The answer to a step.
#[derive(Debug)]
pub(crate) struct StepReply {
    pub(crate) answer: StepOutcome,
    /// The server's time when it decided.
    pub(crate) now: Timestamp,
    /// When the question was sent.
    pub(crate) sent_at: Instant,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing ran: somebody else answers for the slot.
    #[error("the slot has moved to {0}")]
    Moved(RedisNode),
    /// Nothing ran: somebody else answers for this key, for now.
    #[error("{0} is to be asked")]
    Ask(RedisNode),
    /// Nothing ran, and a moment later it may.
    #[error("{0}")]
    NotNow(String),
    /// Nothing was sent.
    #[error("{0}")]
    Down(String),
    /// Nothing ran, and it will not until somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// Nobody knows whether it ran.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// Nobody knows whether it ran.
    #[error("no answer came in time")]
    Late,
    /// Nothing ran: what is in the place of a state is none.
    #[error("{0}")]
    BadState(String),
    /// It was answered, and not as agreed.
    #[error("{0}")]
    Unreadable(String),
}

impl CallError {
    /// Whether the server itself said this, so that it is alive and was understood.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Moved(_)
            | Self::Ask(_)
            | Self::NotNow(_)
            | Self::Refused(_)
            | Self::BadState(_) => true,
            Self::Down(_) | Self::Lost(_) | Self::Late | Self::Unreadable(_) => false,
        }
    }

    /// Reads an error reply by its first word, as the script hands it on from a command of its own.
    pub(crate) fn of_step(error: &StepError) -> Self {
        let text = error.to_string();
        match error.code() {
            "OOM" | "READONLY" | "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => {
                Self::NotNow(text)
            }
            "MISCONF" | "NOREPLICAS" | "NOPERM" | "NOAUTH" => Self::Refused(text),
            "WRONGTYPE" | "UNREADABLE" | "NEGATIVE" => Self::BadState(text),
            _ => Self::Unreadable(text),
        }
    }
}

/// Whether the script has to be sent whole.
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the server no longer takes writes.
pub(crate) fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

impl From<&RedisError> for CallError {
    fn from(error: &RedisError) -> Self {
        let redirect = || {
            let (address, _slot) = error.redirect_node()?;
            let (host, port) = address.rsplit_once(':')?;
            let host = host.trim_matches(['[', ']']).to_owned();
            let port = port.parse().ok()?;
            Some(RedisNode::Tcp { host, port })
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                redirect().map_or_else(|| Self::NotNow(error.to_string()), Self::Moved)
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                redirect().map_or_else(|| Self::NotNow(error.to_string()), Self::Ask)
            }
            ErrorKind::Server(
                ServerErrorKind::TryAgain
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::NoScript,
            ) => Self::NotNow(error.to_string()),
            ErrorKind::Server(_) => match error.code() {
                Some("BUSY" | "OOM") => Self::NotNow(error.to_string()),
                _ => Self::Refused(error.to_string()),
            },
            ErrorKind::AuthenticationFailed => Self::Refused(error.to_string()),
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                Self::Unreadable(error.to_string())
            }
            _ if error.code().is_some() => match error.code() {
                Some("BUSY" | "OOM") => Self::NotNow(error.to_string()),
                _ => Self::Refused(error.to_string()),
            },
            _ => Self::Lost(error.to_string()),
        }
    }
}
