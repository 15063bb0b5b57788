//! tonic with a service that sends the message of `ShouldRateLimit` back.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use prost::Message;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// Sends back what it gets.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl UnaryService<Question> for Echo {
    type Response = Question;
    type Future = std::future::Ready<Result<Response<Question>, Status>>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        Box::pin(async move {
            let codec = ProstCodec::<Question, Question>::default();
            let mut grpc = tonic::server::Grpc::new(codec);
            Ok(grpc.unary(Echo, request).await)
        })
    }
}

pub async fn serve() {
    let incoming = tonic::transport::server::TcpIncoming::bind(([127, 0, 0, 1], 0).into());
    let incoming = incoming.expect("a port").with_nodelay(Some(true));
    let address = incoming.local_addr().expect("its address");
    println!("listening grpc={address}");
    tonic::transport::Server::builder()
        .add_service(Echo)
        .serve_with_incoming(incoming)
        .await
        .expect("served");
}
