//! The program as a reverse proxy, before another server of the same program.

use rustix::process::Signal;

use crate::server::ProgramFolder;
use tidegate_testkit_server::HttpClient;

const RULES: &str = "rules:\n  - {id: probes, match: {path: /healthz}, per: [ip], limit: 1/hour}\n";

#[test]
fn requests_go_through_as_the_rules_say_and_a_shutdown_is_in_good_order() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let behind = folder.serve(&[]);
    let url = behind.url();
    let arguments = [
        "--rules",
        "rules.yaml",
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ];
    let server = folder.serve(&[&arguments[..], &["--data-dir", "other"]].concat());
    let mut client = HttpClient::to(server.gateway.unwrap());
    client.ask("GET /healthz", "").with_status(200);
    let denied = client.ask("GET /healthz", "").with_status(429);
    assert!(denied.header("retry-after").is_some());
    // The API behind does not treat the client as an operator on its machine.
    client.ask("GET /v1/rules", "").with_status(403);
    server.signal(Signal::TERM);
    let (status, log) = server.ended();
    assert!(status.success(), "{log}");
}

#[test]
fn a_gateway_needs_something_else_to_stand_before() {
    let folder = ProgramFolder::new();
    let run = folder.fail_to_serve(&["--gateway", "127.0.0.1:0"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("--upstream URL"), "{}", run.stderr);
    let run = folder.fail_to_serve(&["--upstream", "http://127.0.0.1:1"]);
    assert!(
        run.stderr.contains("has no meaning without `gateway`"),
        "{}",
        run.stderr
    );
}
