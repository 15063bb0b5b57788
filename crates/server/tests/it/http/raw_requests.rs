//! Raw requests that are explained: through the identity of clients as at the gateway, with or without one.

use serde_json::{Value, json};
use tidegate_testkit_server::{ClientReply, TestFolder};

use crate::Server;

const RULES: &str = "rules:
  - {id: per-user, match: {path: /v1/**, host: api.example.com}, per: [user_id], missing: deny, limit: 3/minute, tiers: {pro: 10/minute}}
  - {id: per-ip, match: {path: /login}, per: [ip], limit: 3/minute}
  - {id: beta, match: {attributes: {header.x-beta: '1'}}, per: [], limit: 100/minute}
";
const CONFIG: &str = "identify:
  api_key: {header: x-api-key}
  user_id: {client: user_id}
  tier: {client: tier}
clients_complete: true
trusted_proxies: [10.0.0.0/8]
";

fn serve(arguments: &[&str]) -> (TestFolder, Server) {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let file = folder.file("clients.yaml");
    folder.write("c.yaml", &format!("{CONFIG}clients_file: {file}\n"));
    folder.write(
        "clients.yaml",
        "clients:\n  k-7Hq2xv9: {user_id: alice, tier: pro}\n  k-free: {user_id: bob}\n",
    );
    let arguments = [&["--rules", "rules.yaml", "--config", "c.yaml"], arguments].concat();
    let server = folder.serve(&arguments);
    (folder, server)
}

fn explain(server: &Server, request: &Value) -> ClientReply {
    let body = json!({ "request": request }).to_string();
    server.ask("POST /v1/explain", &body)
}

#[test]
fn a_raw_request_is_known_as_at_the_gateway() {
    let (_folder, server) = serve(&[]);
    let request = json!({"url": "https://api.example.com/v1//orders?x=1", "headers": {"x-api-key": "k-7Hq2xv9", "X-Beta": ["1"]}, "address": "203.0.113.7"});
    let reply = explain(&server, &request).with_status(200);
    assert!(!reply.whole().contains("k-7Hq2xv9"), "{reply:?}");
    let explained = reply.json();
    let mut attributes = explained["attributes"].clone();
    assert_eq!(attributes["api_key"].take().as_str().unwrap().len(), 12);
    let expected = json!({"api_key": null, "user_id": "alice", "tier": "pro", "method": "GET", "path": "/v1/orders",
        "host": "api.example.com", "ip": "203.0.113.7", "header.x-beta": "1"});
    assert_eq!(attributes, expected);
    let rule = &explained["rules"][0];
    assert_eq!(rule["grant"], json!({"from": "tier", "value": "10/minute"}));
    assert_eq!(rule["tier"], "pro");
    assert_eq!(explained["rules"][2]["applies"], true);
    // Without a tier it is said that there are some.
    let free =
        json!({"url": "/v1/orders", "headers": {"host": "api.example.com", "x-api-key": "k-free"}});
    let rule = &explain(&server, &free).with_status(200).json()["rules"][0];
    assert_eq!(
        (&rule["tier"], &rule["tiers"]),
        (&json!("unknown"), &json!({"pro": "10/minute"}))
    );
    // A trusted proxy names the client, another peer does not.
    for (peer, ip) in [
        ("10.1.2.3", json!("198.51.100.9")),
        ("192.0.2.1", json!("192.0.2.1")),
    ] {
        let request = json!({"method": "post", "url": "http://api.example.com/login", "headers": {"X-Forwarded-For": "198.51.100.9"}, "address": peer});
        let explained = explain(&server, &request).with_status(200).json();
        assert_eq!(explained["attributes"]["ip"], ip);
    }
    let without = json!({"url": "http://api.example.com/login"});
    let explained = explain(&server, &without).with_status(200).json();
    assert_eq!(explained["attributes"].get("ip"), None);
    assert_eq!(explained["rules"][1]["failed"]["condition"], "missing");
}

#[test]
fn bad_credentials_are_explained() {
    let (_folder, server) = serve(&[]);
    let request =
        json!({"url": "http://api.example.com/v1/x", "headers": {"x-api-key": "invented"}});
    let explained = explain(&server, &request).with_status(200).json();
    assert_eq!(explained["decision"]["reason"], "invalid_credentials");
    assert_eq!(explained["decision"]["allowed"], false);
}

#[test]
fn what_the_gateway_would_refuse_is_refused_in_its_words() {
    let (_folder, server) = serve(&[]);
    let url = "http://api.example.com/v1/x";
    #[rustfmt::skip]
    let table = [
        (json!({"url": url, "headers": {"host": "other.example.com"}}),    "the request's URI names one host, and `Host` another; send the same"),
        (json!({"url": "/v1/x", "headers": {"host": ["a", "a"]}}),         "the request has more than one `Host`; send one"),
        (json!({"url": "/v1/x"}),                                          "the request has no host, and there is a rule that asks for it; send `Host`"),
        (json!({"url": url, "headers": {"x-api-key": ["a", "b"]}}),        "attribute `api_key` is given twice"),
        (json!({"url": url, "headers": {"content-length": ["1", "1"]}}),   "the request has more than one `Content-Length`; send one"),
        (json!({"url": url, "method": "CONNECT"}),                         "this gateway is not a forward proxy: CONNECT is not supported"),
        (json!({"url": url, "method": "G T"}),                             "`method` must be a method such as `GET`"),
        (json!({"url": url, "headers": {"a b": "c"}}),                     "a header has a name that cannot be one"),
        (json!({"url": url, "headers": {"x-api-key": "s3cret\n"}}),        "the header `x-api-key` has a value that cannot be one"),
        (json!({"url": url, "address": "10.0.0.1:80"}),                    "`address` must be an IPv4 or IPv6 address, without a port"),
    ];
    for (request, expected) in table {
        let refused = explain(&server, &request).with_status(422);
        assert_eq!(refused.detail(), expected, "{request}");
    }
    for url in [
        "http://api.example.com/%zz",
        "http://api.example.com/a%2fb",
        "a b",
        "",
    ] {
        let request = json!({"url": url});
        let refused = explain(&server, &request).with_status(422);
        assert!(!refused.detail().is_empty(), "{url}");
    }
    for body in [
        json!({"request": {}}),
        json!({"request": {"url": 7}}),
        json!({"request": {"url": "/", "headers": {"a": 1}}}),
    ] {
        server
            .ask("POST /v1/explain", &body.to_string())
            .with_status(400);
    }
    for body in [
        json!({}),
        json!({"attributes": {}, "request": {"url": "/"}}),
    ] {
        let refused = server
            .ask("POST /v1/explain", &body.to_string())
            .with_status(400);
        assert_eq!(
            refused.detail(),
            "give exactly one of `attributes`, `request` and `client`"
        );
    }
}

/// The gateway decides a request as it was explained.
#[test]
fn an_explanation_says_what_the_gateway_then_answers() {
    let (_folder, server) = serve(&[
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:1",
    ]);
    let gateway = server.gateway.unwrap();
    let mut client = tidegate_testkit_server::HttpClient::to(gateway);
    let request = json!({"url": "http://api.example.com/v1/x", "headers": {"x-api-key": "k-free"}, "address": "127.0.0.1"});
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let explained = explain(&server, &request).with_status(200).json();
        let headers = [("host", "api.example.com"), ("x-api-key", "k-free")];
        let answer = client.ask_with("GET /v1/x", &headers, "");
        let is_denied = answer.status == 429;
        assert_eq!(explained["decision"]["allowed"], !is_denied);
        statuses.push(is_denied);
    }
    assert_eq!(statuses, [false, false, false, true, true]);
}
