//! Health and reflection.

use http::uri::PathAndQuery;
use prost::Message as _;
use prost_types::FileDescriptorProto;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use tidegate_server::grpc_messages::health::{HealthCheckRequest, HealthCheckResponse};
use tidegate_server::grpc_messages::reflection::{
    MessageRequest, MessageResponse, ServerReflectionRequest, ServerReflectionResponse,
};
use tidegate_testkit_server::TestFolder;

use super::{Client, start, start_in};

/// The services that a server has.
const SERVICES: [&str; 4] = [
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

const RULES: &str = "rules: []";

fn about(service: &str) -> Request<HealthCheckRequest> {
    Request::new(HealthCheckRequest {
        service: service.to_owned(),
    })
}

#[tokio::test]
async fn each_service_says_how_it_is() {
    let server = start(RULES);
    let mut client = server.client().await;
    let path = "/grpc.health.v1.Health/Check";
    for service in SERVICES.iter().chain(&[""]) {
        let health: HealthCheckResponse = client.call(path, about(service)).await.unwrap();
        assert_eq!(health.status, 1, "{service}");
    }
    let unknown = client
        .call::<_, HealthCheckResponse>(path, about("other"))
        .await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_watching_client_hears_that_the_server_ends() {
    let folder = TestFolder::new();
    let server = start_in(folder, Some(RULES), "drain_delay: 700ms");
    let mut client = server.client().await;
    client.grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Watch");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let watched = client.grpc.server_streaming(about(""), path, codec).await;
    let mut watched = watched.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    server.server.shut_down();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
    assert!(
        watched.message().await.unwrap().is_none(),
        "it ends in good order"
    );
    server.server.log.whole();
}

#[tokio::test]
async fn watching_an_unknown_service_is_answered_as_unknown() {
    let server = start(RULES);
    let mut client = server.client().await;
    client.grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Watch");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let watched = client
        .grpc
        .server_streaming(about("other"), path, codec)
        .await;
    let mut watched = watched.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 3);
    drop(watched);
}

async fn reflect(
    client: &mut Client,
    path: &'static str,
    asked: Vec<MessageRequest>,
) -> Vec<MessageResponse> {
    client.grpc.ready().await.unwrap();
    let codec = ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
    let asked = asked.into_iter().map(|asked| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(asked),
    });
    let asked = Request::new(futures_util::stream::iter(asked.collect::<Vec<_>>()));
    let path = PathAndQuery::from_static(path);
    let answers = client.grpc.streaming(asked, path, codec).await;
    let mut answers = answers.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        all.push(answer.message_response.unwrap());
    }
    all
}

#[tokio::test]
async fn reflection_lists_what_can_be_called() {
    let server = start(RULES);
    let mut client = server.client().await;
    for path in [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ] {
        let asked = vec![
            MessageRequest::ListServices("*".to_owned()),
            MessageRequest::FileContainingSymbol(SERVICES[0].to_owned()),
            MessageRequest::FileByFilename("google/protobuf/duration.proto".to_owned()),
            MessageRequest::FileByFilename("no/such.proto".to_owned()),
        ];
        let answers = reflect(&mut client, path, asked).await;
        let [services, file, by_name, missing] = answers.as_slice() else {
            panic!("{answers:?}");
        };
        let MessageResponse::ListServicesResponse(services) = services else {
            panic!("{services:?}");
        };
        assert_eq!(services.service.len(), SERVICES.len());
        for (file, name) in [
            (file, "envoy/service/ratelimit/v3/rls.proto"),
            (by_name, "google/protobuf/duration.proto"),
        ] {
            let MessageResponse::FileDescriptorResponse(file) = file else {
                panic!("{file:?}");
            };
            let bytes = file.file_descriptor_proto[0].as_slice();
            assert_eq!(FileDescriptorProto::decode(bytes).unwrap().name(), name);
        }
        assert!(matches!(missing, MessageResponse::ErrorResponse(error) if error.error_code == 5));
    }
}
