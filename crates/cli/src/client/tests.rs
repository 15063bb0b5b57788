//! The messages for replies of a server, or of another program at its address.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::json;

use super::*;

/// Answers one call with these bytes; what was asked comes back when it is done.
fn answering(answer: String) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        let mut buffer = [0; 4_096];
        while !is_whole(&asked) {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the client left early");
            asked.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    });
    (address, asked)
}

fn is_whole(asked: &[u8]) -> bool {
    let asked = String::from_utf8_lossy(asked).to_lowercase();
    let Some((head, body)) = asked.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nETag: \"7\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn problem(status: &str, body: &Value) -> String {
    answer(status, "application/problem+json", &body.to_string())
}

fn client(server: &str, token: Option<&str>) -> ApiClient {
    let args = ServerArgs {
        server: server.to_owned(),
        token: token.map(str::to_owned),
        data_dir: "there-is-none".to_owned(),
        ca_file: None,
        client_cert: None,
        client_key: None,
        json: false,
    };
    ApiClient::new(&args).unwrap()
}

/// What is said about a GET of the rules that is answered like this, with the address left out.
fn said(answer: String, token: Option<&str>) -> String {
    let (address, asked) = answering(answer);
    let reply = client(&address, token).get("/v1/rules");
    let error = reply.and_then(|reply| reply.accept(&[200])).unwrap_err();
    asked.join().unwrap();
    format!("{error:#}").replace(&address, "URL")
}

#[test]
fn a_call_is_sent_as_agreed() {
    let (address, asked) = answering(answer("200 OK", "application/json", "{\"rules\": []}"));
    let body = json!({"rules": []});
    let reply =
        client(&format!("{address}/"), Some("secret")).put("/v1/rules", &body, Some("\"6\""));
    let reply = reply.unwrap().accept(&[200]).unwrap();
    assert_eq!(reply.etag.as_deref(), Some("\"7\""));
    assert_eq!(reply.list("rules").unwrap().len(), 0);
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("PUT /v1/rules HTTP/1.1\r\n"), "{asked}");
    let lower = asked.to_lowercase();
    for header in [
        "content-type: application/json\r\n",
        "authorization: bearer secret\r\n",
        "if-match: \"6\"\r\n",
    ] {
        assert!(lower.contains(header), "{asked}");
    }
    assert!(asked.ends_with("{\"rules\":[]}"), "{asked}");
}

#[test]
fn a_call_without_a_body_says_json_too() {
    let (address, asked) =
        answering("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_owned());
    let reply = client(&address, None).delete("/v1/rules/a").unwrap();
    assert_eq!((reply.status, reply.body), (204, Value::Null));
    let asked = asked.join().unwrap().to_lowercase();
    assert!(
        asked.contains("content-type: application/json\r\n"),
        "{asked}"
    );
    assert!(!asked.contains("authorization"), "{asked}");
}

#[test]
fn a_refusal_names_the_scope_of_the_call() {
    let unauthorized = json!({"detail": "a token is needed"});
    for (path, scope) in [
        ("/v1/check", "check"),
        ("/v1/explain", "read"),
        ("/v1/console/code", "read"),
        ("/v1/rules/a/validate", "read"),
        ("/v1/reset", "write"),
        ("/v1/rules/a/overrides", "write"),
    ] {
        let (address, asked) = answering(problem("401 Unauthorized", &unauthorized));
        let reply = client(&address, None).post(path, &json!({})).unwrap();
        let error = reply.accept(&[200]).unwrap_err().to_string();
        asked.join().unwrap();
        assert!(
            error.contains(&format!("(scope `{scope}`)")),
            "{path}: {error}"
        );
    }
}

#[test]
fn a_server_that_uses_tls_is_guessed_from_an_answer_that_is_not_http() {
    // What a server with TLS answers to text: an alert.
    let said = said("\u{15}\u{3}\u{3}\0\u{2}\u{2}F".to_owned(), None);
    assert!(said.contains("if it uses TLS, write https://"), "{said}");
}

#[test]
fn refusals_say_what_can_be_done() {
    let unauthorized = json!({"title": "Unauthorized", "detail": "a token is needed"});
    let forbidden = json!({"detail": "not allowed from 203.0.113.7"});
    let invalid = json!({"status": 422, "detail": "the rules are not valid", "problems": [
        {"rule": "a", "field": "limit", "message": "`x` is no limit"},
        {"rule": null, "field": "rules[1]", "message": "\u{1b}[31mred"},
    ]});
    let all = [
        said(problem("401 Unauthorized", &unauthorized), None),
        said(problem("401 Unauthorized", &unauthorized), Some("wrong")),
        said(problem("403 Forbidden", &forbidden), Some("weak")),
        said(problem("403 Forbidden", &forbidden), None),
        said(
            problem(
                "409 Conflict",
                &json!({"detail": "the rules come from a file"}),
            ),
            None,
        ),
        said(problem("422 Unprocessable Content", &invalid), None),
    ];
    insta::assert_snapshot!("refusals", all.join("\n\n"));
}

#[test]
fn others_than_tidegate_are_recognised() {
    let redirect = "HTTP/1.1 301 Moved\r\nLocation: https://example.com/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let all = [
        said(answer("200 OK", "text/html", "<html>"), None),
        said(answer("502 Bad Gateway", "text/html", "<html>"), None),
        said(answer("404 Not Found", "application/json", "{}"), None),
        said(answer("200 OK", "application/json", ""), None),
        said(redirect.to_owned(), None),
    ];
    insta::assert_snapshot!("others", all.join("\n\n"));
    let (address, asked) = answering(answer("200 OK", "application/json", "{\"rules\": 1}"));
    let reply = client(&address, None).get("/v1/rules").unwrap();
    asked.join().unwrap();
    let error = reply.list("rules").unwrap_err().to_string();
    assert!(error.contains("its `rules` is not a list"), "{error}");
}

