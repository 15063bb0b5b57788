//! TLS, and certificates of clients.

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use tidegate_testkit_server::TestFolder;

use super::{Client, Running, request, start_in};
use crate::tls::Authority;

const RULES: &str = "rules: [{id: all, per: [], limit: 9/minute}]";

async fn client(server: &Running, tls: ClientTlsConfig) -> Option<Client> {
    let endpoint = Endpoint::from_shared(format!(
        "https://localhost:{}",
        server.server.grpc.unwrap().port()
    ));
    let channel = endpoint.unwrap().tls_config(tls).unwrap().connect().await;
    Some(Client::new(channel.ok()?))
}

#[tokio::test]
async fn clients_show_a_certificate_where_they_must() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let (certificate, key) = ours.issue("localhost");
    let folder = TestFolder::new();
    for (name, text) in [
        ("ca.pem", ours.pem()),
        ("server.pem", certificate),
        ("server.key", key),
    ] {
        folder.write(name, &text);
    }
    let settings =
        "tls_cert: FOLDER/server.pem\ntls_key: FOLDER/server.key\ntls_client_ca: FOLDER/ca.pem\n";
    let server = start_in(folder, Some(RULES), settings);
    let trusting = || ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ours.pem()));
    let identity = |authority: &Authority| {
        let (certificate, key) = authority.issue("client");
        Identity::from_pem(certificate, key)
    };
    for (name, tls, expected) in [
        ("ours", trusting().identity(identity(&ours)), true),
        (
            "of another authority",
            trusting().identity(identity(&foreign)),
            false,
        ),
        ("none", trusting(), false),
    ] {
        // With TLS 1.3 a client learns only with its first call that it is refused.
        let answer = match client(&server, tls).await {
            Some(mut client) => client.ask(request(&["a=b"])).await.is_ok(),
            None => false,
        };
        assert_eq!(answer, expected, "{name}");
    }
}

#[tokio::test]
async fn tls_alone_asks_nothing_of_clients() {
    let ours = Authority::new();
    let (certificate, key) = ours.issue("localhost");
    let folder = TestFolder::new();
    for (name, text) in [("server.pem", certificate), ("server.key", key)] {
        folder.write(name, &text);
    }
    let settings = "tls_cert: FOLDER/server.pem\ntls_key: FOLDER/server.key\n";
    let server = start_in(folder, Some(RULES), settings);
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ours.pem()));
    let mut client = client(&server, tls).await.unwrap();
    assert!(client.decide(request(&["a=b"])).await.0);
}
