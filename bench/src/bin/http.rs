//! CPU time of the server for one `POST /v1/check` over keep-alive HTTP/1.1, compared with a bare axum
//! handler that reads and writes JSON of the same size.
//!
//! Both servers are processes of their own, started and ended here; load comes from this process
//! over 64 connections, in turns. What counts is user and system time of the server's process.
//! Usage: `http PATH-OF-TIDEGATE`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use axum::{Json, Router, routing::post};
use serde::{Deserialize, Serialize};
use tidegate_bench::load::{Replies, load};
use tidegate_bench::{Comparison, compare, cpu_micros};

const CONNECTIONS: usize = 64;
/// Requests of one turn, over all connections.
const REQUESTS: usize = 64_000;
const TURNS: usize = 11;
/// What the server may cost, as a multiple of the bare handler.
const ALLOWED: f64 = 1.25;

const RULES: &str = r#"
rules:
  - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: deny, limit: 1000000/second}
"#;
const QUESTION: &str = r#"{"attributes":{"ip":"203.0.113.7","user_id":"u1","method":"GET","path":"/v1/users"},"cost":1}"#;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("bare") => serve_bare(),
        Some(program) => compare_with_axum(program),
        None => panic!("give the path of the tidegate program"),
    }
}

fn compare_with_axum(program: &str) {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let rules = folder.join("rules.yaml");
    std::fs::write(&rules, RULES).expect("rules");

    let mut ours = Command::new(program);
    ours.args([
        "serve",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "off",
        "--log-level",
        "warn",
        "--rules",
    ])
    .arg(&rules);
    let mut bare = Command::new(std::env::current_exe().expect("this program"));
    bare.arg("bare");
    let servers = [
        Server::start("tidegate", ours),
        Server::start("bare axum", bare),
    ];

    for server in &servers {
        server.turn();
        println!(
            "{:10} answers with {} bytes of JSON",
            server.name,
            server.answer_length()
        );
    }
    let Comparison {
        ours: tidegate,
        theirs: axum,
        ratio,
    } = compare(TURNS, |index| servers[index].turn());
    println!(
        "CPU time of the server per check, {CONNECTIONS} connections, median of {TURNS} turns of {REQUESTS}:"
    );
    println!("  tidegate {tidegate:.2} us, bare axum {axum:.2} us, ratio {ratio:.2}");
    drop(servers);
    let _ = std::fs::remove_dir_all(&folder);
    if ratio > ALLOWED {
        eprintln!("more than {ALLOWED} times the bare handler");
        std::process::exit(1);
    }
}

struct Server {
    name: &'static str,
    process: Child,
    address: String,
}

impl Server {
    fn start(name: &'static str, mut command: Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line
            .trim()
            .rsplit('=')
            .next()
            .unwrap_or_default()
            .to_owned();
        Self {
            name,
            process,
            address,
        }
    }

    /// CPU time in microseconds per request, over one turn.
    fn turn(&self) -> f64 {
        let before = cpu_micros(self.process.id());
        let request = request(&self.address);
        load(&self.address, &request, CONNECTIONS, REQUESTS);
        (cpu_micros(self.process.id()) - before) / REQUESTS as f64
    }

    fn answer_length(&self) -> usize {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.write_all(&request(&self.address)).expect("sent");
        Replies::default().next(&mut stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn request(address: &str) -> Vec<u8> {
    format!(
        "POST /v1/check HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{QUESTION}",
        QUESTION.len()
    )
    .into_bytes()
}

#[derive(Deserialize)]
struct Question {
    attributes: BTreeMap<String, String>,
    cost: u64,
}

/// The fields of a decision, for an answer of the same size.
#[derive(Serialize)]
struct Answer {
    allowed: bool,
    rule: String,
    limit: u64,
    remaining: u64,
    reset_time: f64,
    retry_after: f64,
    delay: f64,
    degraded: bool,
    lease: Option<String>,
    limits: Vec<LimitAnswer>,
}

#[derive(Serialize)]
struct LimitAnswer {
    rule: String,
    algorithm: &'static str,
    window: u64,
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_time: f64,
    retry_after: f64,
    delay: f64,
    shadow: bool,
    degraded: bool,
}

async fn answer(Json(question): Json<Question>) -> Json<Answer> {
    let remaining = 1_000_000 - question.cost - question.attributes.len() as u64;
    Json(Answer {
        allowed: true,
        rule: "per-user".to_owned(),
        limit: 1_000_000,
        remaining,
        reset_time: 1_794_770_060.250_001,
        retry_after: 0.0,
        delay: 0.0,
        degraded: false,
        lease: None,
        limits: vec![LimitAnswer {
            rule: "per-user".to_owned(),
            algorithm: "token_bucket",
            window: 1,
            allowed: true,
            limit: 1_000_000,
            remaining,
            reset_time: 1_794_770_060.250_001,
            retry_after: 0.0,
            delay: 0.0,
            shadow: false,
            degraded: false,
        }],
    })
}

fn serve_bare() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        println!(
            "listening http={}",
            listener.local_addr().expect("its address")
        );
        let router = Router::new().route("/v1/check", post(answer));
        axum::serve(
            axum::serve::ListenerExt::tap_io(listener, |stream| {
                let _ = stream.set_nodelay(true);
            }),
            router,
        )
        .await
        .expect("served");
    });
}
