//! A JavaScript worker that asks `/v1/check`, in Node.js.

use std::path::Path;
use std::process::Command;

use tidegate_testkit::wait_until;

use super::from::ask;
use super::guide::Guide;
use super::proxy::{Proxy, program};
use super::story::{Setup, status_with_stopped_server, status_without_server};
use crate::server::ProgramFolder;
use tidegate_testkit_server::ClientReply;
use tidegate_testkit_server::PATIENCE;

const TOKEN: &str = "a-token-of-the-worker";

/// A server that wants a token of the worker, with a rule of its own next to those of the guide.
fn setup() -> Setup {
    let guide = Guide::open("other-gateways.md");
    let folder = ProgramFolder::new();
    folder.write("worker-token", TOKEN);
    let tokens = "tokens: [{name: worker, token_file: worker-token, scopes: [check]}]\n";
    folder.write("tidegate.yaml", &(guide.yaml("# tidegate.yaml") + tokens));
    let rule = "  - {id: reports, match: {path: /reports}, per: [], limit: 1, algorithm: concurrency, lease_ttl: 1h}\n";
    folder.write("rules.yaml", &(guide.yaml("rules:") + rule));
    Setup::with_files(folder)
}

/// The worker of its guide.
fn module() -> String {
    Guide::open("workers.md").blocks("js")[0].clone()
}

fn start(setup: &Setup, module: &str) -> Proxy {
    Proxy::start(&setup.folder, |address| {
        setup.folder.write("worker.mjs", module);
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/proxies/worker.mjs");
        let mut command = Command::new(program("node", "`apt-get install nodejs`"));
        command.arg(host).arg(setup.folder.path("worker.mjs"));
        command.arg(address.port().to_string());
        command.arg(format!("http://{}", setup.upstream.address));
        command.env("TIDEGATE_URL", setup.server.url());
        command.env("TIDEGATE_TOKEN", TOKEN);
        command
    })
}

fn get(proxy: &Proxy, path: &str, key: &str) -> ClientReply {
    let call = format!("GET {path}");
    ask(2, proxy.address, &call, &[("x-api-key", key)])
}

#[test]
fn a_worker_asks_before_it_forwards() {
    let setup = setup();
    let proxy = start(&setup, &module());
    for left in ["2", "1", "0"] {
        let allowed = get(&proxy, "/v1/own", "k1").with_status(200);
        assert_eq!(allowed.body, "served");
        let header = |name| allowed.header(name);
        assert_eq!(header("x-ratelimit-limit"), Some("3"), "{allowed:?}");
        assert_eq!(header("x-ratelimit-remaining"), Some(left), "{allowed:?}");
        let limits = header("ratelimit").unwrap();
        assert!(limits.starts_with("\"per-key\";r="), "{allowed:?}");
        assert!(header("ratelimit-policy").unwrap().contains("q=3"));
    }
    let denied = get(&proxy, "/v1/own", "k1").with_status(429);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{denied:?}");
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(denied.json()["status"], 429);
    assert_eq!(setup.upstream.heads("/v1/own").len(), 3);
    let free = get(&proxy, "/free", "k1").with_status(200);
    assert_eq!(free.header("ratelimit"), None, "{free:?}");
    // A lease is given back: the limit is one at a time, and none comes free by itself.
    for _ in 0..3 {
        let is_served = || get(&proxy, "/reports", "k1").status == 200;
        wait_until("a lease is released", PATIENCE, || {
            is_served().then_some(())
        });
    }
    get(&proxy, "/v1/%zz", "k1").with_status(400);
    assert_eq!(status_with_stopped_server(&setup, &proxy), 503);
    assert_eq!(status_without_server(setup, &proxy), 503);
}

#[test]
fn a_worker_can_go_on_without_a_server() {
    let setup = setup();
    let module = module().replace("undecided = { status: 503,", "undecided = { status: 200,");
    let proxy = start(&setup, &module);
    assert_eq!(status_with_stopped_server(&setup, &proxy), 200);
    assert_eq!(status_without_server(setup, &proxy), 200);
}
