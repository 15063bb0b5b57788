//! Without the store, and without rules.

use tonic::{Code, Request};

use tidegate_server::grpc_messages::health::{HealthCheckRequest, HealthCheckResponse};
use tidegate_testkit_server::TestFolder;

use super::{header, is_ok, request, start_in};

/// A Redis that is not there: nothing listens on this port.
pub(super) fn away() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    format!("redis: redis://{address}\n")
}

#[tokio::test]
async fn a_rule_that_denies_without_the_store_is_over_the_limit_and_says_why() {
    let rules = "
rules:
- {id: closed, match: {attributes: {a: '1'}}, per: [], limit: 5/minute, on_store_failure: deny}
- {id: open, match: {attributes: {a: '2'}}, per: [], limit: 5/minute, on_store_failure: allow}
- {id: alone, match: {attributes: {a: '3'}}, per: [], limit: 1/minute}
";
    let server = start_in(TestFolder::new(), Some(rules), &away());
    let mut client = server.client().await;
    let answer = client.ask(request(&["a=1"])).await.unwrap();
    assert!(!is_ok(answer.overall_code));
    assert_eq!(header(&answer, "x-tidegate-degraded"), Some("deny"));
    assert_eq!(
        header(&answer, "x-tidegate-reason"),
        Some("store_unavailable")
    );
    assert_eq!(
        answer.statuses[0]
            .duration_until_reset
            .as_ref()
            .unwrap()
            .seconds,
        1
    );
    let answer = client.ask(request(&["a=2"])).await.unwrap();
    assert!(is_ok(answer.overall_code));
    assert_eq!(header(&answer, "x-tidegate-degraded"), None);
    assert_eq!(header(&answer, "x-tidegate-reason"), None);
    assert!(client.decide(request(&["a=3"])).await.0);
    assert!(!client.decide(request(&["a=3"])).await.0);
    let path = "/grpc.health.v1.Health/Check";
    let asked = Request::new(HealthCheckRequest::default());
    let health: HealthCheckResponse = client.call(path, asked).await.unwrap();
    assert_eq!(health.status, 2, "a rule cannot go on without the store");
}

#[tokio::test]
async fn a_server_that_does_not_know_the_rules_is_unavailable() {
    let server = start_in(TestFolder::new(), None, &away());
    let mut client = server.client().await;
    let status = client.ask(request(&["a=1"])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(
        status.message().contains("the rules are not known"),
        "{status:?}"
    );
}
