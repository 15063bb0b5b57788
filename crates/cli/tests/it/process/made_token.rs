//! The token that a server makes when none is configured, and how commands on the same machine use it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::json;
use tidegate_testkit::wait_until;

use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::PATIENCE;

const CHECK: (&str, &str) = ("POST /v1/check", r#"{"attributes": {"ip": "1.2.3.4"}}"#);
const BATCH: (&str, &str) = ("POST /v1/check/batch", r#"{"checks": []}"#);
const READ: (&str, &str) = ("GET /v1/rules", "");
const RULES: &str = r#"{"rules": [{"id": "a", "per": ["ip"], "limit": "1000/minute"}]}"#;
const WRITE: (&str, &str) = ("PUT /v1/rules", RULES);
const RESET: (&str, &str) = ("POST /v1/reset", r#"{"attributes": {"ip": "1.2.3.4"}}"#);
const HISTORY: (&str, &str) = ("GET /v1/rules/history", "");
const FEEDBACK: (&str, &str) = ("POST /v1/feedback", r#"{"feedback": []}"#);

/// The status of an administrating call with this token.
fn status_with(server: &Server, token: &str, (call, body): (&str, &str)) -> u16 {
    let authorization = format!("Bearer {token}");
    server
        .ask_with(call, &[("authorization", &authorization)], body)
        .status
}

#[test]
fn behind_a_bare_proxy_the_admin_api_needs_the_token() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    // As nginx sends it with nothing but `proxy_pass`: a loopback host, and no trace of the client.
    let host = server.address.to_string();
    let bare = [("host", host.as_str()), ("authorization", "")];
    for (call, body) in [WRITE, READ, RESET, HISTORY, FEEDBACK] {
        let refused = server.ask_with(call, &bare, body).with_status(401);
        let detail = refused.detail();
        assert!(detail.contains("admin-token"), "{detail}");
        assert!(refused.header("www-authenticate").is_some());
        assert_eq!(status_with(&server, "guess", (call, body)), 401);
    }
    for (call, body) in [CHECK, BATCH] {
        server.ask_with(call, &bare, body).with_status(200);
        assert_eq!(status_with(&server, "guess", (call, body)), 200);
    }
    let lease = server.ask("DELETE /v1/leases/00000000000000000000000000000000", "");
    lease.with_status(404);
    let token = server.token.clone().unwrap();
    for call in [WRITE, READ, HISTORY] {
        assert_eq!(status_with(&server, &token, call), 200, "{call:?}");
    }
    assert_eq!(status_with(&server, &token, FEEDBACK), 204);
    let history = server.ask(HISTORY.0, "").json();
    assert_eq!(history["history"][0]["by"], "admin-token");
}

#[test]
fn the_token_counts_only_from_this_machine() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let json = ("content-type", "application/json");
    let table = [
        ("a foreign host", vec![("host", "limits.example.com"), json]),
        ("a proxy", vec![("x-forwarded-for", "203.0.113.7"), json]),
        (
            "a proxy that names the host",
            vec![("x-forwarded-host", "localhost"), json],
        ),
        (
            "a proxy by the standard",
            vec![("forwarded", "for=203.0.113.7"), json],
        ),
        ("a cache", vec![("via", "1.1 cache"), json]),
        ("nginx", vec![("x-real-ip", "203.0.113.7"), json]),
        (
            "another site",
            vec![("origin", "http://evil.example"), json],
        ),
        (
            "a page of another site",
            vec![("sec-fetch-site", "cross-site"), json],
        ),
        ("a form of a page", vec![("content-type", "text/plain")]),
        ("no host", vec![("host", ""), json]),
    ];
    for (name, headers) in &table {
        for (call, body) in [WRITE, RESET] {
            let refused = server.ask_with(call, headers, body).with_status(403);
            assert!(
                refused.detail().contains("TIDEGATE_TOKEN"),
                "{name}: {refused:?}"
            );
        }
        let is_other_site = name.ends_with("another site");
        let checked = server.ask_with(CHECK.0, headers, CHECK.1);
        let expected = if is_other_site { 403 } else { 200 };
        assert_eq!(checked.status, expected, "{name}: {checked:?}");
    }
    let foreign = [("host", "limits.example.com")];
    for call in [
        "GET /v1/rules",
        "GET /v1/rules/a",
        "GET /v1/rules/history",
        "DELETE /v1/rules/a",
    ] {
        server
            .ask_with(call, &foreign, "")
            .with_status(403)
            .detail();
    }
    let rules = server.ask(READ.0, "").with_status(200).json();
    assert_eq!(rules, json!({"rules": [], "version": 0}));
    for host in ["localhost:8080", "127.0.0.1", "[::1]:8080"] {
        server
            .ask_with(WRITE.0, &[("host", host)], WRITE.1)
            .with_status(200);
    }
}

#[test]
fn the_token_is_a_private_file_that_outlives_restarts_and_is_never_logged() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let file = folder.path("data/admin-token");
    let mut tokens = Vec::new();
    for arguments in [
        &[][..],
        &["--rules", "rules.yaml"],
        &["--log-level", "trace"],
    ] {
        let server = folder.serve(arguments);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&file).unwrap();
        let token = text.strip_suffix('\n').unwrap().to_owned();
        assert!(token.len() >= 32 && !token.contains('\n'), "one line");
        assert_eq!(status_with(&server, &token, READ), 200);
        let log = server.log.wait_for("data/admin-token");
        server.signal(Signal::TERM);
        let (_, whole) = server.ended();
        assert!(!log.contains(&token) && !whole.contains(&token));
        tokens.push(token);
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 1, "kept over restarts");
}

