//! A Redis server in this process: it reads the protocol, keeps keys, runs scripts, and has a clock that the
//! simulation sets.
//!
//! It has the commands that a standalone [`RedisStore`](tidegate_redis::RedisStore) sends and that the
//! scripts call. A test compares them with a real server.

mod commands;
mod keyspace;
mod received;
mod reply;
mod scripts;
mod sorted;

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_core::Timestamp;

pub(crate) use received::ReceivedBytes;
pub use scripts::ScriptChange;

use reply::RedisReply;
use scripts::{ScriptedKeys, Scripts};

/// What `INFO` says: all that a store looks at.
const INFO: &str = "# Server\r\nredis_version:7.4.0\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n";

/// A server.
pub struct SimulatedRedis {
    state: Rc<RefCell<ScriptedKeys>>,
    scripts: Scripts,
    /// How many scripts have run.
    runs: u64,
}

impl SimulatedRedis {
    /// An empty server. The `changes` are made to the text of every script, to plant bugs.
    ///
    /// # Panics
    ///
    /// Without memory for Lua.
    pub fn new(changes: Vec<ScriptChange>) -> Self {
        let state = Rc::new(RefCell::new(ScriptedKeys::default()));
        #[expect(clippy::expect_used, reason = "fails only without memory")]
        let scripts = Scripts::new(&state, changes).expect("a Lua state can be made");
        Self {
            state,
            scripts,
            runs: 0,
        }
    }

    /// Sets the server's clock.
    pub fn set_time(&mut self, time: Timestamp) {
        let mut state = self.state.borrow_mut();
        state.time = time.as_micros();
        state.keys.now = time.as_micros() / 1_000;
    }

    /// Removes all keys and scripts, like a restart without a file to load.
    pub fn lose_everything(&mut self) {
        self.state.borrow_mut().keys.clear();
        self.scripts.forget();
    }

    /// Forgets all scripts, like a restart.
    pub fn forget_scripts(&mut self) {
        self.scripts.forget();
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.state.borrow().keys.len()
    }

    /// How many scripts have run.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Runs one command, and returns its reply as bytes.
    pub fn run(&mut self, command: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.reply(command).write(&mut bytes);
        bytes
    }

    fn reply(&mut self, command: &[Vec<u8>]) -> RedisReply {
        let Some((name, arguments)) = command.split_first() else {
            return RedisReply::error("ERR empty command");
        };
        match name.to_ascii_uppercase().as_slice() {
            b"PING" => RedisReply::Status("PONG"),
            b"CLIENT" | b"SELECT" | b"AUTH" => RedisReply::Status("OK"),
            b"INFO" => RedisReply::text(INFO),
            b"ROLE" => RedisReply::List(vec![
                RedisReply::text("master"),
                RedisReply::Integer(0),
                RedisReply::List(Vec::new()),
            ]),
            b"EVAL" => match arguments.first().map(|text| self.scripts.load(text)) {
                Some(Ok(name)) => self.script(&name, &arguments[1..]),
                Some(Err(error)) => RedisReply::error(format!("ERR compiling script: {error}")),
                None => RedisReply::error("ERR wrong number of arguments"),
            },
            b"EVALSHA" => match arguments.split_first() {
                Some((name, rest)) => {
                    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                    self.script(&name, rest)
                }
                None => RedisReply::error("ERR wrong number of arguments"),
            },
            b"FLUSHALL" => {
                self.state.borrow_mut().keys.clear();
                RedisReply::Status("OK")
            }
            _ => {
                let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                let mut state = self.state.borrow_mut();
                let ScriptedKeys { keys, time } = &mut *state;
                commands::run(keys, *time, &command)
            }
        }
    }

    /// Runs a script with the keys and arguments that follow their number.
    fn script(&mut self, name: &str, rest: &[Vec<u8>]) -> RedisReply {
        let count = rest
            .first()
            .and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        let parts = count.and_then(|count: usize| rest[1..].split_at_checked(count));
        let Some((keys, arguments)) = parts else {
            return RedisReply::error("ERR Number of keys can't be greater than number of args");
        };
        if !self.scripts.knows(name) {
            return RedisReply::error("NOSCRIPT No matching script. Please use EVAL.");
        }
        self.runs += 1;
        self.scripts.run(name, keys, arguments)
    }
}
