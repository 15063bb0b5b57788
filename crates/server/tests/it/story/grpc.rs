//! `ShouldRateLimit`, as Envoy asks it: what is known of the request is one descriptor.

use http::uri::PathAndQuery;
use prost::Message;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc as Caller;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::Ask;
use super::scenario::{Scenario, Step};
use super::seen::{Seen, Times};
use crate::Server;
use tidegate_testkit_server::TestFolder;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const OK: i32 = 1;

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
    entries: Vec<Pair>,
}

/// An entry of a descriptor, and a header of an answer.
#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, repeated, tag = "2")]
    statuses: Vec<Status>,
    #[prost(message, repeated, tag = "3")]
    headers: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, optional, tag = "2")]
    limit: Option<Limit>,
    #[prost(uint32, tag = "3")]
    remaining: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Limit {
    #[prost(uint32, tag = "1")]
    count: u32,
    #[prost(string, tag = "3")]
    name: String,
}

pub(super) struct Grpc {
    caller: Caller<Channel>,
    runtime: Runtime,
    _server: Server,
    _place: TestFolder,
}

impl Grpc {
    pub(super) fn open(scenario: &Scenario) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.json", &scenario.rules_file());
        let server = folder.serve(&["--rules", "rules.json", "--grpc", "127.0.0.1:0"]);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc.unwrap()));
        let channel = runtime.block_on(endpoint.unwrap().connect());
        Self {
            caller: Caller::new(channel.unwrap()),
            runtime,
            _server: server,
            _place: folder,
        }
    }
}

impl Ask for Grpc {
    fn times(&self) -> Times {
        Times::Flowing
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let pair = |(key, value): (&str, &str)| Pair {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let entries = step.known().map(pair).collect();
        let question = Question {
            domain: "story".to_owned(),
            descriptors: vec![Descriptor { entries }],
            hits_addend: step.cost.map_or(0, |cost| u32::try_from(cost).unwrap()),
        };
        let answer: Answer = self.runtime.block_on(async {
            self.caller.ready().await.unwrap();
            let path = PathAndQuery::from_static(METHOD);
            let codec = ProstCodec::default();
            let request = tonic::Request::new(question);
            let answer = self.caller.unary(request, path, codec).await;
            answer.unwrap().into_inner()
        });
        let [status] = answer.statuses.as_slice() else {
            panic!("one descriptor has one status: {answer:?}");
        };
        assert_eq!(answer.code, status.code);
        let limit = status.limit.as_ref();
        let headers = answer.headers.iter();
        let reason = headers.clone().find(|pair| pair.key == "x-tidegate-reason");
        Seen {
            allowed: answer.code == OK,
            is_refused: false,
            rule: Some(json!(limit.map(|limit| &limit.name))),
            limit: Some(json!(limit.map(|limit| limit.count))),
            remaining: Some(json!(limit.map(|_| status.remaining))),
            retry_after: None,
            reason: Some(json!(reason.map(|pair| &pair.value))),
            missing: None,
            headers: Some(
                headers
                    .map(|pair| (pair.key.clone(), pair.value.clone()))
                    .collect(),
            ),
        }
    }
}
