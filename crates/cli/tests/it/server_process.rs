//! A server that is another process: the program as its users start it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use tidegate_testkit_server::{PATIENCE, ServerLog, TestServer};

/// What a run of the program left behind.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    /// The exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

/// A server that is a process. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    server: TestServer,
    child: Child,
    /// Says when stdout is closed, which is when the process ends.
    closed: Receiver<()>,
}

impl Deref for ServerProcess {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

impl ServerProcess {
    /// Starts `tidegate serve`, with stdout and stderr piped, and waits until it says where it listens. If it ends
    /// instead: what it left behind.
    pub(crate) fn start(command: Command) -> Result<Self, ProgramRun> {
        let front_ends = front_ends(&command);
        Self::listening(command, front_ends)
    }

    /// The same for a program with so many front ends.
    pub(crate) fn listening(mut command: Command, front_ends: usize) -> Result<Self, ProgramRun> {
        let mut child = command.spawn().unwrap();
        let log = follow(child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(http) = parse_address(&line) else {
            stdout.read_to_string(&mut line).unwrap();
            return Err(ProgramRun {
                code: child.wait().unwrap().code(),
                stdout: line,
                stderr: log.whole(),
            });
        };
        let mut addresses = vec![http];
        for _ in 1..front_ends {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            addresses.push(parse_address(&line).unwrap());
        }
        let addresses = addresses
            .iter()
            .map(|(name, address)| (name.as_str(), *address));
        let token = made_token(&command);
        Ok(Self {
            server: TestServer::new(addresses, token, log),
            closed: closed(stdout),
            child,
        })
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The number of its process.
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
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many front ends a command serves.
fn front_ends(command: &Command) -> usize {
    let has = |text: &str| command.get_args().any(|argument| argument == text);
    // By that name it has no flags, and the debug port next to the others.
    let mut words = command.get_args().chain([command.get_program()]);
    let is_replacing = words.any(|word| Path::new(word).ends_with("ratelimit"));
    let others = [
        is_replacing,
        has("--admin"),
        !has("off"),
        has("--resp"),
        has("--gateway"),
    ];
    1 + others.into_iter().filter(|is_served| *is_served).count()
}

/// A line such as `listening http=127.0.0.1:8080`.
fn parse_address(line: &str) -> Option<(String, SocketAddr)> {
    let (name, address) = line
        .trim_end()
        .strip_prefix("listening ")?
        .split_once('=')?;
    Some((name.to_owned(), address.parse().ok()?))
}

/// The token in the data directory of a server, if there is one.
fn made_token(command: &Command) -> Option<String> {
    let mut arguments = command.get_args().skip_while(|flag| *flag != "--data-dir");
    let directory = command.get_current_dir()?.join(arguments.nth(1)?);
    let token = fs::read_to_string(directory.join("admin-token")).ok()?;
    Some(token.trim_end().to_owned())
}

fn closed(mut stdout: BufReader<ChildStdout>) -> Receiver<()> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let _ = stdout.read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    receiver
}

fn follow(stderr: ChildStderr) -> Arc<ServerLog> {
    let log = Arc::new(ServerLog::default());
    let grows = Arc::clone(&log);
    thread::spawn(move || {
        let mut stderr = BufReader::new(stderr);
        let mut line = String::new();
        while stderr.read_line(&mut line).is_ok_and(|length| length > 0) {
            grows.push(&line);
            line.clear();
        }
        grows.end();
    });
    log
}

impl ProgramRun {
    /// All of it, without the times of log lines.
    pub(crate) fn whole(&self) -> String {
        let mut text = String::new();
        if let Some(code) = self.code {
            let _ = writeln!(text, "exit {code}");
        }
        text + &self.stdout + &without_times(&self.stderr)
    }
}

/// Lines of a log without the time of each.
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
