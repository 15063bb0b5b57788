//! Starts the program in a folder, as a server or as a command.

use std::fs::File;
use std::ops::Deref;
use std::process::{Child, Command, Stdio};

use tidegate_testkit_server::{TestFolder, serve_arguments};

pub(crate) use crate::server_process::{ProgramRun, ServerProcess as Server};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");

/// A folder that the program runs in. Paths in messages are relative to it.
pub(crate) struct ProgramFolder {
    folder: TestFolder,
}

impl Deref for ProgramFolder {
    type Target = TestFolder;

    fn deref(&self) -> &TestFolder {
        &self.folder
    }
}

impl ProgramFolder {
    pub(crate) fn new() -> Self {
        Self {
            folder: TestFolder::new(),
        }
    }

    /// A server on the data directory `data`, with these arguments.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_with(arguments, &[])
    }

    pub(crate) fn serve_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = self.command(PROGRAM);
        command.envs(environment.iter().copied());
        start(command, arguments)
    }

    /// A server that can write files of at most so many blocks of 512 bytes.
    pub(crate) fn serve_with_small_files(
        &self,
        blocks: u32,
        environment: &[(&str, &str)],
    ) -> Server {
        let mut command = self.command("sh");
        command.envs(environment.iter().copied());
        let script = format!(r#"trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@""#);
        command.args(["-c", &script, PROGRAM]);
        start(command, &[])
    }

    /// A server with other limits of file descriptors, in the form of `ulimit`.
    pub(crate) fn serve_with_descriptors(&self, limits: &str, arguments: &[&str]) -> Server {
        let mut command = self.command("sh");
        let script = format!(r#"ulimit {limits}; exec "$0" "$@""#);
        command.args(["-c", &script, PROGRAM]);
        start(command, arguments)
    }

    /// A server that the permissions of files hold for, even if root runs the tests.
    pub(crate) fn serve_unprivileged(&self, arguments: &[&str]) -> Server {
        start(self.unprivileged(), arguments)
    }

    /// The same for a server that does not start.
    pub(crate) fn fail_to_serve_unprivileged(&self, arguments: &[&str]) -> ProgramRun {
        fail_to_start(self.unprivileged(), arguments)
    }

    fn unprivileged(&self) -> Command {
        if !rustix::process::geteuid().is_root() {
            return self.command(PROGRAM);
        }
        let mut command = self.command("setpriv");
        let dropped = "-dac_override,-dac_read_search";
        command.args(["--inh-caps", "-all", "--bounding-set", dropped, PROGRAM]);
        command
    }

    /// What a server leaves behind that does not start.
    pub(crate) fn fail_to_serve(&self, arguments: &[&str]) -> ProgramRun {
        fail_to_start(self.command(PROGRAM), arguments)
    }

    /// Runs a command that ends by itself, and finds the token of the server on `data`.
    pub(crate) fn run(&self, arguments: &[&str]) -> ProgramRun {
        self.run_with(arguments, &[("TIDEGATE_DATA_DIR", "data")])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> ProgramRun {
        let mut command = self.command(PROGRAM);
        command.envs(environment.iter().copied());
        let output = command.args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        ProgramRun {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Starts a command that ends when it is stopped.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(PROGRAM);
        command.env("TIDEGATE_DATA_DIR", "data").args(arguments);
        command.spawn().unwrap()
    }

    /// Starts a command on a terminal, as the leader of a session of its own: a resize of the terminal is a signal
    /// to it.
    pub(crate) fn spawn_on(&self, terminal: &File, arguments: &[&str]) -> Child {
        let copy = || terminal.try_clone().unwrap();
        let mut command = self.command("setsid");
        command
            .args(["--ctty", PROGRAM])
            .args(arguments)
            .envs([("TIDEGATE_DATA_DIR", "data"), ("TERM", "xterm-256color")])
            .stdin(copy())
            .stdout(copy())
            .stderr(copy());
        command.spawn().unwrap()
    }

    /// A command in this folder, without the environment of the tests.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path("."))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

fn start(mut command: Command, arguments: &[&str]) -> Server {
    command.args(serve_arguments(arguments));
    Server::start(command).unwrap_or_else(|run| panic!("{}", run.whole()))
}

fn fail_to_start(mut command: Command, arguments: &[&str]) -> ProgramRun {
    command.args(serve_arguments(arguments));
    match Server::start(command) {
        Ok(server) => panic!("it started: {}", server.log.text()),
        Err(run) => run,
    }
}
