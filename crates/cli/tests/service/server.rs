//! Starts the server in a directory of its own, and ends it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::{Client, Reply};

/// Longer than anything takes: who waits for so long waits for nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A directory for a server and its files, in which it is started as often as a test likes. Paths in
/// messages are relative to it.
pub(crate) struct Place {
    directory: TempDir,
}

/// What a run of the program left behind.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A server that listens. Killed when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Where it speaks gRPC, if it does.
    pub(crate) grpc: Option<SocketAddr>,
    /// Where it speaks the protocol of Redis, if it does.
    pub(crate) resp: Option<SocketAddr>,
    /// Where its gateway listens, if it has one.
    pub(crate) gateway: Option<SocketAddr>,
    /// The token that it made, if it did.
    pub(crate) token: Option<String>,
    /// What it has logged so far.
    pub(crate) log: Arc<Log>,
    child: Child,
    /// Says when stdout is closed, which is when the process ends.
    closed: Receiver<()>,
}

/// What a process writes to stderr, as it comes.
#[derive(Default)]
pub(crate) struct Log {
    text: Mutex<String>,
    grown: Condvar,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts a file there, in the place of an earlier one at once and whole.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// A server on the data directory `data`, with these arguments beside.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_with(arguments, &[])
    }

    pub(crate) fn serve_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = self.command(env!("CARGO_BIN_EXE_tidegate"));
        command.args(serve_arguments(arguments));
        command.envs(environment.iter().copied());
        Server::start(command).unwrap_or_else(|run| panic!("{}", run.whole()))
    }

    /// A server that can write files of so many blocks of 512 bytes at the most.
    pub(crate) fn serve_with_small_files(
        &self,
        blocks: u32,
        environment: &[(&str, &str)],
    ) -> Server {
        let mut command = self.command("sh");
        command.envs(environment.iter().copied());
        let script = format!(r#"trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@""#);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
        command.args(serve_arguments(&[]));
        Server::start(command).unwrap_or_else(|run| panic!("{}", run.whole()))
    }

    /// A server that the permissions of files hold for, whoever runs the tests.
    pub(crate) fn serve_unprivileged(&self, arguments: &[&str]) -> Server {
        Server::start(self.unprivileged(arguments)).unwrap_or_else(|run| panic!("{}", run.whole()))
    }

    /// What a server says that the permissions of files hold for, and that does not start.
    pub(crate) fn fail_to_serve_unprivileged(&self, arguments: &[&str]) -> Run {
        match Server::start(self.unprivileged(arguments)) {
            Ok(server) => panic!("it started: {}", server.log.text()),
            Err(run) => run,
        }
    }

    fn unprivileged(&self, arguments: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = self.command("setpriv");
            let dropped = "-dac_override,-dac_read_search";
            command.args(["--inh-caps", "-all", "--bounding-set", dropped, program]);
            command
        } else {
            self.command(program)
        };
        command.args(serve_arguments(arguments));
        command
    }

    /// A server with other limits of file descriptors, as `ulimit` is given them.
    pub(crate) fn serve_with_descriptors(&self, limits: &str, arguments: &[&str]) -> Server {
        let mut command = self.command("sh");
        let script = format!(r#"ulimit {limits}; exec "$0" "$@""#);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
        command.args(serve_arguments(arguments));
        Server::start(command).unwrap_or_else(|run| panic!("{}", run.whole()))
    }

    /// What a server says that does not start.
    pub(crate) fn fail_to_serve(&self, arguments: &[&str]) -> Run {
        let mut command = self.command(env!("CARGO_BIN_EXE_tidegate"));
        command.args(serve_arguments(arguments));
        match Server::start(command) {
            Ok(server) => panic!("it started: {}", server.log.text()),
            Err(run) => run,
        }
    }

    /// Runs a command that ends by itself, and finds the token of the server on `data`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, &[("TIDEGATE_DATA_DIR", "data")])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Run {
        let mut command = self.command(env!("CARGO_BIN_EXE_tidegate"));
        command.envs(environment.iter().copied());
        let output = command.args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// A command in this directory, that knows nothing of who runs the tests.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

fn serve_arguments<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["serve", "--data-dir", "data"];
    if !arguments.contains(&"--http") {
        all.extend(["--http", "127.0.0.1:0"]);
    }
    if !arguments.contains(&"--grpc") {
        all.extend(["--grpc", "off"]);
    }
    // The last of two flags would be an error, so that tests that need another say only that.
    if arguments.contains(&"--data-dir") {
        all.drain(1..3);
    }
    all.extend(arguments);
    all
}

