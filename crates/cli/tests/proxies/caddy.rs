//! Caddy, by `forward_auth`.

use std::process::Command;

use crate::guide::Guide;
use crate::proxy::{Proxy, program};
use crate::story::{Manners, Setup, status_without_server, tell};

/// Caddy with the site of the guide.
pub(crate) fn start(setup: &Setup, guide: &Guide) -> Proxy {
    Proxy::start(&setup.place, |address| {
        let site = setup.addressed(&guide.blocks("caddyfile")[0]);
        let site = site.replacen(":80 {", &format!(":{} {{", address.port()), 1);
        // Without its admin port, of which there is one on a machine.
        let own = "admin off\n persist_config off\n default_bind 127.0.0.1";
        let text = format!("{{\n {own}\n}}\n{site}");
        setup.place.write("Caddyfile", &text);
        let mut command = Command::new(program("caddy", "`scripts/install-proxies`"));
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(setup.place.path("Caddyfile"));
        command
    })
}

#[test]
fn caddy_asks_before_it_forwards() {
    let guide = Guide::open("caddy.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide);
    let manners = Manners {
        tells_when_allowed: true,
        passes_problem: true,
    };
    tell(&setup, &proxy, &manners);
    assert_eq!(status_without_server(setup, &proxy), 502);
}
