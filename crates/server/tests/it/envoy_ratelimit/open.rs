//! What is open: without a token only the endpoints of envoyproxy/ratelimit, with one the API in addition.

use serde_json::{Value, json};
use tidegate_server::{Config, Overrides};
use tidegate_testkit_server::{HttpClient, TestFolder};

use super::{RULES, get, serve};

/// The description of the API, which has every call of it.
const OPENAPI: &str = include_str!("../../../src/http/openapi.json");

const TOKEN: [(&str, &str); 1] = [("TIDEGATE_TOKEN", "sixteen-letters.")];

/// The paths of the API, about things that do not exist, and those that are not described.
fn paths() -> Vec<String> {
    let described: Value = serde_json::from_str(OPENAPI).unwrap();
    let described = described["paths"].as_object().unwrap().keys();
    let filled = described.map(|path| {
        let mut path = path.clone();
        while let (Some(begin), Some(end)) = (path.find('{'), path.find('}')) {
            path.replace_range(begin..=end, "x");
        }
        path
    });
    let others = [
        "/",
        "/console",
        "/console/",
        "/console/app.js",
        "/v1",
        "/stats",
        "/rlconfig",
    ];
    filled.chain(others.map(str::to_owned)).collect()
}

#[test]
fn without_a_token_there_is_nothing_but_what_envoyproxy_ratelimit_has() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &[]);
    assert_eq!(server.token, None, "none is generated");
    assert!(!folder.path("data/admin-token").exists());
    let paths = paths();
    assert!(paths.len() > 30, "{paths:?}");
    let mut client = HttpClient::to(server.address);
    for path in paths.iter().filter(|path| *path != "/healthz") {
        for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS"] {
            let reply = client.ask(&format!("{method} {path}"), "");
            assert_eq!(reply.status, 404, "{method} {path}");
        }
    }
    assert_eq!(get(&server, "/healthz").0, 200);
    assert_eq!(get(&server, "/healthcheck").0, 200);
}

/// Every listener besides the one of HTTP answers what envoyproxy/ratelimit answers there, and nothing of the API.
#[test]
fn without_a_token_no_other_port_has_more() {
    let folder = TestFolder::new();
    let prometheus = [
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
    ];
    let server = serve(&folder, RULES, &prometheus);
    let allowed = [
        (server.debug.unwrap(), &["/", "/rlconfig", "/stats"][..]),
        (server.prometheus.unwrap(), &["/metrics"]),
    ];
    for (address, pages) in allowed {
        let mut client = HttpClient::to(address);
        for path in paths()
            .iter()
            .map(String::as_str)
            .chain(["/healthz", "/healthcheck", "/json"])
        {
            let expected = if pages.contains(&path) { 200 } else { 404 };
            let reply = client.ask(&format!("GET {path}"), "");
            assert_eq!(reply.status, expected, "{address} {path}");
        }
    }
    let mut grpc = HttpClient::to(server.grpc.unwrap());
    for path in paths() {
        let reply = grpc.ask(&format!("GET {path}"), "");
        assert!(
            matches!(reply.status, 404 | 415),
            "{path}: {}",
            reply.status
        );
    }
    assert_eq!((server.admin, server.resp), (None, None));
}

#[test]
fn without_a_token_other_listeners_are_refused_and_with_one_guarded() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let arguments = ["--as", "envoy-ratelimit", "--rules", "rules.yaml"];
    let listeners = [
        "--admin",
        "127.0.0.1:0",
        "--resp",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
    ];
    for listener in [&listeners[..2], &listeners[2..4]] {
        let variable = format!(
            "TIDEGATE_{}",
            listener[0].trim_start_matches('-').to_uppercase()
        );
        let set = [
            ("TIDEGATE_AS", "envoy-ratelimit"),
            (&*variable, listener[1]),
        ];
        let refused = load(&set).unwrap_err();
        let expected = format!(
            "error: {variable}: field `{}`: in place of",
            listener[0].trim_start_matches('-')
        );
        assert!(
            refused.contains(&expected) && refused.contains("TIDEGATE_TOKEN"),
            "{refused}"
        );
        load(&[&set[..], &TOKEN].concat()).unwrap();
    }

    let server = folder.serve_with(&[&arguments[..], &listeners].concat(), &TOKEN);
    let mut http = HttpClient::to(server.address);
    // What an ordinary server has there besides an admin listener, and the endpoints of envoyproxy/ratelimit.
    for (call, expected) in [
        ("GET /healthcheck", 200),
        ("GET /healthz", 200),
        ("GET /readyz", 200),
        ("POST /json", 400),
        ("POST /v1/check", 401),
        ("GET /v1/rules", 404),
        ("GET /metrics", 404),
        ("GET /console/", 404),
    ] {
        assert_eq!(http.ask(call, "{}").status, expected, "{call}");
    }
    let mut admin = HttpClient::to(server.admin.unwrap());
    assert_eq!(admin.ask("GET /v1/rules", "").status, 401);
    let authorization = [("authorization", "Bearer sixteen-letters.")];
    assert_eq!(
        admin.ask_with("GET /v1/rules", &authorization, "").status,
        200
    );
}

