//! A proxy as a process of its own, on a port of its own. Killed when it is dropped.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidegate_testkit::{ReservedPort, wait_until};

use crate::server::ProgramFolder;
use tidegate_testkit_server::PATIENCE;
use tidegate_testkit_server::{ClientReply, HttpClient};

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    child: Child,
    _port: ReservedPort,
}

/// Where programs are that are not on the path of everybody.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"];

/// The program of this name: the one that a script of this repository installed, else the system's.
pub(crate) fn program(name: &str, install: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/tools/proxies/bin").join(name);
    let elsewhere = FOLDERS.map(|folder| Path::new(folder).join(name));
    let found = [installed]
        .into_iter()
        .chain(elsewhere)
        .find(|file| file.exists());
    let found = found.or_else(|| {
        let asked = Command::new("which").arg(name).output().ok()?;
        let path = String::from_utf8(asked.stdout).ok()?;
        Some(PathBuf::from(path.trim())).filter(|file| file.exists())
    });
    found.unwrap_or_else(|| panic!("`{name}` is missing: install it with {install}"))
}

impl Proxy {
    /// Starts a proxy, and waits until it forwards requests that no rule is about, or is not trusted. Its command gets
    /// the port that it shall listen on.
    pub(crate) fn start(
        folder: &ProgramFolder,
        command: impl FnOnce(SocketAddr) -> Command,
    ) -> Self {
        Self::start_until(folder, command, |reply| {
            reply.body == "served" || reply.body.contains("untrusted_proxy")
        })
    }

    /// The same, until an answer is as expected.
    pub(crate) fn start_until(
        folder: &ProgramFolder,
        command: impl FnOnce(SocketAddr) -> Command,
        is_expected: impl Fn(&ClientReply) -> bool,
    ) -> Self {
        let port = ReservedPort::new();
        let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
        let log = folder.path("proxy.log");
        let mut command = command(address);
        command
            .current_dir(folder.path("."))
            .env("HOME", folder.path("."))
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(
                File::options()
                    .append(true)
                    .create(true)
                    .open(&log)
                    .unwrap(),
            );
        let child = command.spawn().unwrap();
        let mut proxy = Self {
            address,
            child,
            _port: port,
        };
        let ready = || {
            let has_ended = !matches!(proxy.child.try_wait(), Ok(None));
            let said = || fs::read_to_string(&log).unwrap_or_default();
            assert!(!has_ended, "the proxy has ended:\n{}", said());
            let mut client = HttpClient::try_to(address).ok()?;
            let reply = client.try_ask("GET /ready", &[], "").ok()?;
            is_expected(&reply).then_some(())
        };
        wait_until("the proxy answers", PATIENCE, ready);
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
