//! `limit_req` of nginx, which has no other time than the real one: a few seconds for each scenario.
//!
//! Requests follow each other on one connection, so a decision is made between the sending of a request and its
//! answer; it counts for the time at which the request was sent.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_core::{Algorithm, Micros};
use tidegate_testkit::accuracy::{ArrivalPattern, DecidedArrival, Judge};
use tidegate_testkit::timeline::START;

use crate::row::{Contender, row, skipped};
use crate::scenario::Scenario;

const NAME: &str = "nginx, limit_req nodelay";
const ALGORITHM: Algorithm = Algorithm::LeakyBucket { shape: false };
const WINDOWS: u64 = 4;

pub fn run(program: &str) {
    let is_tried = |scenario: &Scenario| {
        let pattern = scenario.plan.pattern;
        let is_slow = pattern == ArrivalPattern::Poisson { percent: 50 };
        pattern != ArrivalPattern::ZipfKeys && !is_slow
    };
    for mut scenario in Scenario::all().into_iter().filter(is_tried) {
        scenario.plan.windows = WINDOWS;
        if let Err(error) = run_one(&scenario, program) {
            let why = error.to_string();
            println!("{}", skipped(&scenario, NAME, ALGORITHM, &why));
        }
    }
}

fn run_one(scenario: &Scenario, program: &str) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let nginx = Nginx::start(program, folder.path(), port, scenario.plan.count)?;
    let mut connection = nginx.connect(port)?;
    let limit = scenario.limit(ALGORITHM);
    let mut judge = Judge::new(&limit).expect("a rate with a window");
    let started = Instant::now();
    for arrival in scenario.arrivals() {
        let due = Duration::from(arrival.at.since(START));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        let sent = Micros::from(started.elapsed());
        let allowed = get(&mut connection)?;
        judge.take(DecidedArrival {
            at: START + sent,
            key: arrival.key,
            allowed,
            delay: Micros::ZERO,
        });
    }
    let contender = Contender {
        name: NAME,
        store: "",
        instances: 1,
        is_virtual: false,
    };
    println!("{}", row(scenario, &contender, &limit, &judge.finish(), None));
    Ok(())
}

/// Sends a request and reads the answer: whether it was admitted.
fn get(connection: &mut BufReader<TcpStream>) -> io::Result<bool> {
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.get_mut().write_all(request)?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    match status.as_str() {
        "200" => Ok(true),
        "429" => Ok(false),
        other => Err(io::Error::other(format!("it answered `{other}`"))),
    }
}

/// A process with one limit, ended when it is dropped.
struct Nginx(Child);

impl Nginx {
    fn start(program: &str, folder: &Path, port: u16, count: u64) -> io::Result<Self> {
        let here = folder.display();
        let burst = count - 1;
        let config = format!(
            "daemon off; master_process off; pid {here}/nginx.pid; error_log {here}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
  fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
  limit_req_zone $binary_remote_addr zone=one:1m rate={count}r/s;
  limit_req_status 429; limit_req_log_level info;
  server {{
    listen 127.0.0.1:{port}; root {here}; keepalive_requests 1000000;
    location / {{ limit_req zone=one burst={burst} nodelay; }}
  }}
}}
"
        );
        fs::write(folder.join("nginx.conf"), config)?;
        fs::write(folder.join("index.html"), "ok")?;
        let child = Command::new(program)
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// A connection, as soon as it listens.
    fn connect(&self, port: u16) -> io::Result<BufReader<TcpStream>> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(BufReader::new(stream));
                }
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