#[test]
fn a_deleted_token_is_replaced_on_sighup() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let old = server.token.clone().unwrap();
    let file = folder.path("data/admin-token");
    fs::remove_file(&file).unwrap();
    assert_eq!(status_with(&server, &old, READ), 200);
    server.signal(Signal::HUP);
    let new = wait_until("the new token", PATIENCE, || fs::read_to_string(&file).ok());
    let new = new.trim_end();
    assert_ne!(new, old);
    wait_until("the new token", PATIENCE, || {
        (status_with(&server, new, READ) == 200).then_some(())
    });
    assert_eq!(status_with(&server, &old, READ), 401);
}

#[test]
fn a_token_that_others_can_read_is_an_error() {
    let folder = ProgramFolder::new();
    folder.serve(&[]).kill();
    let file = folder.path("data/admin-token");
    let token = fs::read_to_string(&file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let run = folder.fail_to_serve(&[]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("has the mode 0640"), "{}", run.stderr);
    assert!(run.stderr.contains("chmod 600"), "{}", run.stderr);
    assert!(!run.stderr.contains(token.trim()), "{}", run.stderr);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    folder.serve(&[]);
}

#[test]
fn a_made_token_is_ignored_with_a_warning_once_one_is_configured() {
    let folder = ProgramFolder::new();
    folder.serve(&[]).kill();
    let made = fs::read_to_string(folder.path("data/admin-token")).unwrap();
    let server = folder.serve_with(&[], &[("TIDEGATE_TOKEN", "configured")]);
    let log = server
        .log
        .wait_for("is not used, because a token is configured");
    assert!(log.contains("WARN"), "{log}");
    assert_eq!(status_with(&server, made.trim_end(), READ), 401);
    assert_eq!(status_with(&server, "configured", READ), 200);
    server.kill();

    fs::remove_file(folder.path("data/admin-token")).unwrap();
    let server = folder.serve_with(&[], &[("TIDEGATE_TOKEN", "configured")]);
    assert!(!folder.path("data/admin-token").exists());
    assert!(!server.log.text().contains("is not used, because"));
}

#[test]
fn a_server_that_cannot_make_a_token_is_closed_to_administration() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    fs::write(folder.path("taken"), "").unwrap();
    let server = folder.serve(&["--rules", "rules.yaml", "--data-dir", "taken"]);
    server
        .log
        .wait_for("no token is configured, and a generated one cannot be stored");
    for (call, body) in [READ, WRITE, RESET, HISTORY] {
        let refused = server.ask(call, body).with_status(403);
        let detail = refused.detail();
        assert!(detail.contains("configure a token"), "{detail}");
    }
    server.ask(CHECK.0, CHECK.1).with_status(200);
    let configured = [("TIDEGATE_TOKEN", "configured")];
    let arguments = ["--rules", "rules.yaml", "--data-dir", "taken"];
    let server = folder.serve_with(&arguments, &configured);
    assert_eq!(status_with(&server, "configured", READ), 200);
}

