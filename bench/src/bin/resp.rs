//! CPU time of the server for one `CL.THROTTLE`, compared with that of Redis for one `INCR` of the same keys.
//!
//! Both servers are processes of their own, started and ended here; `redis-benchmark` asks each over 50
//! connections, 16 commands at a time, in turns. What counts is user and system time of the server's
//! process. Usage: `resp PATH-OF-TIDEGATE`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tidegate_bench::{Comparison, compare, cpu_micros};
use tidegate_testkit::redis::RedisServer;

const COMMANDS: usize = 400_000;
const TURNS: usize = 9;
/// What a decision may cost, as a multiple of Redis's `INCR`.
const ALLOWED: f64 = 1.0;

/// A server to load: its process, its port, and what it is asked.
struct Asked {
    process: u32,
    port: String,
    question: &'static [&'static str],
}

/// The program, ended when it is dropped.
struct Tidegate(Child);

fn main() {
    let program = std::env::args().nth(1);
    let program = program.expect("the path of the tidegate program");
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");

    let mut ours = Command::new(program);
    ours.args([
        "serve",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "off",
        "--resp",
        "127.0.0.1:0",
    ]);
    ours.args(["--log-level", "error", "--data-dir"])
        .arg(folder.join("data"));
    let (tidegate, port) = Tidegate::start(ours);
    let redis = RedisServer::start();
    let servers = [
        Asked {
            process: tidegate.0.id(),
            port,
            question: &["CL.THROTTLE", "key:__rand_int__", "15", "30", "60", "1"],
        },
        Asked {
            process: redis.pid(),
            port: redis.port().to_string(),
            question: &["INCR", "key:__rand_int__"],
        },
    ];
    for server in &servers {
        server.turn();
    }
    let Comparison {
        ours: throttle,
        theirs: incr,
        ratio,
    } = compare(TURNS, |index| servers[index].turn());
    println!(
        "CPU time of the server per command, 50 connections, 16 at a time, median of {TURNS} turns of {COMMANDS}:"
    );
    println!("  CL.THROTTLE {throttle:.2} us, Redis's INCR {incr:.2} us, ratio {ratio:.2}");
    drop(tidegate);
    let _ = std::fs::remove_dir_all(&folder);
    if ratio > ALLOWED {
        eprintln!("more than {ALLOWED} times Redis's INCR");
        std::process::exit(1);
    }
}

impl Tidegate {
    /// Starts it, and waits until it says on which port it speaks the protocol of Redis.
    fn start(mut command: Command) -> (Self, String) {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = BufReader::new(process.stdout.take().expect("its output"));
        let mut lines = stdout.lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with("listening resp="));
        let line = line.expect("its port");
        let port = line.rsplit(':').next().unwrap_or_default();
        (Self(process), port.to_owned())
    }
}

impl Asked {
    /// CPU time in microseconds per command, over one turn.
    fn turn(&self) -> f64 {
        let before = cpu_micros(self.process);
        let load = ["-c", "50", "-P", "16", "-r", "100000", "-q", "-n"];
        let ended = Command::new("redis-benchmark")
            .args(["-p", &self.port])
            .args(load)
            .arg(COMMANDS.to_string())
            .args(self.question)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("redis-benchmark runs");
        assert!(ended.success(), "redis-benchmark ends well");
        (cpu_micros(self.process) - before) / COMMANDS as f64
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
