//! Credentials that are there and not valid, through the front ends: what a client gets, what is charged, and where
//! it is shown.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use tidegate_testkit_server::{ClientReply, HttpClient, RecordingUpstream, TestFolder};

use crate::Server;
use crate::resp::{Client as RespClient, Value};

const SECRET: &str = "a secret that is long enough for everybody";

const RULES: &str = r"rules:
- {id: ip, match: {path: /limited}, per: [ip], limit: 3/day}
- {id: users, match: {path: [/users, /limited]}, except: [{method: DELETE}], per: [user_id], limit: 2/day}
- {id: keys, match: {path: /keys}, per: [api_key], limit: 2/day}
- {id: raw, match: {path: /raw}, per: [header.authorization], limit: 2/day}
- {id: both, match: {path: /both}, per: [api_key, user_id], missing: share, limit: 2/day}
- {id: plans, match: {path: /plans, attributes: {user_id: u1}}, per: [api_key], missing: share, limit: 2/day}
";

const SETTINGS: &str = r"trusted_proxies: [127.0.0.1]
identify: {user_id: {jwt: sub}, api_key: {header: x-api-key}}
jwt: {secret_file: @secret}
clients_file: @clients.yaml
";

fn token(sub: &str, expires: u64) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let claims = json!({"sub": sub, "exp": expires});
    encode(&Header::default(), &claims, &key).unwrap()
}

fn valid() -> String {
    token("alice", 4_102_444_800)
}

/// A server that is asked through the gateway or by a proxy.
struct Asked {
    client: HttpClient,
    is_gateway: bool,
    upstream: RecordingUpstream,
    server: Server,
    _place: TestFolder,
}

impl Asked {
    fn open(is_gateway: bool, settings: &str) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.yaml", RULES);
        folder.write("secret", SECRET);
        folder.write("clients.yaml", "clients:\n  k1: {user_id: u1}\n");
        let settings = format!("{SETTINGS}{settings}").replace('@', &folder.file(""));
        folder.write("tidegate.yaml", &settings);
        let upstream = RecordingUpstream::start();
        let url = format!("http://{}", upstream.address);
        let mut arguments = vec!["--rules", "rules.yaml", "--config", "tidegate.yaml"];
        if is_gateway {
            arguments.extend(["--gateway", "127.0.0.1:0", "--upstream", &url]);
        }
        let server = folder.serve(&arguments);
        let client = match server.gateway.filter(|_| is_gateway) {
            Some(gateway) => HttpClient::to(gateway),
            None => server.client(),
        };
        Self {
            client,
            is_gateway,
            upstream,
            server,
            _place: folder,
        }
    }

    fn reply(&mut self, target: &str, headers: &[(&str, &str)]) -> ClientReply {
        let (method, path) = target.split_once(' ').unwrap_or(("GET", target));
        if self.is_gateway {
            let call = format!("{method} {path}");
            return self.client.ask_with(&call, headers, "");
        }
        let mut headers = headers.to_vec();
        headers.extend([("x-forwarded-method", method), ("x-forwarded-uri", path)]);
        self.client.ask_with("GET /v1/authorize", &headers, "")
    }

    fn ask(&mut self, target: &str, name: &str, value: &str) -> u16 {
        self.reply(target, &[(name, value)]).status
    }
}

fn a_token_that_is_not_valid_is_401_where_a_rule_reads_it(is_gateway: bool) {
    let mut asked = Asked::open(is_gateway, "");
    let good = format!("Bearer {}", valid());
    let mine: Vec<u16> = (0..3)
        .map(|_| asked.ask("/users", "authorization", &good))
        .collect();
    assert_eq!(mine, [200, 200, 429]);
    let forged = valid().replacen('.', ".e", 1);
    for value in [
        format!("Bearer {}", token("alice", 1_000_000)),
        format!("{good}="),
        format!("{good} x"),
        format!("Token {}", valid()),
        format!("Bearer {forged}"),
        "Bearer nonsense".to_owned(),
        "Basic dTpw".to_owned(),
    ] {
        let reply = asked.reply("/users", &[("authorization", &value)]);
        assert_eq!(reply.status, 401, "{value}: {}", reply.body);
        let body = reply.json();
        assert_eq!(body["reason"], "invalid_credentials");
        assert!(
            body["detail"].as_str().unwrap().contains("`users`"),
            "{body}"
        );
        // Where no rule reads it, or the one that does makes an exception.
        assert_eq!(asked.ask("/other", "authorization", &value), 200);
        assert_eq!(asked.ask("DELETE /users", "authorization", &value), 200);
    }
    assert_eq!(asked.ask("/users", "accept", "*/*"), 200, "no token at all");
    if is_gateway {
        assert_eq!(asked.upstream.heads("/users").len(), 2 + 7 + 1);
    }
    let metrics = asked.server.ask("GET /metrics", "").body;
    let denied = "tidegate_denied_total{rule=\"users\",reason=\"invalid_credentials\"} 7";
    assert!(metrics.contains(denied), "{metrics}");
    for reason in ["expired", "malformed", "too_long", "audience"] {
        let refused = format!("tidegate_jwt_refused_total{{reason=\"{reason}\"}}");
        assert!(metrics.contains(&refused), "{refused}");
    }
}

