//! A process that dies when its value is dropped, or when the test's own process does.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::program::runs;

/// A running child process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` with these variables in addition to its own environment, and what it prints appended to `log`.
    pub(super) fn start(
        program: &Path,
        arguments: &[&OsStr],
        variables: &[(String, String)],
        log: &Path,
    ) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = mortal(program);
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = spawn(command)?;
        Ok(Self { child })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal; to a process that has ended, nothing.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("a child takes signals");
        }
    }

    /// Ends it at once and waits until it is gone.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The processor time that it has used so far, in its own code and in the system's.
    pub(super) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("it runs");
        // The name, in parentheses, may hold spaces; user and system time are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let times = fields.split(' ').skip(11).take(2);
        let ticks: u64 = times.map(|ticks| ticks.parse().unwrap_or(0)).sum();
        Duration::from_nanos(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command whose process the system kills when the thread that started it ends, where it can.
fn mortal(program: &Path) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let can = SETPRIV
        .get_or_init(|| runs(Command::new("setpriv").args(["--pdeathsig", "KILL", "--", "true"])));
    if !can {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a command from a thread that lives as long as the test's process, not as long as the caller's.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, todo) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in todo {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, child) = channel();
    starter.send((command, reply)).expect("the starter lives");
    child.recv().expect("the starter answers")
}
