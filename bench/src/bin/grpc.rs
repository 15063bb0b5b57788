//! CPU time of the server for one `ShouldRateLimit` with one descriptor, compared with a bare tonic service that
//! sends the same message back.
//!
//! Both servers are processes of their own, started and ended here; load comes from this process over
//! 4 connections with 16 calls in flight on each, in turns. What counts is user and system time of the
//! server's process. Usage: `grpc PATH-OF-TIDEGATE`.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll};

use prost::Message;
use tidegate_bench::{Comparison, compare, cpu_micros};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 16;
/// Calls of one turn, over all connections.
const CALLS: usize = 64_000;
const TURNS: usize = 11;
/// What the server may cost, as a multiple of the bare service.
const ALLOWED: f64 = 1.25;

const RULES: &str = r#"
rules:
  - {id: per-user, match: {attributes: {domain: web}}, per: [user_id], missing: deny, limit: 1000000/second}
"#;
const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// An answer of any kind: only that there is one matters.
#[derive(Clone, PartialEq, Message)]
struct Answer {}

fn question() -> Question {
    let entry = |key: &str, value: &str| Entry {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    Question {
        domain: "web".to_owned(),
        descriptors: vec![Descriptor {
            entries: vec![
                entry("remote_address", "203.0.113.7"),
                entry("user_id", "u1"),
            ],
        }],
        hits_addend: 0,
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("bare") => serve_bare(),
        Some(program) => compare_servers(program),
        None => panic!("give the path of the tidegate program"),
    }
}

fn compare_servers(program: &str) {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let rules = folder.join("rules.yaml");
    std::fs::write(&rules, RULES).expect("rules");

    let mut ours = Command::new(program);
    ours.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
        .args(["--log-level", "warn", "--data-dir"])
        .arg(folder.join("data"))
        .arg("--rules")
        .arg(&rules);
    let mut bare = Command::new(std::env::current_exe().expect("this program"));
    bare.arg("bare");
    let servers = [
        Server::start("tidegate", ours),
        Server::start("bare tonic", bare),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for server in &servers {
        runtime.block_on(server.turn());
    }
    let Comparison {
        ours: tidegate,
        theirs: tonic,
        ratio,
    } = compare(TURNS, |index| runtime.block_on(servers[index].turn()));
    println!(
        "CPU time of the server per call, {CONNECTIONS} connections, {IN_FLIGHT} in flight on each, median of {TURNS} turns of {CALLS}:"
    );
    println!("  tidegate {tidegate:.2} us, bare tonic {tonic:.2} us, ratio {ratio:.2}");
    drop(servers);
    let _ = std::fs::remove_dir_all(&folder);
    if ratio > ALLOWED {
        eprintln!("more than {ALLOWED} times the bare service");
        std::process::exit(1);
    }
}

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(name: &'static str, mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect(name);
        let stdout = BufReader::new(process.stdout.take().expect("its output"));
        let address = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("listening grpc=")?.to_owned()));
        Self {
            process,
            address: address.expect("an address"),
        }
    }

    /// CPU time in microseconds per call, over one turn.
    async fn turn(&self) -> f64 {
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.address));
            let connected = endpoint.expect("an address").connect().await;
            channels.push(connected.expect("a connection"));
        }
        let before = cpu_micros(self.process.id());
        let calls = CALLS / CONNECTIONS / IN_FLIGHT;
        let loads: Vec<_> = channels
            .into_iter()
            .flat_map(|channel| (0..IN_FLIGHT).map(move |_| channel.clone()))
            .map(|channel| tokio::spawn(load(channel, calls)))
            .collect();
        for load in loads {
            load.await.expect("a load");
        }
        (cpu_micros(self.process.id()) - before) / CALLS as f64
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn load(channel: Channel, calls: usize) {
    let mut client = tonic::client::Grpc::new(channel);
    for _ in 0..calls {
        client.ready().await.expect("ready");
        let path = PathAndQuery::from_static(PATH);
        let codec = ProstCodec::<Question, Answer>::default();
        let answer = client.unary(Request::new(question()), path, codec).await;
        answer.expect("an answer");
    }
}

/// Sends back what it gets.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl UnaryService<Question> for Echo {
    type Response = Question;
    type Future = std::future::Ready<Result<Response<Question>, Status>>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        Box::pin(async move {
            let codec = ProstCodec::<Question, Question>::default();
            let mut grpc = tonic::server::Grpc::new(codec);
            Ok(grpc.unary(Echo, request).await)
        })
    }
}

fn serve_bare() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let incoming = tonic::transport::server::TcpIncoming::bind(([127, 0, 0, 1], 0).into());
        let incoming = incoming.expect("a port").with_nodelay(Some(true));
        let address = incoming.local_addr().expect("its address");
        println!("listening grpc={address}");
        tonic::transport::Server::builder()
            .add_service(Echo)
            .serve_with_incoming(incoming)
            .await
            .expect("served");
    });
}
