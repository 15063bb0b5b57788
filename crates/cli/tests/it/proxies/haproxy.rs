//! `HAProxy`, by a script in Lua.

use std::process::Command;

use tidegate_testkit::ReservedPort;

use super::from::ask;
use super::guide::Guide;
use super::headers::{Passing, a_response_is_streamed, each_header_arrives_once};
use super::proxy::{Proxy, program};
use super::story::{Manners, Setup, play, status_with_stopped_server, status_without_server};

const PAGE: &str = "haproxy.md";
/// Has the files of the server.
const SERVER_PAGE: &str = "other-gateways.md";

/// `HAProxy` with the script and a configuration of the guide. `asking` is where the script asks.
pub(crate) fn start(setup: &Setup, configuration: &str, asking: &ReservedPort) -> Proxy {
    Proxy::start(&setup.folder, |address| {
        let asking = format!("127.0.0.1:{}", asking.number());
        let addressed = |text: &str| setup.addressed(text).replace("127.0.0.1:8079", &asking);
        let script = &Guide::open(PAGE).blocks("lua")[0];
        setup.folder.write("tidegate.lua", &addressed(script));
        let configuration = addressed(configuration);
        let configuration = configuration.replace("bind :80\n", &format!("bind {address}\n"));
        setup.folder.write("haproxy.cfg", &configuration);
        let mut command = Command::new(program("haproxy", "`apt-get install haproxy`"));
        command.args(["-f", "haproxy.cfg"]);
        command
    })
}

/// The configuration of the guide.
pub(crate) fn configuration() -> String {
    Guide::open(PAGE).blocks("haproxy")[0].clone()
}

#[test]
fn haproxy_asks_before_it_forwards() {
    let setup = Setup::of(&Guide::open(SERVER_PAGE));
    let asking = ReservedPort::new();
    let proxy = start(&setup, &configuration(), &asking);
    let manners = Manners {
        shows_when_allowed: true,
        passes_problem: true,
    };
    play(&setup, &proxy, &manners);
    assert_eq!(status_with_stopped_server(&setup, &proxy), 503);
    assert_eq!(status_without_server(setup, &proxy), 503);
}

#[test]
fn haproxy_sends_each_header_of_a_limit_once() {
    let setup = Setup::of(&Guide::open(SERVER_PAGE));
    let asking = ReservedPort::new();
    let proxy = start(&setup, &configuration(), &asking);
    let passing = Passing {
        when_allowed: true,
        keeps_own: true,
    };
    each_header_arrives_once(&proxy, passing);
    a_response_is_streamed(&proxy);
}

#[test]
fn haproxy_can_go_on_without_a_server() {
    let setup = Setup::of(&Guide::open(SERVER_PAGE));
    let configuration = configuration();
    let lines = configuration.split_inclusive('\n');
    let configuration: String = lines
        .filter(|line| !line.contains("txn.undecided"))
        .collect();
    let asking = ReservedPort::new();
    let proxy = start(&setup, &configuration, &asking);
    let ask = || ask(2, proxy.address, "GET /v1/items", &[("x-api-key", "k1")]).status;
    assert_eq!([ask(), ask(), ask(), ask()], [200, 200, 200, 429]);
    assert_eq!(status_with_stopped_server(&setup, &proxy), 200);
    assert_eq!(status_without_server(setup, &proxy), 200);
}
