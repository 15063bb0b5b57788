//! A rate that follows the load, as the gateway sees it: a real server behind it that slows down and
//! recovers. The one test here that takes its time, half a minute of it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::TestFolder;

const TARGET: Duration = Duration::from_millis(250);
const BOUNDS: (u64, u64) = (10, 400);
/// So long the rate may take to follow, and so long it is looked at then.
const FOLLOWS: Duration = Duration::from_secs(9);
const SHOWN: Duration = Duration::from_millis(2_300);
/// As many clients, who ask again at once, or after this time if they are denied: 400 requests a second.
const CLIENTS: usize = 32;
const PAUSE: Duration = Duration::from_millis(80);

/// A server that answers one request after the other, each after this many microseconds.
struct Upstream {
    address: SocketAddr,
    micros: Arc<AtomicU64>,
}

impl Upstream {
    #[expect(clippy::disallowed_methods, reason = "the server takes real time")]
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let micros = Arc::new(AtomicU64::new(1));
        let free_at = Arc::new(Mutex::new(Instant::now()));
        let work = Arc::clone(&micros);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (work, free_at) = (Arc::clone(&work), Arc::clone(&free_at));
                // It ends when the gateway closes the connection, at the end of the test.
                thread::spawn(move || answer(stream.ok()?, &work, &free_at));
            }
        });
        Self { address, micros }
    }

    fn set_per_second(&self, requests: u64) {
        self.micros.store(1_000_000 / requests, Ordering::Relaxed);
    }
}

/// Answers requests without a body on one connection.
#[expect(clippy::disallowed_methods, reason = "the server takes real time")]
fn answer(mut stream: TcpStream, micros: &AtomicU64, free_at: &Mutex<Instant>) -> Option<()> {
    let (mut head, mut bytes) = (Vec::new(), [0; 4_096]);
    loop {
        let length = stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&bytes[..length]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        head.clear();
        let takes = Duration::from_micros(micros.load(Ordering::Relaxed));
        let ends = {
            let mut free_at = free_at.lock().unwrap();
            *free_at = Instant::now().max(*free_at) + takes;
            *free_at
        };
        thread::sleep(ends.saturating_duration_since(Instant::now()));
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(reply).ok()?;
    }
}

/// Lets the clients stop, also when the test has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What clients have seen: when an answer came, and how long it took.
type Seen = Arc<Mutex<Vec<(Instant, Duration)>>>;

#[expect(clippy::disallowed_methods, reason = "clients see the real time")]
fn ask_until(stop: &AtomicBool, gateway: SocketAddr, seen: &Seen) {
    let mut client = HttpClient::to(gateway);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let reply = client.ask("GET /", "");
        let now = Instant::now();
        match reply.status {
            200 => seen.lock().unwrap().push((now, now - began)),
            429 => thread::sleep(PAUSE),
            status => panic!("{status}: {}", reply.body),
        }
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "what is measured takes real time"
)]
fn admitted_traffic_follows_a_server_that_slows_down_and_recovers() {
    let folder = TestFolder::new();
    let (min, max) = BOUNDS;
    let target = TARGET.as_millis();
    folder.write(
        "rules.yaml",
        &format!("rules:\n  - {{id: up, per: [], limit: 200/s, adaptive: {{min: {min}/s, max: {max}/s burst 20, target: {target}ms}}}}\n"),
    );
    let upstream = Upstream::start();
    let url = format!("http://{}", upstream.address);
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let server = folder.serve(&[&["--rules", "rules.yaml"], &gateway[..]].concat());
    let (stop, seen) = (AtomicBool::new(false), Seen::default());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| ask_until(&stop, server.gateway.unwrap(), &seen));
        }
        let stop = Stop(&stop);
        let mut shown = Vec::new();
        for per_second in [200_u32, 50, 200] {
            upstream.set_per_second(per_second.into());
            let ends = Instant::now() + FOLLOWS + SHOWN;
            while Instant::now() < ends {
                thread::sleep(Duration::from_millis(100));
                let metrics = server.ask("GET /metrics", "").body;
                let rate = rate(&metrics);
                assert!((min..=max).contains(&rate), "{rate} is out of bounds");
            }
            let since = ends.checked_sub(SHOWN).unwrap();
            let mut latencies: Vec<Duration> = seen
                .lock()
                .unwrap()
                .drain(..)
                .filter(|(at, _)| (since..ends).contains(at))
                .map(|(_, latency)| latency)
                .collect();
            latencies.sort();
            let admitted = latencies.len() as u128 * 1_000 / SHOWN.as_millis();
            let median = latencies.get(latencies.len() / 2).copied();
            shown.push((per_second, admitted, median.unwrap_or_default()));
        }
        drop(stop);
        for (per_second, admitted, median) in &shown {
            let percent = admitted * 100 / u128::from(*per_second);
            assert!((70..=130).contains(&percent), "{shown:?}");
            assert!(*median <= 2 * TARGET, "{shown:?}");
        }
    });
}

fn rate(metrics: &str) -> u64 {
    let mut lines = metrics.lines();
    let rate = lines.find_map(|line| line.strip_prefix("tidegate_adaptive_limit{rule=\"up\"} "));
    rate.unwrap().parse().unwrap()
}
