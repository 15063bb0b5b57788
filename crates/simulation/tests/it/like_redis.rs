//! The simulated Redis answers like a real one: random commands on few keys, and scripts, on both.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidegate_core::{Clock as _, SystemClock};
use tidegate_simulation::{SeededRandom, SimulatedRedis};
use tidegate_testkit::redis::RedisServer;

/// The commands of scripts, with arguments that are drawn: `K` is a key, `M` a member or field, `V` a value, `N` a number,
/// `R` a rank, `B` a bound of scores, `P` and `F` milliseconds in the past and in the future. Spans
/// end later than any `F`, as the clock of the real server goes on.
const COMMANDS: &[&str] = &[
    "GET K",
    "SET K V",
    "SET K V PXAT F",
    "SET K V PXAT P",
    "SET K V PX 5000000",
    "DEL K",
    "TYPE K",
    "PEXPIREAT K F",
    "PEXPIREAT K P",
    "PEXPIREAT K F GT",
    "PEXPIREAT K F NX",
    "PEXPIRE K 5000000",
    "HGET K M",
    "HMGET K M M",
    "HGETALL K",
    "HSET K M V M V",
    "HDEL K M M",
    "ZADD K N M",
    "ZADD K N M N M",
    "ZCARD K",
    "ZSCORE K M",
    "ZCOUNT K B B",
    "ZRANGE K R R",
    "ZRANGE K R R WITHSCORES",
    "ZRANGEBYSCORE K B B",
    "ZRANGEBYSCORE K B B WITHSCORES",
    "ZRANGEBYSCORE K B B LIMIT 1 2",
    "ZREM K M M",
    "ZREMRANGEBYRANK K R R",
    "ZREMRANGEBYSCORE K B B",
];

/// Scripts whose replies show how values are converted.
const SCRIPTS: &[&str] = &[
    "return {1, 2.9, 'a', false, true, {3, 'b'}, redis.call('GET', KEYS[1])}",
    "return redis.call('TYPE', KEYS[1])",
    "return {1, nil, 3}",
    "return redis.call('ZADD', KEYS[2], 1794700800000000, ARGV[1])",
    "return redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')",
    "return {pcall(redis.call, 'HGETALL', KEYS[1])}",
    "return #redis.call('HMGET', KEYS[3], 'a', 'b')",
    "redis.call('SET', KEYS[1], 9007199254740991) return redis.call('GET', KEYS[1])",
    "return redis.call('NOSUCH')",
];

fn draw(random: &mut SeededRandom, kind: &str, now: u64) -> String {
    match kind {
        "K" => random.choose(&["k1", "k2", "k3"]).to_owned(),
        "M" => random.choose(&["a", "b", "c", "d"]).to_owned(),
        "V" | "N" => random.below(4).to_string(),
        "R" => random.choose(&["0", "1", "2", "-1", "-2"]).to_owned(),
        "B" => random
            .choose(&["-inf", "0", "1", "(1", "2", "(2", "+inf"])
            .to_owned(),
        "P" => (now / 1_000 - 100_000).to_string(),
        "F" => (now / 1_000 + 1_000_000 + random.below(3) * 1_000).to_string(),
        word => word.to_owned(),
    }
}

/// The next reply on a connection, as bytes.
fn read_reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut left = 1;
    while left > 0 {
        left -= 1;
        let begin = bytes.len();
        while !bytes[begin..].ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
        let line = String::from_utf8_lossy(&bytes[begin + 1..bytes.len() - 2]).into_owned();
        match (bytes[begin], line.parse::<usize>()) {
            (b'*', Ok(count)) => left += count,
            (b'$', Ok(length)) => {
                let mut text = vec![0; length + 2];
                stream.read_exact(&mut text).unwrap();
                bytes.extend(text);
            }
            _ => {}
        }
    }
    bytes
}

/// What is compared: of an error that it is one, and of a hash its fields in any order.
fn compared(command: &[Vec<u8>], reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(reply).into_owned();
    if text.starts_with('-') {
        return vec!["error".to_owned()];
    }
    let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
    if command[0] == b"HGETALL" || text.contains("WRONGTYPE") {
        lines.retain(|line| !line.starts_with('$') && !line.contains("WRONGTYPE"));
        lines.sort();
    }
    lines
}

#[test]
fn the_simulated_redis_answers_like_a_real_one() {
    let server = RedisServer::start();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut simulated = SimulatedRedis::new(Vec::new());
    let mut random = SeededRandom::new(1);
    let now = SystemClock.now();
    simulated.set_time(now);
    for round in 0..6_000 {
        let command: Vec<Vec<u8>> = if random.happens(100) {
            let script = random.choose(SCRIPTS);
            let rest = ["EVAL", script, "3", "k1", "k2", "k3", "a"];
            rest.iter().map(|text| text.as_bytes().to_vec()).collect()
        } else {
            let words = random.choose(COMMANDS).split(' ');
            let drawn = words.map(|word| draw(&mut random, word, now.as_micros()));
            drawn.map(String::into_bytes).collect()
        };
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in &command {
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        stream.write_all(&bytes).unwrap();
        let (real, ours) = (read_reply(&mut stream), simulated.run(&command));
        let shown: Vec<_> = command
            .iter()
            .map(|text| String::from_utf8_lossy(text))
            .collect();
        let [real, ours] = [real, ours].map(|reply| compared(&command, &reply));
        assert_eq!(real, ours, "round {round}: {shown:?}");
    }
}
