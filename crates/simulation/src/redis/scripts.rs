//! Scripts: compiled once, run with the keyspace at hand, as Redis does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value, Variadic};

use super::commands;
use super::keyspace::Keyspace;
use super::reply::RedisReply;

/// What a script calls. A reply that is an error is raised, as a table like in Redis.
const CALLS: &str = "
local run = ...
local function call(...)
  local reply = run(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end
redis = { call = call, pcall = run }
";

/// The keyspace while a script runs, and the server's time in microseconds.
#[derive(Debug, Default)]
pub(crate) struct ScriptedKeys {
    pub(crate) keys: Keyspace,
    pub(crate) time: u64,
}

/// A part of a script's text that is replaced before it is compiled, to plant a bug.
#[derive(Debug, Clone, Copy)]
pub struct ScriptChange {
    /// Must occur in the script.
    pub from: &'static str,
    /// What every occurrence becomes.
    pub to: &'static str,
}

/// The scripts that a server knows.
pub(crate) struct Scripts {
    lua: Lua,
    known: HashMap<String, Function>,
    changes: Vec<ScriptChange>,
}

impl Scripts {
    pub(crate) fn new(
        keys: &Rc<RefCell<ScriptedKeys>>,
        changes: Vec<ScriptChange>,
    ) -> mlua::Result<Self> {
        let lua = Lua::new();
        let keys = Rc::clone(keys);
        let run = lua.create_function(move |lua, arguments: MultiValue| {
            let arguments: Vec<Vec<u8>> = arguments
                .iter()
                .map(argument)
                .collect::<mlua::Result<_>>()?;
            let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            let mut keys = keys.borrow_mut();
            let ScriptedKeys { keys, time } = &mut *keys;
            to_lua(lua, &commands::run(keys, *time, &arguments))
        })?;
        let () = lua.load(CALLS).call(run)?;
        Ok(Self {
            lua,
            known: HashMap::new(),
            changes,
        })
    }

    /// Whether a script with this name is known.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Forgets all scripts, like a server that was restarted.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// Compiles a script. Returns its name.
    pub(crate) fn load(&mut self, text: &[u8]) -> mlua::Result<String> {
        let name = sha1_smol::Sha1::from(text).digest().to_string();
        if !self.knows(&name) {
            let mut text = String::from_utf8_lossy(text).into_owned();
            for change in &self.changes {
                text = text.replace(change.from, change.to);
            }
            let function = self.lua.load(text).into_function()?;
            self.known.insert(name.clone(), function);
        }
        Ok(name)
    }

    /// Runs a script that is known.
    pub(crate) fn run(&self, name: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> RedisReply {
        match self.try_run(name, keys, arguments) {
            Ok(reply) => reply,
            Err(error) => RedisReply::error(format!("ERR {error}")),
        }
    }

    fn try_run(
        &self,
        name: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> mlua::Result<RedisReply> {
        let Some(function) = self.known.get(name) else {
            return Ok(RedisReply::error("NOSCRIPT No matching script."));
        };
        let texts = |texts: &[Vec<u8>]| -> mlua::Result<Table> {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for text in texts {
                table.raw_push(self.lua.create_string(text)?)?;
            }
            Ok(table)
        };
        let globals = self.lua.globals();
        globals.raw_set("KEYS", texts(keys)?)?;
        globals.raw_set("ARGV", texts(arguments)?)?;
        let values: Variadic<Value> = function.call(())?;
        values.first().map_or(Ok(RedisReply::Nothing), from_lua)
    }
}

/// An argument of a command, from a script.
fn argument(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        // All numbers are whole and below 2^53; Redis writes those in full.
        Value::Number(number) => Ok(format!("{number}").into_bytes()),
        _ => Err(mlua::Error::runtime(
            "command arguments must be strings or integers",
        )),
    }
}

fn to_lua(lua: &Lua, reply: &RedisReply) -> mlua::Result<Value> {
    let with = |field: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        RedisReply::Status(text) => with("ok", text),
        RedisReply::Error(text) => with("err", text),
        #[expect(clippy::cast_precision_loss, reason = "numbers in scripts are doubles")]
        RedisReply::Integer(number) => Ok(Value::Number(*number as f64)),
        RedisReply::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        RedisReply::Nothing => Ok(Value::Boolean(false)),
        RedisReply::List(replies) => {
            let table = lua.create_table_with_capacity(replies.len(), 0)?;
            for reply in replies {
                table.raw_push(to_lua(lua, reply)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

fn from_lua(value: &Value) -> mlua::Result<RedisReply> {
    Ok(match value {
        Value::String(text) => RedisReply::text(text.as_bytes().to_vec()),
        Value::Integer(number) => RedisReply::Integer(*number),
        #[expect(clippy::cast_possible_truncation, reason = "Redis cuts fractions off")]
        Value::Number(number) => RedisReply::Integer(*number as i64),
        Value::Boolean(true) => RedisReply::Integer(1),
        Value::Table(table) => {
            if let Some(problem) = table.raw_get::<Option<String>>("err")? {
                return Ok(RedisReply::Error(problem));
            }
            if table.raw_get::<Option<String>>("ok")?.is_some() {
                return Ok(RedisReply::Status("OK"));
            }
            let values = table.sequence_values::<Value>();
            RedisReply::List(
                values
                    .map(|value| from_lua(&value?))
                    .collect::<mlua::Result<_>>()?,
            )
        }
        _ => RedisReply::Nothing,
    })
}
