//! The connections of one worker to the servers behind the gateway, kept for the next request.

use std::sync::Weak;
use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;
use quanta::Instant;

use crate::http1::Http1;
use crate::request_body::RequestBody;
use crate::upstream::Upstream;

/// How many connections to a server wait for a request at the most, in each worker.
const MOST_IDLE: usize = 256;

/// How long they wait.
const LONGEST_IDLE: Duration = Duration::from_mins(1);
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Connections that wait, by the place of their server.
pub(crate) struct Pool {
    racks: Vec<Mutex<Rack>>,
}

#[derive(Default)]
struct Rack {
    /// The one that was used last is the last.
    http1: Vec<(Box<Http1>, Instant)>,
    /// Shared by all requests.
    http2: Option<http2::SendRequest<RequestBody>>,
}

impl Pool {
    pub(crate) fn new(upstreams: usize) -> Self {
        Self {
            racks: (0..upstreams).map(|_| Mutex::default()).collect(),
        }
    }

    /// A connection that waits and is still good.
    pub(crate) fn take_http1(&self, upstream: &Upstream) -> Option<Box<Http1>> {
        let rack = self.racks.get(upstream.place)?;
        loop {
            let (mut connection, _) = rack.lock().http1.pop()?;
            if connection.is_free() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection, if it can take another request.
    pub(crate) fn keep_http1(&self, place: usize, mut connection: Box<Http1>) {
        let Some(rack) = self.racks.get(place) else {
            return;
        };
        if connection.can_be_kept() {
            connection.rest();
            let mut rack = rack.lock();
            if rack.http1.len() < MOST_IDLE {
                rack.http1.push((connection, Instant::now()));
            }
        }
    }

    pub(crate) fn http2(&self, upstream: &Upstream) -> Option<http2::SendRequest<RequestBody>> {
        let mut rack = self.racks.get(upstream.place)?.lock();
        rack.http2.take_if(|sender| sender.is_closed());
        rack.http2.clone()
    }

    pub(crate) fn keep_http2(&self, place: usize, sender: http2::SendRequest<RequestBody>) {
        if let Some(rack) = self.racks.get(place) {
            rack.lock().http2 = Some(sender);
        }
    }

    /// Closes a connection that waits, so that another can be opened. Whether there was one.
    pub(crate) fn close_one(&self) -> bool {
        self.racks.iter().any(|rack| {
            let mut rack = rack.lock();
            let oldest = (!rack.http1.is_empty()).then(|| rack.http1.remove(0));
            drop(rack);
            oldest.is_some()
        })
    }

    /// Lets go of what has waited for too long, or was closed by the server.
    fn sweep(&self) {
        for rack in &self.racks {
            let waiting = std::mem::take(&mut rack.lock().http1);
            let mut good: Vec<_> = waiting
                .into_iter()
                .filter_map(|(mut connection, since)| {
                    let is_good = since.elapsed() < LONGEST_IDLE && connection.is_free();
                    is_good.then_some((connection, since))
                })
                .collect();
            let mut rack = rack.lock();
            good.append(&mut rack.http1);
            rack.http1 = good;
        }
    }
}

/// Sweeps a pool for as long as there is one.
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

    use super::*;
    use crate::http1::Stream;
    use crate::upstream_url::{UpstreamScheme, UpstreamUrl};

    #[tokio::test]
    async fn of_many_connections_that_were_closed_none_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = UpstreamUrl {
            scheme: UpstreamScheme::Http,
            authority: address.to_string().parse().unwrap(),
            host: address.ip().to_string(),
            port: address.port(),
        };
        let (pool, upstream) = (Pool::new(1), Upstream::new(url, 0));
        let mut open = None;
        for _ in 0..MOST_IDLE {
            let stream = TcpStream::connect(address).await.unwrap();
            let (other, _) = listener.accept().await.unwrap();
            pool.keep_http1(0, Http1::new(Stream::Plain(stream)));
            // The first stays, which is the one that is looked at last.
            open.get_or_insert(other);
        }
        // So that the news has come, and is not asked of the kernel one by one.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(pool.take_http1(&upstream).is_some());
        assert!(pool.racks[0].lock().http1.is_empty());
    }
}