/// The token in the data directory of a server, if there is one.
fn made_token(command: &Command) -> Option<String> {
    let mut arguments = command.get_args().skip_while(|flag| *flag != "--data-dir");
    let directory = command.get_current_dir()?.join(arguments.nth(1)?);
    let token = fs::read_to_string(directory.join("admin-token")).ok()?;
    Some(token.trim_end().to_owned())
}

impl Server {
    /// Starts it, and waits until it says where it listens. If it ends instead, what it left.
    fn start(mut command: Command) -> Result<Self, Run> {
        let mut child = command.spawn().unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.trim_end().strip_prefix("listening http=") else {
            stdout.read_to_string(&mut line).unwrap();
            let code = child.wait().unwrap().code();
            return Err(Run {
                code,
                stdout: line,
                stderr: log.whole(),
            });
        };
        let address = address.parse().unwrap();
        let mut address_of = |front_end: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let address = line
                .trim_end()
                .strip_prefix(&format!("listening {front_end}="));
            address.unwrap().parse().unwrap()
        };
        let has = |flag: &str| command.get_args().any(|argument| argument == flag);
        let has_grpc = !command.get_args().any(|argument| argument == "off");
        let grpc = has_grpc.then(|| address_of("grpc"));
        let resp = has("--resp").then(|| address_of("resp"));
        let gateway = has("--gateway").then(|| address_of("gateway"));
        Ok(Self {
            address,
            grpc,
            resp,
            gateway,
            token: made_token(&command),
            log,
            closed: closed(stdout),
            child,
        })
    }

    /// A connection to it.
    pub(crate) fn client(&self) -> Client {
        Client::to(self.address).with_token(self.token.clone())
    }

    /// Asks on a connection of its own.
    pub(crate) fn ask(&self, call: &str, body: &str) -> Reply {
        self.client().ask(call, body)
    }

    pub(crate) fn ask_with(&self, call: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.client().ask_with(call, headers, body)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let closed = self.closed.recv_timeout(PATIENCE);
        assert!(closed.is_ok(), "it goes on: {}", self.log.text());
        (self.child.wait().unwrap(), self.log.whole())
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn closed(mut stdout: BufReader<ChildStdout>) -> Receiver<()> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let _ = stdout.read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    receiver
}

/// Marks the end of what a process wrote.
const END: &str = "\u{4}";

impl Log {
    fn of(stderr: ChildStderr) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let grows = Arc::clone(&log);
        thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|length| length > 0) {
                grows.push(&line);
                line.clear();
            }
            grows.push(END);
        });
        log
    }

    fn push(&self, text: &str) {
        let mut all = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_str(text);
        self.grown.notify_all();
    }

    /// What was written so far.
    pub(crate) fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.replace(END, "")
    }

    /// Waits until a text has been written, so many times in all.
    #[track_caller]
    pub(crate) fn wait_for_times(&self, text: &str, times: usize) -> String {
        let all = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |all: &mut String| all.matches(text).count() < times;
        let waited = self.grown.wait_timeout_while(all, PATIENCE, is_missing);
        let (all, result) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!result.timed_out(), "no `{text}` in:\n{all}");
        all.clone()
    }

    /// Waits until a text has been written.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_for_times(text, 1)
    }

    /// Everything, when the process has ended.
    pub(crate) fn whole(&self) -> String {
        self.wait_for(END).replace(END, "")
    }
}

impl Run {
    /// All of it, for a snapshot.
    pub(crate) fn whole(&self) -> String {
        let mut text = String::new();
        if let Some(code) = self.code {
            let _ = writeln!(text, "exit {code}");
        }
        text + &self.stdout + &without_times(&self.stderr)
    }
}

/// Lines of a log without the time at which each was written.
pub(crate) fn without_times(log: &str) -> String {
    let line = |line: &str| {
        let is_time = |word: &str| word.starts_with("20") && word.ends_with('Z');
        match line.split_once(' ') {
            Some((time, rest)) if is_time(time) => format!("{}\n", rest.trim_start()),
            _ => format!("{line}\n"),
        }
    };
    log.lines().map(line).collect()
}
