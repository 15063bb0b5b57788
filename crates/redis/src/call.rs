//! A call to a server, its reply, and how it can fail.

use std::sync::Arc;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tidegate_core::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::monotonic::now;
use crate::url::RedisNode;
use tidegate_redis_wire::wire::{LuaStep, StepError, StepOutcome};

/// A call with a deadline, and the channel for its reply.
pub(crate) struct Job {
    pub(crate) work: CallBody,
    /// Whether to send `ASKING` first: the slot is being moved to this server.
    pub(crate) is_asking: bool,
    /// When it was put into the queue.
    pub(crate) asked_at: Instant,
    pub(crate) deadline: Instant,
    /// None once it was answered.
    reply: Option<oneshot::Sender<Result<CallReply, CallError>>>,
}

impl Job {
    /// A call that waits from now on, and the receiver of its reply.
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

/// The content of a call.
#[derive(Clone)]
pub(crate) enum CallBody {
    /// A step of the script, which is sent together with others.
    Step(Arc<LuaStep>),
    /// A command on its own.
    Command(Arc<Cmd>),
}

impl CallBody {
    /// Whether it uses keys besides those that it names: see [`LuaStep::finds_more_keys`].
    pub(crate) fn finds_more_keys(&self) -> bool {
        matches!(self, Self::Step(step) if step.finds_more_keys())
    }
}

/// The reply to a call.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all replies are the large ones"
)]
pub(crate) enum CallReply {
    Step(StepReply),
    Command(Value),
}

/// The reply to a step.
#[derive(Debug)]
pub(crate) struct StepReply {
    pub(crate) answer: StepOutcome,
    /// The server's time when it decided.
    pub(crate) now: Timestamp,
    /// When the call was sent.
    pub(crate) sent_at: Instant,
}

/// Why there is no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing ran: another server has the slot.
    #[error("the slot has moved to {0}")]
    Moved(RedisNode),
    /// Nothing ran: another server has this key for now.
    #[error("the key has moved to {0}")]
    Ask(RedisNode),
    /// Nothing ran; a retry may succeed.
    #[error("{0}")]
    NotNow(String),
    /// Nothing was sent.
    #[error("{0}")]
    Down(String),
    /// Nothing ran, and a retry fails until the server is changed.
    #[error("{0}")]
    Refused(String),
    /// It is unknown whether it ran.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// It is unknown whether it ran.
    #[error("no answer came in time")]
    Late,
    /// Nothing ran: the value at a state's key is not a state.
    #[error("{0}")]
    BadState(String),
    /// The reply does not have the agreed form.
    #[error("{0}")]
    Unreadable(String),
}

impl CallError {
    /// Whether this is a reply of the server, so that it is alive.
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

    /// Reads an error that a command of the script returned, by its first word.
    pub(crate) fn of_step(error: &StepError) -> Self {
        let text = error.to_string();
        match error.code() {
            "OOM" | "READONLY" | "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => {
                Self::NotNow(text)
            }
            // A key that a record names has moved ahead of the record.
            _ if text.contains("non local key") => Self::NotNow(text),
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
            ErrorKind::AuthenticationFailed => Self::Refused(error.to_string()),
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                Self::Unreadable(error.to_string())
            }
            kind => match error.code() {
                Some("BUSY" | "OOM") => Self::NotNow(error.to_string()),
                Some(_) => Self::Refused(error.to_string()),
                None if matches!(kind, ErrorKind::Server(_)) => Self::Refused(error.to_string()),
                None => Self::Lost(error.to_string()),
            },
        }
    }
}
