//! A connection between an instance and the server: the bytes on their way, and the end that the instance
//! holds.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tidegate_redis::NetworkConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether an instance has dialed, written or closed since this was last cleared.
#[derive(Debug, Default)]
pub(crate) struct NetworkActivity(Mutex<(bool, Option<Waker>)>);

impl NetworkActivity {
    fn mark(&self) {
        let waiting = {
            let mut activity = self.0.lock();
            activity.0 = true;
            activity.1.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    pub(crate) fn clear(&self) {
        self.0.lock().0 = false;
    }

    /// Ready when there was any.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut activity = self.0.lock();
        if activity.0 {
            return Poll::Ready(());
        }
        activity.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A connection, as both ends see it.
#[derive(Debug)]
pub(crate) struct SimulatedConnection {
    ends: Mutex<ConnectionEnds>,
    activity: Arc<NetworkActivity>,
}

#[derive(Debug, Default)]
struct ConnectionEnds {
    phase: SimulatedPhase,
    /// What the instance has written and the network has not taken yet.
    written: Vec<u8>,
    /// What has arrived at the instance.
    arrived: VecDeque<u8>,
    /// Whether the instance has closed its end.
    is_dropped: bool,
    waiting: Option<Waker>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SimulatedPhase {
    #[default]
    Dialing,
    Open,
    /// Refused, or ended by the server or the network.
    Ended,
}

impl SimulatedConnection {
    /// A connection that is being dialed.
    pub(crate) fn new(activity: &Arc<NetworkActivity>) -> Self {
        activity.mark();
        Self {
            ends: Mutex::default(),
            activity: Arc::clone(activity),
        }
    }

    /// Opens the connection, or refuses it.
    pub(crate) fn answer_dial(&self, is_accepted: bool) {
        self.change(|ends| {
            ends.phase = if is_accepted {
                SimulatedPhase::Open
            } else {
                SimulatedPhase::Ended
            };
        });
    }

    /// Bytes arrive at the instance.
    pub(crate) fn deliver(&self, bytes: &[u8]) {
        self.change(|ends| {
            if ends.phase == SimulatedPhase::Open {
                ends.arrived.extend(bytes);
            }
        });
    }

    /// The instance learns that the connection has ended. What has arrived is lost.
    pub(crate) fn end(&self) {
        self.change(|ends| {
            ends.phase = SimulatedPhase::Ended;
            ends.arrived.clear();
        });
    }

    fn change(&self, change: impl FnOnce(&mut ConnectionEnds)) {
        let waiting = {
            let mut ends = self.ends.lock();
            change(&mut ends);
            ends.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// What the instance has written since this was last called, and whether it has closed its end.
    pub(crate) fn take_written(&self) -> (Vec<u8>, bool) {
        let mut ends = self.ends.lock();
        (std::mem::take(&mut ends.written), ends.is_dropped)
    }

    /// Completes when the dial was answered.
    pub(crate) async fn dialed(self: Arc<Self>) -> io::Result<NetworkConnection> {
        let stream = SimulatedStream(Arc::clone(&self));
        std::future::poll_fn(|context| {
            let mut ends = self.ends.lock();
            match ends.phase {
                SimulatedPhase::Dialing => {
                    ends.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
                SimulatedPhase::Open => Poll::Ready(Ok(())),
                SimulatedPhase::Ended => {
                    Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionRefused)))
                }
            }
        })
        .await?;
        let watched = Arc::clone(&self);
        Ok(NetworkConnection {
            stream: Box::new(stream),
            has_unread: Arc::new(move || !watched.ends.lock().arrived.is_empty()),
        })
    }
}

/// The instance's end. Dropping it closes the connection.
struct SimulatedStream(Arc<SimulatedConnection>);

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.0.ends.lock().is_dropped = true;
        self.0.activity.mark();
    }
}

impl AsyncRead for SimulatedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ends = self.0.ends.lock();
        if ends.arrived.is_empty() {
            if ends.phase == SimulatedPhase::Ended {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
            }
            ends.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = ends.arrived.len().min(buffer.remaining());
        let bytes: Vec<u8> = ends.arrived.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut ends = self.0.ends.lock();
        if ends.phase == SimulatedPhase::Ended {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe)));
        }
        ends.written.extend_from_slice(bytes);
        self.0.activity.mark();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
