//! What hyper makes of the bytes of a client: the reference for the strict framing reader.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future as _;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;

use crate::memory_stream::{MemoryStream, poll_to_end};

/// A request whose body has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedRequest {
    pub(crate) method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

/// The complete requests of a client that sends these bytes and closes, up to the first that hyper refuses. The
/// settings are those of `tidegate-listen`.
pub(crate) fn serve(bytes: &[u8]) -> Vec<ServedRequest> {
    let served = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let served = Rc::clone(&served);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let trailers = body.trailers().cloned();
                served.borrow_mut().push(ServedRequest {
                    method: head.method,
                    uri: head.uri,
                    version: head.version,
                    headers: head.headers,
                    body: body.to_bytes(),
                    trailers,
                });
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let mut http1 = http1::Builder::new();
    http1
        .header_read_timeout(None)
        .max_buf_size(16 * 1024)
        .half_close(true);
    let connection = http1.serve_connection(MemoryStream::from_client(bytes), service);
    let mut connection = pin!(connection);
    // How it ends does not matter: what was served counts.
    let _ = poll_to_end(|cx| connection.as_mut().poll(cx));
    served.take()
}
