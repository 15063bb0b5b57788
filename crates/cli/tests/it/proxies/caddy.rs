//! Caddy, by `forward_auth`.

use std::process::Command;

use super::from::ask;
use super::guide::Guide;
use super::headers::{Passing, a_response_is_streamed, each_header_arrives_once};
use super::proxy::{Proxy, program};
use super::story::{Manners, Setup, play, status_with_stopped_server, status_without_server};

/// Caddy with a site of the guide.
pub(crate) fn start(setup: &Setup, site: &str) -> Proxy {
    Proxy::start(&setup.folder, |address| {
        let site = setup.addressed(site);
        let site = site.replacen(":80 {", &format!(":{} {{", address.port()), 1);
        // Without its admin port, of which there is one on a machine.
        let own = "admin off\n persist_config off\n default_bind 127.0.0.1";
        let text = format!("{{\n {own}\n}}\n{site}");
        setup.folder.write("Caddyfile", &text);
        let mut command = Command::new(program("caddy", "`scripts/install proxies`"));
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(setup.folder.path("Caddyfile"));
        command
    })
}

#[test]
fn caddy_asks_before_it_forwards() {
    let guide = Guide::open("caddy.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide.blocks("caddyfile")[0]);
    let manners = Manners {
        shows_when_allowed: true,
        passes_problem: true,
    };
    play(&setup, &proxy, &manners);
    assert_eq!(status_without_server(setup, &proxy), 502);
}

#[test]
fn caddy_sends_each_header_of_a_limit_once() {
    let guide = Guide::open("caddy.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide.blocks("caddyfile")[0]);
    let passing = Passing {
        when_allowed: true,
        keeps_own: true,
    };
    each_header_arrives_once(&proxy, passing);
    a_response_is_streamed(&proxy);
}

#[test]
fn caddy_can_go_on_without_a_server() {
    let guide = Guide::open("caddy.md");
    let setup = Setup::of(&guide);
    let blocks = guide.blocks("caddyfile");
    let [site, inside, after] = blocks.as_slice() else {
        panic!("the guide has other blocks");
    };
    let uri = "uri /v1/authorize\n";
    let site = site.replace(uri, &format!("{uri}{inside}"));
    let site = site.strip_suffix("}\n").unwrap().to_owned() + after + "}\n";
    let proxy = start(&setup, &site);
    let ask = || ask(2, proxy.address, "GET /v1/items", &[("x-api-key", "k1")]).status;
    assert_eq!([ask(), ask(), ask(), ask()], [200, 200, 200, 429]);
    assert_eq!(status_with_stopped_server(&setup, &proxy), 200);
    assert_eq!(status_without_server(setup, &proxy), 200);
}
