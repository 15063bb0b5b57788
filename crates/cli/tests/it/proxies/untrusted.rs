//! Proxies that pass the whole answer on, at an address that the server does not trust. nginx is in `nginx.rs`.

use tidegate_testkit::ReservedPort;

use super::from::ask;
use super::guide::Guide;
use super::proxy::Proxy;
use super::story::Setup;
use super::{caddy, haproxy, traefik};
use crate::server::ProgramFolder;

fn gets_no_request_through(page: &str, start: impl FnOnce(&Setup, &Guide) -> Proxy) {
    let guide = Guide::open(page);
    let setup = Setup::distrusting(&guide, ProgramFolder::new(), "");
    let proxy = start(&setup, &guide);
    for _ in 0..4 {
        let refused = ask(2, proxy.address, "GET /v1/items", &[("x-api-key", "k1")]);
        assert_eq!(refused.status, 403, "{refused:?}");
        assert_eq!(refused.json()["reason"], "untrusted_proxy");
    }
    assert_eq!(setup.upstream.heads("/v1/items").len(), 0);
    // The check of the guide.
    let ready = setup.server.ask("GET /readyz", "").json();
    let warning = ready["warnings"][0].as_str().unwrap();
    let mut lines = guide.text().lines();
    let printed = lines.find(|line| line.contains("is not a trusted proxy"));
    assert_eq!(warning, printed.unwrap().replace("172.18.0.3", "127.0.0.1"));
}

#[test]
fn a_caddy_that_is_not_trusted_gets_no_request_through() {
    gets_no_request_through("caddy.md", |setup, guide| {
        caddy::start(setup, &guide.blocks("caddyfile")[0])
    });
}

#[test]
fn a_traefik_that_is_not_trusted_gets_no_request_through() {
    gets_no_request_through("traefik.md", traefik::start);
}

#[test]
fn a_haproxy_that_is_not_trusted_gets_no_request_through() {
    let asking = ReservedPort::new();
    gets_no_request_through("other-gateways.md", |setup, _| {
        haproxy::start(setup, &haproxy::configuration(), &asking)
    });
}
