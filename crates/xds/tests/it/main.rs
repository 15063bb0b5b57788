//! The client against a scripted management server, over real connections.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot be set up has failed, and some measure pauses"
)]

mod certificates;
mod failures;
mod streams;

use std::time::Duration;

use tidegate_testkit_xds::{ManagementServer, RATE_LIMIT_CONFIG};
use tidegate_xds::{RetryTimes, XdsClient, XdsError, XdsEvent, XdsResponse, XdsSettings, XdsTls};

/// Short, so that tests need not wait.
const RETRY: RetryTimes = RetryTimes {
    is_jittered: true,
    initial: Duration::from_millis(20),
    max: Duration::from_millis(40),
};

fn settings(server: &str) -> XdsSettings {
    XdsSettings {
        server: server.parse().unwrap(),
        type_url: RATE_LIMIT_CONFIG,
        node: "envoy-ratelimit".to_owned(),
        metadata: vec![("team".to_owned(), "edge".to_owned())],
        headers: Vec::new(),
        tls: None,
        retry: RETRY,
        max_message: 64 << 20,
    }
}

fn client_of(server: &ManagementServer) -> XdsClient {
    XdsClient::new(settings(&server.address().to_string()))
}

fn with_tls(server: &ManagementServer, tls: XdsTls) -> XdsClient {
    XdsClient::new(XdsSettings {
        tls: Some(tls),
        ..settings(&format!("localhost:{}", server.address().port()))
    })
}

async fn response(client: &mut XdsClient) -> XdsResponse {
    loop {
        match client.next().await {
            XdsEvent::Response(response) => return response,
            XdsEvent::Opened => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The next failure. A stream may be opened before.
async fn failure(client: &mut XdsClient) -> (XdsError, Duration) {
    loop {
        match client.next().await {
            XdsEvent::Failed { error, pause } => return (error, pause),
            XdsEvent::Opened => {}
            other => panic!("{other:?}"),
        }
    }
}
