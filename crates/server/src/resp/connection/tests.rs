//! Clients that take their time, on a clock that goes as fast as nothing happens.

use tidegate::Gate;
use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::body_memory::BodyMemory;
use crate::config::{Config, Overrides};
use crate::decider::DeciderParts;
use crate::store::ServerStore;
use crate::telemetry::{DecisionObserver, LoggedKeys, Metrics};

struct Client {
    io: DuplexStream,
    served: JoinHandle<Result<(), RespConnectionError>>,
    drain: Drain,
    start: Instant,
}

fn connect() -> Client {
    let outside = Overrides {
        environment: &|_| None,
        variables: Vec::new(),
        flags: Vec::new(),
    };
    let config = Config::load(&outside).unwrap();
    let store = ServerStore::Memory(Arc::default());
    let keys = LoggedKeys {
        digest: Arc::new(ValueDigest::new(b"key")),
        settings: RuleSettings::default(),
    };
    let observer = DecisionObserver::new(Arc::new(Metrics::new()), keys, None);
    let parts = DeciderParts {
        gate: Arc::new(Gate::new(store.to_gate(), RuleSet::empty())),
        store,
        observer: Arc::new(observer),
        identity: Arc::default(),
        rules_known: Arc::new(|| Ok(())),
        bodies: BodyMemory::of(1 << 20),
        stats: None,
    };
    let decider = Arc::new(Decider::new(&config, parts));
    let drain = Drain::new();
    let listener = RespConnections::new(decider, &ListenSettings::default(), drain.clone());
    let (io, there) = duplex(1_024);
    Client {
        io,
        served: tokio::spawn(async move { Connection::new(there, &listener, None).serve().await }),
        drain,
        start: sleep(Duration::ZERO).deadline(),
    }
}

impl Client {
    /// What is still said before the connection ends, how it ends, and when.
    async fn end(mut self) -> (String, Result<(), String>, Duration) {
        let mut replies = String::new();
        self.io.read_to_string(&mut replies).await.unwrap();
        let after = sleep(Duration::ZERO).deadline() - self.start;
        drop(self.io);
        let served = self.served.await.unwrap();
        (replies, served.map_err(|error| error.to_string()), after)
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }
}

fn about(seconds: u64, after: Duration) -> bool {
    (Duration::from_secs(seconds)..Duration::from_secs(seconds + 1)).contains(&after)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_or_half_a_command_is_cut() {
    let slow = || Err("the client took too long".to_owned());
    let (replies, ended, after) = connect().end().await;
    assert_eq!((replies.as_str(), ended), ("", slow()));
    assert!(about(10, after), "{after:?}");

    let mut first = connect();
    first.say(b"*2\r\n$4\r\nECHO\r\n$").await;
    let (replies, ended, after) = first.end().await;
    assert_eq!((replies.as_str(), ended), ("", slow()));
    assert!(about(10, after), "{after:?}");

    let mut later = connect();
    later.say(b"PING\r\nPING\r\nPI").await;
    let (replies, ended, after) = later.end().await;
    assert_eq!((replies.as_str(), ended), ("+PONG\r\n+PONG\r\n", slow()));
    assert!(about(10, after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_kept_for_an_hour() {
    let mut client = connect();
    client.say(b"PING\r\n").await;
    sleep(Duration::from_mins(50)).await;
    client.say(b"PING\r\n").await;
    let (replies, ended, after) = client.end().await;
    assert_eq!(replies, "+PONG\r\n+PONG\r\n");
    assert!(ended.is_err());
    assert!(after > Duration::from_mins(109), "{after:?}");
    assert!(after < Duration::from_mins(111), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut() {
    let mut client = connect();
    // More than fits into the socket buffers, until the client reads no more.
    while client.io.write_all(b"COMMAND\r\n").await.is_ok() {}
    let served = (&mut client.served).await.unwrap();
    let error = served.unwrap_err().to_string();
    assert_eq!(error, "the client took too long");
}

#[tokio::test(start_paused = true)]
async fn a_drain_answers_what_is_sent_and_ends() {
    let mut client = connect();
    client.say(b"PING\r\n").await;
    client.drain.begin();
    client.say(b"PING\r\n").await;
    let (replies, ended, after) = client.end().await;
    assert_eq!(replies, "+PONG\r\n+PONG\r\n");
    assert_eq!(ended, Ok(()));
    assert!(after < Duration::from_secs(1), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_announced_drain_ends_a_connection_in_a_pause_after_an_answer() {
    let mut client = connect();
    client.say(b"PING\r\n").await;
    sleep(Duration::from_secs(1)).await;
    client.drain.announce();
    // One that is not used is left alone, until its client says something.
    sleep(Duration::from_mins(1)).await;
    client.say(b"PI").await;
    sleep(Duration::from_secs(1)).await;
    client.say(b"NG\r\n").await;
    sleep(PAUSE / 2).await;
    client.say(b"PING\r\n").await;
    let (replies, ended, after) = client.end().await;
    assert_eq!(replies, "+PONG\r\n+PONG\r\n+PONG\r\n");
    assert_eq!(ended, Ok(()));
    assert!(about(62, after), "{after:?}");
}
