//! Commands of the Redis protocol: the same in any pieces and notation, and as the `redis` crate reads them.

use redis::{Value, parse_redis_value};
use tidegate_codec::resp::throttle::{self, ThrottleLimits};
use tidegate_codec::resp::{Arguments, Replies, RespCommand, check as tg_check, quoted};

/// How many commands of one input are looked at.
const MOST_COMMANDS: usize = 16;
/// Prefixes of longer commands are sampled.
const SHORT: usize = 64;

/// Every command of a buffer is complete exactly at its end, reads as it was written, and is answered.
pub fn check(bytes: &[u8]) {
    let (mut rest, mut limits) = (bytes, ThrottleLimits::default());
    for _ in 0..MOST_COMMANDS {
        let mut arguments = Arguments::default();
        match arguments.read(rest) {
            Ok(Some(length)) => {
                let (command, after) = rest.split_at(length);
                ends_here(command);
                let read = arguments.of(command);
                as_redis_reads_it(command, read);
                check_command(read, &mut limits);
                rest = after;
            }
            Ok(None) => return,
            Err(error) => {
                // What comes later cannot make it a command.
                let longer = [rest, b"\r\n"].concat();
                assert_eq!(Arguments::default().read(&longer), Err(error));
                let mut replies = Replies::default();
                replies.error("ERR", &error.to_string());
                is_one_line(&replies);
                return;
            }
        }
    }
}

/// No beginning of it is a command, nor an error, and it needs nothing after it.
fn ends_here(command: &[u8]) {
    let mut arguments = Arguments::default();
    assert_eq!(arguments.read(command), Ok(Some(command.len())));
    let step = (command.len() / SHORT).max(1);
    for end in (0..command.len()).step_by(step) {
        let read = arguments.read(&command[..end]);
        assert_eq!(read, Ok(None), "{}", command[..end].escape_ascii());
    }
}

fn as_redis_reads_it(command: &[u8], read: RespCommand<'_>) {
    if command.first() != Some(&b'*') {
        return;
    }
    let values = match parse_redis_value(command) {
        Ok(Value::Array(values)) => values,
        // A negative count.
        Ok(Value::Nil) => Vec::new(),
        other => {
            // Redis itself ignores any negative count.
            assert!(read.is_empty(), "{} is {other:?}", command.escape_ascii());
            return;
        }
    };
    let values: Vec<&[u8]> = values
        .iter()
        .map(|value| match value {
            Value::BulkString(bytes) => &bytes[..],
            other => unreachable!("an argument is {other:?}"),
        })
        .collect();
    assert_eq!(read.from(0).collect::<Vec<_>>(), values);
}

fn check_command(read: RespCommand<'_>, limits: &mut ThrottleLimits) {
    let mut array = format!("*{}\r\n", read.len()).into_bytes();
    for argument in read.from(0) {
        array.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        array.extend_from_slice(argument);
        array.extend_from_slice(b"\r\n");
    }
    let mut arguments = Arguments::default();
    assert_eq!(arguments.read(&array), Ok(Some(array.len())));
    let again = arguments.of(&array);
    let same = again.from(0).eq(read.from(0));
    assert!(same, "{} as an array", array.escape_ascii());

    let cached = describe(throttle::read(read, limits));
    let mut fresh = ThrottleLimits::default();
    let expected = describe(throttle::read(again, &mut fresh));
    assert_eq!(cached, expected, "with limits of earlier commands");
    let (one, other) = (tg_check::read(read), tg_check::read(again));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));

    let mut replies = Replies::default();
    if let Err(error) = one {
        replies.error("ERR", &error.to_string());
        is_one_line(&replies);
    }
    let name = quoted(read.get(0));
    assert!(name.len() <= 4 * 64 + 3, "{name}");
    assert!(
        name.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        "{name}"
    );
}

fn describe<T: std::fmt::Debug, E: std::fmt::Display>(read: Result<T, E>) -> String {
    match read {
        Ok(throttle) => format!("{throttle:?}"),
        Err(error) => format!("error: {error}"),
    }
}

/// A reply that quotes a client does not become two.
fn is_one_line(replies: &Replies) {
    let line = replies.bytes().strip_suffix(b"\r\n").unwrap_or_default();
    assert!(!line.is_empty(), "there is a reply");
    assert!(
        !line.iter().any(|byte| matches!(byte, b'\r' | b'\n')),
        "{}",
        line.escape_ascii()
    );
}
