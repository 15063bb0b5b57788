//! hyper with a small answer to anything: the floor of HTTP/1.1, and the server behind the gateways.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const BODY: &[u8] = b"{\"users\":[],\"page\":1,\"pages\":1}";

pub async fn serve() {
    let listener = crate::listen("http").await;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let service = service_fn(answer);
            let http = hyper::server::conn::http1::Builder::new();
            // A client that disconnects is no error here.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(BODY)));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    Ok(response)
}
