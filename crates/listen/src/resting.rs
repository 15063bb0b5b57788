//! An HTTP/1 connection that rests: hyper serves it while it is in use, and between requests only its socket is kept.
//!
//! hyper holds a buffer for each direction as long as its connection lives. So a connection that was idle for a while
//! is taken from hyper, and given to a new one when its next bytes arrive.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::accept::note_freed;
use crate::connection::ConnectionError;
use crate::leaving::Leaving;
use crate::service::{ConnectionService, Handler};
use crate::wire::{Opening, Wire, WireSettings};

/// Where the socket of a connection is left by the wire that shuts down so that it rests.
pub(crate) type RestingPlace<T> = Arc<Mutex<SocketState<T>>>;

/// The socket of a connection.
#[derive(Debug)]
pub(crate) enum SocketState<T> {
    /// A wire has it, and shuts it down at its end.
    InUse,
    /// The wire leaves it here instead.
    Expected,
    Here(T),
}

/// An HTTP/1 connection.
pub(crate) struct RestingConnection<'l, T, S>
where
    S: Handler,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    http1: &'l http1::Builder,
    service: ConnectionService<S>,
    settings: WireSettings,
    socket: RestingPlace<T>,
    /// None while it rests.
    serving: Option<Pin<Box<Served<T, S>>>>,
}

/// Hyper's connection, boxed: an idle connection does not need the memory.
type Served<T, S> = http1::UpgradeableConnection<TokioIo<Wire<T>>, ConnectionService<S>>;

impl<'l, T, S> RestingConnection<'l, T, S>
where
    S: Handler,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    /// A connection of which these bytes have been read.
    pub(crate) fn new(
        http1: &'l http1::Builder,
        service: ConnectionService<S>,
        settings: WireSettings,
        io: T,
        opening: Opening,
    ) -> Self {
        let mut connection = Self {
            http1,
            service,
            settings,
            socket: Arc::new(Mutex::new(SocketState::InUse)),
            serving: None,
        };
        connection.serve(io, opening);
        connection
    }

    fn serve(&mut self, io: T, opening: Opening) {
        let state = Arc::clone(&self.service.state);
        let wire = Wire::new(io, opening, state, self.settings);
        let io = TokioIo::new(wire.leaving_socket_in(Arc::clone(&self.socket)));
        let connection = self.http1.serve_connection(io, self.service.clone());
        self.serving = Some(Box::pin(connection.with_upgrades()));
    }

    /// Takes the socket from where the last wire left it.
    fn take_socket(&self) -> Option<T> {
        let mut socket = self.socket.lock();
        match std::mem::replace(&mut *socket, SocketState::InUse) {
            SocketState::Here(io) => Some(io),
            SocketState::InUse | SocketState::Expected => None,
        }
    }
}

impl<T, S> Leaving for RestingConnection<'_, T, S>
where
    S: Handler,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            if let Some(serving) = &mut self.serving {
                let ended = ready!(serving.as_mut().poll(cx));
                if !matches!(*self.socket.lock(), SocketState::Here(_)) {
                    return Poll::Ready(ended.map_err(ConnectionError::Http));
                }
                self.serving = None;
                note_freed();
            }
            let Some(mut io) = self.take_socket() else {
                return Poll::Ready(Ok(()));
            };
            let mut opening = Opening::default();
            // An end or an error is found again by hyper, which closes the connection as ever.
            if opening.poll_read(&mut io, cx).is_pending() {
                *self.socket.lock() = SocketState::Here(io);
                return Poll::Pending;
            }
            self.serve(io, opening);
        }
    }

    fn leave(&mut self) {
        if self.serving.is_none()
            && let Some(io) = self.take_socket()
        {
            self.serve(io, Opening::default());
        }
        if let Some(serving) = &mut self.serving {
            serving.as_mut().graceful_shutdown();
        }
    }

    fn rest(&mut self) {
        if let Some(serving) = &mut self.serving {
            *self.socket.lock() = SocketState::Expected;
            // Idle, so it ends with its next poll.
            serving.as_mut().graceful_shutdown();
        }
    }
}

impl Opening {
    /// Reads the first bytes of the next request.
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut bytes = ReadBuf::new(self.room());
        ready!(Pin::new(io).poll_read(cx, &mut bytes))?;
        let read = bytes.filled().len();
        self.add(read);
        Poll::Ready(Ok(()))
    }
}
