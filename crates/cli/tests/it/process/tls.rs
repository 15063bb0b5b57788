//! HTTPS with the server's own certificate, asked by the program's own client.

use rustix::process::Signal;

use crate::server::{ProgramFolder, Server};
use crate::server_process::ProgramRun;

fn serve(folder: &ProgramFolder) -> Server {
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: a, per: [ip], limit: 1/hour}\n",
    );
    folder.write(
        "tidegate.yaml",
        "tls_cert: cert.pem\ntls_key: key.pem\nrules: rules.yaml\n",
    );
    folder.serve(&["--config", "tidegate.yaml"])
}

fn check(folder: &ProgramFolder, server: &Server, more: &[&str]) -> ProgramRun {
    let url = format!("https://localhost:{}", server.address.port());
    let arguments = ["check", "--attr", "ip=1.2.3.4", "--server", &url];
    folder.run(&[&arguments, more].concat())
}

#[test]
fn a_check_over_https_is_answered_to_those_who_trust_the_certificate() {
    let folder = ProgramFolder::new();
    folder.write_certificates("ca.pem", "localhost");
    let server = serve(&folder);
    let allowed = check(&folder, &server, &["--ca-file", "ca.pem"]);
    assert_eq!(allowed.code, Some(0), "{}", allowed.whole());
    let denied = check(&folder, &server, &["--ca-file", "ca.pem"]);
    assert_eq!(denied.code, Some(1), "{}", denied.whole());
    assert!(
        denied.stdout.contains("denied by rule a"),
        "{}",
        denied.stdout
    );

    let distrusted = check(&folder, &server, &[]);
    assert_eq!(distrusted.code, Some(2), "{}", distrusted.whole());
    assert!(
        distrusted.stderr.contains("--ca-file"),
        "{}",
        distrusted.stderr
    );
    for command in [&["check"][..], &["bench", "http", "-a", "ip=::1"]] {
        let plain = folder.run(&[command, &["--server", &server.url()]].concat());
        assert_eq!(plain.code, Some(2), "{}", plain.whole());
        assert!(plain.stderr.contains("write https://"), "{}", plain.stderr);
    }
}

#[test]
fn a_server_without_tls_is_named_as_such() {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", "rules: []\n");
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let refused = check(&folder, &server, &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.whole());
    assert!(
        refused.stderr.contains("does not use TLS; write http://"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_hangup_brings_a_new_certificate_in_and_a_bad_one_leaves_the_old() {
    let folder = ProgramFolder::new();
    folder.write_certificates("old.pem", "localhost");
    let server = serve(&folder);
    folder.write("cert.pem", "not a certificate");
    server.signal(Signal::HUP);
    server.log.wait_for("the certificates stay as they were");
    let old = check(&folder, &server, &["--ca-file", "old.pem"]);
    assert_eq!(old.code, Some(0), "{}", old.whole());

    folder.write_certificates("new.pem", "localhost");
    server.signal(Signal::HUP);
    server.log.wait_for("the certificates were read again");
    let old = check(&folder, &server, &["--ca-file", "old.pem"]);
    assert_eq!(old.code, Some(2), "{}", old.whole());
    let new = check(&folder, &server, &["--ca-file", "new.pem"]);
    assert_eq!(new.code, Some(1), "{}", new.whole());
}

#[test]
fn a_certificate_that_cannot_be_used_keeps_the_server_from_starting() {
    let folder = ProgramFolder::new();
    folder.write("tidegate.yaml", "tls_cert: cert.pem\ntls_key: key.pem\n");
    let missing = folder.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert!(missing.stderr.contains("cert.pem"), "{}", missing.stderr);
    folder.write_certificates("ca.pem", "localhost");
    folder.write(
        "key.pem",
        &rcgen::KeyPair::generate().unwrap().serialize_pem(),
    );
    let foreign = folder.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert!(foreign.stderr.contains("key.pem"), "{}", foreign.stderr);
    folder.write("tidegate.yaml", "tls_cert: cert.pem\n");
    let half = folder.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert!(
        half.stderr.contains("goes together with `tls_key`"),
        "{}",
        half.stderr
    );
}

#[test]
fn commands_present_a_client_certificate_where_the_server_requires_one() {
    let folder = ProgramFolder::new();
    // The certificate of the server is also that of the client.
    folder.write_certificates("ca.pem", "localhost");
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: a, per: [ip], limit: 9/hour}\n",
    );
    folder.write(
        "tidegate.yaml",
        "tls_cert: cert.pem\ntls_key: key.pem\nhttp_tls_client_ca: ca.pem\nrules: rules.yaml\n",
    );
    let server = folder.serve(&["--config", "tidegate.yaml", "--admin", "127.0.0.1:0"]);
    let trusting = ["--ca-file", "ca.pem"];
    let presenting = [
        "--ca-file",
        "ca.pem",
        "--client-cert",
        "cert.pem",
        "--client-key",
        "key.pem",
    ];
    let known = check(&folder, &server, &presenting);
    assert_eq!(known.code, Some(0), "{}", known.whole());
    let unknown = check(&folder, &server, &trusting);
    assert_eq!(unknown.code, Some(2), "{}", unknown.whole());
    assert!(
        unknown.stderr.contains("--client-cert"),
        "{}",
        unknown.stderr
    );
    assert!(!unknown.stderr.contains("--token"), "{}", unknown.stderr);

    let url = format!("https://localhost:{}", server.address.port());
    let listed = folder.run(&[&["rules", "list", "--server", &url], &presenting[..]].concat());
    assert_eq!(listed.code, Some(0), "{}", listed.whole());
    let load = "bench http --requests 10 --warm-up 0s --connections 2 --server";
    let load: Vec<&str> = load.split(' ').collect();
    let load = folder.run(&[&load[..], &[url.as_str()], &presenting[..]].concat());
    assert_eq!(load.code, Some(0), "{}", load.whole());
    let in_environment = [
        ("TIDEGATE_CLIENT_CERT", "cert.pem"),
        ("TIDEGATE_CLIENT_KEY", "key.pem"),
        ("TIDEGATE_DATA_DIR", "data"),
    ];
    let status = ["status", "--ca-file", "ca.pem", "--server", &url];
    let status = folder.run_with(&status, &in_environment);
    assert_eq!(status.code, Some(0), "{}", status.whole());

    // What cannot be used is said, and no panic.
    folder.write(
        "other.pem",
        &rcgen::KeyPair::generate().unwrap().serialize_pem(),
    );
    for (certificate, key, says) in [
        (Some("cert.pem"), None, "go together"),
        (None, Some("key.pem"), "go together"),
        (
            Some("absent.pem"),
            Some("key.pem"),
            "cannot read `absent.pem`",
        ),
        (
            Some("key.pem"),
            Some("key.pem"),
            "no certificate in `key.pem`",
        ),
        (Some("cert.pem"), Some("cert.pem"), "no private key"),
        (Some("cert.pem"), Some("other.pem"), "issued together"),
    ] {
        let mut more = trusting.to_vec();
        more.extend(certificate.iter().flat_map(|file| ["--client-cert", file]));
        more.extend(key.iter().flat_map(|file| ["--client-key", file]));
        let refused = check(&folder, &server, &more);
        assert_eq!(refused.code, Some(2), "{}", refused.whole());
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}
