//! What is said on a stream: first requests, acceptance, refusals.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tidegate_testkit_xds::{ManagementServer, RATE_LIMIT_CONFIG, ScriptedResponse};
use tidegate_xds::proto::DiscoveryRequest;
use tidegate_xds::{XdsClient, XdsEvent, XdsSettings};
use tokio::time::Instant;

use crate::{RETRY, client_of, failure, response, settings};

fn assert_is_first(request: &DiscoveryRequest) {
    let node = request.node.as_ref().unwrap();
    assert_eq!(node.id, "envoy-ratelimit");
    assert_eq!(node.metadata.as_ref().unwrap().fields.len(), 1);
    assert_eq!(request.type_url, RATE_LIMIT_CONFIG);
    assert_eq!((&*request.version_info, &*request.response_nonce), ("", ""));
    assert!(request.resource_names.is_empty() && request.error_detail.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_begins_with_the_node_and_each_response_is_answered() {
    let server = ManagementServer::start();
    let headers = vec![(
        HeaderName::from_static("x-team"),
        HeaderValue::from_static("edge"),
    )];
    let address = server.address().to_string();
    let mut client = XdsClient::new(XdsSettings {
        headers,
        ..settings(&address)
    });
    assert!(matches!(client.next().await, XdsEvent::Opened));
    let stream = server.stream();
    assert_eq!(stream.headers["x-team"], "edge");
    assert_eq!(stream.headers["te"], "trailers");
    assert_is_first(&stream.request().unwrap());

    stream.respond(&ScriptedResponse::new(
        "7",
        vec![b"one".to_vec(), b"two".to_vec()],
    ));
    let first = response(&mut client).await;
    assert_eq!((&*first.version, first.is_first), ("7", true));
    assert_eq!(first.resources, [Bytes::from("one"), Bytes::from("two")]);
    assert!(
        stream.requests().is_empty(),
        "not answered before it is used"
    );
    client.accept();
    let accepted = stream.request().unwrap();
    assert_eq!(
        (&*accepted.version_info, &*accepted.response_nonce),
        ("7", "n7")
    );
    assert!(accepted.error_detail.is_none() && accepted.node.is_none());

    stream.respond(&ScriptedResponse::new("8", Vec::new()));
    let second = response(&mut client).await;
    assert_eq!((second.is_first, second.resources.len()), (false, 0));
    client.refuse("resource `a`, field `domain`: it is empty");
    let refused = stream.request().unwrap();
    assert_eq!(
        (&*refused.version_info, &*refused.response_nonce),
        ("7", "n8")
    );
    let detail = refused.error_detail.unwrap();
    assert_eq!(detail.code, 3);
    assert_eq!(detail.message, "resource `a`, field `domain`: it is empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_new_stream_of_a_restarted_server_begins_anew() {
    let server = ManagementServer::start();
    let address = server.address();
    let mut client = client_of(&server);
    client.next().await;
    let stream = server.stream();
    stream.respond(&ScriptedResponse::new("5", Vec::new()));
    response(&mut client).await;
    client.accept();
    assert_is_first(&stream.request().unwrap());
    assert_eq!(stream.request().unwrap().version_info, "5");
    drop((stream, server));

    failure(&mut client).await;
    let server = ManagementServer::serve(address, tidegate_testkit_xds::ServedOver::Tcp);
    loop {
        match client.next().await {
            XdsEvent::Opened => break,
            XdsEvent::Failed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let stream = server.stream();
    assert_is_first(&stream.request().unwrap());
    // It counts from one again.
    stream.respond(&ScriptedResponse::new("1", Vec::new()));
    assert!(response(&mut client).await.is_first);
    client.accept();
    assert_eq!(stream.request().unwrap().version_info, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn resources_of_another_type_are_refused() {
    let server = ManagementServer::start();
    let mut client = client_of(&server);
    client.next().await;
    let stream = server.stream();
    stream.request().unwrap();
    stream.respond(&ScriptedResponse {
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        ..ScriptedResponse::new("1", vec![Vec::new()])
    });
    let XdsEvent::Misfit(message) = client.next().await else {
        panic!("it was taken")
    };
    assert!(
        message.contains("envoy.config.cluster.v3.Cluster"),
        "{message}"
    );
    let refused = stream.request().unwrap();
    assert_eq!(
        (&*refused.version_info, &*refused.response_nonce),
        ("", "n1")
    );
    assert_eq!(refused.error_detail.unwrap().message, message);
}

/// Some servers send a response again when its refusal names another version than theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_response_that_comes_again_and_again_is_refused_after_a_pause() {
    let server = ManagementServer::start();
    let mut client = client_of(&server);
    client.next().await;
    let stream = server.stream();
    stream.request().unwrap();
    let bad = ScriptedResponse::new("1", Vec::new());
    stream.respond(&bad);
    response(&mut client).await;
    client.refuse("bad");
    assert!(stream.request().unwrap().error_detail.is_some());

    stream.respond(&bad);
    response(&mut client).await;
    client.refuse("bad");
    let begun = Instant::now();
    let answering = tokio::task::spawn_blocking(move || {
        let refusal = stream.request().unwrap();
        stream.respond(&ScriptedResponse::new("2", Vec::new()));
        (stream, refusal)
    });
    let answered = response(&mut client).await;
    assert!(begun.elapsed() >= RETRY.initial / 2);
    assert_eq!(answered.version, "2");
    let (_stream, refusal) = answering.await.unwrap();
    assert!(refusal.error_detail.is_some());
}
