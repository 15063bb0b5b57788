//! Clients of HTTP/2 that send frames without a meaning, one after the other.

use tidegate_listen::ListenSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::http::{http2_client, request};
use super::server::Server;
use tidegate_testkit::within;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Of stream 1, which depends on none.
const PRIORITY: &[u8] = &[0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 16];
/// A request on stream 1 without an end.
const UNENDED: &[u8] = &[0, 0, 5, 1, 0, 0, 0, 0, 1, 0x83, 0x84, 0x86, 0x41, 0];
/// One byte more for the whole connection.
const WINDOW_UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];

#[tokio::test]
async fn a_flood_of_priority_or_window_update_frames_is_cut() {
    const FRAMES: usize = 1_000;
    let server = Server::start(ListenSettings::default()).await;
    for frame in [PRIORITY, WINDOW_UPDATE] {
        let mut client = server.connect().await;
        client.stream.write_all(PREFACE).await.unwrap();
        let flood = frame.repeat(FRAMES);
        let (mut reads, mut writes) = client.stream.split();
        let floods = async {
            let mut sent = 0;
            while writes.write_all(&flood).await.is_ok() {
                sent += FRAMES;
                assert!(sent < 5_000_000, "never cut");
            }
        };
        let reading = async {
            let mut rest = Vec::new();
            let _ = reads.read_to_end(&mut rest).await;
        };
        within(async { tokio::join!(floods, reading) }).await;
    }
    let mut client = http2_client(server.connect().await.stream).await;
    let answer = within(client.send_request(request("/"))).await.unwrap();
    assert!(answer.status().is_success());
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A request: GET, http, /, of the static table.
fn headers(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &[0x82, 0x84, 0x86, 0x41, 0])
}

/// The frame with this number of a flood.
type Flood = fn(u32) -> Vec<u8>;

const FLOODS: [(&str, Flood); 9] = [
    ("rapid resets", |number| {
        let stream = number * 2 + 1;
        [headers(stream), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
    }),
    ("requests that make the server reset them", |number| {
        let stream = number * 2 + 1;
        [headers(stream), frame(8, 0, stream, &[0, 0, 0, 0])].concat()
    }),
    ("a head that never ends", |number| match number {
        0 => UNENDED.to_vec(),
        _ => frame(9, 0, 1, &[0; 100].map(|_: u8| 0x86)),
    }),
    (
        "a head that never ends, in empty frames",
        |number| match number {
            0 => UNENDED.to_vec(),
            _ => frame(9, 0, 1, &[]),
        },
    ),
    ("settings", |_| frame(4, 0, 0, &[0, 3, 0, 0, 0, 1])),
    ("pings", |_| frame(6, 0, 0, b"12345678")),
    ("empty data", |number| match number {
        0 => frame(1, 4, 1, &[0x83, 0x84, 0x86, 0x41, 0]),
        _ => frame(0, 0, 1, &[]),
    }),
    ("frames of unknown kinds", |_| frame(0xaa, 0, 0, b"what")),
    ("resets of one stream", |number| match number {
        0 => headers(1),
        _ => frame(3, 0, 1, &[0, 0, 0, 8]),
    }),
];

#[tokio::test]
async fn every_flood_of_frames_is_cut_and_others_are_served() {
    const FRAMES: u32 = 500;
    let server = Server::start(ListenSettings::default()).await;
    for (name, flood) in FLOODS {
        let mut client = server.connect().await;
        client.stream.write_all(PREFACE).await.unwrap();
        let (mut reads, mut writes) = client.stream.split();
        let floods = async {
            let mut sent = 0;
            loop {
                let frames: Vec<u8> = (sent..sent + FRAMES).flat_map(flood).collect();
                if writes.write_all(&frames).await.is_err() {
                    break;
                }
                sent += FRAMES;
                assert!(sent < 1_000_000, "{name} are never cut");
            }
        };
        let reading = async {
            let mut rest = Vec::new();
            let _ = reads.read_to_end(&mut rest).await;
        };
        within(async { tokio::join!(floods, reading) }).await;
        let mut other = http2_client(server.connect().await.stream).await;
        let answer = within(other.send_request(request("/"))).await.unwrap();
        assert!(answer.status().is_success(), "after {name}");
    }
}