#[test]
fn commands_on_the_same_machine_need_no_flag() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&["--data-dir", "tidegate-data"]);
    let url = server.url();
    let run = folder.run_with(&["rules", "list", "--server", &url], &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let by_name = format!("http://localhost:{}", server.address.port());
    let run = folder.run_with(&["rules", "history", "--server", &by_name], &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);

    // A token that is given is used, and never the made one in its stead.
    let run = folder.run_with(
        &["rules", "list", "--server", &url, "--token", "wrong"],
        &[],
    );
    assert_eq!(run.code, Some(2));
    // Another directory has no token of this server.
    let run = folder.run_with(
        &["rules", "list", "--server", &url, "--data-dir", "other"],
        &[],
    );
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("--data-dir"), "{}", run.stderr);

    let other = folder.serve(&["--data-dir", "other"]);
    let run = folder.run_with(&["rules", "list", "--server", &other.url()], &[]);
    assert_eq!(run.code, Some(2), "the token of another server");
    let run = folder.run_with(
        &[
            "rules",
            "list",
            "--server",
            &other.url(),
            "--data-dir",
            "other",
        ],
        &[],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn commands_on_the_same_machine_find_the_admin_listener() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&["--admin", "127.0.0.1:0"]);
    let admin = server.admin.unwrap();
    let text = fs::read_to_string(folder.path("data/listening")).unwrap();
    assert_eq!(text, format!("http={}\nadmin={admin}\n", server.address));

    for url in [server.url(), format!("http://{admin}")] {
        for command in [&["rules", "list"][..], &["status"], &["check"]] {
            let run = folder.run(&[command, &["--server", &url]].concat());
            assert_eq!(run.code, Some(0), "{command:?} {url}: {}", run.stderr);
        }
        let run = folder.run(&["console", "--no-open", "--server", &url]);
        let page = format!("http://{admin}/console/#code=");
        assert!(run.stdout.starts_with(&page), "{}", run.whole());
    }
    // Load is for the listener of services.
    let load = "bench http --requests 10 --warm-up 0s --connections 1 --server";
    let load: Vec<&str> = load.split(' ').collect();
    let run = folder.run(&[&load[..], &[&server.url()]].concat());
    assert_eq!(run.code, Some(0), "{}", run.whole());

    // Elsewhere the address of the admin listener must be given.
    let run = folder.run(&[
        "rules",
        "list",
        "--server",
        &server.url(),
        "--data-dir",
        "x",
    ]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("admin listener"), "{}", run.stderr);
}

#[test]
fn a_given_token_is_used_at_the_admin_listener() {
    let folder = ProgramFolder::new();
    let token = [("TIDEGATE_TOKEN", "of-the-operator-0123456789")];
    let server = folder.serve_with(&["--admin", "127.0.0.1:0"], &token);
    let url = server.url();
    let environment = [token[0], ("TIDEGATE_DATA_DIR", "data")];
    let run = folder.run_with(&["rules", "list", "--server", &url], &environment);
    assert_eq!(run.code, Some(0), "{}", run.whole());
}

#[test]
fn the_made_token_is_not_sent_to_a_program_that_took_the_address() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&["--data-dir", "tidegate-data"]);
    let address = server.address;
    server.kill();
    assert!(folder.path("tidegate-data/listening").exists());
    let listener = std::net::TcpListener::bind(address).unwrap();
    let other = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 4_096];
        let length = stream.read(&mut asked).unwrap();
        let answer =
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&asked[..length]).to_lowercase()
    });
    let run = folder.run_with(
        &["rules", "list", "--server", &format!("http://{address}")],
        &[],
    );
    assert_eq!(run.code, Some(2));
    let asked = other.join().unwrap();
    assert!(asked.starts_with("get /v1/rules"), "{asked}");
    assert!(!asked.contains("authorization"), "{asked}");
}

#[test]
fn a_server_that_ended_well_leaves_no_address() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let text = fs::read_to_string(folder.path("data/listening")).unwrap();
    assert_eq!(text, format!("http={}\n", server.address));
    server.signal(Signal::TERM);
    assert!(server.ended().0.success());
    assert!(!folder.path("data/listening").exists());
}