/// The settings that variables make.
fn load(set: &[(&str, &str)]) -> Result<(), String> {
    let variable = |name: &str| {
        let found = set.iter().find(|(known, _)| *known == name)?;
        Some(found.1.to_owned())
    };
    let loaded = Config::load(&Overrides {
        environment: &variable,
        variables: set.iter().map(|(name, _)| (*name).to_owned()).collect(),
        flags: Vec::new(),
    });
    loaded.map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_token_opens_the_api_and_envoy_needs_none() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &TOKEN);
    let mut client = HttpClient::to(server.address);
    assert_eq!(client.ask("GET /v1/rules", "").status, 401);
    let authorization = [("authorization", "Bearer sixteen-letters.")];
    let reply = client.ask_with("GET /v1/rules", &authorization, "");
    assert_eq!(reply.status, 200);
    for path in [
        "/readyz",
        "/metrics",
        "/console/",
        "/healthz",
        "/healthcheck",
    ] {
        assert_eq!(get(&server, path).0, 200, "{path}");
    }
    assert_eq!(client.ask("POST /v1/check", "{}").status, 401);
    let body =
        r#"{"domain":"infra/gw/http","descriptors":[{"entries":[{"key":"user","value":"u1"}]}]}"#;
    assert_eq!(client.ask("POST /json", body).status, 200);
}

#[tokio::test]
async fn envoy_needs_no_token_over_grpc() {
    use tidegate_server::grpc_messages::rate_limit::{RateLimitRequest, RateLimitResponse};
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &TOKEN);
    let address = server.grpc.unwrap();
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let codec: tonic_prost::ProstCodec<RateLimitRequest, RateLimitResponse> =
        tonic_prost::ProstCodec::default();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let call = tonic::Request::new(RateLimitRequest {
        domain: "infra/gw/http".to_owned(),
        ..RateLimitRequest::default()
    });
    let refused = grpc.unary(call, path.parse().unwrap(), codec).await;
    // Not unauthenticated: the call itself is wrong.
    assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[test]
fn a_client_gets_another_limit_for_a_while() {
    let folder = TestFolder::new();
    let server = serve(&folder, RULES, &TOKEN);
    let mut client = HttpClient::to(server.address);
    let authorization = [("authorization", "Bearer sixteen-letters.")];
    let body = r#"{"key": "u1", "limit": "5/minute", "for": "1h"}"#;
    let rules = server.ask_with("GET /v1/rules", &authorization, "").json();
    let mut rules = rules["rules"].as_array().unwrap().iter();
    let user = rules
        .find(|rule| rule["stat"] == "infra/gw/http.user")
        .unwrap();
    let overrides = format!("/v1/rules/{}/overrides", user["id"].as_str().unwrap());
    let made = server.ask_with(&format!("POST {overrides}"), &authorization, body);
    assert_eq!(made.status, 201, "{made:?}");
    let mut limit = |user: &str| {
        let call = json!({"domain": "infra/gw/http", "descriptors": [{"entries": [{"key": "user", "value": user}]}]});
        let reply = client.ask("POST /json", &call.to_string()).with_status(200);
        reply.json()["statuses"][0]["currentLimit"].clone()
    };
    assert_eq!(limit("u1"), json!({"requestsPerUnit": 5, "unit": "MINUTE"}));
    assert_eq!(limit("u2"), json!({"requestsPerUnit": 3, "unit": "HOUR"}));
    let gone = format!("DELETE {overrides}/u1");
    assert_eq!(server.ask_with(&gone, &authorization, "").status, 204);
    assert_eq!(limit("u1"), json!({"requestsPerUnit": 3, "unit": "HOUR"}));
}
