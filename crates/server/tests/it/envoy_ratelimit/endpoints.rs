//! `/healthcheck`, `/json`, `/rlconfig`, and the health service of gRPC.

use serde_json::{Value, json};
use tidegate_server::grpc_messages::health::{HealthCheckRequest, HealthCheckResponse};
use tidegate_testkit_server::{HttpClient, TestFolder};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::{RULES, get, serve};
use crate::Server;

#[test]
fn a_healthcheck_is_ok_without_rules_and_without_redis() {
    let folder = TestFolder::new();
    let server = serve(
        &folder,
        "domain: empty\n",
        &[("REDIS_URL", "127.0.0.1:1"), ("REDIS_SOCKET_TYPE", "tcp")],
    );
    let mut client = HttpClient::to(server.address);
    let reply = client.ask("GET /healthcheck", "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "OK"));
    assert_eq!(
        reply.header("content-type").unwrap(),
        "text/plain; charset=utf-8"
    );
    assert_eq!(client.ask("POST /healthcheck", "").status, 200);
}

#[test]
fn a_healthcheck_fails_as_the_variables_say() {
    let folder = TestFolder::new();
    let redis = [
        ("REDIS_URL", "127.0.0.1:1"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
    ];
    let server = serve(&folder, RULES, &redis);
    assert_eq!(get(&server, "/healthcheck"), (500, String::new()));
    drop(server);
    let domains = [("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")];
    let server = serve(&folder, RULES, &domains);
    assert_eq!(get(&server, "/healthcheck"), (200, "OK".to_owned()));
}

#[tokio::test]
async fn health_over_grpc_is_that_of_the_healthcheck() {
    let folder = TestFolder::new();
    let healthy = serve(&folder, RULES, &[]);
    for service in [
        "",
        "ratelimit",
        "envoy.service.ratelimit.v3.RateLimitService",
    ] {
        assert_eq!(health(&healthy, service).await.unwrap(), 1, "{service}");
    }
    let unknown = health(&healthy, "other").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let folder = TestFolder::new();
    let redis = [
        ("REDIS_URL", "127.0.0.1:1"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "1"),
    ];
    let unhealthy = serve(&folder, RULES, &redis);
    assert_eq!(health(&unhealthy, "ratelimit").await.unwrap(), 2);
}

async fn health(server: &Server, service: &str) -> Result<i32, Status> {
    let address = server.grpc.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let asked = HealthCheckRequest {
        service: service.to_owned(),
    };
    let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
    let path = "/grpc.health.v1.Health/Check".parse().unwrap();
    let reply = grpc.unary(Request::new(asked), path, codec).await?;
    Ok(reply.into_inner().status)
}

fn ask(client: &mut HttpClient, call: &str, body: &Value) -> (u16, Value) {
    let reply = client.ask(call, &body.to_string());
    assert_eq!(reply.header("content-type").unwrap(), "application/json");
    (reply.status, serde_json::from_str(&reply.body).unwrap())
}

#[test]
fn a_call_in_json_is_answered_as_over_grpc() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &[]);
    let mut client = HttpClient::to(server.address);
    let body = json!({"domain": "infra/gw/http", "descriptors": [{"entries": [{"key": "user", "value": "u1"}]}]});
    for remaining in [2, 1] {
        let (status, answer) = ask(&mut client, "POST /json", &body);
        assert_eq!((status, &answer["overallCode"]), (200, &json!("OK")));
        let status = &answer["statuses"][0];
        assert_eq!(status["code"], "OK");
        assert_eq!(status["currentLimit"]["requestsPerUnit"], 3);
        assert_eq!(status["currentLimit"]["unit"], "HOUR");
        assert_eq!(status["limitRemaining"], remaining);
        assert!(
            status["durationUntilReset"]
                .as_str()
                .unwrap()
                .ends_with('s')
        );
    }
    let (_, answer) = ask(&mut client, "PUT /json", &body);
    let status = answer["statuses"][0].as_object().unwrap();
    assert!(!status.contains_key("limitRemaining"), "zero is left out");
    let (status, answer) = ask(&mut client, "GET /json", &body);
    assert_eq!(
        (status, &answer["overallCode"]),
        (429, &json!("OVER_LIMIT"))
    );

    let snake = json!({"domain": "infra/gw/http", "hits_addend": "4", "descriptors": [{"entries": [{"key": "plan", "value": "free"}]}]});
    let (_, answer) = ask(&mut client, "POST /json", &snake);
    assert_eq!(answer["statuses"][0]["limitRemaining"], 1);
    assert_eq!(answer["statuses"][0]["currentLimit"]["name"], "free");
}

#[test]
fn what_is_no_call_is_a_bad_request_in_plain_text() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &[]);
    let mut client = HttpClient::to(server.address);
    for body in [
        "",
        "{",
        r#"{"domian":"web"}"#,
        r#"{"domain":"","descriptors":[{}]}"#,
        r#"{"domain":"web","descriptors":[]}"#,
        r#"{"domain":"web","descriptors":[{"limit":{"unit":9}}]}"#,
    ] {
        let reply = client.ask("POST /json", body);
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (400, "Bad Request\n"),
            "{body}"
        );
        assert_eq!(
            reply.header("content-type").unwrap(),
            "text/plain; charset=utf-8"
        );
    }
}

#[test]
fn a_body_that_is_too_large_is_a_bad_request_too() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &[]);
    let mut client = HttpClient::to(server.address);
    let head = "POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 8388609\r\n\r\n";
    client.send(head).unwrap();
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, &*reply.body), (400, "Bad Request\n"));
    let media_type = reply.header("content-type").unwrap();
    assert_eq!(media_type, "text/plain; charset=utf-8");
}

#[test]
fn an_overlay_that_cannot_be_used_at_the_start_is_an_error_and_none() {
    let folder = TestFolder::new();
    folder.write(
        "overlay.yaml",
        "- {path: '**', tidegate: {algorithm: none}}\n",
    );
    let overlay = folder.file("overlay.yaml");
    let server = serve(
        &folder,
        RULES,
        &[
            ("TIDEGATE_OVERLAY", &overlay),
            ("TIDEGATE_TOKEN", "sixteen-letters."),
            ("LOG_LEVEL", "info"),
        ],
    );
    let log = server.log.wait_for("no overlay is in force");
    assert!(
        log.contains("ERROR") && log.contains("overlay.yaml:1"),
        "{log}"
    );
    let (_, ready) = get(&server, "/readyz");
    assert!(ready.contains("overlay.yaml"), "{ready}");
    let body = json!({"domain": "infra/gw/http", "descriptors": [{"entries": [{"key": "user", "value": "u1"}]}]});
    let mut client = HttpClient::to(server.address);
    assert_eq!(ask(&mut client, "POST /json", &body).0, 200);
    folder.write(
        "overlay.yaml",
        "- {path: '**', tidegate: {algorithm: token_bucket, burst: 2}}\n",
    );
    server.log.wait_for("the overlay was read again");
    let (_, ready) = get(&server, "/readyz");
    assert!(!ready.contains("overlay.yaml"), "{ready}");
}

#[test]
fn the_limits_in_force_are_listed_sorted() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &[]);
    let mut client = HttpClient::to(server.debug.unwrap());
    let expected = "\
infra/gw/http.plan_free: unit=DAY requests_per_unit=5, shadow_mode: false, quota_mode: false
infra/gw/http.user: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false
";
    assert_eq!(client.ask("GET /rlconfig", "").body, expected);
}
