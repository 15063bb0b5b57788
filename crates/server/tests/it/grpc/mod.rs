//! gRPC, asked by the client of tonic, and by Envoy.

mod access;
mod bounds;
mod decisions;
mod descriptor_rules;
mod descriptors;
pub(crate) mod envoy;
mod failure;
mod health_and_reflection;
mod malformed;
mod quotas;
mod secure;
mod stats;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use tidegate_server::grpc_messages::rate_limit::{
    DescriptorEntry, LimitCode, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    UInt64Value,
};
use tidegate_testkit_server::TestFolder;

use crate::Server;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A server that speaks gRPC, in a folder.
struct Running {
    server: Server,
    folder: TestFolder,
}

/// A server with these rules and settings. In the settings, `FOLDER` stands for the folder.
fn start_in(folder: TestFolder, rules: Option<&str>, settings: &str) -> Running {
    folder.write(
        "tidegate.yaml",
        &settings.replace("FOLDER", &folder.file("")),
    );
    let mut arguments = vec!["--config", "tidegate.yaml", "--grpc", "127.0.0.1:0"];
    if let Some(rules) = rules {
        folder.write("rules.yaml", rules);
        arguments.extend(["--rules", "rules.yaml"]);
    }
    let server = folder.serve_with(&arguments, &[("TOKEN", "s3cret")]);
    Running { server, folder }
}

fn start(rules: &str) -> Running {
    start_in(TestFolder::new(), Some(rules), "")
}

impl Running {
    async fn client(&self) -> Client {
        let address = self.server.grpc.unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Client::new(endpoint.connect().await.unwrap())
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
        let one = |status: &tidegate_server::grpc_messages::rate_limit::DescriptorStatus| {
            (is_ok(status.code), status.limit_remaining)
        };
        (
            is_ok(answer.overall_code),
            answer.statuses.iter().map(one).collect(),
        )
    }
}

/// Whether a server allows a call about descriptors, for tests without a runtime.
pub(crate) fn allows(server: &Server, descriptors: &[&str]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc.unwrap())).unwrap();
        let mut client = Client::new(endpoint.connect().await.unwrap());
        client.decide(request(descriptors)).await.0
    })
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
