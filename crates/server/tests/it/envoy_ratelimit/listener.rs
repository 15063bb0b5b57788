//! The listener of gRPC: a Unix socket, TLS of its own with the names of clients, and the age of connections.

use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_server::grpc_messages::health::HealthCheckRequest;
use tidegate_server::grpc_messages::rate_limit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tidegate_testkit_server::{PATIENCE, TestFolder};
use tokio::net::{TcpStream, UnixStream};
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request as Call, Status};
use tonic_prost::ProstCodec;

use super::{RULES, get, serve};
use crate::tls::Authority;

/// Sends a call that no domain knows: an answer, if the connection serves calls.
async fn ask(channel: Channel) -> Result<i32, Status> {
    let mut grpc = Grpc::new(channel);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::default();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let call = RateLimitRequest {
        domain: "other".to_owned(),
        descriptors: vec![RateLimitDescriptor::default()],
        hits_addend: 1,
    };
    let reply = grpc
        .unary(Call::new(call), path.parse().unwrap(), codec)
        .await?;
    Ok(reply.into_inner().overall_code)
}

#[tokio::test]
async fn a_unix_socket_is_served_and_an_old_one_replaced() {
    let folder = TestFolder::new();
    let path = folder.path("grpc.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address = format!("unix://{}", path.display());
    folder.write("rules.yaml", RULES);
    let server = folder.serve(&["--rules", "rules.yaml", "--grpc", &address]);
    assert_eq!(server.grpc, None);
    for _ in 0..2 {
        let path = path.clone();
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connect).await.unwrap();
        assert_eq!(ask(channel).await.unwrap(), 1);
    }
    server.stop();
}

#[test]
fn a_file_that_is_no_socket_is_kept() {
    let folder = TestFolder::new();
    folder.write("file", "kept");
    let address = format!("unix://{}", folder.file("file"));
    let config = folder.config(&["--grpc", &address]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(tidegate_server::Listeners::bind(&config));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot listen on the socket"), "{refused}");
    assert_eq!(
        std::fs::read_to_string(folder.path("file")).unwrap(),
        "kept"
    );
}

#[tokio::test]
async fn tls_is_of_grpc_alone_and_its_clients_have_a_name() {
    let ours = Authority::new();
    let (certificate, key) = ours.issue("localhost");
    let folder = TestFolder::new();
    for (name, text) in [
        ("ca.pem", ours.pem()),
        ("tls.crt", certificate),
        ("tls.key", key),
    ] {
        folder.write(name, &text);
    }
    let files = ["tls.crt", "tls.key", "ca.pem"].map(|name| folder.file(name));
    let variables = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &*files[0]),
        ("GRPC_SERVER_TLS_KEY", &*files[1]),
        ("GRPC_CLIENT_TLS_CACERT", &*files[2]),
        ("GRPC_CLIENT_TLS_SAN", "envoy.example.com"),
    ];
    let server = serve(&folder, RULES, &variables);
    assert_eq!(get(&server, "/healthcheck").0, 200, "HTTP stays plain");
    let port = server.grpc.unwrap().port();
    for (name, is_served) in [
        (Some("envoy.example.com"), true),
        (Some("other.example.com"), false),
        (None, false),
    ] {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ours.pem()));
        if let Some(name) = name {
            let (certificate, key) = ours.issue(name);
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await;
        // With TLS 1.3 a client learns only with its first call that it is refused.
        let answer = match channel {
            Ok(channel) => ask(channel).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(answer, is_served, "{name:?}");
    }
}

#[tokio::test]
async fn a_certificate_that_only_envoy_gateway_sets_requires_none_of_clients() {
    let ours = Authority::new();
    let (certificate, key) = ours.issue("localhost");
    let folder = TestFolder::new();
    for (name, text) in [
        ("ca.pem", ours.pem()),
        ("tls.crt", certificate),
        ("tls.key", key),
    ] {
        folder.write(name, &text);
    }
    let files = ["tls.crt", "tls.key", "ca.pem"].map(|name| folder.file(name));
    let variables = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &*files[0]),
        ("GRPC_SERVER_TLS_KEY", &*files[1]),
        ("GRPC_SERVER_TLS_CA_CERT", &*files[2]),
    ];
    let server = serve(&folder, RULES, &variables);
    let port = server.grpc.unwrap().port();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ours.pem()));
    let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
    assert_eq!(ask(channel).await.unwrap(), 1);
}

/// A connection that is watched to its end, and a call on it.
async fn connect(
    server: &crate::Server,
) -> (
    hyper::client::conn::http2::SendRequest<Empty<bytes::Bytes>>,
    tokio::task::JoinHandle<hyper::Result<()>>,
) {
    let stream = TcpStream::connect(server.grpc.unwrap()).await.unwrap();
    let io = TokioIo::new(stream);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

#[tokio::test]
async fn an_old_connection_is_asked_to_end() {
    let folder = TestFolder::new();
    let variables = [("GRPC_MAX_CONNECTION_AGE", "100ms")];
    let server = serve(&folder, RULES, &variables);
    let (mut sender, connection) = connect(&server).await;
    let request = Request::post("http://localhost/none")
        .body(Empty::new())
        .unwrap();
    let reply = sender.send_request(request).await.unwrap();
    assert_eq!(reply.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let ended = tokio::time::timeout(PATIENCE, connection).await;
    assert!(ended.unwrap().unwrap().is_ok(), "GOAWAY without an error");
}

#[tokio::test]
async fn an_old_connection_that_goes_on_is_cut_after_the_grace() {
    let folder = TestFolder::new();
    let variables = [
        ("GRPC_MAX_CONNECTION_AGE", "100ms"),
        ("GRPC_MAX_CONNECTION_AGE_GRACE", "100ms"),
    ];
    let server = serve(&folder, RULES, &variables);
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc.unwrap())).unwrap();
    let mut grpc = Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    // A watch has no end of its own.
    let codec: ProstCodec<
        HealthCheckRequest,
        tidegate_server::grpc_messages::health::HealthCheckResponse,
    > = ProstCodec::default();
    let path = "/grpc.health.v1.Health/Watch".parse().unwrap();
    let call = Call::new(HealthCheckRequest::default());
    let watch = grpc.server_streaming(call, path, codec).await.unwrap();
    let mut watch = watch.into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    let next = tokio::time::timeout(PATIENCE, watch.message())
        .await
        .unwrap();
    assert_ne!(next.unwrap_err().code(), Code::Ok);
}
