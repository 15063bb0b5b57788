//! Clients that come from an address of their own.

use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use tidegate_testkit_server::PATIENCE;
use tidegate_testkit_server::{ClientReply, HttpClient};

/// Asks `address` from 127.0.0.`last`, on a connection of its own.
pub(crate) fn ask(
    last: u8,
    address: SocketAddr,
    call: &str,
    headers: &[(&str, &str)],
) -> ClientReply {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(
        &socket,
        &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0),
    )
    .unwrap();
    connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = HttpClient::on(BufReader::new(stream));
    client.ask_with(call, headers, "")
}
