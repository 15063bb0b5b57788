//! CPU time of the gateway for one small GET over keep-alive HTTP/1.1, compared with nginx with `proxy_pass` and
//! `limit_req` before the same server; then a million requests, and what the memory does meanwhile.
//!
//! All servers are processes of their own, started and ended here; load comes from this process over 64
//! connections, in turns. What counts is user and system time of the processes of each proxy.
//! Usage: `gateway PATH-OF-TIDEGATE`. Needs nginx.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::{Router, routing::get};
use tidegate_bench::load::load;
use tidegate_bench::{Comparison, compare, cpu_micros};

const CONNECTIONS: usize = 64;
/// Requests of one turn, over all connections.
const REQUESTS: usize = 64_000;
const TURNS: usize = 11;
/// What the gateway may cost, as a multiple of nginx.
const ALLOWED: f64 = 1.5;
/// Requests of the long run, and the growth of memory that is no leak, in KiB.
const LONG_RUN: usize = 1_000_000;
const ALLOWED_GROWTH: u64 = 8 * 1024;

const RULES: &str = "rules:\n  - {id: per-ip, per: [ip], limit: 1000000/second}\n";
const REQUEST: &[u8] = b"GET /v1/users?page=1 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("upstream") => serve_upstream(),
        Some(program) => compare_servers(program),
        None => panic!("give the path of the tidegate program"),
    }
}

fn compare_servers(program: &str) {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let mut upstream = Command::new(std::env::current_exe().expect("this program"));
    let (upstream, lines) = start(upstream.arg("upstream"), 1);
    let behind = &lines[0];
    let proxies = [tidegate(program, &folder, behind), nginx(&folder, behind)];
    for proxy in &proxies {
        proxy.turn();
    }
    let Comparison {
        ours,
        theirs,
        ratio,
    } = compare(TURNS, |index| proxies[index].turn());
    println!(
        "CPU time of the proxy per request, {CONNECTIONS} connections, median of {TURNS} turns of {REQUESTS}:"
    );
    println!("  tidegate {ours:.2} us, nginx {theirs:.2} us, ratio {ratio:.2}");

    let before = proxies[0].resident();
    load(&proxies[0].address, REQUEST, CONNECTIONS, LONG_RUN);
    let after = proxies[0].resident();
    println!("resident memory before and after {LONG_RUN} requests: {before} KiB, {after} KiB");
    drop((proxies, upstream));
    let _ = fs::remove_dir_all(&folder);
    if ratio > ALLOWED || after > before + ALLOWED_GROWTH {
        eprintln!("more than {ALLOWED} times nginx, or memory that grows");
        std::process::exit(1);
    }
}

struct Proxy {
    process: Process,
    address: String,
}

/// Ended when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM, so that nginx ends its workers.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

impl Proxy {
    /// CPU time in microseconds per request, over one turn.
    fn turn(&self) -> f64 {
        let before = self.cpu();
        load(&self.address, REQUEST, CONNECTIONS, REQUESTS);
        (self.cpu() - before) / REQUESTS as f64
    }

    /// Of the process and its children.
    fn cpu(&self) -> f64 {
        let main = self.process.0.id();
        let children = format!("/proc/{main}/task/{main}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        std::iter::once(main).chain(children).map(cpu_micros).sum()
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id()));
        let status = status.expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.expect("its memory")
    }
}

/// Starts a program, and reads where it listens: the address in each of its first lines.
fn start(command: &mut Command, lines: usize) -> (Process, Vec<String>) {
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(process.stdout.take().expect("its output"));
    let addresses = (0..lines).map(|_| {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        line.trim()
            .rsplit('=')
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    let addresses = addresses.collect();
    (Process(process), addresses)
}

fn tidegate(program: &str, folder: &Path, behind: &str) -> Proxy {
    let rules = folder.join("rules.yaml");
    fs::write(&rules, RULES).expect("rules");
    let mut command = Command::new(program);
    command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "off"]);
    command.args(["--log-level", "warn", "--gateway", "127.0.0.1:0"]);
    command.arg("--data-dir").arg(folder.join("data"));
    command.args(["--upstream", &format!("http://{behind}"), "--rules"]);
    let (process, lines) = start(command.arg(&rules), 2);
    Proxy {
        process,
        address: lines[1].clone(),
    }
}

/// As many workers as the gateway has threads, connections kept, the same headers.
fn nginx(folder: &Path, behind: &str) -> Proxy {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address").to_string();
    drop(free);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let here = folder.display();
    let config = format!(
        "daemon off; worker_processes {workers}; pid {here}/nginx.pid; error_log {here}/error.log;
        events {{ worker_connections 1024; }}
        http {{
          access_log off;
          client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
          fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
          limit_req_zone $binary_remote_addr zone=per_ip:10m rate=1000000r/s;
          upstream behind {{ server {behind}; keepalive 128; keepalive_requests 100000000; }}
          server {{
            listen {address} reuseport; keepalive_requests 100000000;
            location / {{
              limit_req zone=per_ip burst=100000 nodelay;
              proxy_pass http://behind; proxy_http_version 1.1;
              proxy_set_header Connection \"\"; proxy_set_header Host $host;
              proxy_set_header X-Forwarded-For $remote_addr;
              proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
            }}
          }}
        }}"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config).expect("its configuration");
    let process = Command::new("nginx")
        .args(["-p", &here.to_string(), "-c"])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx starts; install it with `apt-get install nginx-light`");
    while TcpStream::connect(&address).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Proxy {
        process: Process(process),
        address,
    }
}

/// A server with small answers.
fn serve_upstream() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        println!(
            "listening http={}",
            listener.local_addr().expect("its address")
        );
        let router =
            Router::new().fallback(get(|| async { "{\"users\":[],\"page\":1,\"pages\":1}" }));
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.expect("served");
    });
}
