//! A real tonic server behind the layer, and a real tonic client before it: the health service, whose `Check`
//! is one answer and whose `Watch` is a stream of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Gate;
use tidegate_tower::RateLimitLayer;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::{HealthReporter, health_reporter};

use super::{gate, left};

/// A server that ends with the test.
struct Running {
    reporter: HealthReporter,
    address: SocketAddr,
    _serving: JoinSet<()>,
}

fn serve(gate: &Arc<Gate>) -> Running {
    let layer = RateLimitLayer::new(Arc::clone(gate)).peer_address(|request| {
        let peer = request.extensions.get::<TcpConnectInfo>()?;
        Some(peer.remote_addr()?.ip())
    });
    let (reporter, health) = health_reporter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    let mut serving = JoinSet::new();
    serving.spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    Running {
        reporter,
        address,
        _serving: serving,
    }
}

async fn client(running: &Running) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

fn anything() -> HealthCheckRequest {
    HealthCheckRequest::default()
}

/// Waits until so many places are free, which another task sees to.
async fn until_left(gate: &Gate, places: u64) {
    let waiting = async {
        while left(gate).await != places {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), waiting).await.unwrap();
}

#[tokio::test]
async fn a_call_beyond_the_limit_has_exhausted_a_resource() {
    let gate = gate(
        "- {id: checks, match: {path: /grpc.health.v1.Health/Check, ip: 127.0.0.1}, per: [ip], missing: deny, limit: 2/hour}",
    );
    let running = serve(&gate);
    let mut client = client(&running).await;
    for remaining in ["1", "0"] {
        let answer = client.check(anything()).await.unwrap();
        let shown = answer.metadata().get("x-ratelimit-remaining").unwrap();
        assert_eq!(shown, remaining);
        assert_eq!(answer.into_inner().status, 1, "serving");
    }
    let status = client.check(anything()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message = status.message();
    assert!(
        message.starts_with("the limit `checks` is used up"),
        "{message}"
    );
    let shown = |name: &str| status.metadata().get(name).unwrap().to_str().unwrap();
    assert_eq!(shown("x-ratelimit-limit"), "2");
    assert_eq!(shown("ratelimit-policy"), r#""checks";q=2;w=3600"#);
    let seconds: u64 = shown("retry-after").parse().unwrap();
    let millis: u64 = shown("grpc-retry-pushback-ms").parse().unwrap();
    assert!(
        (1_700..=1_800).contains(&seconds),
        "half an hour: {seconds}"
    );
    assert!((1_700_000..=1_800_000).contains(&millis), "{millis}");
    // Other calls of the service are not meant.
    client.watch(anything()).await.unwrap();
}

#[tokio::test]
async fn a_stream_holds_its_place_as_long_as_it_lasts() {
    let gate = gate("- {id: streams, per: [], limit: 1, algorithm: concurrency}");
    let running = serve(&gate);
    let mut client = client(&running).await;
    let mut stream = client.watch(anything()).await.unwrap().into_inner();
    let mut next = async || stream.message().await.unwrap().unwrap().status;
    assert_eq!(next().await, 1, "serving");
    let denied = client.check(anything()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);

    let reporter = &running.reporter;
    reporter
        .set_service_status("", ServingStatus::NotServing)
        .await;
    assert_eq!(next().await, 2, "not serving; the stream goes on");
    assert_eq!(left(&gate).await, 0);

    drop(stream);
    until_left(&gate, 1).await;
    client.check(anything()).await.unwrap();
    until_left(&gate, 1).await;
}
