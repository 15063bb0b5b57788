//! Sends stats to a server of statsd, over TCP or UDP: what changed, at each interval, and the time of each call, every
//! second. While the server cannot be reached, up to 4 MiB of lines wait for it, and a connection is tried every three seconds.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_listen::clock::{self, Instant};
use tidegate_ratelimit::stats::StatsdLines;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::sync::Mutex;
use tokio::time::{sleep_until, timeout};

use super::ServerStats;
use crate::config::StatsdSettings;

const RETRY: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_millis(1_500);
const WRITE: Duration = Duration::from_secs(1);
/// How often the times of calls are sent.
const TIMES_EVERY: Duration = Duration::from_secs(1);
/// The most bytes that wait.
const MOST_WAITING: usize = 4 << 20;
/// The longest packet of UDP that no network cuts.
const PACKET: usize = 1_432;
/// The bytes that are written to TCP together.
const CHUNK: usize = 1 << 16;
/// How long the last lines may take at shutdown.
const FAREWELL: Duration = Duration::from_secs(1);

/// Sends stats to one server.
pub(crate) struct StatsdSender {
    settings: StatsdSettings,
    lines: StatsdLines,
    connection: Option<StatsdConnection>,
    /// Whole lines, in chunks that are sent together.
    waiting: VecDeque<String>,
    waiting_bytes: usize,
    next_numbers: Instant,
    next_attempt: Instant,
    /// Whether a warning said that the server cannot be reached.
    is_unreachable: bool,
}

enum StatsdConnection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl StatsdSender {
    fn new(settings: &StatsdSettings) -> Self {
        let now = clock::now();
        Self {
            settings: settings.clone(),
            lines: StatsdLines::new(settings.dialect.clone(), &settings.tags),
            connection: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next_numbers: now + settings.interval.into(),
            next_attempt: now,
            is_unreachable: false,
        }
    }

    /// Takes what changed, to be sent.
    fn take_numbers(&mut self, stats: &ServerStats) {
        let mut lines = Vec::new();
        let outside = stats.outside();
        self.lines
            .numbers(&stats.stats, &outside, |line| lines.push(line.to_owned()));
        for line in lines {
            self.add(&line);
        }
    }

    fn take_times(&mut self, times: &[(String, Vec<u32>)]) {
        let mut lines = Vec::new();
        self.lines.times(times, |line| lines.push(line.to_owned()));
        for line in lines {
            self.add(&line);
        }
    }

    /// Adds a line to what waits, unless that is too much.
    fn add(&mut self, line: &str) {
        if self.waiting_bytes + line.len() > MOST_WAITING {
            return;
        }
        self.waiting_bytes += line.len();
        let most = if self.settings.is_udp { PACKET } else { CHUNK };
        match self.waiting.back_mut() {
            Some(chunk) if chunk.len() + line.len() <= most => chunk.push_str(line),
            _ => self.waiting.push_back(line.to_owned()),
        }
    }

    /// Sends what waits, if the server is there or may be tried again.
    async fn send(&mut self) {
        if self
            .connection
            .as_ref()
            .is_some_and(StatsdConnection::is_closed)
        {
            self.connection = None;
        }
        if self.connection.is_none() {
            if clock::now() < self.next_attempt {
                return;
            }
            match self.connect().await {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => return self.note_unreachable(&error),
            }
            // A server is not known to be there because packets can be sent to it.
            self.is_unreachable &= self.settings.is_udp;
        }
        while let (Some(connection), Some(chunk)) = (&mut self.connection, self.waiting.front()) {
            let sending = timeout(WRITE, connection.send(chunk.as_bytes()));
            let sent = sending
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = sent {
                self.connection = None;
                return self.note_unreachable(&error);
            }
            self.waiting_bytes -= chunk.len();
            self.waiting.pop_front();
        }
    }

    /// When there is something to do again.
    fn due(&self) -> Instant {
        match self.connection {
            Some(_) => self.next_numbers,
            None => self.next_numbers.min(self.next_attempt),
        }
    }

    async fn connect(&self) -> io::Result<StatsdConnection> {
        let address = &self.settings.address;
        let connecting = async {
            if !self.settings.is_udp {
                return TcpStream::connect(address).await.map(StatsdConnection::Tcp);
            }
            let mut addresses = lookup_host(address).await?;
            let to = addresses.next().ok_or(io::ErrorKind::NotFound)?;
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(to).await?;
            Ok(StatsdConnection::Udp(socket))
        };
        let connected = timeout(CONNECT, connecting).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Warns that the server cannot be reached, the first time.
    fn note_unreachable(&mut self, error: &io::Error) {
        self.next_attempt = clock::now() + RETRY;
        if !std::mem::replace(&mut self.is_unreachable, true) {
            tracing::warn!(
                "stats cannot be sent to {}: {error}; this is tried again every 3 seconds",
                self.settings.address
            );
        }
    }
}

impl StatsdConnection {
    /// Whether the server has closed it. Otherwise the first lines after that would be lost.
    fn is_closed(&self) -> bool {
        let Self::Tcp(stream) = self else {
            return false;
        };
        match stream.try_read(&mut [0; 64]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    async fn send(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(chunk).await,
            Self::Udp(socket) => socket.send(chunk).await.map(|_| ()),
        }
    }
}

/// The servers that stats are sent to, shared by the task that sends and by the shutdown.
pub(crate) type StatsdSenders = Arc<Mutex<Vec<StatsdSender>>>;

/// What sends to the servers of these settings.
pub(crate) fn senders(settings: &[StatsdSettings]) -> StatsdSenders {
    let senders = settings.iter().map(StatsdSender::new);
    Arc::new(Mutex::new(senders.collect()))
}

/// Sends stats until the server ends.
pub(crate) async fn keep_sending(stats: Option<Arc<ServerStats>>, senders: StatsdSenders) {
    let Some(stats) = stats else { return };
    if senders.lock().await.is_empty() {
        return;
    }
    let mut next_times = clock::now() + TIMES_EVERY;
    loop {
        let mut all = senders.lock().await;
        let now = clock::now();
        if next_times <= now {
            next_times = now + TIMES_EVERY;
            let times = stats.stats.take_times();
            for sender in all.iter_mut() {
                sender.take_times(&times);
            }
        }
        for sender in all.iter_mut().filter(|sender| sender.next_numbers <= now) {
            sender.next_numbers = now + sender.settings.interval.into();
            sender.take_numbers(&stats);
        }
        join_all(all.iter_mut().map(StatsdSender::send)).await;
        let due = all.iter().map(StatsdSender::due).min();
        drop(all);
        sleep_until(due.unwrap_or(next_times).min(next_times)).await;
    }
}

/// Sends what is left, at shutdown.
pub(crate) async fn finish(stats: Option<&ServerStats>, senders: &StatsdSenders) {
    let Some(stats) = stats else { return };
    let mut all = senders.lock().await;
    let times = stats.stats.take_times();
    let sending = all.iter_mut().map(|sender| {
        sender.take_times(&times);
        sender.take_numbers(stats);
        sender.send()
    });
    if timeout(FAREWELL, join_all(sending)).await.is_err() {
        tracing::warn!("not all stats could be sent");
    }
}
