//! Telemetry over OTLP: what a collector receives, decoded, and that nothing waits for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message as _;
use serde_json::json;
use tidegate_server::otlp_messages::{
    AnyValueKind, MetricData, MetricsRequest, OtlpSpan, SpanKind, TraceRequest,
};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, RecordingUpstream, TestFolder};

const PATIENCE: Duration = Duration::from_secs(30);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const RULES: &str = "rules:\n  - {id: few, match: {path: /few}, per: [ip], limit: 1/hour}\n  - {id: user, per: [user_id], limit: 9/hour}\n";

/// A path and a body.
type Received = (String, Vec<u8>);

/// A collector that accepts everything, and what it received: the path and the body.
struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).unwrap_or(0) == 0 {
                        break;
                    }
                }
                let head = head.to_lowercase();
                assert!(
                    head.contains("content-type: application/x-protobuf"),
                    "{head}"
                );
                let length = head.split("content-length: ").nth(1);
                let length: usize = length
                    .and_then(|rest| rest.lines().next()?.parse().ok())
                    .unwrap();
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                kept.lock().unwrap().push((path, body));
                let _ = stream
                    .get_mut()
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Self { address, received }
    }

    fn settings(&self, sampling: &str) -> String {
        format!(
            "otlp: http://{}/base\notlp_sampling: {sampling}\n",
            self.address
        )
    }

    /// All spans so far.
    fn spans(&self) -> Vec<OtlpSpan> {
        let received = self.received.lock().unwrap();
        let traces = received
            .iter()
            .filter(|(path, _)| path == "/base/v1/traces");
        let requests = traces.map(|(_, body)| TraceRequest::decode(body.as_slice()).unwrap());
        let scopes = requests.flat_map(|request| request.resource_spans);
        let spans = scopes.flat_map(|resource| resource.scope_spans);
        spans.flat_map(|scope| scope.spans).collect()
    }

    fn wait_for_spans(&self, count: usize) -> Vec<OtlpSpan> {
        wait_until("spans", PATIENCE, || {
            let spans = self.spans();
            (spans.len() >= count).then_some(spans)
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// The text of an attribute.
fn text(span: &OtlpSpan, name: &str) -> Option<String> {
    let attribute = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == name)?;
    match attribute.value.clone()?.value? {
        AnyValueKind::Text(text) => Some(text),
        AnyValueKind::Int(number) => Some(number.to_string()),
        AnyValueKind::Bool(is) => Some(is.to_string()),
    }
}

#[test]
fn a_traced_request_has_spans_for_the_front_end_and_the_decision() {
    let (folder, upstream, collector) = (
        TestFolder::new(),
        RecordingUpstream::start(),
        Collector::start(),
    );
    folder.write("rules.yaml", RULES);
    folder.write("c.yaml", &collector.settings("0.000001"));
    let url = format!("http://{}", upstream.address);
    let server = folder.serve(&[
        "--rules",
        "rules.yaml",
        "--config",
        "c.yaml",
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ]);
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let mut gateway = HttpClient::to(server.gateway.unwrap());
    gateway.ask("GET /few?hidden", "").with_status(200);
    let headers = [("traceparent", parent.as_str()), ("x-hidden", "hidden")];
    gateway
        .ask_with("GET /few?hidden", &headers, "")
        .with_status(429);
    gateway.ask_with("GET /a", &headers, "").with_status(200);
    let check = json!({"attributes": {"user_id": "hidden"}}).to_string();
    server
        .ask_with("POST /v1/check", &headers, &check)
        .with_status(200);
    let spans = collector.wait_for_spans(6);
    assert_eq!(
        spans.len(),
        6,
        "those without a parent are not traced: {spans:#?}"
    );
    assert!(!format!("{spans:?}").contains("hidden"), "{spans:#?}");
    let trace: Vec<u8> = spans[0].trace_id.clone();
    assert_eq!(hex(&trace), TRACE);
    assert!(spans.iter().all(|span| span.trace_id == trace));
    let roots: Vec<&OtlpSpan> = spans
        .iter()
        .filter(|span| span.kind() == SpanKind::Server)
        .collect();
    let status = |span: &&OtlpSpan| text(span, "http.response.status_code").unwrap();
    assert_eq!(
        roots.iter().map(status).collect::<Vec<_>>(),
        ["429", "200", "200"]
    );
    let denied = spans
        .iter()
        .find(|span| text(span, "tidegate.verdict").as_deref() == Some("denied"));
    let denied = denied.unwrap();
    assert_eq!(denied.name, "decision");
    assert_eq!(denied.parent_span_id, roots[0].span_id);
    assert_eq!(text(denied, "tidegate.rule").as_deref(), Some("few"));
    assert_eq!(
        text(denied, "tidegate.reason").as_deref(),
        Some("over_limit")
    );
    assert!(
        roots
            .iter()
            .all(|root| root.start_time_unix_nano < root.end_time_unix_nano)
    );
    // The server behind the gateway continues the trace below the gateway's span.
    let own = hex(&roots[1].span_id);
    let head = &upstream.heads("/a")[0];
    assert!(
        head.contains(&format!("traceparent: 00-{TRACE}-{own}-01")),
        "{head}"
    );
}

#[test]
fn calls_to_redis_are_spans_below_the_decision() {
    let (redis, folder, collector) = (RedisServer::start(), TestFolder::new(), Collector::start());
    folder.write("rules.yaml", RULES);
    folder.write("c.yaml", &collector.settings("1"));
    let deadline = [("TIDEGATE_REDIS_DEADLINE", "5s")];
    let url = redis.url();
    let arguments = [
        "--rules",
        "rules.yaml",
        "--config",
        "c.yaml",
        "--redis",
        &url,
    ];
    let server = folder.serve_with(&arguments, &deadline);
    let check = json!({"attributes": {"user_id": "u"}}).to_string();
    server.ask("POST /v1/check", &check).with_status(200);
    let spans = wait_until("a store span", PATIENCE, || {
        let spans = collector.spans();
        spans
            .iter()
            .any(|span| span.name == "store")
            .then_some(spans)
    });
    let store = spans.iter().find(|span| span.name == "store").unwrap();
    let decision = spans
        .iter()
        .find(|span| span.span_id == store.parent_span_id)
        .unwrap();
    assert_eq!(
        (decision.name.as_str(), store.kind()),
        ("decision", SpanKind::Client)
    );
    assert_eq!(text(store, "db.system.name").as_deref(), Some("redis"));
    assert!(decision.start_time_unix_nano <= store.end_time_unix_nano);
}

#[test]
fn metrics_are_those_of_the_page() {
    let (folder, collector) = (TestFolder::new(), Collector::start());
    folder.write("rules.yaml", RULES);
    folder.write("c.yaml", &collector.settings("0.000001"));
    let _server = folder.serve(&["--rules", "rules.yaml", "--config", "c.yaml"]);
    let request = wait_until("metrics", PATIENCE, || {
        let received = collector.received.lock().unwrap();
        let metrics = received.iter().find(|(path, _)| path == "/base/v1/metrics");
        metrics.map(|(_, body)| MetricsRequest::decode(body.as_slice()).unwrap())
    });
    let resource = &request.resource_metrics[0];
    let metrics = &resource.scope_metrics[0].metrics;
    let find = |name: &str| {
        metrics
            .iter()
            .find(|metric| metric.name == name)
            .unwrap()
            .data
            .clone()
    };
    assert!(
        matches!(find("tidegate_decisions_total"), Some(MetricData::Sum(sum)) if sum.is_monotonic)
    );
    assert!(matches!(find("tidegate_ready"), Some(MetricData::Gauge(_))));
    assert!(matches!(
        find("tidegate_decision_seconds"),
        Some(MetricData::Histogram(_))
    ));
    assert!(matches!(
        find("process_cpu_seconds_total"),
        Some(MetricData::Sum(_))
    ));
}

#[test]
fn a_collector_that_does_not_answer_costs_no_decision() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    // Accepts connections in the kernel, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    folder.write(
        "c.yaml",
        &format!("otlp: http://{address}\notlp_sampling: 1\n"),
    );
    let server = folder.serve(&["--rules", "rules.yaml", "--config", "c.yaml"]);
    let mut client = server.client();
    for _ in 0..20 {
        client
            .ask("POST /v1/check", r#"{"attributes": {}}"#)
            .with_status(200);
    }
    drop(silent);
    server.log.wait_for("does not accept");
    let metrics = client.ask("GET /metrics", "").with_status(200);
    assert!(metrics.whole().contains("tidegate_otlp_lost_total 0"));
}
