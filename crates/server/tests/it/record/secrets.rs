//! No secret is in a recording: keys, credentials, attributes that are secret by the settings, and queries.

use std::fs;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tidegate::printable::hexadecimal;
use tidegate::rules::ValueDigest;
use tidegate_testkit_server::{HttpClient, RecordingUpstream, TestFolder};

use super::{check, lines_of, serve};

const RULES: &str = "rules:
- {id: keys, per: [api_key], limit: 9/hour, overrides: {hidden-named: 5/hour}, tiers: {pro: 99/hour}}
- {id: logins, match: {path: /login}, per: [header.authorization], limit: 9/hour}
- {id: teams, per: [team], limit: 9/hour}
";

const SETTINGS: &str = "record: FOLDER/r
key_secret_file: FOLDER/secret
secret_attributes: [team]
clients_file: FOLDER/clients.yaml
identify:
  api_key: [{header: x-api-key}, {query: key}]
  tier: {client: tier}
  user_id: {client: user}
";

#[test]
fn secrets_are_digests_or_the_hashes_that_rules_know() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    folder.write("rules.yaml", RULES);
    folder.write("secret", "s3cret-of-digests");
    let clients = "clients:\n  hidden-named: {tier: pro, user: u1}\n  hidden-other: {user: u2}\n";
    folder.write("clients.yaml", clients);
    let to = format!("http://{}", upstream.address);
    let arguments = [
        "--rules",
        "rules.yaml",
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &to,
    ];
    let server = serve(&folder, SETTINGS, &arguments);
    let mut gateway = HttpClient::to(server.gateway.unwrap());
    let headers = [
        ("x-api-key", "hidden-named"),
        ("authorization", "Bearer hidden-token"),
        ("cookie", "session=hidden-cookie"),
    ];
    gateway
        .ask_with("GET /login?token=hidden-query", &headers, "")
        .with_status(200);
    gateway.ask("GET /a?key=hidden-other", "").with_status(200);
    check(
        &server,
        &json!({"attributes": {"team": "hidden-team", "path": "/login?hidden"}}),
    );
    server.stop();

    let text = fs::read_to_string(folder.path("r")).unwrap();
    for secret in ["hidden", "s3cret"] {
        assert!(!text.contains(secret), "{text}");
    }
    let lines = lines_of(&folder, "r");
    let listed = json!(["api_key", "header.authorization", "team"]);
    assert_eq!(lines[0]["secret"], listed);
    let read = json!([
        "api_key",
        "header.authorization",
        "path",
        "team",
        "tier",
        "user_id"
    ]);
    assert_eq!(lines[0]["attributes"], read);
    let digest = |value: &str| ValueDigest::new(b"s3cret-of-digests").recorded(value);
    let hash = hexadecimal(&Sha256::digest("hidden-named"));
    let first = json!({
        "api_key": format!("sha256:{hash}"), "header.authorization": digest("bearer hidden-token"),
        "path": "/login", "tier": "pro", "user_id": "u1",
    });
    assert_eq!(lines[1]["attributes"], first);
    let second = json!({"api_key": digest("hidden-other"), "path": "/a", "user_id": "u2"});
    assert_eq!(lines[2]["attributes"], second);
    let third = json!({"team": digest("hidden-team"), "path": "/login"});
    assert_eq!(lines[3]["attributes"], third);
    assert!(digest("x").len() == "hmac:".len() + 32);
}