#[test]
fn a_token_that_is_not_valid_is_401_at_the_gateway() {
    a_token_that_is_not_valid_is_401_where_a_rule_reads_it(true);
}

#[test]
fn a_token_that_is_not_valid_is_401_at_forward_auth() {
    a_token_that_is_not_valid_is_401_where_a_rule_reads_it(false);
}

#[test]
fn guesses_are_limited_by_the_address_of_the_client() {
    for is_gateway in [true, false] {
        let mut asked = Asked::open(is_gateway, "");
        let statuses = [(); 5].map(|()| asked.ask("/limited", "authorization", "Bearer guess"));
        assert_eq!(statuses, [401, 401, 401, 429, 429]);
        let good = format!("Bearer {}", valid());
        assert_eq!(asked.ask("/limited", "authorization", &good), 429);
        // Nothing was charged to the owner of the token.
        assert_eq!(asked.ask("/users", "authorization", &good), 200);
    }
}

#[test]
fn an_unknown_key_escapes_with_a_warning_unless_the_table_is_complete() {
    for (settings, expected) in [("", 200), ("clients_complete: true\n", 401)] {
        let mut asked = Asked::open(true, settings);
        assert_eq!(asked.ask("/keys", "x-api-key", "k1"), 200);
        let statuses = [(); 3].map(|()| asked.ask("/keys", "x-api-key", "made-up"));
        assert_eq!(statuses, [expected; 3], "{settings}");
        let warning = "a key that is not in `clients_file` is a missing one: its requests escape the rule `keys`";
        assert_eq!(asked.server.log.text().contains(warning), expected == 200);
    }
}

#[test]
fn invalid_credentials_may_be_missing_ones_with_a_warning() {
    let mut asked = Asked::open(true, "invalid_credentials: missing\n");
    for _ in 0..3 {
        assert_eq!(asked.ask("/users", "authorization", "Bearer x y"), 200);
        assert_eq!(asked.ask("/raw", "authorization", "Bearer x y"), 200);
    }
    let log = asked.server.log.text();
    let warning = "a request with invalid credentials escapes the rules `users`, `raw`;";
    assert!(log.contains(warning), "{log}");
}

#[test]
fn basic_credentials_have_one_counter_and_a_bearer_of_two_words_is_invalid() {
    for is_gateway in [true, false] {
        let mut asked = Asked::open(is_gateway, "");
        let mut ask = |value: &str| asked.ask("/raw", "authorization", value);
        assert_eq!(ask("Basic dXNlcjpwYXNzMQ=="), 200);
        assert_eq!(ask("basic dXNlcjpwYXNzMQ"), 200);
        for spelling in [
            "Basic dXNlcjpwYXNzMR==",
            "Basic dX~Nl.cjpwYXNzMQ===",
            "Basic dXNl cjpwYXNzMQ",
        ] {
            assert_eq!(ask(spelling), 429, "{spelling}");
        }
        for value in ["Bearer KEY x", "Basic dX_Nl", "Basic !"] {
            assert_eq!(ask(value), 401, "{value}");
        }
    }
}

#[test]
fn a_check_is_denied_as_it_always_is() {
    let asked = Asked::open(false, "");
    let body = r#"{"attributes": {"path": "/raw", "header.authorization": "Bearer KEY x"}}"#;
    let reply = asked.server.ask("POST /v1/check", body).with_status(429);
    assert_eq!(reply.json()["reason"], "invalid_credentials");
}

#[test]
fn credentials_that_are_not_valid_escape_no_descriptor() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", "domain: d\ndescriptors:\n- {key: authorization, rate_limit: {unit: minute, requests_per_unit: 3}}\n");
    let server = folder.serve(&["--rules", "rules.yaml", "--resp", "127.0.0.1:0"]);
    let mut resp = RespClient::to(&server);
    for (value, reason) in [
        ("Bearer a", None),
        ("Bearer a b", Some("invalid_credentials")),
        ("Basic !", Some("invalid_credentials")),
    ] {
        let check = json!({"attributes": {"domain": "d", "authorization": value}});
        let status = if reason.is_some() { 429 } else { 200 };
        let one = server.ask("POST /v1/check", &check.to_string());
        let one = one.with_status(status).json();
        let all = json!({"checks": [check]}).to_string();
        let all = server.ask("POST /v1/check/batch", &all).json();
        for decision in [&one, &all["decisions"][0]] {
            assert_eq!(decision["reason"].as_str(), reason, "{value}: {decision}");
            assert!(decision["rule"].is_string(), "{value}: {decision}");
        }
        let words = ["TG.CHECK", "domain", "d", "authorization", value];
        let is_allowed = match resp.ask_words(&words) {
            Value::Array(pairs) => pairs[1].clone(),
            other => panic!("names and values, not {other:?}"),
        };
        assert_eq!(is_allowed, Value::Integer(reason.is_none().into()));
    }
}

#[test]
fn a_client_is_asked_for_what_was_not_valid() {
    let mut asked = Asked::open(false, "");
    let headers = [("x-api-key", "k1"), ("authorization", "Bearer nonsense")];
    for path in ["/both", "/plans"] {
        let reply = asked.reply(path, &headers);
        assert_eq!(reply.status, 401, "{path}: {}", reply.body);
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(
            challenge.starts_with("Bearer ") && challenge.ends_with(", error=\"invalid_token\""),
            "{path}: {challenge}"
        );
    }
}
