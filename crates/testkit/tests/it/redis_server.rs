//! Server processes start, stop, end and come back, with every kind of listener.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Client, Value};
use tidegate_testkit::redis::{ClientCertificates, Program, RedisServer};
use tidegate_testkit::wait_until;

/// What a client gets by the server's URL, and not by the testkit's own socket.
fn ping(client: &Client) -> redis::RedisResult<String> {
    let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
    redis::cmd("PING").query(&mut connection)
}

#[test]
fn every_program_starts_and_answers() {
    for program in Program::ALL {
        let server = RedisServer::options().program(program).start();
        assert_eq!(ping(&server.client()).unwrap(), "PONG", "{program:?}");
        let _: () = server.query(&["SET", "name", "value"]);
        assert_eq!(server.query::<String>(&["GET", "name"]), "value");
        assert!(server.address().ip().is_loopback());
    }
}

#[test]
fn a_restarted_server_is_empty_and_where_it_was() {
    let server = RedisServer::start();
    let (address, pid) = (server.address(), server.pid());
    let _: () = server.query(&["SET", "name", "value"]);
    server.kill();
    assert!(!server.is_alive());
    assert!(ping(&server.client()).is_err());
    server.restart();
    assert_eq!(server.query::<Option<String>>(&["GET", "name"]), None);
    assert_eq!(ping(&server.client()).unwrap(), "PONG");
    assert_eq!(server.address(), address);
    assert_ne!(server.pid(), pid);
}

#[test]
fn a_stopped_server_accepts_and_does_not_answer() {
    let server = RedisServer::start();
    let mut connection = server.client().get_connection().unwrap();
    let wait = Some(Duration::from_millis(50));
    connection.set_read_timeout(wait).unwrap();
    server.stop();
    let error = redis::cmd("PING").query::<String>(&mut connection);
    assert!(error.unwrap_err().is_timeout());
    assert!(TcpStream::connect(server.address()).is_ok());
    server.resume();
    assert_eq!(ping(&server.client()).unwrap(), "PONG");
}

#[test]
fn a_password_and_a_user_are_asked_for() {
    let with_password = RedisServer::options().password("secret").start();
    let with_user = RedisServer::options().user("gate", "secret").start();
    for server in [&with_password, &with_user] {
        assert_eq!(ping(&server.client()).unwrap(), "PONG");
        let bare = Client::open(format!("redis://{}", server.address())).unwrap();
        assert!(ping(&bare).is_err());
    }
    assert_eq!(with_user.query::<String>(&["ACL", "WHOAMI"]), "gate");
}

#[test]
fn a_server_can_be_on_its_socket_alone() {
    let server = RedisServer::options()
        .unix_only()
        .password("secret")
        .start();
    assert_eq!(ping(&server.client()).unwrap(), "PONG");
    let port: (String, String) = server.query(&["CONFIG", "GET", "port"]);
    assert_eq!(port.1, "0");
}

#[test]
fn lines_of_the_configuration_are_taken() {
    let line = "maxmemory-policy allkeys-lru";
    let server = RedisServer::options().line(line).start();
    let policy: (String, String) = server.query(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(policy.1, "allkeys-lru");
}

#[test]
#[should_panic(expected = "no-such-setting")]
fn a_server_that_does_not_start_says_why() {
    RedisServer::options().line("no-such-setting 1").start();
}

#[test]
fn tls_takes_the_certificates_that_were_made_for_it() {
    let required = RedisServer::options()
        .tls(ClientCertificates::Required)
        .start();
    let optional = RedisServer::options()
        .tls(ClientCertificates::Optional)
        .start();
    let without = |server: &RedisServer| {
        let certificates = server.certificates().unwrap().without_client();
        ping(&Client::build_with_tls(server.url(), certificates).unwrap())
    };
    for server in [&required, &optional] {
        assert_eq!(ping(&server.client()).unwrap(), "PONG");
        assert!(ping(&Client::open(server.url()).unwrap()).is_err());
    }
    assert!(without(&required).is_err());
    assert_eq!(without(&optional).unwrap(), "PONG");
}

#[test]
fn processor_time_is_counted() {
    let server = RedisServer::start();
    let before = server.cpu_time();
    let used = wait_until("it uses time", Duration::from_secs(10), || {
        let work = "local sum = 0 for i = 1, 1000000 do sum = sum + i end return sum";
        let _: Value = server.query(&["EVAL", work, "0"]);
        let used = server.cpu_time().saturating_sub(before);
        (!used.is_zero()).then_some(used)
    });
    assert!(used < Duration::from_secs(10));
}

#[test]
fn a_server_dies_with_its_value() {
    let server = RedisServer::start();
    let (address, socket) = (server.address(), server.socket());
    server.stop();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    assert!(!socket.exists());
}

#[test]
#[ignore = "is run, and killed, by the test below"]
fn holds_a_server_until_it_is_killed() {
    let server = RedisServer::start();
    println!("listening {}", server.address());
    std::thread::sleep(Duration::from_mins(1));
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_dies_with_a_test_that_is_killed() {
    // What a killed test leaves in its temporary folder goes with this one.
    let folder = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let mut test = Command::new(this)
        .env("TMPDIR", folder.path())
        .args(["--exact", "redis_server::holds_a_server_until_it_is_killed"])
        .args(["--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(test.stdout.take().unwrap());
    let address: SocketAddr = output
        .lines()
        .find_map(|line| line.ok()?.rsplit_once("listening ")?.1.parse().ok())
        .unwrap();
    assert!(TcpStream::connect(address).is_ok());
    test.kill().unwrap();
    test.wait().unwrap();
    wait_until("the server is gone", Duration::from_secs(5), || {
        TcpStream::connect(address).err()
    });
}
