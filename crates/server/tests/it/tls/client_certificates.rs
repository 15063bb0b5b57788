//! `http_tls_client_ca`: calls need a certificate of its authorities, probes do not.

use serde_json::Value;
use tidegate_testkit_server::TestFolder;

use super::{Authority, PROTOCOLS, RULES, TlsClient};
use crate::Server;

/// A server whose certificate and whose clients' certificates are of one authority.
fn serve(folder: &TestFolder, authority: &Authority, arguments: &[&str]) -> Server {
    authority.issue_into(&folder.path("."));
    folder.write("ca.pem", &authority.pem());
    folder.write("rules.yaml", RULES);
    let path = |name| folder.file(name);
    let settings = format!(
        "tls_cert: {}\ntls_key: {}\nhttp_tls_client_ca: {}\n",
        path("tls.crt"),
        path("tls.key"),
        path("ca.pem")
    );
    folder.write("tidegate.yaml", &settings);
    let files = ["--config", "tidegate.yaml", "--rules", "rules.yaml"];
    folder.serve(&[&files, arguments].concat())
}

#[test]
fn every_call_but_a_probe_needs_a_certificate_on_both_listeners() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let folder = TestFolder::new();
    let server = serve(&folder, &ours, &["--admin", "127.0.0.1:0"]);
    let probes = ["GET /healthz", "GET /readyz"];
    let calls = [
        "POST /v1/check",
        "POST /v1/check/batch",
        "GET /v1/authorize",
        "GET /v1/rules",
        "GET /metrics",
        "GET /openapi.json",
        "GET /console/",
        "GET /",
        "GET /nothing",
        "POST /healthz",
    ];
    for (address, protocol) in [server.address, server.admin.unwrap()]
        .into_iter()
        .flat_map(|address| PROTOCOLS.map(|protocol| (address, protocol)))
    {
        let client = |identity| TlsClient::new(&ours, identity).speaking(protocol);
        let (known, unknown, without) = (client(Some(&ours)), client(Some(&foreign)), client(None));
        for call in probes {
            assert_eq!(without.ask(address, call).unwrap().0, 200, "{call}");
            assert_eq!(known.ask(address, call).unwrap().0, 200, "{call}");
            assert_eq!(unknown.ask(address, call), None, "{call}");
        }
        for call in calls {
            let (status, body) = without.ask(address, call).unwrap();
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(status, 403, "{call}: {body}");
            assert_eq!(body["reason"], "client_certificate", "{call}: {body}");
            let detail = body["detail"].as_str().unwrap();
            assert!(detail.contains("`http_tls_client_ca`"), "{detail}");
            let (_, body) = known.ask(address, call).unwrap();
            let is_refused = body.contains(r#""reason":"client_certificate""#);
            assert!(!is_refused, "{call}: {body}");
            assert_eq!(unknown.ask(address, call), None, "{call}");
        }
        assert_eq!(known.ask(address, "POST /v1/check").unwrap().0, 200);
        // A certificate is no token.
        let listed = known.ask(server.admin.unwrap(), "GET /v1/rules");
        assert_eq!(listed.unwrap().0, 401);
    }
}

#[test]
fn grpc_and_http_have_authorities_of_their_own() {
    let (ours, of_grpc) = (Authority::new(), Authority::new());
    let folder = TestFolder::new();
    let server = serve(&folder, &ours, &["--grpc", "127.0.0.1:0"]);
    let uncertified = TlsClient::new(&ours, None).speaking(b"h2");
    let grpc = server.grpc.unwrap();
    assert!(
        uncertified.ask(grpc, "POST /").is_some(),
        "gRPC asks for none"
    );
    drop(server);

    folder.write("grpc.pem", &of_grpc.pem());
    let settings = std::fs::read_to_string(folder.path("tidegate.yaml")).unwrap();
    let more = format!("{settings}tls_client_ca: {}\n", folder.file("grpc.pem"));
    folder.write("tidegate.yaml", &more);
    let arguments = ["--config", "tidegate.yaml", "--grpc", "127.0.0.1:0"];
    let server = folder.serve(&arguments);
    let grpc = server.grpc.unwrap();
    let client = |authority| TlsClient::new(&ours, Some(authority)).speaking(b"h2");
    assert!(client(&of_grpc).ask(grpc, "POST /").is_some());
    assert!(client(&ours).ask(grpc, "POST /").is_none());
    assert!(uncertified.ask(grpc, "POST /").is_none());
    let check = "POST /v1/check";
    assert!(client(&ours).ask(server.address, check).is_some());
    assert!(client(&of_grpc).ask(server.address, check).is_none());
}
