//! `COMMAND`, `INFO` and `HELLO`: what clients and tools ask about a server.

use tidegate_codec::resp::{Replies, RespCommand, RespVersion, quoted};

/// A command, as `COMMAND` describes it.
struct CommandInfo {
    name: &'static str,
    /// The number of arguments, the name included; if negative, the minimum.
    arity: i64,
    /// The position of the key; 0 for none.
    key: i64,
    summary: &'static str,
}

const fn known(name: &'static str, arity: i64, key: i64, summary: &'static str) -> CommandInfo {
    CommandInfo {
        name,
        arity,
        key,
        summary,
    }
}

/// All commands.
#[rustfmt::skip]
const COMMANDS: [CommandInfo; 18] = [
    known("cl.throttle",    -5, 1,  "Charges a limit given in the call, as redis-cell does."),
    known("tg.check",       -1, 0,  "Decides a request by the rules, and charges it."),
    known("tg.reserve",     -1, 0,  "Decides a request by the rules, and charges its cost as an estimate."),
    known("tg.settle",      3,  0,  "Replaces the estimate of a reservation by the true cost."),
    known("tg.cancel",      2,  0,  "Gives the estimate of a reservation back."),
    known("tg.extend",      3,  0,  "Lets a reservation last longer."),
    known("tg.release",     2,  0,  "Releases the lease of a concurrency limit."),
    known("tg.renew",       2,  0,  "Lets the lease of a concurrency limit last its whole time again."),
    known("ping",           -1, 0,  "Returns PONG, or its argument."),
    known("echo",           2,  0,  "Returns its argument."),
    known("hello",          -1, 0,  "Chooses the protocol version, and authenticates."),
    known("auth",           -2, 0,  "Logs in with a token."),
    known("select",         2,  0,  "Chooses the only database, 0."),
    known("client",         -2, 0,  "Sets the name of a connection, or returns its name or id."),
    known("command",        -1, 0,  "Describes the commands."),
    known("info",           -1, 0,  "Describes the server."),
    known("reset",          1,  0,  "Resets the connection to its initial state."),
    known("quit",           -1, 0,  "Ends the connection."),
];

/// The answer to `INFO`: the fields that clients look for at the start.
pub(super) const INFO: &str = concat!(
    "# Server\r\nserver_name:tidegate\r\ntidegate_version:",
    env!("CARGO_PKG_VERSION"),
    "\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n",
    "# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
);

/// The answer to `HELLO`.
pub(super) fn hello(id: u64, replies: &mut Replies) {
    let version = match replies.protocol {
        RespVersion::Resp2 => 2,
        RespVersion::Resp3 => 3,
    };
    replies.map(7);
    replies.bulk(b"server");
    replies.bulk(b"tidegate");
    replies.bulk(b"version");
    replies.bulk(env!("CARGO_PKG_VERSION").as_bytes());
    replies.bulk(b"proto");
    replies.integer(version);
    replies.bulk(b"id");
    replies.integer(i64::try_from(id).unwrap_or(i64::MAX));
    replies.bulk(b"mode");
    replies.bulk(b"standalone");
    replies.bulk(b"role");
    replies.bulk(b"master");
    replies.bulk(b"modules");
    replies.array(0);
}

/// `COMMAND`, and its `COUNT`, `LIST`, `INFO` and `DOCS`.
pub(super) fn command(command: RespCommand<'_>, replies: &mut Replies) {
    let word = command.get(1).to_ascii_uppercase();
    match &word[..] {
        b"" if command.len() == 1 => {
            replies.array(COMMANDS.len());
            for known in &COMMANDS {
                describe(known, replies);
            }
        }
        b"COUNT" => replies.integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX)),
        b"LIST" => {
            replies.array(COMMANDS.len());
            for known in &COMMANDS {
                replies.bulk(known.name.as_bytes());
            }
        }
        b"INFO" if command.len() > 2 => {
            replies.array(command.len() - 2);
            for name in command.from(2) {
                match find(name) {
                    Some(known) => describe(known, replies),
                    None => replies.null(),
                }
            }
        }
        b"INFO" => {
            replies.array(COMMANDS.len());
            for known in &COMMANDS {
                describe(known, replies);
            }
        }
        b"DOCS" => {
            let asked: Vec<&CommandInfo> = if command.len() > 2 {
                command.from(2).filter_map(find).collect()
            } else {
                COMMANDS.iter().collect()
            };
            replies.map(asked.len());
            for known in asked {
                document(known, replies);
            }
        }
        _ => replies.error("ERR", "unknown subcommand or wrong number of arguments; expected one of COUNT, LIST, INFO, DOCS"),
    }
}

fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    let is_it = |known: &&CommandInfo| name.eq_ignore_ascii_case(known.name.as_bytes());
    COMMANDS.iter().find(is_it)
}

fn describe(known: &CommandInfo, replies: &mut Replies) {
    replies.array(10);
    replies.bulk(known.name.as_bytes());
    replies.integer(known.arity);
    replies.array(1);
    replies.simple("fast");
    for _ in 0..3 {
        replies.integer(known.key);
    }
    // Categories, tips, key specifications and subcommands.
    for _ in 0..4 {
        replies.array(0);
    }
}

fn document(known: &CommandInfo, replies: &mut Replies) {
    replies.bulk(known.name.as_bytes());
    replies.map(3);
    replies.bulk(b"summary");
    replies.bulk(known.summary.as_bytes());
    replies.bulk(b"since");
    replies.bulk(b"0.1.0");
    replies.bulk(b"group");
    replies.bulk(b"generic");
}

/// The error for an unknown command.
pub(super) fn unknown(command: RespCommand<'_>) -> String {
    let name = quoted(command.get(0));
    format!(
        "unknown command '{name}'; this is a rate limiter that speaks the Redis protocol: use CL.THROTTLE, TG.CHECK or TG.RESERVE"
    )
}
