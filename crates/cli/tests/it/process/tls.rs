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
