//! TLS: certificates that are refused by either side, and certificates that are renewed.

use tempfile::TempDir;
use tidegate_testkit_xds::{ManagementServer, TestAuthority};
use tidegate_xds::{XdsError, XdsEvent, XdsTls};

use crate::{failure, with_tls};

/// Why it failed, as text; it was about certificates.
fn refused(error: &XdsError) -> String {
    assert!(error.is_about_certificates(), "{error}");
    error.to_string()
}

struct Setting {
    folder: TempDir,
    servers: TestAuthority,
    clients: TestAuthority,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            servers: TestAuthority::new(folder.path(), "servers"),
            clients: TestAuthority::new(folder.path(), "clients"),
            folder,
        }
    }

    fn server(&self) -> ManagementServer {
        let files = self.servers.issue("server", "localhost");
        let clients = self.folder.path().join("clients.pem");
        ManagementServer::with_tls(files, Some(&clients))
    }

    fn tls(&self) -> XdsTls {
        XdsTls {
            identity: Some(self.clients.issue("client", "envoy-ratelimit")),
            authorities: Some(self.folder.path().join("servers.pem")),
            server_name: None,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_with_a_certificate_is_served() {
    let setting = Setting::new();
    let server = setting.server();
    let mut client = with_tls(&server, setting.tls());
    assert!(matches!(client.next().await, XdsEvent::Opened));
    assert!(server.stream().request().unwrap().node.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_certificate_of_the_server_that_is_not_trusted_is_named_with_the_authorities() {
    let setting = Setting::new();
    let server = setting.server();
    let tls = XdsTls {
        authorities: Some(setting.folder.path().join("clients.pem")),
        ..setting.tls()
    };
    let text = refused(&failure(&mut with_tls(&server, tls)).await.0);
    assert!(
        text.contains("UnknownIssuer") && text.contains("clients.pem"),
        "{text}"
    );

    let tls = XdsTls {
        authorities: None,
        ..setting.tls()
    };
    let text = refused(&failure(&mut with_tls(&server, tls)).await.0);
    assert!(text.contains("only the public ones"), "{text}");

    let tls = XdsTls {
        server_name: Some("other.example".to_owned()),
        ..setting.tls()
    };
    let text = refused(&failure(&mut with_tls(&server, tls)).await.0);
    assert!(text.contains("other.example"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_certificate_of_the_client_that_the_server_refuses_is_named() {
    let setting = Setting::new();
    let server = setting.server();
    let tls = XdsTls {
        identity: Some(setting.servers.issue("foreign", "envoy-ratelimit")),
        ..setting.tls()
    };
    let text = refused(&failure(&mut with_tls(&server, tls)).await.0);
    assert!(text.contains("foreign.crt"), "{text}");

    let tls = XdsTls {
        identity: None,
        ..setting.tls()
    };
    let text = refused(&failure(&mut with_tls(&server, tls)).await.0);
    assert!(text.contains("none is set"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn renewed_certificates_are_used_by_the_next_connection() {
    let setting = Setting::new();
    let server = setting.server();
    let tls = setting.tls();
    // Not yet of the authority that the server asks for.
    let foreign = setting.servers.issue("client", "envoy-ratelimit");
    assert_eq!(Some(&foreign), tls.identity.as_ref());
    let mut client = with_tls(&server, tls);
    refused(&failure(&mut client).await.0);

    setting.clients.issue("client", "envoy-ratelimit");
    assert!(matches!(client.next().await, XdsEvent::Opened));
    server.stream().end(14, "renewed");
    failure(&mut client).await;

    std::fs::remove_file(foreign.0).unwrap();
    let text = refused(&failure(&mut client).await.0);
    assert!(text.contains("client.crt"), "{text}");
    setting.clients.issue("client", "envoy-ratelimit");
    assert!(matches!(client.next().await, XdsEvent::Opened));
    assert!(server.stream().request().is_some());
}