#[test]
fn a_missing_server_is_reported_plainly() {
    // A port that was free a moment ago may be another test's by now; this one is never assigned.
    let address = "http://127.0.0.1:1";
    let error = client(address, None).get("/v1/rules").unwrap_err();
    let expected = format!(
        "no server answers at {address}; is `tidegate serve` running there? (--server URL)"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn https_to_a_plain_server_is_an_error_and_no_panic() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    let error = client(&address, None).get("/v1/rules").unwrap_err();
    server.join().unwrap();
    let expected = format!("{address} does not use TLS; write http:// (--server URL)");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn addresses_by_hand() {
    assert_eq!(base_url("http://h:1/").unwrap(), "http://h:1");
    assert_eq!(base_url("h:1").unwrap(), "http://h:1");
    assert_eq!(base_url("https://h/prefix").unwrap(), "https://h/prefix");
    for bad in ["", "ftp://h", "http://", "http://u:p@h", "http://h?x"] {
        assert!(base_url(bad).is_err(), "{bad}");
    }
    for (server, expected) in [
        ("http://localhost:8080", true),
        ("http://127.0.0.2", true),
        ("http://[::1]:80", true),
        ("http://example.com", false),
        ("http://10.0.0.1", false),
    ] {
        assert_eq!(is_loopback(server), expected, "{server}");
    }
}

#[test]
fn a_file_without_certificates_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = roots_in(file.path()).unwrap_err().to_string();
    assert!(error.contains("there is no certificate"), "{error}");
    assert!(bearer("a\nb").is_err());
}

/// Answers one call over TLS with a certificate of its own, which comes back as PEM. The handshake
/// may fail.
fn answering_over_tls() -> (String, String, JoinHandle<()>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        if stream.read(&mut [0; 4_096]).is_ok() {
            let answer = answer("200 OK", "application/json", "{\"rules\": []}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, cert.pem(), server)
}

#[test]
fn an_unknown_certificate_is_refused_with_advice() {
    let (address, _, server) = answering_over_tls();
    let error = client(&address, None).get("/v1/rules").unwrap_err();
    server.join().unwrap();
    assert!(error.to_string().contains("--ca-file PEM"), "{error:#}");
}

#[test]
fn a_certificate_of_the_given_file_is_trusted() {
    let (address, pem, server) = answering_over_tls();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    let args = ServerArgs {
        server: address,
        token: None,
        data_dir: "there-is-none".to_owned(),
        ca_file: Some(file.path().to_owned()),
        client_cert: None,
        client_key: None,
        json: false,
    };
    let reply = ApiClient::new(&args).unwrap().get("/v1/rules").unwrap();
    server.join().unwrap();
    assert_eq!(reply.status, 200);
}
