//! nginx, by `auth_request`.

use std::net::SocketAddr;
use std::process::Command;

use super::from::ask;
use super::guide::Guide;
use super::headers::{Passing, each_header_arrives_once};
use super::proxy::{Proxy, program};
use super::story::{Manners, Setup, play, status_with_stopped_server, status_without_server};
use crate::server::ProgramFolder;

/// nginx with a `server` of the guide, in a main part that keeps all of its files in the folder.
pub(crate) fn start(setup: &Setup, server: &str) -> Proxy {
    Proxy::start(&setup.folder, |address| command(setup, server, address))
}

fn command(setup: &Setup, server: &str, address: SocketAddr) -> Command {
    let server = setup.addressed(server);
    let server = server.replace("listen 80;", &format!("listen {address};"));
    let folder = setup.folder.path(".");
    let folder = folder.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{server}}}\n"
    );
    setup.folder.write("nginx.conf", &text);
    let mut command = Command::new(program("nginx", "`apt-get install nginx-light`"));
    command
        .args(["-e", "stderr", "-p"])
        .arg(setup.folder.path("."));
    command.arg("-c").arg(setup.folder.path("nginx.conf"));
    command
}

#[test]
fn an_nginx_that_is_not_trusted_gets_no_request_through() {
    let guide = Guide::open("nginx.md");
    let setup = Setup::distrusting(&guide, ProgramFolder::new(), "");
    let server = guide.blocks("nginx")[0].clone();
    let proxy = Proxy::start_until(
        &setup.folder,
        |address| command(&setup, &server, address),
        |reply| reply.status == 500,
    );
    for path in ["/v1/items", "/other"] {
        for _ in 0..3 {
            let call = format!("GET {path}");
            let refused = ask(2, proxy.address, &call, &[("x-api-key", "k1")]);
            assert_eq!(refused.status, 500, "{refused:?}");
            assert_eq!(refused.json()["status"], 500);
        }
        assert_eq!(setup.upstream.heads(path).len(), 0);
    }
    // The check of the guide.
    let ready = setup.server.ask("GET /readyz", "").json();
    let warning = ready["warnings"][0].as_str().unwrap();
    let printed = guide
        .text()
        .lines()
        .find(|line| line.contains("is not a trusted proxy"));
    assert_eq!(warning, printed.unwrap().replace("172.18.0.3", "127.0.0.1"));

    // By a token it is trusted wherever it is.
    let folder = ProgramFolder::new();
    folder.write("proxy-token", "a-token-of-the-proxy");
    let tokens = "tokens: [{name: proxy, token_file: proxy-token, scopes: [check]}]\n";
    let setup = Setup::distrusting(&guide, folder, tokens);
    let token = "internal;\nproxy_set_header X-Tidegate-Token a-token-of-the-proxy;";
    let proxy = start(&setup, &server.replace("internal;", token));
    let ask = |key: &str| ask(2, proxy.address, "GET /v1/items", &[("x-api-key", key)]);
    let statuses = [ask("k1"), ask("k1"), ask("k1"), ask("k1"), ask("k2")];
    assert_eq!(
        statuses.map(|reply| reply.status),
        [200, 200, 200, 429, 200]
    );
}

#[test]
fn nginx_asks_before_it_forwards() {
    let guide = Guide::open("nginx.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide.blocks("nginx")[0]);
    let manners = Manners {
        shows_when_allowed: true,
        passes_problem: false,
    };
    play(&setup, &proxy, &manners);
    // Through another trusted proxy, which reports its own client.
    let behind = |client: &str| {
        ask(
            1,
            proxy.address,
            "GET /v1/items",
            &[("x-forwarded-for", client)],
        )
        .status
    };
    let five: Vec<u16> = (0..6).map(|_| behind("203.0.113.20")).collect();
    assert_eq!(five, [200, 200, 200, 200, 200, 429]);
    assert_eq!(behind("203.0.113.21"), 200);
    assert_eq!(status_without_server(setup, &proxy), 500);
}

#[test]
fn nginx_sends_each_header_of_a_limit_once() {
    let guide = Guide::open("nginx.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide.blocks("nginx")[0]);
    let passing = Passing {
        when_allowed: true,
        keeps_own: false,
    };
    each_header_arrives_once(&proxy, passing);
}

#[test]
fn nginx_can_go_on_without_a_server() {
    let guide = Guide::open("nginx.md");
    let setup = Setup::of(&guide);
    let blocks = guide.blocks("nginx");
    let [server, inside, next_to] = blocks.as_slice() else {
        panic!("the guide has other blocks");
    };
    let server = server.replace("internal;", &format!("internal;\n{inside}"));
    let server = server.replace("location @denied", &format!("{next_to}\nlocation @denied"));
    let proxy = start(&setup, &server);
    let ask = || ask(2, proxy.address, "GET /v1/items", &[("x-api-key", "k1")]).status;
    assert_eq!([ask(), ask(), ask(), ask()], [200, 200, 200, 429]);
    assert_eq!(status_with_stopped_server(&setup, &proxy), 200);
    assert_eq!(status_without_server(setup, &proxy), 200);
}
