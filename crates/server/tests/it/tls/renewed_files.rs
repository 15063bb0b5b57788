//! Certificates, keys and authorities whose files change while the server runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{PATIENCE, TestFolder};

use super::{Authority, RULES, TlsClient, runtime};
use crate::Server;

/// A mounted secret of Kubernetes: each file is a link through `..data`, which is a link to the folder of a version.
struct SecretMount {
    directory: TempDir,
    versions: u32,
}

impl SecretMount {
    fn new(files: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in files {
            symlink(format!("..data/{name}"), directory.path().join(name)).unwrap();
        }
        Self {
            directory,
            versions: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces all files in one step, and removes the version before.
    fn put(&mut self, write: impl FnOnce(&std::path::Path)) {
        let before = fs::read_link(self.path("..data")).ok();
        self.versions += 1;
        let version = format!("..version_{}", self.versions);
        fs::create_dir(self.path(&version)).unwrap();
        write(&self.path(&version));
        symlink(&version, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
        if let Some(before) = before {
            fs::remove_dir_all(self.path(before.to_str().unwrap())).unwrap();
        }
    }
}

fn serve(folder: &TestFolder, settings: &str, arguments: &[&str]) -> Server {
    folder.write("rules.yaml", RULES);
    folder.write("tidegate.yaml", settings);
    let files = ["--config", "tidegate.yaml", "--rules", "rules.yaml"];
    folder.serve(&[&files, arguments].concat())
}

/// The warnings of a server with TLS.
fn warnings(server: &Server, client: &TlsClient) -> serde_json::Value {
    let (_, ready) = client.ask(server.address, "GET /readyz").unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    ready["warnings"].clone()
}

#[test]
fn a_renewed_secret_of_kubernetes_is_served_to_new_connections() {
    let [first, second, third] = [(); 3].map(|()| Authority::new());
    let mut mount = SecretMount::new(&["tls.crt", "tls.key"]);
    mount.put(|folder| first.issue_into(folder));
    let folder = TestFolder::new();
    let settings = format!(
        "tls_cert: {}\ntls_key: {}\n",
        mount.path("tls.crt").display(),
        mount.path("tls.key").display()
    );
    let server = serve(&folder, &settings, &["--admin", "127.0.0.1:0"]);
    let client = |authority| TlsClient::new(authority, None);
    let is_served = |authority| {
        client(authority)
            .ask(server.address, "GET /healthz")
            .is_some()
    };
    assert!(is_served(&first));

    let runtime = runtime();
    let open = runtime.block_on(client(&first).open(server.address));
    let mut open = open.unwrap();
    mount.put(|folder| second.issue_into(folder));
    wait_until("the new certificate is served", PATIENCE, || {
        is_served(&second).then_some(())
    });
    assert!(!is_served(&first));
    let admin = server.admin.unwrap();
    assert!(client(&second).ask(admin, "GET /healthz").is_some());
    let kept = runtime.block_on(open.ask("GET /healthz"));
    assert_eq!(kept.unwrap().0, 200, "an open connection stays");
    server.log.wait_for("the certificates were read again");

    // The key of another certificate; then half of one; then none.
    let problem = "the certificates stay as they were";
    let damages: [fn(&std::path::Path); 3] = [
        |folder| fs::write(folder.join("tls.key"), Authority::new().issue("x").1).unwrap(),
        |folder| {
            let whole = fs::read(folder.join("tls.crt")).unwrap();
            fs::write(folder.join("tls.crt"), &whole[..whole.len() / 2]).unwrap();
        },
        |folder| fs::remove_file(folder.join("tls.key")).unwrap(),
    ];
    for (index, damage) in damages.into_iter().enumerate() {
        mount.put(|folder| {
            third.issue_into(folder);
            damage(folder);
        });
        let log = server.log.wait_for_times(problem, index + 1);
        assert!(log.contains("ERROR the certificates stay"), "{log}");
        assert!(is_served(&second) && !is_served(&third));
        let warned = warnings(&server, &client(&second)).to_string();
        assert!(warned.contains("`tls_cert`, `tls_key`"), "{warned}");
    }
    mount.put(|folder| third.issue_into(folder));
    wait_until("the third certificate is served", PATIENCE, || {
        is_served(&third).then_some(())
    });
    wait_until("nothing is warned of", PATIENCE, || {
        (warnings(&server, &client(&third)) == json!([])).then_some(())
    });
    let log = server.stop();
    assert_eq!(log.matches(problem).count(), 3, "once for each: {log}");
}

#[test]
fn the_authorities_of_clients_are_followed() {
    let [ours, old, new] = [(); 3].map(|()| Authority::new());
    let folder = TestFolder::new();
    ours.issue_into(&folder.path("."));
    for name in ["http.pem", "grpc.pem"] {
        folder.write(name, &old.pem());
    }
    let settings = format!(
        "tls_cert: {}\ntls_key: {}\nhttp_tls_client_ca: {}\ntls_client_ca: {}\n",
        folder.file("tls.crt"),
        folder.file("tls.key"),
        folder.file("http.pem"),
        folder.file("grpc.pem"),
    );
    let server = serve(&folder, &settings, &["--grpc", "127.0.0.1:0"]);
    let client = |authority| TlsClient::new(&ours, Some(authority)).speaking(b"h2");
    // The same client each time, so that it could resume its session.
    let (old_client, new_client) = (client(&old), client(&new));
    let ports = [
        ("http.pem", server.address, "`http_tls_client_ca`"),
        ("grpc.pem", server.grpc.unwrap(), "`tls_client_ca`"),
    ];
    for (file, address, setting) in ports {
        let is_admitted = |client: &TlsClient| client.ask(address, "POST /v1/check").is_some();
        assert!(is_admitted(&old_client) && !is_admitted(&new_client));

        folder.write(file, "no certificate");
        let probe = TlsClient::new(&ours, None);
        let warned = wait_until("it is warned of", PATIENCE, || {
            let warned = warnings(&server, &probe);
            (warned != json!([])).then_some(warned.to_string())
        });
        assert!(warned.contains(setting), "{warned}");
        assert!(is_admitted(&old_client) && !is_admitted(&new_client));

        folder.write(file, &new.pem());
        wait_until(
            "clients of the new authority are admitted",
            PATIENCE,
            || is_admitted(&new_client).then_some(()),
        );
        assert!(!is_admitted(&old_client));
        assert_eq!(warnings(&server, &probe), json!([]));
    }
}

#[test]
fn a_reload_reads_them_immediately_and_repeats_the_problem() {
    let (first, second) = (Authority::new(), Authority::new());
    let folder = TestFolder::new();
    first.issue_into(&folder.path("."));
    let settings = format!(
        "tls_cert: {}\ntls_key: {}\n",
        folder.file("tls.crt"),
        folder.file("tls.key")
    );
    let server = serve(&folder, &settings, &[]);
    folder.write("tls.crt", "");
    server.log.wait_for("the certificates stay as they were");
    server.reload();
    server
        .log
        .wait_for_times("the certificates stay as they were", 2);
    second.issue_into(&folder.path("."));
    server.reload();
    wait_until("the new certificate is served", PATIENCE, || {
        let client = TlsClient::new(&second, None);
        client.ask(server.address, "GET /healthz").map(drop)
    });
}

#[test]
fn the_certificate_of_the_gateway_is_followed() {
    let (first, second) = (Authority::new(), Authority::new());
    let mut mount = SecretMount::new(&["tls.crt", "tls.key"]);
    mount.put(|folder| first.issue_into(folder));
    let folder = TestFolder::new();
    let settings = format!(
        "gateway_tls_cert: {}\ngateway_tls_key: {}\n",
        mount.path("tls.crt").display(),
        mount.path("tls.key").display()
    );
    let gateway = [
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:1",
    ];
    let server = serve(&folder, &settings, &gateway);
    let gateway = server.gateway.unwrap();
    let is_served = |authority| {
        let client = TlsClient::new(authority, None);
        client.ask(gateway, "GET /").is_some()
    };
    assert!(is_served(&first) && !is_served(&second));
    mount.put(|folder| second.issue_into(folder));
    wait_until("the new certificate is served", PATIENCE, || {
        is_served(&second).then_some(())
    });
}
