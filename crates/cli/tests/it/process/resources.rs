//! What a server does with file descriptors and memory when clients take as much as they can get.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::PATIENCE;

/// Waits until something holds.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    tidegate_testkit::wait_until(what, PATIENCE, || holds().then_some(()));
}

/// The resident memory of a server, in KiB.
fn memory(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.pid().as_raw_nonzero());
    let status = fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// The limit of file descriptors of a server: the soft and the hard one.
fn limits(server: &Server) -> (String, String) {
    let path = format!("/proc/{}/limits", server.pid().as_raw_nonzero());
    let limits = fs::read_to_string(path).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    let mut next = || words.next().unwrap().to_owned();
    (next(), next())
}

/// Lets this process have as many connections as it may.
fn raise_own_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

fn metric(server: &Server, name: &str) -> u64 {
    let page = server.ask("GET /metrics", "").body;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |line| line.trim().parse().unwrap())
}

/// A connection from another address of this machine.
fn connect_from(own: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddrV4::new(own, 0)).unwrap();
    connect(&stream, &address).unwrap();
    let stream = TcpStream::from(stream);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server that answers everything with so many bytes, and how many of them it could send.
fn upstream(length: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    upstream_that_stops(length, length)
}

/// The same, which stops after some of them.
fn upstream_that_stops(length: usize, after: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sent) = (stream.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                    if stream.write_all(head.as_bytes()).is_err() {
                        return;
                    }
                    let mut left = after;
                    while left > 0 {
                        let piece = left.min(bytes.len());
                        match stream.write(&bytes[..piece]) {
                            Ok(count) => left -= count,
                            Err(_) => return,
                        }
                        sent.fetch_add(piece, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    (address, sent)
}

/// Opens so many requests on one HTTP/2 connection, whose answers are not to be sent.
fn open_streams(address: SocketAddr, streams: u32) -> TcpStream {
    let mut text = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS with INITIAL_WINDOW_SIZE 0, and the acknowledgement of the server's.
    text.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
    text.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
    for stream in 0..streams {
        text.extend([0, 0, 6, 1, 5]);
        text.extend((2 * stream + 1).to_be_bytes());
        // GET http://x/
        text.extend([0x82, 0x86, 0x84, 0x41, 1, b'x']);
    }
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(&text).unwrap();
    connection
}

#[test]
fn the_memory_of_closed_connections_goes_back() {
    raise_own_limit();
    let requests: [(&str, &[u8]); 3] = [
        ("http", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        (
            "grpc",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        ),
        ("resp", b"PING\r\n"),
    ];
    thread::scope(|scope| {
        for (front_end, request) in requests {
            scope.spawn(move || memory_goes_back(front_end, request));
        }
    });
}

fn memory_goes_back(front_end: &str, request: &[u8]) {
    // Enough that what they take is well above what may stay.
    let count = if front_end == "resp" { 2_000 } else { 800 };
    let folder = ProgramFolder::new();
    let server = folder.serve(&["--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    let address = match front_end {
        "grpc" => server.grpc.unwrap(),
        "resp" => server.resp.unwrap(),
        _ => server.address,
    };
    let before = memory(&server);
    let mut connections: Vec<_> = (0..count)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for connection in &mut connections {
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(request).unwrap();
        assert!(connection.read(&mut [0; 4096]).unwrap() > 0);
    }
    let most = memory(&server);
    drop(connections);
    // What the allocator keeps for the next connections is a part of it.
    let little = before + 8 * 1024 + (most - before) / 2;
    assert!(
        little < most,
        "{front_end}: {most} KiB are too few to see that any go back"
    );
    wait_until(
        &format!("{front_end}: {before} KiB, then {most}, and now at most {little}"),
        || memory(&server) <= little,
    );
}

#[test]
fn the_limit_of_descriptors_is_raised_and_what_does_not_fit_is_said() {
    let folder = ProgramFolder::new();
    let server = folder.serve_with_descriptors("-Sn 256", &[]);
    let (soft, hard) = limits(&server);
    assert_eq!(soft, hard);

    let server = folder.serve_with_descriptors("-n 256", &["--data-dir", "other"]);
    assert_eq!(limits(&server).0, "256");
    let log = server.log.wait_for("`max_connections` does not fit");
    assert!(log.contains("limit=256"), "{log}");
}

#[test]
fn requests_of_one_client_cannot_take_the_connections_of_all() {
    raise_own_limit();
    let folder = ProgramFolder::new();
    let (behind, _) = upstream(4 << 20);
    let url = format!("http://{behind}");
    let arguments = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let server = folder.serve_with_descriptors("-n 256", &arguments);
    let gateway = server.gateway.unwrap();

    let attack: Vec<_> = (0..2).map(|_| open_streams(gateway, 240)).collect();
    let refused = "tidegate_upstream_connections_refused_total{limit=\"client\"}";
    let busy = format!("tidegate_upstream_in_flight{{upstream=\"{url}\"}}");
    wait_until("480 requests are answered or hang", || {
        metric(&server, refused) + metric(&server, &busy) == 480
    });
    assert!(metric(&server, &busy) < 200);

    let mut same = HttpClient::to(gateway);
    let reply = same.ask("GET /", "").with_status(503);
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(reply.detail().contains("your address"));

    let mut honest = connect_from(Ipv4Addr::new(127, 0, 0, 2), gateway);
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    honest.write_all(request).unwrap();
    let mut answer = [0; 15];
    honest.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");

    // No server behind the gateway is to blame.
    let up = format!("tidegate_upstream_up{{upstream=\"{url}\"}}");
    assert_eq!(metric(&server, &up), 1);
    server.log.wait_for("max_upstream_connections_per_client");
    drop(attack);
}

#[test]
fn a_lack_of_descriptors_is_not_counted_against_a_server() {
    let folder = ProgramFolder::new();
    let (behind, _) = upstream(4 << 20);
    let url = format!("http://{behind}");
    // More than there are, so that the system has to say no.
    folder.write(
        "tidegate.yaml",
        "max_upstream_connections: 1000\nmax_upstream_connections_per_client: 1000\n",
    );
    let arguments = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let arguments = [&arguments[..], &["--config", "tidegate.yaml"]].concat();
    let server = folder.serve_with_descriptors("-n 128", &arguments);
    server.log.wait_for("is too low for that many connections");
    let gateway = server.gateway.unwrap();
    // Before the others, because there will be no descriptor left for it.
    let mut client = HttpClient::to(gateway);
    let mut api = server.client();
    api.ask("GET /healthz", "").with_status(200);
    let attack = open_streams(gateway, 200);
    server.log.wait_for("file descriptors of this process");
    let reply = client.ask("GET /", "").with_status(503);
    assert_eq!(reply.header("retry-after"), Some("1"));
    let page = api.ask("GET /metrics", "").with_status(200).body;
    let up = format!("tidegate_upstream_up{{upstream=\"{url}\"}} 1");
    assert!(page.contains(&up), "{page}");
    drop(attack);
    let busy = format!("tidegate_upstream_in_flight{{upstream=\"{url}\"}}");
    wait_until("the attack is over", || metric(&server, &busy) == 0);
}

#[test]
fn idle_connections_to_the_gateway_do_not_take_the_api_down() {
    raise_own_limit();
    let folder = ProgramFolder::new();
    let (behind, _) = upstream(2);
    let url = format!("http://{behind}");
    let arguments = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let server = folder.serve_with_descriptors("-n 256", &arguments);
    let idle: Vec<_> = (0..400)
        .map_while(|_| {
            let address = server.gateway.unwrap();
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()
        })
        .collect();
    assert!(idle.len() > 100);
    for _ in 0..3 {
        server.ask("GET /healthz", "").with_status(200);
    }
    let log = server.log.text();
    assert!(!log.contains("cannot accept"), "{log}");
}

/// What the memory of a server grows by for each client that does not read its answer, in KiB, if the server behind the gateway
/// sends so many bytes of it.
fn memory_of_unread(bytes: usize) -> u64 {
    // Fewer than one address may have connections to servers.
    const CLIENTS: usize = 250;
    let folder = ProgramFolder::new();
    let (behind, sent) = upstream_that_stops(256 << 20, bytes);
    let url = format!("http://{behind}");
    let server = folder.serve(&["--gateway", "127.0.0.1:0", "--upstream", &url]);
    let before = memory(&server);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = TcpStream::connect(server.gateway.unwrap()).unwrap();
            client
                .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                .unwrap();
            client
        })
        .collect();
    let busy = format!("tidegate_upstream_in_flight{{upstream=\"{url}\"}}");
    wait_until("all have a server", || {
        metric(&server, &busy) == CLIENTS as u64
    });
    let mut last = 0;
    let mut same = 0;
    wait_until("nothing more is sent", || {
        let now = sent.load(Ordering::Relaxed);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 20
    });
    let each = memory(&server).saturating_sub(before) / CLIENTS as u64;
    drop(clients);
    each
}

#[test]
fn a_client_that_does_not_read_its_answer_costs_little_memory() {
    raise_own_limit();
    // What its connections and its request take without a body.
    let without = memory_of_unread(0);
    let with = memory_of_unread(256 << 20);
    // About 64 KiB are promised. The rest is for the allocator.
    assert!(
        with.saturating_sub(without) < 80,
        "{with} KiB for each, {without} of them without the answer"
    );
}
