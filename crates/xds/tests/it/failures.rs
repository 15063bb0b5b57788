//! Streams that end, and servers that are away.

use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use tidegate_testkit_xds::{ManagementServer, ScriptedResponse};
use tidegate_xds::{RetryTimes, XdsClient, XdsError, XdsEvent, XdsSettings};
use tokio::time::Instant;

use crate::{RETRY, client_of, failure, response, settings};

#[tokio::test(start_paused = true)]
async fn pauses_double_while_the_server_is_away() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    let mut client = XdsClient::new(XdsSettings {
        retry: RetryTimes::default(),
        ..settings(&address)
    });
    let mut most = 1.0;
    let mut expected = Duration::ZERO;
    for _ in 0..9 {
        let begun = Instant::now();
        let XdsEvent::Failed { error, pause } = client.next().await else {
            panic!("it is connected to a closed port")
        };
        assert!(matches!(error, XdsError::Unreachable(_)), "{error}");
        let waited = begun.elapsed();
        let range = expected..=expected + Duration::from_millis(2);
        assert!(range.contains(&waited), "{waited:?} {expected:?}");
        let seconds = pause.as_secs_f64();
        assert!((most / 2.0..=most).contains(&seconds), "{seconds} {most}");
        most = f64::min(most * 2.0, 60.0);
        expected = pause;
    }
    assert!(expected >= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping_for_ten_seconds_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = XdsClient::new(settings(&silent.local_addr().unwrap().to_string()));
    assert!(matches!(client.next().await, XdsEvent::Opened));
    let begun = Instant::now();
    let (error, _) = failure(&mut client).await;
    assert!(matches!(error, XdsError::Lost(_)), "{error}");
    let waited = begun.elapsed();
    let expected = Duration::from_secs(40)..Duration::from_secs(41);
    assert!(expected.contains(&waited), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_that_ends_with_any_status_is_followed_by_another_after_a_pause() {
    let server = ManagementServer::start();
    let mut client = client_of(&server);
    for code in [0, 1, 2, 8, 13, 14, 16] {
        client.next().await;
        let stream = server.stream();
        stream.respond(&ScriptedResponse::new("1", Vec::new()));
        response(&mut client).await;
        client.accept();
        stream.end(code, "no more%21");
        let (error, pause) = failure(&mut client).await;
        assert_eq!(
            error.to_string(),
            format!("the server ended the stream with status {code}: no more!")
        );
        // A response has come, so it is the first pause.
        assert!((RETRY.initial / 2..=RETRY.initial).contains(&pause));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pauses_grow_while_streams_end_without_a_response() {
    let server = ManagementServer::start();
    let mut client = client_of(&server);
    let mut longest = Duration::ZERO;
    for _ in 0..4 {
        client.next().await;
        server.stream().end(14, "");
        longest = longest.max(failure(&mut client).await.1);
    }
    assert!(longest > RETRY.initial, "{longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_that_is_too_large_or_no_message_ends_the_stream() {
    let server = ManagementServer::start();
    let address = server.address().to_string();
    let mut client = XdsClient::new(XdsSettings {
        max_message: 1_000,
        ..settings(&address)
    });
    client.next().await;
    let large = ScriptedResponse::new("1", vec![vec![0; 2_000]]);
    server.stream().respond(&large);
    let (error, _) = failure(&mut client).await;
    let XdsError::TooLarge { given, most } = error else {
        panic!("{error}")
    };
    assert!(given > 2_000 && most == 1_000, "{given} {most}");

    for bytes in [&b"\0\0\0\0\x02\xff\xff"[..], b"\x07\0\0\0\0"] {
        client.next().await;
        server.stream().send(Bytes::from_static(bytes));
        let (error, _) = failure(&mut client).await;
        assert!(error.is_about_response(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_message_arrives_whole() {
    let server = ManagementServer::start();
    let mut client = client_of(&server);
    client.next().await;
    let stream = server.stream();
    let resource: Vec<u8> = (0..=250).cycle().take(20 << 20).collect();
    stream.respond(&ScriptedResponse::new("1", vec![resource.clone()]));
    assert!(response(&mut client).await.resources == [Bytes::from(resource)]);
}
