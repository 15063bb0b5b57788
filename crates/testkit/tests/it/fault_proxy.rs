//! The proxy's modes, before a real server.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redis::{Connection, RedisResult};
use tidegate_testkit::fault_proxy::{FaultMode, FaultProxy};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{now, wait_until};

const SHORT: Duration = Duration::from_millis(60);

struct Scene {
    server: RedisServer,
    proxy: FaultProxy,
}

impl Scene {
    fn new() -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::before(server.address());
        Self { server, proxy }
    }

    /// A connection through the proxy that has been used once.
    fn connect(&self) -> Connection {
        let client = redis::Client::open(format!("redis://{}", self.proxy.address())).unwrap();
        let mut connection = client.get_connection().unwrap();
        increment(&mut connection).unwrap();
        connection
    }

    /// How often the server has counted.
    fn count(&self) -> i64 {
        self.server.query(&["GET", "count"])
    }
}

fn increment(connection: &mut Connection) -> RedisResult<i64> {
    redis::cmd("INCR").arg("count").query(connection)
}

fn increment_briefly(connection: &mut Connection) -> RedisResult<i64> {
    connection.set_read_timeout(Some(SHORT)).unwrap();
    increment(connection)
}

#[test]
fn it_passes_and_counts() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    assert_eq!(increment(&mut connection).unwrap(), 2);
    let traffic = scene.proxy.traffic();
    assert_eq!(traffic.connections, 1);
    assert!(traffic.requests > 0 && traffic.replies > 0);
}

#[test]
fn a_delay_is_for_both_directions_or_for_replies() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    for (mode, least) in [
        (FaultMode::Delay(SHORT), 2 * SHORT),
        (FaultMode::DelayReplies(SHORT), SHORT),
    ] {
        scene.proxy.set(mode);
        let start = now();
        increment(&mut connection).unwrap();
        assert!(start.elapsed() >= least, "{mode:?}");
    }
}

#[test]
fn a_delay_does_not_add_up_over_requests_that_do_not_wait() {
    let scene = Scene::new();
    let delay = Duration::from_secs(1);
    scene.proxy.set(FaultMode::DelayReplies(delay));
    let mut stream = TcpStream::connect(scene.proxy.address()).unwrap();
    let start = now();
    for _ in 0..16 {
        stream.write_all(b"PING\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    stream.read_exact(&mut [0; 16 * 7]).unwrap();
    assert!((delay..8 * delay).contains(&start.elapsed()));
}

#[test]
fn cut_closes_and_refuses_until_it_passes_again() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    scene.proxy.set(FaultMode::Cut);
    assert!(increment(&mut connection).is_err());
    let refused = TcpStream::connect(scene.proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    scene.proxy.set(FaultMode::Pass);
    scene.connect();
}

#[test]
fn refuse_leaves_open_connections_alone() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    scene.proxy.set(FaultMode::Refuse);
    assert_eq!(increment(&mut connection).unwrap(), 2);
    assert!(TcpStream::connect(scene.proxy.address()).is_err());
}

#[test]
fn a_black_hole_takes_everything_and_gives_nothing() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    scene.proxy.set(FaultMode::BlackHole);
    assert!(increment_briefly(&mut connection).unwrap_err().is_timeout());
    assert!(TcpStream::connect(scene.proxy.address()).is_ok());
    assert_eq!(scene.count(), 1);
    scene.proxy.set(FaultMode::Pass);
    assert!(increment_briefly(&mut connection).is_err());
    assert_eq!(scene.count(), 1);
    scene.connect();
}

#[test]
fn a_black_hole_hides_that_the_server_has_gone() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    scene.proxy.set(FaultMode::BlackHole);
    scene.server.kill();
    assert!(increment_briefly(&mut connection).unwrap_err().is_timeout());
}

#[test]
fn lost_replies_are_of_requests_that_happened() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    scene.proxy.set(FaultMode::LoseReplies);
    assert!(increment_briefly(&mut connection).unwrap_err().is_timeout());
    assert_eq!(scene.count(), 2);
}

#[test]
fn a_stall_holds_everything_until_it_is_over() {
    let scene = Scene::new();
    let mut connection = scene.connect();
    scene.proxy.set(FaultMode::Stall);
    let before = scene.proxy.traffic().requests;
    std::thread::scope(|scope| {
        let reply = scope.spawn(|| increment(&mut connection).unwrap());
        let arrived = || (scene.proxy.traffic().requests > before).then_some(());
        wait_until("the request arrives", Duration::from_secs(5), arrived);
        assert_eq!(scene.count(), 1);
        scene.proxy.set(FaultMode::Pass);
        assert_eq!(reply.join().unwrap(), 2);
    });
}

#[test]
fn there_is_one_before_each_of_many() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxies = FaultProxy::many(servers.iter().map(RedisServer::address));
    proxies[0].set(FaultMode::Cut);
    assert!(TcpStream::connect(proxies[0].address()).is_err());
    assert!(TcpStream::connect(proxies[1].address()).is_ok());
}
