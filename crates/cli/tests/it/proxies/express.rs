//! A service that resolves nothing in a path, behind each proxy as its guide sets it up: whatever reaches a
//! handler has been counted.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_testkit::ReservedPort;

use super::from::ask;
use super::guide::Guide;
use super::proxy::{Proxy, program};
use super::story::Setup;
use crate::server::ProgramFolder;

/// Express as a process of its own. Killed when it is dropped.
struct Express {
    address: SocketAddr,
    child: Child,
}

impl Express {
    fn start() -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/proxies");
        let modules = tests.join("../../../../../target/tools/express/node_modules");
        assert!(
            modules.join("express").exists(),
            "Express is missing: install it with `scripts/install express`"
        );
        let mut child = Command::new(program("node", "`apt-get install nodejs`"))
            .arg(tests.join("express.js"))
            .env("NODE_PATH", modules)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut port).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        Self { address, child }
    }
}

impl Drop for Express {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request that no limit of the guide may let through more than five times an hour.
struct Escape {
    path: &'static str,
    host: &'static str,
}

const fn by_path(path: &'static str) -> Escape {
    Escape {
        path,
        host: "api.example.com",
    }
}

const fn by_host(host: &'static str) -> Escape {
    Escape {
        path: "/hosts",
        host,
    }
}

const ESCAPES: [Escape; 23] = [
    by_path("/v1/search/foo"),
    by_path("/v1/search/foo%2f..%2f..%2f..%2fx"),
    by_path("/v1/search/foo%2F..%2F..%2F..%2Fx"),
    by_path("/v1/search/foo%5c..%5c..%5c..%5cx"),
    by_path("/v1/search/foo\\..\\..\\x"),
    by_path("/v1/search/.."),
    by_path("/v1/search/%2e%2e"),
    by_path("/v1/search/..;x"),
    by_path("/v1/search/;x"),
    by_path("/v1/search/%2e%2e%3bx"),
    by_path("/v1/files/a/../../../x"),
    by_path("/v1/files/%2e%2e/%2e%2e/x"),
    by_path("/v1/files/..;/..;/x"),
    by_path("/v1/files//../../../x"),
    by_path("/v1/files/..%2f..%2fx"),
    by_host("api.example.com"),
    by_host("API.example.com.:80"),
    by_host("api.example.com:x"),
    by_host("api.example.com:8x"),
    by_host("api.example.com:80:80"),
    by_host("api.example.com:"),
    by_host("api.example.com.."),
    // A host in the request line goes before `Host`.
    Escape {
        path: "http://api.example.com/hosts",
        host: "other.example.com",
    },
];

/// Starts Express behind a proxy of a guide, and sends it every escape from an address of its own.
fn nothing_escapes(guide: &Guide, start: impl FnOnce(&Setup) -> Proxy) {
    let folder = ProgramFolder::new();
    folder.write("tidegate.yaml", &guide.yaml("# tidegate.yaml"));
    // The same limits by the hour, so that nothing comes back while the test runs.
    let rules = guide.yaml("rules:").replace("/minute", "/hour");
    let by_host = "  - {id: by-host, match: {host: api.example.com, path: /hosts}, per: [ip], limit: 5/hour}\n";
    folder.write("rules.yaml", &(rules + by_host));
    let express = Express::start();
    let setup = Setup::before(express.address, folder);
    let proxy = start(&setup);
    for (last, escape) in (10..).zip(&ESCAPES) {
        let call = format!("GET {}", escape.path);
        let headers = [("host", escape.host)];
        let replies = (0..7).map(|_| ask(last, proxy.address, &call, &headers));
        let replies: Vec<_> = replies.collect();
        let is_served =
            |reply: &&tidegate_testkit_server::ClientReply| reply.header("x-handler").is_some();
        let served = replies.iter().filter(is_served).count();
        let mut statuses = BTreeMap::new();
        for reply in &replies {
            *statuses.entry(reply.status).or_insert(0) += 1;
        }
        let what = format!("{} for {}: {statuses:?}", escape.path, escape.host);
        assert!(served <= 5, "{what}");
        // What is not counted is refused, by the proxy or by Tidegate.
        let is_refused =
            |reply: &tidegate_testkit_server::ClientReply| matches!(reply.status, 400 | 404);
        assert!(
            replies.last().unwrap().status == 429 || replies.iter().all(is_refused),
            "{what}"
        );
    }
    let reply = ask(9, proxy.address, "GET /v1/search/foo", &[]);
    assert_eq!(reply.header("x-handler"), Some("search"), "{reply:?}");
}

#[test]
fn no_spelling_of_a_path_or_a_host_escapes_behind_nginx() {
    let guide = Guide::open("nginx.md");
    nothing_escapes(&guide, |setup| {
        super::nginx::start(setup, &guide.blocks("nginx")[0])
    });
}

#[test]
fn no_spelling_of_a_path_or_a_host_escapes_behind_caddy() {
    let guide = Guide::open("caddy.md");
    nothing_escapes(&guide, |setup| {
        super::caddy::start(setup, &guide.blocks("caddyfile")[0])
    });
}

#[test]
fn no_spelling_of_a_path_or_a_host_escapes_behind_traefik() {
    let guide = Guide::open("traefik.md");
    nothing_escapes(&guide, |setup| super::traefik::start(setup, &guide));
}

#[test]
fn no_spelling_of_a_path_or_a_host_escapes_behind_haproxy() {
    let guide = Guide::open("other-gateways.md");
    let asking = ReservedPort::new();
    nothing_escapes(&guide, |setup| {
        super::haproxy::start(setup, &super::haproxy::configuration(), &asking)
    });
}
