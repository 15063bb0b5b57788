//! Tokens.

use tonic::{Code, Request};

use tidegate_server::grpc_messages::health::{HealthCheckRequest, HealthCheckResponse};
use tidegate_server::grpc_messages::rate_limit::RateLimitResponse;
use tidegate_testkit_server::TestFolder;

use super::{SHOULD_RATE_LIMIT, request, start_in};

#[tokio::test]
async fn who_has_no_token_with_the_scope_is_refused() {
    let settings = "tokens: [{name: ops, token_env: TOKEN, scopes: [read]}, {name: envoy, token_file: FOLDER/token, scopes: [check]}]";
    let folder = TestFolder::new();
    folder.write("token", "envoys");
    let server = start_in(folder, Some("rules: []"), settings);
    let mut client = server.client().await;
    for (token, expected) in [
        (None, Some(Code::Unauthenticated)),
        (Some("Bearer wrong"), Some(Code::Unauthenticated)),
        (Some("Basic envoys"), Some(Code::Unauthenticated)),
        (Some("Bearer s3cret"), Some(Code::PermissionDenied)),
        (Some("Bearer envoys"), None),
    ] {
        let mut asked = Request::new(request(&["a=b"]));
        if let Some(token) = token {
            asked
                .metadata_mut()
                .insert("authorization", token.parse().unwrap());
        }
        let answer = client
            .call::<_, RateLimitResponse>(SHOULD_RATE_LIMIT, asked)
            .await;
        assert_eq!(
            answer.err().map(|status| status.code()),
            expected,
            "{token:?}"
        );
    }
    let asked = Request::new(HealthCheckRequest::default());
    let path = "/grpc.health.v1.Health/Check";
    let health: HealthCheckResponse = client.call(path, asked).await.unwrap();
    assert_eq!(health.status, 1, "health is open");
}
