//! HTTP over TLS, and certificates that change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Version};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_listen::{ListenSettings, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http::{http2_client, request};
use super::server::Server;
use tidegate_testkit::within;

/// A certificate for `localhost` and its key, in files.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> (Self, CertificateDer<'static>) {
        let directory = tempfile::tempdir().unwrap();
        let files = Self { directory };
        let issued = files.issue();
        (files, issued)
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("server.crt")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("server.key")
    }

    fn issue(&self) -> CertificateDer<'static> {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(self.certificate(), issued.cert.pem()).unwrap();
        std::fs::write(self.key(), issued.signing_key.serialize_pem()).unwrap();
        issued.cert.der().clone()
    }

    fn load(&self) -> Tls {
        Tls::load(&self.certificate(), &self.key()).unwrap()
    }
}

async fn start(tls: Tls) -> Server {
    Server::start(ListenSettings {
        tls: Some(tls),
        handshake_timeout: Duration::from_millis(300),
        ..ListenSettings::default()
    })
    .await
}

/// A connection to a server of which only this certificate is trusted.
async fn connect(
    server: &Server,
    trusted: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = server.connect().await.stream;
    within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

#[tokio::test]
async fn http2_is_chosen_in_the_handshake() {
    let (files, trusted) = Files::new();
    let server = start(files.load()).await;
    let stream = connect(&server, &trusted, &[b"h2", b"http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = http2_client(stream).await;
    let response = within(client.send_request(request("/"))).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn http1_is_used_with_a_client_that_asks_for_it_or_for_nothing() {
    let (files, trusted) = Files::new();
    let server = start(files.load()).await;
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let mut stream = connect(&server, &trusted, protocols).await.unwrap();
        let asked = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        within(stream.write_all(asked)).await.unwrap();
        let mut answer = String::new();
        within(stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_served_to_the_next_connection_and_a_bad_one_to_none() {
    let (files, first) = Files::new();
    let tls = files.load();
    let server = start(tls.clone()).await;
    connect(&server, &first, &[]).await.unwrap();

    let second = files.issue();
    connect(&server, &first, &[]).await.expect("not read yet");
    tls.reload().unwrap();
    connect(&server, &second, &[]).await.unwrap();
    assert!(connect(&server, &first, &[]).await.is_err());

    std::fs::write(files.key(), "half a key").unwrap();
    tls.reload().unwrap_err();
    connect(&server, &second, &[]).await.unwrap();
}

#[tokio::test]
async fn clients_without_tls_or_without_haste_do_no_harm() {
    let (files, trusted) = Files::new();
    let server = start(files.load()).await;
    let mut plain = server.connect().await;
    plain
        .send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let mut silent = server.connect().await;
    let mut alert = Vec::new();
    let _ = within(plain.stream.read_to_end(&mut alert)).await;
    assert!(!alert.starts_with(b"HTTP"), "{alert:?}");
    assert_eq!(silent.rest().await, "");
    connect(&server, &trusted, &[]).await.unwrap();
}

#[tokio::test]
async fn a_drain_waits_for_a_request_over_tls() {
    let (files, trusted) = Files::new();
    let server = start(files.load()).await;
    let mut stream = connect(&server, &trusted, &[b"http/1.1"]).await.unwrap();
    let asked = b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n";
    within(stream.write_all(asked)).await.unwrap();
    within(server.has_begun.notified()).await;
    server.drain.begin();
    server.release.notify_one();
    let mut answer = String::new();
    // To its orderly end: TLS reports one that was cut short.
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("slow"), "{answer}");
    server.ended().await;
}
