//! The commands that scripts and stores use, over the keyspace. Those that run scripts are in `mod.rs`.

use std::collections::BTreeMap;

use super::keyspace::{ExpiryCondition, Keyspace, StoredValue};
use super::reply::RedisReply;
use super::sorted::{Score, ScoreBound, SortedSet};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Why a command did nothing.
type CommandRefusal = RedisReply;

/// Runs a command: its name and arguments. `time` is the server's, in microseconds.
pub(crate) fn run(keys: &mut Keyspace, time: u64, command: &[&[u8]]) -> RedisReply {
    let Some((name, arguments)) = command.split_first() else {
        return RedisReply::error("ERR empty command");
    };
    let name = name.to_ascii_uppercase();
    let done = match name.as_slice() {
        b"TIME" => Ok(time_of(time)),
        b"GET" | b"SET" | b"DEL" | b"TYPE" | b"PEXPIRE" | b"PEXPIREAT" => {
            on_any(keys, &name, arguments)
        }
        b"HGET" | b"HMGET" | b"HGETALL" | b"HSET" | b"HDEL" => on_hash(keys, &name, arguments),
        _ if name.starts_with(b"Z") => on_sorted(keys, &name, arguments),
        _ => Err(unknown(&name)),
    };
    done.unwrap_or_else(|refusal| refusal)
}

fn unknown(name: &[u8]) -> CommandRefusal {
    let name = String::from_utf8_lossy(name);
    RedisReply::error(format!("ERR unknown command '{name}'"))
}

fn syntax() -> CommandRefusal {
    RedisReply::error("ERR syntax error")
}

fn time_of(time: u64) -> RedisReply {
    let parts = [time / 1_000_000, time % 1_000_000];
    RedisReply::List(parts.map(|part| RedisReply::text(part.to_string())).into())
}

fn whole(text: &[u8]) -> Result<i64, CommandRefusal> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| RedisReply::error("ERR value is not an integer or out of range"))
}

/// The argument at an index.
fn argument<'a>(arguments: &[&'a [u8]], index: usize) -> Result<&'a [u8], CommandRefusal> {
    let missing = || RedisReply::error("ERR wrong number of arguments");
    arguments.get(index).copied().ok_or_else(missing)
}

/// The millisecond at which something ends, which may have passed.
fn end(at: i64) -> u64 {
    u64::try_from(at).unwrap_or(0)
}

fn on_any(
    keys: &mut Keyspace,
    name: &[u8],
    arguments: &[&[u8]],
) -> Result<RedisReply, CommandRefusal> {
    let key = argument(arguments, 0)?;
    Ok(match name {
        b"GET" => match keys.get(key) {
            Some(StoredValue::Text(text)) => RedisReply::text(text.clone()),
            Some(_) => RedisReply::error(WRONG_TYPE),
            None => RedisReply::Nothing,
        },
        b"SET" => {
            let expires_at = match arguments.get(2..).unwrap_or_default() {
                [] => None,
                [option, at] if option.eq_ignore_ascii_case(b"PXAT") => Some(end(whole(at)?)),
                [option, span] if option.eq_ignore_ascii_case(b"PX") => {
                    Some(keys.now + end(whole(span)?))
                }
                _ => return Err(syntax()),
            };
            let value = argument(arguments, 1)?.to_vec();
            keys.set(key, StoredValue::Text(value), expires_at);
            RedisReply::status("OK")
        }
        b"DEL" => RedisReply::count(arguments.iter().filter(|key| keys.remove(key)).count()),
        b"TYPE" => RedisReply::status(keys.get(key).map_or("none", |value| value.kind())),
        b"PEXPIRE" | b"PEXPIREAT" => {
            let number = end(whole(argument(arguments, 1)?)?);
            let condition = match arguments.get(2) {
                None => ExpiryCondition::None,
                Some(option) if option.eq_ignore_ascii_case(b"GT") => ExpiryCondition::Later,
                Some(option) if option.eq_ignore_ascii_case(b"NX") => ExpiryCondition::First,
                Some(_) => return Err(syntax()),
            };
            let at = if name == b"PEXPIRE" {
                keys.now + number
            } else {
                number
            };
            RedisReply::Integer(i64::from(keys.expire(key, at, condition)))
        }
        _ => return Err(unknown(name)),
    })
}

fn on_hash(
    keys: &mut Keyspace,
    name: &[u8],
    arguments: &[&[u8]],
) -> Result<RedisReply, CommandRefusal> {
    let key = argument(arguments, 0)?;
    if name == b"HSET" {
        let value = keys.get_or(key, || StoredValue::Hash(BTreeMap::new()));
        let StoredValue::Hash(fields) = value else {
            return Err(RedisReply::error(WRONG_TYPE));
        };
        let mut added = 0;
        for pair in arguments[1..].chunks(2) {
            let new = fields.insert(pair[0].to_vec(), argument(pair, 1)?.to_vec());
            added += usize::from(new.is_none());
        }
        return Ok(RedisReply::count(added));
    }
    let mut none = BTreeMap::new();
    let fields = match keys.get(key) {
        Some(StoredValue::Hash(fields)) => fields,
        Some(_) => return Err(RedisReply::error(WRONG_TYPE)),
        None => &mut none,
    };
    let of = |field: &[u8]| match fields.get(field) {
        Some(value) => RedisReply::text(value.clone()),
        None => RedisReply::Nothing,
    };
    Ok(match name {
        b"HGET" => of(argument(arguments, 1)?),
        b"HMGET" => RedisReply::List(arguments[1..].iter().map(|field| of(field)).collect()),
        b"HGETALL" => {
            let pairs = fields.iter().flat_map(|(field, value)| [field, value]);
            RedisReply::List(pairs.map(|text| RedisReply::text(text.clone())).collect())
        }
        _ => {
            let removed = arguments[1..]
                .iter()
                .filter(|field| fields.remove(**field).is_some());
            let removed = removed.count();
            keys.tidy(key);
            RedisReply::count(removed)
        }
    })
}

