//! Keys of tokens that the server fetches from their issuer.

use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;
use tidegate_testkit::redis::Certificates;
use tidegate_testkit::{HttpAnswer, HttpServer, now, wait_until};

use crate::Server;
use tidegate_testkit_server::{PATIENCE, TestFolder};

const RULES: &str = "rules:\n  - {id: users, per: [user_id], missing: deny, limit: 100/23h}\n";

fn status(server: &Server, token: &str) -> u16 {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    server.ask_with("GET /v1/authorize", &headers, "").status
}

/// A key and its public half, which is called `a`.
fn key() -> (EncodingKey, Jwk) {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
    let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    jwk.common.key_id = Some("a".to_owned());
    (key, jwk)
}

#[test]
fn keys_that_cannot_be_fetched_are_a_warning_and_the_last_ones_are_kept() {
    let (key, jwk) = key();
    let header = Header {
        kid: Some("a".to_owned()),
        ..Header::new(Algorithm::ES256)
    };
    // The end of what a time of day can be here, so that no clock is needed.
    let claims = json!({"sub": "alice", "exp": 4_102_444_800_u64});
    let token = encode(&header, &claims, &key).unwrap();

    let issuer = HttpServer::start();
    issuer.answer("/keys", HttpAnswer::status(503));
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let config = format!(
        "identify: {{user_id: {{jwt: sub}}}}\njwt: {{jwks_url: \"http://{}/keys\"}}\n",
        issuer.address()
    );
    folder.write("tidegate.yaml", &config);
    let arguments = ["--config", "tidegate.yaml", "--rules", "rules.yaml"];

    let server = folder.serve(&arguments);
    let log = server.log.wait_for("the keys of tokens cannot be fetched");
    assert!(log.contains("WARN the keys of tokens"), "{log}");
    let ready = server.ask("GET /readyz", "").with_status(503).json();
    assert_eq!(ready["status"], "not ready");
    let warnings = ready["warnings"].to_string();
    assert!(
        warnings.contains("requests with a token get 503"),
        "{ready}"
    );
    assert_eq!(status(&server, &token), 503);
    // That token has caused one more attempt, and no other does for a while.
    issuer.answer(
        "/keys",
        HttpAnswer::body(json!({"keys": [jwk]}).to_string()),
    );
    server.reload();
    wait_until("the keys are fetched", PATIENCE, || {
        (status(&server, &token) == 200).then_some(())
    });
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    assert_eq!(ready["warnings"], json!([]));
    let metrics = server.ask("GET /metrics", "").body;
    let denied = "tidegate_denied_total{rule=\"users\",reason=\"keys_unavailable\"} ";
    assert!(metrics.contains(denied), "{metrics}");
    assert!(
        metrics.contains("tidegate_jwks_fetches_total{result=\"failed\"} "),
        "{metrics}"
    );
    server.log.wait_for("the keys of tokens were fetched");
    wait_until("they are kept", PATIENCE, || {
        folder.path("data/jwks.json").exists().then_some(())
    });
    server.stop();

    issuer.answer("/keys", HttpAnswer::status(503));
    let server = folder.serve(&arguments);
    assert_eq!(status(&server, &token), 200);
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    let warnings = ready["warnings"].to_string();
    assert!(warnings.contains("the last ones stay in use"), "{ready}");
}

#[test]
fn a_token_with_a_new_key_waits_for_the_fetch_that_it_causes() {
    let signer = |kid: &str| {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
        let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(kid.to_owned());
        let header = Header {
            kid: Some(kid.to_owned()),
            ..Header::new(Algorithm::ES256)
        };
        let claims = json!({"sub": "alice", "exp": 4_102_444_800_u64});
        (jwk, encode(&header, &claims, &key).unwrap())
    };
    let ((first, _), (second, token), (_, invented)) = (signer("a"), signer("b"), signer("c"));
    let issuer = HttpServer::start();
    let answer = |keys: &[&Jwk]| HttpAnswer::body(json!({ "keys": keys }).to_string());
    issuer.answer("/keys", answer(&[&first]));
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let config = format!(
        "identify: {{user_id: {{jwt: sub}}}}\njwt: {{jwks_url: \"http://{}/keys\"}}\n",
        issuer.address()
    );
    folder.write("tidegate.yaml", &config);
    let server = folder.serve(&["--config", "tidegate.yaml", "--rules", "rules.yaml"]);
    issuer.answer("/keys", answer(&[&first, &second]));
    let (begun, mut unknown) = (now(), 0);
    wait_until("the key is known", PATIENCE, || {
        let status = status(&server, &token);
        unknown += u32::from(status != 200);
        (status == 200).then_some(())
    });
    let is_slow = begun.elapsed() >= Duration::from_secs(1);
    assert!(unknown == 0 || is_slow, "the first request waits");
    assert_eq!(status(&server, &invented), 401);
    let metrics = server.ask("GET /metrics", "").body;
    let refused = format!(
        "tidegate_jwt_refused_total{{reason=\"unknown_key\"}} {}",
        unknown + 1
    );
    assert!(metrics.contains(&refused), "{metrics}");
}

#[test]
fn the_authorities_of_the_issuer_are_followed() {
    let [theirs, others] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [theirs, others] = [&theirs, &others].map(|folder| Certificates::new(folder.path()));
    let issuer = HttpServer::with_tls(&theirs);
    issuer.answer(
        "/keys",
        HttpAnswer::body(json!({"keys": [key().1]}).to_string()),
    );
    let folder = TestFolder::new();
    let ca = |files: &Certificates| {
        folder.write(
            "ca.pem",
            &std::fs::read_to_string(&files.authority).unwrap(),
        );
    };
    ca(&others);
    let config = format!(
        "identify: {{user_id: {{jwt: sub}}}}\njwt: {{jwks_url: \"https://localhost:{}/keys\", jwks_ca: {}}}\n",
        issuer.address().port(),
        folder.file("ca.pem")
    );
    folder.write("rules.yaml", RULES);
    folder.write("tidegate.yaml", &config);
    let server = folder.serve(&["--config", "tidegate.yaml", "--rules", "rules.yaml"]);
    let warned = || server.ask("GET /readyz", "").json()["warnings"].to_string();
    assert!(warned().contains("certificate"), "{}", warned());
    folder.write("ca.pem", "");
    wait_until("it is warned of", PATIENCE, || {
        warned().contains("`jwks_ca` named before").then_some(())
    });
    ca(&theirs);
    wait_until("the authority is trusted", PATIENCE, || {
        (warned() == "[]").then_some(())
    });
}
