//! One server process, and what a test does to it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::options::Listen;
use super::process::Process;
use super::{Certificates, RedisOptions};
use crate::port::ReservedPort;
use crate::wait_until;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// For questions that a stopped process may get.
pub(super) const BRIEF: Duration = Duration::from_millis(300);
const ATTEMPTS: usize = 10;

/// A Redis or Valkey process of this test's own: empty, without persistence.
///
/// ```no_run
/// use tidegate_testkit::redis::RedisServer;
///
/// let server = RedisServer::start();
/// let _: () = server.query(&["SET", "name", "value"]);
/// server.kill();
/// server.restart();
/// assert_eq!(server.query::<Option<String>>(&["GET", "name"]), None);
/// ```
#[derive(Debug)]
pub struct RedisServer {
    pub(super) options: RedisOptions,
    process: Mutex<Process>,
    port: Option<ReservedPort>,
    certificates: Option<Certificates>,
    folder: TempDir,
}

impl RedisServer {
    /// A `redis-server` on a free port, without a password.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// What to start it with.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    pub(super) fn start_with(options: &RedisOptions) -> Self {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            match Self::attempt(options.clone()) {
                Ok(server) => return server,
                Err(said) => log = said,
            }
            // Another process took the port: try the next one.
            if !log.contains("Address already in use") {
                break;
            }
        }
        panic!("the server ended before it answered:\n{log}");
    }

    /// The server, or what it said before it ended.
    fn attempt(options: RedisOptions) -> Result<Self, String> {
        let prefix = "tidegate-redis-";
        let folder = tempfile::Builder::new().prefix(prefix).tempdir();
        let folder = folder.expect("a temporary folder");
        let port = (options.listen != Listen::UnixOnly).then(ReservedPort::new);
        let certificates =
            matches!(options.listen, Listen::Tls(_)).then(|| Certificates::new(folder.path()));
        let number = port.as_ref().map(ReservedPort::number);
        let text = options.configuration(folder.path(), number, certificates.as_ref());
        fs::write(folder.path().join("redis.conf"), text).expect("the folder can be written");
        let process = Mutex::new(spawn(&options, folder.path()));
        let server = Self {
            options,
            process,
            port,
            certificates,
            folder,
        };
        server.wait_until_ready().map(|()| server)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it answers a PING, or returns what it printed before it ended.
    fn wait_until_ready(&self) -> Result<(), String> {
        wait_until("the server answers a PING", PATIENCE, || {
            if self.try_query::<String>(&["PING"]).is_ok() {
                return Some(Ok(()));
            }
            let ended = self.process().ended();
            ended.map(|status| Err(format!("{status}\n{}", self.log())))
        })
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The port that it listens on. Panics for a server on a Unix socket only.
    pub fn port(&self) -> u16 {
        let port = self.port.as_ref();
        port.expect("a server with a port").number()
    }

    /// The address that it listens on. Panics for a server on a Unix socket only.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its Unix socket, which every server has.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// The processor time it has used, to a hundredth of a second. Panics if it has been killed.
    pub fn cpu_time(&self) -> Duration {
        self.process().cpu_time()
    }

    /// Whether its process is there, stopped or not.
    pub fn is_alive(&self) -> bool {
        self.process().ended().is_none()
    }

    /// Stops it where it is (SIGSTOP): the system still accepts connections for it, and nothing answers.
    pub fn stop(&self) {
        self.process().signal(Signal::STOP);
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    pub fn resume(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Ends it at once (SIGKILL). Its port stays reserved.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Ends it if it still runs, starts it on the same port and socket, and waits until it answers.
    ///
    /// Its keys are gone; what a Sentinel or a node of a cluster knew of the others is not.
    pub fn restart(&self) {
        self.kill();
        *self.process() = spawn(&self.options, self.folder.path());
        if let Err(log) = self.wait_until_ready() {
            panic!("the server did not come back:\n{log}");
        }
    }
}

impl Drop for RedisServer {
    /// A test that fails shows what its servers did; the process goes with its value.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let program = self.options.program;
            eprintln!("{program:?} {}:\n{}", self.url(), self.log());
        }
    }
}

fn spawn(options: &RedisOptions, folder: &Path) -> Process {
    let configuration = folder.join("redis.conf");
    let mut arguments = vec![configuration.as_os_str()];
    if options.sentinel {
        arguments.push(OsStr::new("--sentinel"));
    }
    let program = options.program.file();
    let variables = &options.variables;
    Process::start(program, &arguments, variables, &folder.join("log")).expect("the program starts")
}
