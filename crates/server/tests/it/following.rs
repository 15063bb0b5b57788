//! A rate that follows the load, as the gateway sees it: a real server behind it that slows down and recovers. How near
//! the rate comes, and how fast, is tested in virtual time: `crates/tower/tests/middleware/adaptive.rs`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, PATIENCE, TestFolder};

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

fn ask_until(stop: &AtomicBool, gateway: SocketAddr) {
    let mut client = HttpClient::to(gateway);
    while !stop.load(Ordering::Relaxed) {
        let reply = client.ask("GET /", "");
        match reply.status {
            200 => {}
            429 => thread::sleep(PAUSE),
            status => panic!("{status}: {}", reply.body),
        }
    }
}

#[test]
fn a_rate_follows_a_server_that_slows_down_and_recovers() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules:\n  - {id: up, per: [], limit: 100/s, adaptive: {min: 5/s, max: 400/s burst 20, target: 250ms}}\n",
    );
    let upstream = Upstream::start();
    let url = format!("http://{}", upstream.address);
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let server = folder.serve(&[&["--rules", "rules.yaml"], &gateway[..]].concat());
    let stop = AtomicBool::new(false);
    let rate_is_in = |range: RangeInclusive<u64>| {
        wait_until(&format!("a rate in {range:?}"), PATIENCE, || {
            let rate = rate(&server.ask("GET /metrics", "").body);
            assert!((5..=400).contains(&rate), "{rate} is out of bounds");
            range.contains(&rate).then_some(())
        });
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..CLIENTS {
            scope.spawn(|| ask_until(&stop, server.gateway.unwrap()));
        }
        upstream.set_per_second(20);
        rate_is_in(5..=40);
        // Far less than the clients ask for, so that a busy machine gets there too.
        upstream.set_per_second(150);
        rate_is_in(60..=400);
    });
}

fn rate(metrics: &str) -> u64 {
    let mut lines = metrics.lines();
    let rate = lines.find_map(|line| line.strip_prefix("tidegate_adaptive_limit{rule=\"up\"} "));
    rate.unwrap().parse().unwrap()
}
