//! A Redis of a test's own, on a socket in a temporary directory.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue, Value};
use tempfile::TempDir;
use tidegate_core::Timestamp;

use crate::wire::{LuaStep, StepError, StepOutcome, decode, eval, evalsha};

pub(super) struct ScriptServer {
    process: Child,
    connection: Connection,
    _directory: TempDir,
}

impl ScriptServer {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("these tests need the program `redis-server`");
        let client = redis::Client::open(format!("unix:{}", socket.display())).unwrap();
        // The socket appears when the server is ready.
        let connection = (0..10_000).find_map(|_| {
            let connection = client.get_connection().ok();
            if connection.is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
            connection
        });
        let connection = connection.expect("the server starts within 20 seconds");
        let mut server = Self {
            process,
            connection,
            _directory: directory,
        };
        // The script becomes known, and a call without steps is answered.
        let (now, answers) = decode(&[], &server.query::<Value>(&eval(&[]))).unwrap();
        assert!(now > Timestamp::from_seconds(1_600_000_000) && answers.is_empty());
        server
    }

    pub(super) fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> T {
        command.query(&mut self.connection).unwrap()
    }

    /// A command in words.
    pub(super) fn say<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.query(&command)
    }

    /// Runs these steps in one call.
    pub(super) fn run(&mut self, steps: &[&LuaStep]) -> Vec<Result<StepOutcome, StepError>> {
        let reply: Value = self.query(&evalsha(steps));
        decode(steps, &reply).unwrap().1
    }

    /// Runs one step.
    pub(super) fn ask(&mut self, step: &LuaStep) -> Result<StepOutcome, StepError> {
        self.run(&[step]).remove(0)
    }
}

impl Drop for ScriptServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
