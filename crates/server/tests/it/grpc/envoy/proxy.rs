//! Envoy as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidegate_testkit::{ReservedPort, wait_until};

use tidegate_testkit_server::{ClientReply, HttpClient};
use tidegate_testkit_server::{PATIENCE, TestFolder};

/// Envoy. Killed when it is dropped.
pub(super) struct Envoy {
    child: Child,
    port: ReservedPort,
}

impl Envoy {
    /// Starts it with a configuration that listens on port 10000, on another port.
    pub(super) fn start(folder: &TestFolder, config: &str) -> Self {
        let port = ReservedPort::new();
        let config = config.replace(
            "port_value: 10000",
            &format!("port_value: {}", port.number()),
        );
        folder.write("envoy.yaml", &config);
        let log = std::fs::File::create(folder.path("envoy.log")).unwrap();
        let child = Command::new(program())
            .args([
                "--disable-hot-restart",
                "--concurrency",
                "1",
                "-l",
                "warning",
                "-c",
            ])
            .arg(folder.path("envoy.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { child, port };
        wait_until("Envoy listens", PATIENCE, || {
            if let Some(status) = envoy.child.try_wait().unwrap() {
                let log = std::fs::read_to_string(folder.path("envoy.log")).unwrap();
                panic!("Envoy ended with {status}:\n{log}");
            }
            HttpClient::try_to(envoy.address()).ok()
        });
        envoy
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    /// Asks for a page with these headers.
    pub(super) fn get(&self, path: &str, headers: &[(&str, &str)]) -> ClientReply {
        HttpClient::to(self.address()).ask_with(&format!("GET {path}"), headers, "")
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file to run: the one that a script of this repository installed, else the one on the path.
fn program() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/envoy/envoy");
    let runs = |file: &PathBuf| {
        let mut command = Command::new(file);
        let quiet = command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    let found = [tools, PathBuf::from("envoy")].into_iter().find(runs);
    found.unwrap_or_else(|| panic!("`envoy` is missing: install it with `scripts/install envoy`"))
}
