//! Servers that are restarted one by one behind `HAProxy`, under load. `scripts/rolling-restart` is the long form: with
//! the delays of the Helm chart, over all front ends.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_testkit::{ReservedPort, wait_until};
use tidegate_testkit_server::{HttpClient, PATIENCE};

use super::proxy::{Proxy, program};
use crate::server::{ProgramFolder, Server};

const RULES: &str = "rules:\n  - {id: all, per: [], limit: 1000000/second}\n";
/// Far longer than the proxy needs to notice, also on a busy machine.
const DRAIN_DELAY: &str = "6s";

/// A server that is restarted at the same address.
struct Place {
    folder: ProgramFolder,
    port: ReservedPort,
}

impl Place {
    fn new() -> Self {
        let folder = ProgramFolder::new();
        folder.write("rules.yaml", RULES);
        let port = ReservedPort::new();
        Self { folder, port }
    }

    fn serve(&self) -> Server {
        let address = format!("127.0.0.1:{}", self.port.number());
        let arguments = ["--rules", "rules.yaml", "--http", &address];
        let delay = ("TIDEGATE_DRAIN_DELAY", DRAIN_DELAY);
        self.folder.serve_with(&arguments, &[delay])
    }
}

/// `HAProxy` with a port that balances requests, one that balances connections as a Service of Kubernetes does, and one
/// that answers with the number of servers in use. It sends nothing twice.
fn configuration(counts: &str, balancers: &[ReservedPort; 2], places: &[Place]) -> String {
    let mut text = format!(
        "defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n  timeout check 10s\n  retries 0\n\
         frontend servers\n  bind {counts}\n  http-request return content-type text/plain lf-string %[nbsrv(http)],%[nbsrv(tcp)]\n"
    );
    for (mode, port) in ["http", "tcp"].iter().zip(balancers) {
        let port = port.number();
        let _ = write!(
            text,
            "listen {mode}\n  mode {mode}\n  bind 127.0.0.1:{port}\n  option httpchk GET /readyz\n"
        );
        for place in places {
            let port = place.port.number();
            // The interval is also how long the proxy waits for a connection.
            let check = "check inter 500ms fall 4 rise 1";
            let _ = writeln!(text, "  server s{port} 127.0.0.1:{port} {check}");
        }
    }
    text
}

/// Sets its flag when it is dropped, also by a panic: the load would never end.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends load to a port until it is done. Pauses between two requests of a connection are longer than the last call of a
/// server that closes its connections.
fn load(folder: &ProgramFolder, port: &ReservedPort, is_done: &AtomicBool) {
    let server = format!("http://127.0.0.1:{}", port.number());
    let mut arguments = vec!["bench", "http", "--server", &server, "--json"];
    arguments.extend(["--connections", "32", "--rate", "160"]);
    arguments.extend(["--duration", "2s", "--warm-up", "0s"]);
    while !is_done.load(Ordering::Relaxed) {
        let run = folder.run(&arguments);
        assert_eq!(run.code, Some(0), "{}", run.whole());
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(report["errors"], json!({}), "{report}");
        assert_eq!(report["allowed"], report["requests"], "{report}");
    }
}

#[test]
fn servers_that_are_restarted_one_by_one_lose_no_request() {
    let places = [Place::new(), Place::new()];
    let mut servers = places.each_ref().map(|place| Some(place.serve()));
    let balancers = [ReservedPort::new(), ReservedPort::new()];
    let folder = ProgramFolder::new();
    let command = |address: std::net::SocketAddr| {
        let text = configuration(&address.to_string(), &balancers, &places);
        folder.write("haproxy.cfg", &text);
        let mut command = Command::new(program("haproxy", "`apt-get install haproxy`"));
        command.args(["-f", "haproxy.cfg"]);
        command
    };
    let proxy = Proxy::start_until(&folder, command, |reply| reply.body == "2,2");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = Done(&is_done);
        let [requests, connections] = &balancers;
        scope.spawn(|| load(&folder, requests, &is_done));
        scope.spawn(|| load(&folder, connections, &is_done));
        for (place, server) in places.iter().zip(&mut servers) {
            let ending = server.take().unwrap();
            ending.signal(Signal::TERM);
            let (status, log) = ending.ended();
            assert_eq!(status.code(), Some(0), "{log}");
            *server = Some(place.serve());
            wait_until("the proxy uses all servers", PATIENCE, || {
                let reply = HttpClient::to(proxy.address).ask("GET /", "");
                (reply.body == "2,2").then_some(())
            });
        }
    });
}
