//! tonic with a service that reads the message of `ShouldRateLimit`, and allows it.

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

/// An answer with one status, of the size of Tidegate's.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    statuses: Vec<LimitStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct LimitStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, optional, tag = "2")]
    current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    limit_remaining: u32,
}

#[derive(Clone, PartialEq, Message)]
struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    unit: i32,
    #[prost(string, tag = "3")]
    name: String,
}

/// Allows what it gets.
#[derive(Clone)]
struct Allow;

impl NamedService for Allow {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl UnaryService<Question> for Allow {
    type Response = Answer;
    type Future = std::future::Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let question = request.into_inner();
        let limit = CurrentLimit {
            requests_per_unit: 1_000_000,
            unit: 1,
            name: "per-user".to_owned(),
        };
        let statuses = question.descriptors.iter().map(|_| LimitStatus {
            code: 1,
            current_limit: Some(limit.clone()),
            limit_remaining: 999_999,
        });
        std::future::ready(Ok(Response::new(Answer {
            overall_code: 1,
            statuses: statuses.collect(),
        })))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Service<http::Request<Body>> for Allow {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        Box::pin(async move {
            let codec = ProstCodec::<Answer, Question>::default();
            let mut grpc = tonic::server::Grpc::new(codec);
            Ok(grpc.unary(Allow, request).await)
        })
    }
}

pub async fn serve() {
    let incoming = tonic::transport::server::TcpIncoming::bind(([127, 0, 0, 1], 0).into());
    let incoming = incoming.expect("a port").with_nodelay(Some(true));
    let address = incoming.local_addr().expect("its address");
    println!("listening grpc={address}");
    tonic::transport::Server::builder()
        .add_service(Allow)
        .serve_with_incoming(incoming)
        .await
        .expect("served");
}
