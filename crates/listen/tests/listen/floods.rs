//! Clients of HTTP/2 that send frames without a meaning, one after the other.

use tidegate_listen::ListenSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::http::{http2_client, request};
use super::server::Server;
use tidegate_testkit::within;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Of stream 1, which depends on none.
const PRIORITY: &[u8] = &[0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 16];
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
