//! TLS on both sides, with HTTP/2 where both ends have it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_listen::{Drain, ListenSettings, Peer, Tls, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tower::ServiceExt as _;

use tidegate_testkit::{eventually, within};
use tidegate_testkit_server::TestFolder;

use crate::running::{Gateway, NO_RULES};

/// Writes a certificate for `localhost` and its key.
fn issue(folder: &Path, name: &str) -> CertificateDer<'static> {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), issued.cert.pem()).unwrap();
    std::fs::write(
        folder.join(format!("{name}.key")),
        issued.signing_key.serialize_pem(),
    )
    .unwrap();
    issued.cert.der().clone()
}

/// A server with TLS that says how it was asked.
async fn tls_server(folder: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tell = |request: http::Request<axum::body::Body>| async move {
        let headers = request.headers();
        let text = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        format!(
            "{:?} {} {:?} {:?}",
            request.version(),
            request.uri(),
            text("x-forwarded-proto"),
            text("x-forwarded-host")
        )
    };
    let router = axum::Router::new().fallback(tell);
    let tls = Tls::load(&folder.join("server.crt"), &folder.join("server.key")).unwrap();
    let settings = ListenSettings {
        tls: Some(tls),
        ..ListenSettings::default()
    };
    let service = move |request, _: Peer| router.clone().oneshot(request);
    tokio::spawn(serve(listener, service, settings, Drain::new()));
    address
}

#[tokio::test]
async fn http2_over_tls_on_both_sides() {
    let folder = TestFolder::new();
    let trusted = issue(&folder.path("."), "gateway");
    issue(&folder.path("."), "server");
    let server = tls_server(&folder.path(".")).await;
    let path = |name: &str| folder.file(name);
    let settings = format!(
        "upstream: https://localhost:{}\nupstream_ca: {}\ngateway_tls_cert: {}\ngateway_tls_key: {}\n",
        server.port(),
        path("server.crt"),
        path("gateway.crt"),
        path("gateway.key")
    );
    let gateway = Gateway::start_in(folder, &settings, NO_RULES);

    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = within(TcpStream::connect(gateway.address)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = within(TlsConnector::from(Arc::new(config)).connect(name, stream))
        .await
        .unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let request = Request::get("https://api.example.com/a?b=c")
            .body(Empty::<bytes::Bytes>::new())
            .unwrap();
        let answer = within(client.send_request(request)).await.unwrap();
        assert_eq!(
            (answer.version(), answer.status().as_u16()),
            (Version::HTTP_2, 200)
        );
        let body = within(answer.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        let expected =
            "HTTP/2.0 https://api.example.com/a?b=c Some(\"https\") Some(\"api.example.com\")";
        assert_eq!(str::from_utf8(&body).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_not_asked() {
    let folder = TestFolder::new();
    issue(&folder.path("."), "server");
    let server = tls_server(&folder.path(".")).await;
    let settings = format!("upstream: https://localhost:{}\n", server.port());
    let gateway = Gateway::start(&settings, NO_RULES);
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn the_authorities_of_servers_are_followed() {
    let folder = TestFolder::new();
    let at = folder.path(".");
    issue(&at, "server");
    issue(&at, "other");
    let server = tls_server(&at).await;
    let copy = |name: &str| std::fs::read_to_string(at.join(name)).unwrap();
    let (trusted, other) = (copy("server.crt"), copy("other.crt"));
    folder.write("ca.pem", &other);
    let settings = format!(
        "upstream: https://localhost:{}\nupstream_ca: {}\n",
        server.port(),
        folder.file("ca.pem")
    );
    let path = folder.path("ca.pem");
    let gateway = Gateway::start_in(folder, &settings, NO_RULES);
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 502 "));
    std::fs::write(&path, trusted).unwrap();
    eventually("the server is trusted", async || {
        gateway.get("/").await.starts_with("HTTP/1.1 200 ")
    })
    .await;
}