fn on_sorted(
    keys: &mut Keyspace,
    name: &[u8],
    arguments: &[&[u8]],
) -> Result<RedisReply, CommandRefusal> {
    let key = argument(arguments, 0)?;
    if name == b"ZADD" {
        let value = keys.get_or(key, || StoredValue::Sorted(SortedSet::default()));
        let StoredValue::Sorted(members) = value else {
            return Err(RedisReply::error(WRONG_TYPE));
        };
        let mut added = 0;
        for pair in arguments[1..].chunks(2) {
            let score = bound(pair[0])?.score;
            added += usize::from(members.insert(argument(pair, 1)?, score));
        }
        return Ok(RedisReply::count(added));
    }
    let mut none = SortedSet::default();
    let members = match keys.get(key) {
        Some(StoredValue::Sorted(members)) => members,
        Some(_) => return Err(RedisReply::error(WRONG_TYPE)),
        None => &mut none,
    };
    let ranks = || {
        Ok((
            whole(argument(arguments, 1)?)?,
            whole(argument(arguments, 2)?)?,
        ))
    };
    let scores = || {
        Ok((
            bound(argument(arguments, 1)?)?,
            bound(argument(arguments, 2)?)?,
        ))
    };
    let reply = match name {
        b"ZCARD" => RedisReply::count(members.len()),
        b"ZSCORE" => match members.score(argument(arguments, 1)?) {
            Some(score) => RedisReply::text(score.text()),
            None => RedisReply::Nothing,
        },
        b"ZCOUNT" => {
            let (least, most) = scores()?;
            RedisReply::count(members.by_score(least, most).len())
        }
        b"ZRANGE" => {
            let (first, last) = ranks()?;
            let found = members.by_rank(first, last);
            let has_scores = match arguments.get(3) {
                None => false,
                Some(option) if option.eq_ignore_ascii_case(b"WITHSCORES") => true,
                Some(_) => return Err(syntax()),
            };
            members_in(found.into_iter(), has_scores)
        }
        b"ZRANGEBYSCORE" => {
            let (least, most) = scores()?;
            let found = members.by_score(least, most).into_iter();
            let mut options = arguments.get(3..).unwrap_or_default();
            let has_scores = options
                .first()
                .is_some_and(|option| option.eq_ignore_ascii_case(b"WITHSCORES"));
            options = &options[usize::from(has_scores)..];
            let (skipped, count) = match options {
                [] => (0, i64::MAX),
                [option, skipped, count] if option.eq_ignore_ascii_case(b"LIMIT") => {
                    (whole(skipped)?, whole(count)?)
                }
                _ => return Err(syntax()),
            };
            let [skipped, count] =
                [skipped, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            members_in(found.skip(skipped).take(count), has_scores)
        }
        b"ZREM" => {
            let chosen = arguments[1..].iter().map(|member| member.to_vec());
            remove_from(members, &chosen.collect::<Vec<_>>())
        }
        b"ZREMRANGEBYRANK" => {
            let (first, last) = ranks()?;
            let chosen = members.by_rank(first, last).into_iter();
            let chosen: Vec<_> = chosen.map(|(_, member)| member).collect();
            remove_from(members, &chosen)
        }
        b"ZREMRANGEBYSCORE" => {
            let (least, most) = scores()?;
            let chosen = members.by_score(least, most).into_iter();
            let chosen: Vec<_> = chosen.map(|(_, member)| member).collect();
            remove_from(members, &chosen)
        }
        _ => return Err(unknown(name)),
    };
    keys.tidy(key);
    Ok(reply)
}

/// Members as they are answered, each with its score if that is asked for.
fn members_in(found: impl Iterator<Item = (Score, Vec<u8>)>, has_scores: bool) -> RedisReply {
    let mut replies = Vec::new();
    for (score, member) in found {
        replies.push(RedisReply::text(member));
        replies.extend(has_scores.then(|| RedisReply::text(score.text())));
    }
    RedisReply::List(replies)
}

fn remove_from(members: &mut SortedSet, chosen: &[Vec<u8>]) -> RedisReply {
    let removed = chosen.iter().filter(|member| members.remove(member));
    RedisReply::count(removed.count())
}

fn bound(text: &[u8]) -> Result<ScoreBound, CommandRefusal> {
    let invalid = || RedisReply::error("ERR min or max is not a float");
    ScoreBound::read(text).ok_or_else(invalid)
}
