//! `redis-cli` and `redis-benchmark`, which come with Redis.

use std::process::{Command, Stdio};

use super::serve;
use crate::Server;
use tidegate_testkit_server::TestFolder;

fn run(program: &str, server: &Server, arguments: &[&str]) -> String {
    let port = server.resp.unwrap().port().to_string();
    let output = Command::new(program)
        .args(["-p", &port])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; install Redis's own programs"));
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{printed}{errors}");
    printed
}

#[test]
fn redis_cli_is_answered_in_both_versions() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let printed = run(
        "redis-cli",
        &server,
        &["--no-raw", "CL.THROTTLE", "user123", "15", "30", "60"],
    );
    let wanted =
        "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2\n";
    assert_eq!(printed, wanted);
    let printed = run(
        "redis-cli",
        &server,
        &["-3", "--json", "TG.CHECK", "ip", "203.0.113.7"],
    );
    assert!(
        printed.starts_with(r#"{"allowed":true,"rule":null,"#),
        "{printed}"
    );
    let printed = run("redis-cli", &server, &["INFO"]);
    assert!(printed.contains("server_name:tidegate"), "{printed}");
    let printed = run("redis-cli", &server, &["GET", "a"]);
    assert!(
        printed.starts_with("ERR unknown command 'GET'"),
        "{printed}"
    );
}

#[test]
fn many_connections_are_granted_exactly_the_limit() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let load = ["-n", "20000", "-c", "50", "-P", "16", "-q"];
    let throttle = ["CL.THROTTLE", "all", "99", "1", "86400"];
    run("redis-benchmark", &server, &[&load[..], &throttle].concat());
    let metrics = server.ask("GET /metrics", "").body;
    for counted in [
        r#"tidegate_throttles_total{verdict="allowed"} 100"#,
        r#"tidegate_throttles_total{verdict="denied"} 19900"#,
    ] {
        assert!(metrics.contains(counted), "{counted}: {metrics}");
    }
}

#[test]
fn the_certificate_of_https_serves_here_too() {
    let folder = TestFolder::new();
    folder.write_certificates("ca.pem", "localhost");
    let (certificate, key) = (folder.file("cert.pem"), folder.file("key.pem"));
    folder.write(
        "tidegate.yaml",
        &format!("tls_cert: {certificate}\ntls_key: {key}\n"),
    );
    let server = serve(&folder, &["--config", "tidegate.yaml"]);
    let authority = folder.path("ca.pem");
    let tls = [
        "--tls",
        "--sni",
        "localhost",
        "--cacert",
        authority.to_str().unwrap(),
    ];
    assert_eq!(
        run("redis-cli", &server, &[&tls[..], &["PING"]].concat()),
        "PONG\n"
    );
}
