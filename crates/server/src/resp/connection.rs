//! One connection: bytes in, replies out, one write for all commands that arrived together.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_codec::resp::{Arguments, Replies};
use tidegate_listen::clock::now;
use tidegate_listen::stall::{ConnectionPhase, ConnectionTimeouts, Linger, TimeoutAction};
use tidegate_listen::{Drain, ListenSettings, Tls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::session::{Next, Session};
use crate::decider::Decider;

/// The size of a read, and of the buffer that an idle connection keeps.
const READ: usize = 8 * 1024;
/// The largest command of a client that has not authenticated, where tokens are wanted.
const UNKNOWN_CLIENT: usize = 16 * 1024;
/// How many bytes of replies are collected before they are sent, even if more commands wait.
const REPLIES: usize = 64 * 1024;
/// How long a client may take for its first command, for the rest of a command, or to read replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be idle between two commands.
const IDLE: Duration = Duration::from_hours(1);
/// How long after an answer a connection is closed once the drain is announced, if no command follows. Clients that wait
/// for nothing but the answer send the next one sooner; others notice the end before they send.
const PAUSE: Duration = Duration::from_millis(10);

/// Why a connection was closed early.
#[derive(Debug, thiserror::Error)]
pub(super) enum RespConnectionError {
    #[error("the TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
    #[error("the client took too long")]
    Slow,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The state shared by all connections of the listener.
pub(super) struct RespConnections {
    decider: Arc<Decider>,
    drain: Drain,
    tls: Option<Tls>,
    handshake_timeout: Duration,
    last_call: Duration,
}

/// A connection that is being served.
struct Connection<'d, T> {
    io: T,
    listener: &'d RespConnections,
    session: Session,
    arguments: Arguments,
    replies: Replies,
    /// The bytes read; those from `start` on are not parsed yet.
    bytes: Vec<u8>,
    start: usize,
    /// How many commands were answered.
    commands: u64,
}

/// What ended a wait.
enum ConnectionEvent {
    Read,
    Closed,
    TimedOut,
    DrainBegun,
}

impl RespConnections {
    pub(super) fn new(decider: Arc<Decider>, settings: &ListenSettings, drain: Drain) -> Self {
        Self {
            decider,
            drain,
            tls: settings.tls.clone(),
            handshake_timeout: settings.handshake_timeout,
            last_call: settings.last_call,
        }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(&self, stream: TcpStream) -> Result<(), RespConnectionError> {
        let peer = stream.peer_addr().ok().map(|peer| peer.ip());
        let Some(tls) = &self.tls else {
            return Connection::new(stream, self, peer).serve().await;
        };
        let handshake = timeout(self.handshake_timeout, tls.acceptor().accept(stream)).await;
        let stream = handshake
            .map_err(|_| RespConnectionError::Slow)?
            .map_err(RespConnectionError::Handshake)?;
        Connection::new(stream, self, peer).serve().await
    }
}

impl<'d, T: AsyncRead + AsyncWrite + Unpin> Connection<'d, T> {
    fn new(io: T, listener: &'d RespConnections, peer: Option<IpAddr>) -> Self {
        Self {
            io,
            listener,
            session: Session::new(Arc::clone(&listener.decider), peer),
            arguments: Arguments::default(),
            replies: Replies::default(),
            bytes: Vec::new(),
            start: 0,
            commands: 0,
        }
    }

    async fn serve(mut self) -> Result<(), RespConnectionError> {
        let listener = self.listener;
        let mut timer = pin!(sleep(PATIENCE));
        let mut timeouts = ConnectionTimeouts::new(&ListenSettings {
            head_timeout: PATIENCE,
            idle_timeout: IDLE,
            ..ListenSettings::default()
        });
        let mut begun = pin!(tokio::task::unconstrained(listener.drain.begun()));
        let (mut has_listened, mut is_draining, mut is_leaving) = (false, false, false);
        loop {
            self.make_room();
            let waiting = poll_fn(|cx| {
                // Checked before reading: some clients never stop sending.
                if is_draining && timer.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(ConnectionEvent::TimedOut));
                }
                if !is_draining && listener.drain.has_begun() {
                    is_draining = true;
                    return Poll::Ready(Ok(ConnectionEvent::DrainBegun));
                }
                if let Poll::Ready(read) = self.poll_read(cx) {
                    let event = |length| {
                        if length == 0 {
                            ConnectionEvent::Closed
                        } else {
                            ConnectionEvent::Read
                        }
                    };
                    return Poll::Ready(read.map(event));
                }
                // Once registered, this task is woken by the drain: checking at each turn would make all
                // connections contend for one lock.
                if !has_listened {
                    has_listened = true;
                    if begun.as_mut().poll(cx).is_ready() {
                        is_draining = true;
                        return Poll::Ready(Ok(ConnectionEvent::DrainBegun));
                    }
                }
                if !is_draining
                    && !is_leaving
                    && let Some(wait) = timeouts.paused(self.phase(), now)
                {
                    timer.set(sleep(wait));
                }
                timer
                    .as_mut()
                    .poll(cx)
                    .map(|()| Ok(ConnectionEvent::TimedOut))
            });
            match waiting.await? {
                ConnectionEvent::Closed => return Ok(()),
                ConnectionEvent::Read => {
                    let next = self.answer().await?;
                    self.send().await?;
                    if next == Next::End {
                        return self.end().await;
                    }
                    let has_part = self.start < self.bytes.len();
                    is_leaving = !is_draining && !has_part && listener.drain.is_announced();
                    if is_leaving {
                        timer.set(sleep(PAUSE));
                    }
                }
                // Commands sent until then are still answered.
                ConnectionEvent::DrainBegun => timer.set(sleep(listener.last_call)),
                ConnectionEvent::TimedOut if is_draining || is_leaving => return self.end().await,
                ConnectionEvent::TimedOut => match timeouts.ended(self.phase(), now()) {
                    TimeoutAction::Wait(wait) | TimeoutAction::Rest(wait) => timer.set(sleep(wait)),
                    TimeoutAction::Leave(_) | TimeoutAction::Cut => {
                        return Err(RespConnectionError::Slow);
                    }
                },
            }
        }
    }

    fn phase(&self) -> ConnectionPhase {
        match (self.bytes.is_empty(), self.commands) {
            (true, 0) => ConnectionPhase::Fresh,
            (true, commands) => ConnectionPhase::Idle(commands),
            (false, commands) => ConnectionPhase::Head(commands),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut reading = pin!(self.io.read_buf(&mut self.bytes));
        reading.as_mut().poll(cx)
    }

    /// Drops parsed bytes, and the memory of an unusually large command.
    fn make_room(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(READ);
        } else {
            self.bytes.drain(..self.start);
        }
        self.start = 0;
        self.bytes.reserve(READ);
    }

    /// Answers all complete commands.
    async fn answer(&mut self) -> Result<Next, RespConnectionError> {
        loop {
            let rest = &self.bytes[self.start..];
            let length = match self.arguments.read(rest) {
                Ok(Some(length)) => length,
                Ok(None) if rest.len() > UNKNOWN_CLIENT && !self.session.may_ask() => {
                    let problem = format!(
                        "Authentication required: before AUTH, a command has at most {UNKNOWN_CLIENT} bytes"
                    );
                    self.replies.error("NOAUTH", &problem);
                    return Ok(Next::End);
                }
                Ok(None) => break,
                Err(error) => {
                    self.ask().await;
                    self.replies
                        .error("ERR", &format!("Protocol error: {error}"));
                    return Ok(Next::End);
                }
            };
            if self.session.questions.are_waiting() && !self.session.joins(self.arguments.of(rest))
            {
                self.ask().await;
            }
            let command = self.arguments.of(&self.bytes[self.start..]);
            let next = self.session.answer(command, &mut self.replies);
            self.start += length;
            self.commands += 1;
            if next == Next::End {
                self.ask().await;
                return Ok(next);
            }
            if self.replies.len() >= REPLIES {
                self.send().await?;
            }
        }
        self.ask().await;
        Ok(Next::Command)
    }

    /// Asks the pending questions.
    async fn ask(&mut self) {
        if self.session.questions.are_waiting() {
            let (questions, decider) = self.session.asking();
            questions.ask(decider, &mut self.replies).await;
        }
    }

    /// Closes the sending side and reads on for a moment, so that the last reply arrives.
    async fn end(mut self) -> Result<(), RespConnectionError> {
        self.io.shutdown().await?;
        let mut linger = Linger::default();
        poll_fn(|cx| linger.poll(&mut self.io, cx, true)).await;
        Ok(())
    }

    /// Sends the replies, in one write.
    async fn send(&mut self) -> Result<(), RespConnectionError> {
        if self.replies.is_empty() {
            return Ok(());
        }
        let mut sending = pin!(async {
            self.io.write_all(self.replies.bytes()).await?;
            self.io.flush().await
        });
        // Nearly always the socket takes all of it, and then no timer is needed.
        match poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await {
            Poll::Ready(sent) => sent?,
            Poll::Pending => timeout(PATIENCE, sending)
                .await
                .map_err(|_| RespConnectionError::Slow)??,
        }
        self.replies.clear(READ);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
