//! The gateway is no way to the API of its own server.

use tidegate_server::{Config, Listeners, Overrides};

use tidegate_testkit::{ReservedPort, header};
use tidegate_testkit_server::TestFolder;

use crate::running::Gateway;
use crate::upstream::Recorder;

async fn bind(settings: &str) -> Result<Listeners, String> {
    let folder = TestFolder::new();
    let file = folder.path("tidegate.yaml");
    std::fs::write(&file, settings).unwrap();
    let outside = Overrides {
        environment: &|_| None,
        variables: Vec::new(),
        flags: vec![("config", file.display().to_string())],
    };
    let config = Config::load(&outside).unwrap();
    Listeners::bind(&config)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_gateway_before_its_own_server_is_refused() {
    let reserved = ReservedPort::new();
    let port = reserved.number();
    for (http, upstream) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
    ] {
        let settings = format!(
            "http: {http}:{port}\ngrpc: off\ngateway: 127.0.0.1:0\nupstream: http://{upstream}:{port}\n"
        );
        let problem = bind(&settings).await.unwrap_err();
        assert!(
            problem.contains("this server itself listens for http"),
            "{problem}"
        );
        let settings = format!(
            "http: 127.0.0.1:0\ngrpc: off\ngateway: {http}:{port}\nupstream: http://{upstream}:{port}\n"
        );
        assert!(bind(&settings).await.unwrap_err().contains("for gateway"));
    }
    let settings = format!(
        "http: 127.0.0.1:0\ngrpc: off\ngateway: 127.0.0.1:0\nupstream: http://127.0.0.1:{port}\n"
    );
    bind(&settings).await.unwrap();
}

#[tokio::test]
async fn paths_of_the_api_are_like_any_other_and_who_comes_through_is_no_operator() {
    let recorder = Recorder::start().await;
    let gateway = Gateway::before(recorder.address);
    for path in ["/v1/rules", "/metrics", "/healthz"] {
        let answer = gateway.get(path).await;
        assert!(answer.contains(&format!("GET {path} HTTP/1.1")), "{answer}");
    }
    // Another gateway before this API: what it passes on is not from this machine.
    let outer = Gateway::before(gateway.api);
    let answer = outer
        .ask("GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nconnection: x-forwarded-for, x-forwarded-proto, x-forwarded-host, forwarded\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(
        header(&answer, "content-type"),
        Some("application/problem+json")
    );
}
