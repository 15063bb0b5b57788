//! Traefik, by the middleware `forwardAuth`.

use std::process::Command;

use super::guide::Guide;
use super::headers::{Passing, each_header_arrives_once};
use super::proxy::{Proxy, program};
use super::story::{Manners, Setup, play, status_without_server};

/// Traefik with both files of the guide.
pub(crate) fn start(setup: &Setup, guide: &Guide) -> Proxy {
    Proxy::start(&setup.folder, |address| {
        let own = guide.yaml("# traefik.yaml");
        let own = own.replace(":80", &address.to_string());
        setup.folder.write("traefik.yaml", &own);
        let dynamic = setup.addressed(&guide.yaml("# dynamic.yaml"));
        setup.folder.write("dynamic.yaml", &dynamic);
        let mut command = Command::new(program("traefik", "`scripts/install proxies`"));
        command.arg("--configfile=traefik.yaml");
        command
    })
}

#[test]
fn traefik_asks_before_it_forwards() {
    let guide = Guide::open("traefik.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide);
    let manners = Manners {
        shows_when_allowed: false,
        passes_problem: true,
    };
    play(&setup, &proxy, &manners);
    assert_eq!(status_without_server(setup, &proxy), 500);
}

#[test]
fn traefik_sends_each_header_of_a_limit_once_to_denied_clients() {
    let guide = Guide::open("traefik.md");
    let setup = Setup::of(&guide);
    let proxy = start(&setup, &guide);
    let passing = Passing {
        when_allowed: false,
        keeps_own: true,
    };
    each_header_arrives_once(&proxy, passing);
}
