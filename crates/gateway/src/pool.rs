//! The idle connections of one worker to the servers behind the gateway.

use std::sync::Weak;
use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;
use tidegate_listen::clock::{Instant, now};

use crate::http1::Http1;
use crate::request_body::RequestBody;
use crate::upstream::Upstream;

/// The most idle connections to a server, in each worker.
const MOST_IDLE: usize = 256;

/// How long they are kept.
const LONGEST_IDLE: Duration = Duration::from_mins(1);
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Idle connections, by the index of their server.
pub(crate) struct Pool {
    idle: Vec<Mutex<IdleConnections>>,
}

#[derive(Default)]
struct IdleConnections {
    /// Most recently used last.
    http1: Vec<(Box<Http1>, Instant)>,
    /// The HTTP/2 connection, shared by all requests.
    http2: Option<http2::SendRequest<RequestBody>>,
}

impl Pool {
    pub(crate) fn new(upstreams: usize) -> Self {
        Self {
            idle: (0..upstreams).map(|_| Mutex::default()).collect(),
        }
    }

    /// Takes an idle connection that is still usable.
    pub(crate) fn take_http1(&self, upstream: &Upstream) -> Option<Box<Http1>> {
        let idle = self.idle.get(upstream.index)?;
        loop {
            let (mut connection, _) = idle.lock().http1.pop()?;
            if connection.is_free() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection, if it can take another request.
    pub(crate) fn keep_http1(&self, index: usize, mut connection: Box<Http1>) {
        let Some(idle) = self.idle.get(index) else {
            return;
        };
        if connection.can_be_kept() {
            connection.rest();
            let mut idle = idle.lock();
            if idle.http1.len() < MOST_IDLE {
                idle.http1.push((connection, now()));
            }
        }
    }

    pub(crate) fn http2(&self, upstream: &Upstream) -> Option<http2::SendRequest<RequestBody>> {
        let mut idle = self.idle.get(upstream.index)?.lock();
        idle.http2.take_if(|sender| sender.is_closed());
        idle.http2.clone()
    }

    pub(crate) fn keep_http2(&self, index: usize, sender: http2::SendRequest<RequestBody>) {
        if let Some(idle) = self.idle.get(index) {
            idle.lock().http2 = Some(sender);
        }
    }

    /// Closes an idle connection, so that another can be opened. Returns whether there was one.
    pub(crate) fn close_one(&self) -> bool {
        self.idle.iter().any(|idle| {
            let mut idle = idle.lock();
            let oldest = (!idle.http1.is_empty()).then(|| idle.http1.remove(0));
            drop(idle);
            oldest.is_some()
        })
    }

    /// Drops connections that were idle for too long or closed by the server.
    fn sweep(&self) {
        for idle in &self.idle {
            let waiting = std::mem::take(&mut idle.lock().http1);
            let mut good: Vec<_> = waiting
                .into_iter()
                .filter_map(|(mut connection, since)| {
                    let is_good = since.elapsed() < LONGEST_IDLE && connection.is_free();
                    is_good.then_some((connection, since))
                })
                .collect();
            let mut idle = idle.lock();
            good.append(&mut idle.http1);
            idle.http1 = good;
        }
    }
}

/// Sweeps a pool while it exists.
pub(crate) async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(pool) = Weak::upgrade(&pool) else {
            return;
        };
        pool.sweep();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::advance;

    use super::*;
    use crate::http1::Stream;
    use crate::upstream_url::{UpstreamScheme, UpstreamUrl};

    /// A pool for one server, and that server.
    async fn pool() -> (Pool, Upstream, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = UpstreamUrl {
            scheme: UpstreamScheme::Http,
            authority: address.to_string().parse().unwrap(),
            host: address.ip().to_string(),
            port: address.port(),
        };
        (Pool::new(1), Upstream::new(url, 0), listener)
    }

    /// Both ends of a new connection.
    async fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (connected, accepted) = tokio::join!(connecting, listener.accept());
        (connected.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn of_many_connections_that_were_closed_none_is_taken() {
        let (pool, upstream, listener) = pool().await;
        // The first stays, because it is checked last.
        let (first, _open) = connect(&listener).await;
        pool.keep_http1(0, Http1::new(Stream::Plain(first)));
        for _ in 1..MOST_IDLE {
            let (stream, other) = connect(&listener).await;
            drop(other);
            stream.readable().await.unwrap();
            pool.keep_http1(0, Http1::new(Stream::Plain(stream)));
        }
        assert!(pool.take_http1(&upstream).is_some());
        assert!(pool.idle[0].lock().http1.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_a_minute_and_not_longer() {
        let (pool, _, listener) = pool().await;
        let (stream, _open) = connect(&listener).await;
        pool.keep_http1(0, Http1::new(Stream::Plain(stream)));
        let second = Duration::from_secs(1);
        for (wait, left) in [(LONGEST_IDLE.saturating_sub(second), 1), (second, 0)] {
            advance(wait).await;
            pool.sweep();
            assert_eq!(pool.idle[0].lock().http1.len(), left);
        }
    }
}
