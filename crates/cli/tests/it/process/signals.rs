//! What the server does on the signals that end it, and on the one that makes it read its files again.

use rustix::process::Signal;

use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::{HttpClient, request};

const RULES: &str = "rules:\n  - {id: all, per: [], limit: 10/minute}\n";
const CHECK: &str = r#"{"attributes": {"ip": "1.2.3.4"}}"#;

fn serve(environment: &[(&str, &str)]) -> (ProgramFolder, Server) {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let arguments = ["--rules", "rules.yaml", "--log-level", "debug"];
    let server = folder.serve_with(&arguments, environment);
    (folder, server)
}

/// A request whose body is only begun. The server has its head, and waits for the rest.
fn begin(server: &Server) -> (HttpClient, String) {
    let mut client = server.client();
    let text = request("POST /v1/check", &[("expect", "100-continue")], CHECK);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    client.send(&format!("{head}\r\n\r\n")).unwrap();
    assert_eq!(client.reply().unwrap().status, 100);
    let (first, rest) = body.split_at(10);
    client.send(first).unwrap();
    (client, rest.to_owned())
}

#[test]
fn a_request_in_flight_is_answered_and_new_connections_are_refused() {
    let (_place, server) = serve(&[]);
    let mut idle = server.client();
    idle.ask("GET /healthz", "").with_status(200);
    let (mut client, rest) = begin(&server);
    server.signal(Signal::TERM);
    assert!(idle.is_closed());
    // Who comes before the port is closed is let go of like those who were idle.
    while let Ok(mut late) = HttpClient::try_to(server.address) {
        late.is_closed();
    }
    client.send(&rest).unwrap();
    let reply = client.reply().unwrap().with_status(200);
    assert_eq!(reply.json()["allowed"], true);
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(client.is_closed());
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("shut down"), "{log}");
}

#[test]
fn while_it_waits_to_drain_it_says_so_and_answers_and_a_second_signal_ends_it_at_once() {
    let (_place, server) = serve(&[("TIDEGATE_DRAIN_DELAY", "10m")]);
    let mut client = server.client();
    client.ask("GET /readyz", "").with_status(200);
    server.signal(Signal::TERM);
    server.log.wait_for("shutting down");
    let ready = client.ask("GET /readyz", "").with_status(503).json();
    assert_eq!(ready["status"], "draining");
    client.ask("POST /v1/check", CHECK).with_status(200);
    server.ask("POST /v1/check", CHECK).with_status(200);
    server.signal(Signal::TERM);
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(1), "{log}");
}

#[test]
fn the_delay_before_the_drain_comes_to_an_end() {
    let (_place, server) = serve(&[("TIDEGATE_DRAIN_DELAY", "100ms")]);
    let mut client = server.client();
    client.ask("GET /readyz", "").with_status(200);
    server.signal(Signal::INT);
    assert!(client.is_closed());
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_request_that_never_ends_is_cut_at_the_deadline() {
    let (_place, server) = serve(&[("TIDEGATE_DRAIN_TIMEOUT", "200ms")]);
    let (mut client, _rest) = begin(&server);
    server.signal(Signal::TERM);
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("cut connections"), "{log}");
    assert!(client.reply().is_err());
}

#[test]
fn a_signal_right_after_the_start_is_a_signal_to_a_server() {
    for _ in 0..10 {
        let folder = ProgramFolder::new();
        let server = folder.serve(&[]);
        server.signal(Signal::HUP);
        server.signal(Signal::TERM);
        let (status, log) = server.ended();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn a_hangup_reads_the_file_again_whether_it_has_changed_or_not() {
    let (folder, server) = serve(&[]);
    server.signal(Signal::HUP);
    server.log.wait_for("the rules are the same as before");
    folder.write("rules.yaml", &RULES.replace("10", "20"));
    server.signal(Signal::HUP);
    server.log.wait_for("the rules were reloaded");
    let rules = server.ask("GET /v1/rules/all", "").json();
    assert_eq!(rules["limit"], "20/minute");
}

#[test]
fn a_hangup_without_a_file_is_explained_and_changes_nothing() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    server.signal(Signal::HUP);
    server.log.wait_for("there is nothing to reload");
    server.ask("POST /v1/check", CHECK).with_status(200);
}

#[test]
fn it_serves_also_if_it_cannot_say_where() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    // Nothing can be written there.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "serve",
            "--grpc",
            "off",
            "--http",
            &address.to_string(),
            "--rules",
        ])
        .arg(folder.path("rules.yaml"))
        .current_dir(folder.path(""))
        .stdout(full.unwrap())
        .spawn()
        .unwrap();
    let mut client = loop {
        match HttpClient::try_to(address) {
            Ok(client) => break client,
            Err(_) => assert!(process.try_wait().unwrap().is_none(), "it has ended"),
        }
        std::thread::yield_now();
    };
    let reply = client.ask("GET /healthz", "");
    process.kill().unwrap();
    process.wait().unwrap();
    reply.with_status(200);
    let lock = folder.path("tidegate-data/lock");
    assert!(lock.exists(), "the data directory is in the test's own");
}
