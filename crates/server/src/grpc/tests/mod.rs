//! A whole server in this process, asked by the client of tonic.

mod access;
mod decisions;
mod descriptors;
mod failure;
mod health_and_reflection;
mod malformed;
mod quotas;
mod secure;

use std::net::SocketAddr;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::proto::rate_limit::{
    DescriptorEntry, LimitCode, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    UInt64Value,
};
use crate::{Config, Handle, Listeners, Overrides, Service};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A server, until it is dropped.
struct Running {
    address: SocketAddr,
    handle: Handle,
    ended: tokio::task::JoinHandle<()>,
    folder: tempfile::TempDir,
}

/// A server with these rules and settings. The settings may name files of the folder.
async fn start_in(folder: tempfile::TempDir, rules: Option<&str>, settings: &str) -> Running {
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("tidegate.yaml"), settings.replace("FOLDER", &path(""))).unwrap();
    let mut flags = vec![
        ("config", path("tidegate.yaml")),
        ("http", "127.0.0.1:0".to_owned()),
        ("grpc", "127.0.0.1:0".to_owned()),
        ("data_dir", path("data")),
    ];
    if let Some(rules) = rules {
        std::fs::write(path("rules.yaml"), rules).unwrap();
        flags.push(("rules", path("rules.yaml")));
    }
    let environment = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
    let config = Config::load(&Overrides {
        environment: &environment,
        variables: Vec::new(),
        flags,
    })
    .unwrap();
    let service = Service::open(&config).await.unwrap();
    let listeners = Listeners::bind(&config).await.unwrap();
    let address = listeners.grpc.as_ref().unwrap().local_addr().unwrap();
    let handle = Handle::new();
    let ended = tokio::spawn(service.run(listeners, handle.clone()));
    Running {
        address,
        handle,
        ended,
        folder,
    }
}

async fn start(rules: &str) -> Running {
    start_in(tempfile::tempdir().unwrap(), Some(rules), "").await
}

impl Running {
    async fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Client::new(endpoint.connect().await.unwrap())
    }

    async fn end(self) {
        self.handle.shut_down();
        self.ended.await.unwrap();
    }
}

/// A client of everything.
struct Client {
    grpc: Grpc<Channel>,
}

impl Client {
    fn new(channel: Channel) -> Self {
        Self {
            grpc: Grpc::new(channel),
        }
    }

    async fn call<I, O>(&mut self, path: &'static str, request: Request<I>) -> Result<O, Status>
    where
        I: Message + Send + Sync + 'static,
        O: Message + Default + Send + Sync + 'static,
    {
        self.grpc
            .ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<I, O>::default();
        let path = PathAndQuery::from_static(path);
        let answer = self.grpc.unary(request, path, codec).await?;
        Ok(answer.into_inner())
    }

    async fn ask(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.call(SHOULD_RATE_LIMIT, Request::new(request)).await
    }

    /// Whether it may go on, and for each descriptor whether and what is left.
    async fn decide(&mut self, request: RateLimitRequest) -> (bool, Vec<(bool, u32)>) {
        let answer = self.ask(request).await.unwrap();
        let one = |status: &super::proto::rate_limit::DescriptorStatus| {
            (is_ok(status.code), status.limit_remaining)
        };
        (
            is_ok(answer.overall_code),
            answer.statuses.iter().map(one).collect(),
        )
    }
}

/// A call about descriptors such as `user=a path=/x`.
fn request(descriptors: &[&str]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "web".to_owned(),
        descriptors: descriptors.iter().map(|text| descriptor(text)).collect(),
        hits_addend: 0,
    }
}

fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        DescriptorEntry {
            key: key.to_owned(),
            value: value.to_owned().into(),
        }
    };
    RateLimitDescriptor {
        entries: text.split(' ').map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

/// A descriptor with an addend of its own.
fn adding(text: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(UInt64Value { value: hits }),
        ..descriptor(text)
    }
}

fn calling(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        descriptors,
        ..request(&[])
    }
}

fn is_ok(code: i32) -> bool {
    assert_ne!(code, i32::from(LimitCode::Unknown), "Envoy lets it pass");
    code == i32::from(LimitCode::Ok)
}

/// The value of a header that Envoy is to add.
fn header<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let headers = &answer.response_headers_to_add;
    let found = headers.iter().find(|header| header.key == name);
    found.map(|header| std::str::from_utf8(&header.value).unwrap())
}
