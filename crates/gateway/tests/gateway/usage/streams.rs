//! Long streams and many of them: each event passes on before the next one comes, byte for byte, and a stream takes
//! little memory.

use tidegate_testkit::RawConnection;

use super::{EVENTS, Model, chunk, post};

const CHAT: &str = "/v1/chat/completions";
const EVENT_COUNT: u64 = 10_000;
const STREAMS: u64 = 1_000;
/// Of resident memory, for all that the test and the gateway keep of a stream.
const MOST_BYTES: u64 = 64 * 1_024;
/// As many tokens as the test needs.
const RULES: &str = "rules: [{id: tokens, per: [], unit: tokens, limit: 1000000000/day}]\n";

/// An event of a stream, with some text that looks like the end of one.
fn event(number: u64) -> String {
    let text = "x".repeat(usize::try_from(number % 300).unwrap());
    format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{number} {text} \\n\\ndata: [DONE]\"}}}}],\"usage\":null}}\n\n"
    )
}

#[tokio::test]
async fn each_of_ten_thousand_events_passes_on_before_the_next_one_comes() {
    let mut model = Model::start("usage: openai\n", RULES).await;
    // The gateway asks for the usage, and has to leave out its event; the client does, and gets it.
    for (events, asks) in [
        (EVENT_COUNT, r#"{"stream":true,"max_tokens":50}"#),
        (
            EVENT_COUNT / 10,
            r#"{"stream":true,"max_tokens":50,"stream_options":{"include_usage":true}}"#,
        ),
    ] {
        let (mut client, mut server, ..) = model.post(CHAT, asks).await;
        server.send(EVENTS).await;
        client.head().await;
        for number in 0..events {
            let event = chunk(&event(number));
            server.send(&event).await;
            assert_eq!(client.text(event.len()).await, event);
        }
        let usage =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n";
        let done = "data: [DONE]\n\n";
        let end = format!("{}{}0\r\n\r\n", chunk(usage), chunk(done));
        server.send(&end).await;
        let is_left_out = !asks.contains("include_usage");
        let passed = if is_left_out {
            format!("{}0\r\n\r\n", chunk(done))
        } else {
            end
        };
        assert_eq!(client.text(passed.len()).await, passed);
    }
    assert_eq!(model.results("reported").await, 2);
    assert_eq!(model.used("tokens").await, 14);
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().split_whitespace().next().unwrap();
    kib.parse::<u64>().unwrap() * 1_024
}

#[tokio::test]
async fn a_thousand_streams_take_little_memory_each() {
    let settings = "usage: openai\nmax_upstream_connections_per_client: 2000\n";
    let mut model = Model::start(settings, RULES).await;
    let request = post(CHAT, "", r#"{"stream":true,"max_tokens":50}"#);
    // What is allocated once.
    let warm = begin(&mut model, &request).await;
    let before = resident();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(begin(&mut model, &request).await);
    }
    let each = resident().saturating_sub(before) / STREAMS;
    assert!(each < MOST_BYTES, "{each} bytes for a stream");
    let line = "tidegate_reservations ";
    assert_eq!(model.gateway.metric(line).await, Some(STREAMS + 1));
    println!("{each} bytes for each of {STREAMS} streams");
    drop((warm, streams));
    model.gateway.metric_is(line, 0).await;
}

/// A stream of which some events have passed, and the half of one has come.
async fn begin(model: &mut Model, request: &str) -> (RawConnection, RawConnection) {
    let (mut client, mut server, _) = model.gateway.begin(&mut model.upstream, request).await;
    server.send(EVENTS).await;
    client.head().await;
    for number in 0..3 {
        let event = chunk(&event(number * 99));
        server.send(&event).await;
        assert_eq!(client.text(event.len()).await, event);
    }
    let half = event(250);
    server.send(&chunk(&half[..half.len() / 2])).await;
    (client, server)
}
