//! One connection, from the handshake to its end.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::age::{AgeAction, AgeTimer};
use crate::clock::now;
use crate::connection_state::ConnectionState;
use crate::inline::{InlineConnection, InlineExecutor};
use crate::leaving::Leaving;
use crate::resting::RestingConnection;
use crate::service::{ConnectionService, Handler};
use crate::stall::{ConnectionTimeouts, TimeoutAction};
use crate::wire::{HttpVersion, Opening, Wire, WireSettings};
use crate::{Drain, ListenSettings, Peer};

/// hyper's minimum for the buffer of a head.
const MIN_HEAD_BYTES: usize = 8 * 1024;

/// How much encrypted data is buffered for a client that reads nothing.
const TLS_BUFFER: usize = 16 * 1024;

/// Why a connection ended early. Logged at debug level only.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
    #[error("the TLS handshake took too long")]
    SlowHandshake,
    #[error("cannot read from the client: {0}")]
    Opening(#[source] io::Error),
    #[error("the client took too long")]
    SlowClient,
    #[error("the connection has reached its age")]
    Aged,
    #[error("{0}")]
    Http(#[source] hyper::Error),
}

/// The state that all connections of a listener share.
pub(crate) struct HttpConnections {
    settings: ListenSettings,
    drain: Drain,
    http1: http1::Builder,
}

impl HttpConnections {
    pub(crate) fn new(settings: ListenSettings, drain: Drain) -> Self {
        let mut http1 = http1::Builder::new();
        // Heads are timed here: hyper's timeout would also end idle connections. Flushes are not
        // combined (`pipeline_flush`): half of a next request would hold an answer back.
        http1
            .header_read_timeout(None)
            .max_buf_size(settings.max_head_bytes.max(MIN_HEAD_BYTES))
            .half_close(settings.half_close);
        Self {
            settings,
            drain,
            http1,
        }
    }

    fn http2(&self, executor: InlineExecutor) -> http2::Builder<InlineExecutor> {
        let settings = &self.settings;
        let mut http2 = http2::Builder::new(executor);
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(settings.ping_interval)
            .keep_alive_timeout(settings.ping_timeout)
            .max_header_list_size(u32::try_from(settings.max_head_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(settings.max_streams)
            .auto_date_header(settings.date);
        http2
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve<S: Handler>(
        &self,
        stream: TcpStream,
        peer: Peer,
        service: S,
    ) -> Result<(), ConnectionError> {
        match &self.settings.tls {
            None => self.serve_wire(stream, None, peer, service).await,
            // Boxed, so that the tasks of other connections need no room for it.
            Some(tls) => Box::pin(self.serve_tls(tls.acceptor(), stream, peer, service)).await,
        }
    }

    async fn serve_tls<S: Handler>(
        &self,
        acceptor: TlsAcceptor,
        stream: TcpStream,
        mut peer: Peer,
        service: S,
    ) -> Result<(), ConnectionError> {
        let handshake = timeout(self.settings.handshake_timeout, acceptor.accept(stream));
        let mut stream = match handshake.await {
            Ok(stream) => stream.map_err(ConnectionError::Handshake)?,
            Err(_) => return Err(ConnectionError::SlowHandshake),
        };
        stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
        // One of another authority would have ended the handshake.
        peer.is_certified = stream.get_ref().1.peer_certificates().is_some();
        let version = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(HttpVersion::Http2),
            Some(b"http/1.1") => Some(HttpVersion::Http1),
            _ => None,
        };
        self.serve_wire(stream, version, peer, service).await
    }

    async fn serve_wire<T, S>(
        &self,
        mut io: T,
        version: Option<HttpVersion>,
        peer: Peer,
        service: S,
    ) -> Result<(), ConnectionError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Handler,
    {
        let mut timer = pin!(sleep(self.settings.head_timeout));
        let (opening, version) = match version {
            Some(version) => (Opening::default(), version),
            None => match self.open(&mut io, timer.as_mut()).await? {
                Some(opened) => opened,
                None => return Ok(()),
            },
        };
        let state = Arc::new(ConnectionState::new(version == HttpVersion::Http1));
        let settings = WireSettings {
            is_strict: self.settings.strict && version == HttpVersion::Http1,
            is_http2: version == HttpVersion::Http2,
            write_timeout: self.settings.idle_timeout,
        };
        let service = ConnectionService {
            service,
            peer,
            state: Arc::clone(&state),
            exchanges: self.settings.exchanges.clone(),
        };
        match version {
            HttpVersion::Http1 => {
                let connection =
                    RestingConnection::new(&self.http1, service, settings, io, opening);
                self.drive(connection, version, &state, timer).await?;
                // An upgraded connection still counts as open.
                if state.is_tunnel() {
                    state.is_let_go().await;
                }
                Ok(())
            }
            HttpVersion::Http2 => {
                let wire = Wire::new(io, opening, Arc::clone(&state), settings);
                let settings = |executor| self.http2(executor);
                let connection = InlineConnection::new(settings, TokioIo::new(wire), service);
                self.drive(connection, version, &state, timer).await
            }
        }
    }

    /// Waits for the first bytes of a connection: `None` if none arrive before the last call.
    async fn open<T: AsyncRead + Unpin>(
        &self,
        io: &mut T,
        timer: Pin<&mut Sleep>,
    ) -> Result<Option<(Opening, HttpVersion)>, ConnectionError> {
        let last_call = async {
            self.drain.begun().await;
            sleep(self.settings.last_call).await;
        };
        tokio::select! {
            biased;
            opened = Opening::read(io) => opened.map(Some).map_err(ConnectionError::Opening),
            () = timer => Err(ConnectionError::SlowClient),
            () = last_call => Ok(None),
        }
    }

    /// Drives a connection until it ends, leaves because of the drain, or times out.
    async fn drive<C>(
        &self,
        mut connection: C,
        version: HttpVersion,
        state: &ConnectionState,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<(), ConnectionError>
    where
        C: Leaving,
    {
        let mut begun = pin!(tokio::task::unconstrained(self.drain.begun()));
        let mut has_listened = false;
        let mut is_draining = false;
        let mut age = AgeTimer::of(&self.settings);
        let mut timeouts = ConnectionTimeouts::new(&self.settings);
        if version == HttpVersion::Http1 {
            timeouts = timeouts.resting_after(self.settings.rest_after);
        }

        poll_fn(|cx| {
            // Once registered, this task is woken by the drain: checking at each turn would make all
            // connections contend for one lock.
            if !has_listened {
                has_listened = true;
                let _ = begun.as_mut().poll(cx);
            }
            loop {
                if self.drain.is_announced() {
                    state.close_after_answer();
                }
                let begins_to_drain = !is_draining && self.drain.has_begun();
                is_draining |= begins_to_drain;
                // Polled before it is asked to leave, so that a received request is begun.
                if let Poll::Ready(ended) = connection.poll_serve(cx) {
                    return Poll::Ready(ended);
                }
                match age.as_mut().map(|age| age.poll(cx)) {
                    Some(Poll::Ready(AgeAction::Leave)) => {
                        connection.leave();
                        continue;
                    }
                    Some(Poll::Ready(AgeAction::Cut)) => {
                        return Poll::Ready(Err(ConnectionError::Aged));
                    }
                    Some(Poll::Pending) | None => {}
                }
                let phase = state.phase();
                let verdict = if begins_to_drain {
                    match version {
                        HttpVersion::Http1 => timeouts.drained(phase),
                        // Sends GOAWAY first, and serves requests sent until then.
                        HttpVersion::Http2 => timeouts.leave(),
                    }
                } else if let Some(wait) = timeouts.paused(phase, now) {
                    TimeoutAction::Wait(wait)
                } else if timer.as_mut().poll(cx).is_ready() {
                    timeouts.ended(phase, now())
                } else {
                    return Poll::Pending;
                };
                match verdict {
                    TimeoutAction::Wait(wait) => timer.set(sleep(wait)),
                    TimeoutAction::Rest(wait) => {
                        timer.set(sleep(wait));
                        connection.rest();
                    }
                    TimeoutAction::Leave(wait) => {
                        timer.set(sleep(wait));
                        connection.leave();
                    }
                    TimeoutAction::Cut => return Poll::Ready(Err(ConnectionError::SlowClient)),
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Incoming;

    use super::*;

    /// What an idle connection needs for its task.
    #[tokio::test]
    async fn the_task_of_a_connection_is_small() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let connections = HttpConnections::new(ListenSettings::default(), Drain::new());
        let service = |_: Request<Incoming>, _: Peer| async {
            Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::default()))
        };
        let serving = connections.serve(stream, Peer::from(address), service);
        let size = size_of_val(&serving);
        assert!(size < 2_048, "{size} bytes");
    }
}
