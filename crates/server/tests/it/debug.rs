//! The debug port: its pages, and that the server needs neither the port nor a token for them.

use tidegate_testkit_server::{HttpClient, TestFolder};

#[test]
fn pages_of_the_debug_port_are_listed_and_need_no_token() {
    let folder = TestFolder::new();
    let server = folder.serve_with(
        &["--debug", "127.0.0.1:0"],
        &[("TIDEGATE_TOKEN", "sixteen-letters.")],
    );
    let mut client = HttpClient::to(server.debug.unwrap());
    let list = client.ask("GET /", "");
    assert_eq!(list.status, 200);
    assert_eq!(
        list.header("content-type").unwrap(),
        "text/plain; charset=utf-8"
    );
    for line in list.body.lines() {
        let (path, about) = line.split_once(": ").unwrap();
        assert!(path.starts_with('/') && !about.is_empty(), "{line}");
        let expected = if path.starts_with("/debug/") {
            404
        } else {
            200
        };
        assert_eq!(client.ask(&format!("GET {path}"), "").status, expected);
    }
    for path in ["/debug/pprof/", "/debug/pprof/heap"] {
        let reply = client.ask(&format!("GET {path}"), "");
        assert_eq!(reply.status, 404);
        assert_eq!(reply.body, "not available: this is not a Go program");
    }
    for path in ["/metrics", "/v1/rules", "/debug", "/console/"] {
        assert_eq!(client.ask(&format!("GET {path}"), "").status, 404, "{path}");
    }
}

#[test]
fn a_taken_debug_port_is_an_error_in_the_log_and_no_reason_to_stop() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = TestFolder::new();
    let server = folder.serve(&["--debug", &address]);
    assert_eq!(server.debug, None);
    assert_eq!(server.ask("GET /healthz", "").status, 200);
    let log = server.log.text();
    let line = log.lines().find(|line| line.contains(&address)).unwrap();
    assert!(line.contains("ERROR") && line.contains("--debug"), "{line}");
}
