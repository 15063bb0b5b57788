//! A link whose own process stalls: nothing that a healthy server answers is lost, wherever the stall begins.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::serve::serve;
use super::{Link, LinkSettings, LinkShared, LinkTarget};
use crate::arrivals::WatchedStream;
use crate::call::CallBody;
use crate::dial::Dialer;
use crate::monotonic::{now, stalls};
use crate::settings::RedisSettings;
use crate::url::{RedisNode, RedisUrl};
use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};
use tidegate_redis_wire::wire::LuaStep;

const DEADLINE: Duration = Duration::from_millis(15);
const STALL: Duration = Duration::from_secs(1);

/// How many commands there are in what was sent: each begins with its number of arguments.
fn commands(sent: &[u8]) -> usize {
    let lines = sent.split(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(b"*")).count()
}

/// Answers every command after a millisecond, until the connection ends.
async fn answer_all(mut stream: UnixStream) {
    let mut sent = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut sent).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let replies = "+OK\r\n".repeat(commands(&sent[..length]));
        if stream.write_all(replies.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A link that is up, to a server that answers.
async fn link() -> Link {
    let url: RedisUrl = "redis://127.0.0.1".parse().unwrap();
    let settings = RedisSettings::new(url);
    let dialer = Dialer::new(Arc::new(settings));
    let (client, server) = UnixStream::pair().unwrap();
    tokio::spawn(answer_all(server));
    let (client, arrivals) = WatchedStream::new(client).unwrap();
    let connected = dialer.log_in(client, arrivals).await.unwrap();
    let keys = RedisKeys::new(None, KeySecret::new(SecretFrom::Public));
    let target = LinkTarget::Node(RedisNode::Unix("/".into()));
    let shared = Arc::new(LinkShared::new(
        target,
        LinkSettings {
            dialer,
            deadline: DEADLINE,
            is_cluster: false,
            stats: Arc::default(),
            probe: LuaStep::probe(&keys),
        },
    ));
    shared.mark_up();
    let serving = Arc::clone(&shared);
    let task = tokio::spawn(async move {
        let problem = serve(&serving, connected).await;
        serving.mark_down(problem);
    });
    Link { shared, task }
}

/// Asks many times, so close to each other that some wait for room, with a stall after so many readings
/// of the clock. The errors, and whether there was a stall.
async fn ask_with_stall(readings: u32) -> (Vec<String>, bool) {
    let link = link().await;
    stalls::after_readings(readings, STALL);
    let asking = (0..16_u32).map(|index| {
        let link = &link;
        async move {
            tokio::time::sleep(Duration::from_micros(300) * (index / 2)).await;
            let ping = CallBody::Command(Arc::new(redis::cmd("PING")));
            let answer = link.call(ping, false, now() + DEADLINE).await;
            answer.err().map(|error| error.to_string())
        }
    });
    let errors = join_all(asking).await.into_iter().flatten().collect();
    (errors, !stalls::cancel())
}

#[tokio::test(start_paused = true)]
async fn a_stall_between_any_two_readings_of_the_clock_fails_nothing() {
    let mut failed = Vec::new();
    for readings in 0.. {
        let (errors, has_stalled) = ask_with_stall(readings).await;
        if !has_stalled {
            assert!(readings > 50, "only {readings} readings");
            break;
        }
        if !errors.is_empty() {
            failed.push((readings, errors));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
