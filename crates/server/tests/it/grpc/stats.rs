//! Stats by the names of envoyproxy/ratelimit: on the debug port, for Prometheus, and sent to statsd.

mod real_statsd;

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tidegate_server::grpc_messages::health::{HealthCheckRequest, HealthCheckResponse};
use tidegate_server::grpc_messages::rate_limit::RateLimitOverride;
use tidegate_testkit::ReservedPort;
use tidegate_testkit_server::{HttpClient, PATIENCE};
use tonic::Request;

use super::*;

/// As Envoy Gateway names its routes and rules.
const ROUTE: &str = "httproute/infra/web/rule/0/match/0/*";

const RULES: &str = "
domain: infra/gw/http
descriptors:
  - key: httproute/infra/web/rule/0/match/0/*
    value: httproute/infra/web/rule/0/match/0/*
    descriptors:
      - {key: masked_remote_address, value: 0.0.0.0/0, rate_limit: {unit: year, requests_per_unit: 3}}
      - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
      - {key: user, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}
      - {key: free, rate_limit: {unlimited: true}}
";

const DEBUG: &str = "debug: 127.0.0.1:0\n";

fn page(address: Option<std::net::SocketAddr>, path: &str) -> String {
    let reply = HttpClient::to(address.unwrap()).ask(&format!("GET {path}"), "");
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

/// A call of the route, with one more entry.
fn routed(entry: &str) -> RateLimitRequest {
    RateLimitRequest {
        domain: "infra/gw/http".to_owned(),
        ..request(&[&format!("{ROUTE}={ROUTE} {entry}")])
    }
}

fn server_with(settings: &str) -> Running {
    start_in(TestFolder::new(), Some(RULES), settings)
}

async fn ask(running: &Running, requests: &[RateLimitRequest]) {
    let mut client = running.client().await;
    for request in requests {
        client.ask(request.clone()).await.unwrap();
    }
}

/// The stats that are not zero, of limits and calls.
fn counted(running: &Running) -> Vec<String> {
    let text = page(running.server.debug, "/stats");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.is_sorted(), "{text}");
    let counted = lines.into_iter().filter(|line| {
        !line.ends_with(": 0") && !line.contains("response_time") && !line.contains("config_load")
    });
    let short = |line: &str| {
        let line = line.replace("ratelimit.service.rate_limit.infra/gw/http.", "…");
        line.replace(&format!("{ROUTE}_{ROUTE}."), "")
    };
    counted.map(short).collect()
}

#[tokio::test]
async fn each_descriptor_of_a_call_is_counted() {
    let running = server_with(DEBUG);
    let mut client = running.client().await;
    let address = "masked_remote_address=0.0.0.0/0";
    ask(&running, &vec![routed(address); 5]).await;
    ask(&running, &vec![routed("shadow=x"); 3]).await;
    ask(
        &running,
        &[routed("user=1.2.3.4"), routed("free=x"), routed("none=x")],
    )
    .await;
    let mut brought = routed("brought=a:b");
    brought.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 7,
        unit: 3,
    });
    let unknown = RateLimitRequest {
        domain: "other".to_owned(),
        ..routed("user=a")
    };
    let spent = RateLimitRequest {
        descriptors: vec![RateLimitDescriptor {
            hits_addend: Some(UInt64Value { value: 12 }),
            ..routed("user=u").descriptors.remove(0)
        }],
        ..routed("user=u")
    };
    ask(&running, &[brought, unknown, spent.clone(), spent]).await;
    client.ask(RateLimitRequest::default()).await.unwrap_err();
    let health = Request::new(HealthCheckRequest::default());
    let path = "/grpc.health.v1.Health/Check";
    client
        .call::<_, HealthCheckResponse>(path, health)
        .await
        .unwrap();
    assert_eq!(
        counted(&running),
        [
            "ratelimit.service.call.should_rate_limit.service_error: 1",
            "…brought_a_b.total_hits: 1",
            "…brought_a_b.within_limit: 1",
            "…masked_remote_address_0_0_0_0/0.near_limit: 1",
            "…masked_remote_address_0_0_0_0/0.over_limit: 2",
            "…masked_remote_address_0_0_0_0/0.total_hits: 5",
            "…masked_remote_address_0_0_0_0/0.within_limit: 3",
            "…shadow.near_limit: 1",
            "…shadow.over_limit: 1",
            "…shadow.shadow_mode: 1",
            "…shadow.total_hits: 3",
            "…shadow.within_limit: 2",
            "…user_1_2_3_4.total_hits: 1",
            "…user_1_2_3_4.within_limit: 1",
            "…user_u.near_limit: 2",
            "…user_u.over_limit: 15",
            "…user_u.total_hits: 24",
            "ratelimit.service.rate_limit.other.domain_not_found: 1",
            "ratelimit_server.Check.total_requests: 1",
            "ratelimit_server.ShouldRateLimit.total_requests: 16",
        ]
    );
    let text = page(running.server.debug, "/stats");
    assert!(
        text.contains("ratelimit.service.config_load_success: 1\n"),
        "{text}"
    );
}

#[tokio::test]
async fn names_of_values_are_bounded() {
    let running = server_with(&format!("{DEBUG}stat_names: 1\n"));
    let users = ["a", "b", "c", "a"].map(|user| routed(&format!("user={user}")));
    ask(&running, &users).await;
    let stats = counted(&running);
    for expected in ["…user_a.total_hits: 2", "…user.total_hits: 2"] {
        assert!(stats.iter().any(|line| line == expected), "{stats:?}");
    }
    let metrics = running.server.ask("GET /metrics", "").body;
    assert!(
        metrics.contains("tidegate_stat_names_full 1\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn without_an_output_nothing_is_counted() {
    let running = server_with("");
    let metrics = running.server.ask("GET /metrics", "").body;
    assert!(!metrics.contains("stat_names_full"), "{metrics}");
}

/// The file that users of Envoy Gateway mount, in its parts.
const MAPPING: &str = r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.*.over_limit"
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
      key2: "$3"
  - match: "ratelimit_server.*.response_time"
    name: "ratelimit_service_response_time_seconds"
    timer_type: histogram
    labels:
      grpc_method: "$1"
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#;

#[tokio::test]
async fn prometheus_reads_the_series_of_a_mapping_and_all_metrics() {
    let folder = TestFolder::new();
    folder.write("mapping.yaml", MAPPING);
    let settings = "prometheus: {address: 127.0.0.1:0, path: /m, mapping: FOLDERmapping.yaml, tags: {zone: a-1}}\n";
    let running = start_in(folder, Some(RULES), settings);
    ask(
        &running,
        &vec![routed("masked_remote_address=0.0.0.0/0"); 5],
    )
    .await;
    let text = page(running.server.prometheus, "/m");
    let series = format!(
        "ratelimit_service_rate_limit_over_limit{{domain=\"infra/gw/http\",key1=\"{ROUTE}_{ROUTE}\",key2=\"masked_remote_address_0_0_0_0/0\",zone=\"a-1\"}} 2"
    );
    for line in [
        series.as_str(),
        "# TYPE ratelimit_service_rate_limit_over_limit counter",
        "# TYPE ratelimit_service_response_time_seconds histogram",
        "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\",zone=\"a-1\"} 5",
        "# TYPE tidegate_decisions_total counter",
        "tidegate_stat_names_full 0",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(!text.contains("total_hits"), "it is dropped: {text}");
    let mut client = HttpClient::to(running.server.prometheus.unwrap());
    assert_eq!(client.ask("GET /metrics", "").status, 404);
}

#[tokio::test]
async fn the_built_in_series_are_valid_and_replace_a_mapping_that_cannot_be_used() {
    let folder = TestFolder::new();
    folder.write("wrong.yaml", "mappings: [{match: a*.b, name: a}]\n");
    let missing = start_in(
        folder,
        Some(RULES),
        "prometheus: {address: 127.0.0.1:0, mapping: FOLDERmissing.yaml}\n",
    );
    ask(
        &missing,
        &vec![routed("masked_remote_address=0.0.0.0/0"); 5],
    )
    .await;
    let text = page(missing.server.prometheus, "/metrics");
    let labels = format!(
        "{{domain=\"infra/gw/http\",key1=\"{ROUTE}_{ROUTE}\",key2=\"masked_remote_address_0_0_0_0/0\"}}"
    );
    for (stat, value) in [
        ("total_hits", 5),
        ("over_limit", 2),
        ("near_limit", 1),
        ("within_limit", 3),
        ("shadow_mode", 0),
    ] {
        let line = format!("ratelimit_service_rate_limit_{stat}{labels} {value}");
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
    check_metrics(&text);
    let log = missing.server.log.text();
    assert!(
        log.contains("missing.yaml` is not used, and the built-in one is"),
        "{log}"
    );
    let Running { server, folder } = missing;
    drop(server);
    let wrong = start_in(
        folder,
        Some(RULES),
        "prometheus: {address: 127.0.0.1:0, mapping: FOLDERwrong.yaml}\n",
    );
    wrong.server.log.wait_for("`a*.b` is not a pattern");
    let text = page(wrong.server.prometheus, "/metrics");
    assert!(
        text.contains("ratelimit_service_config_load_success 1\n"),
        "{text}"
    );
}

/// Reads the page with the parser of Prometheus. Its lints want other names for these counters, and only that.
fn check_metrics(text: &str) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unpacked = root.join("target/tools/prometheus/usr/bin/promtool");
    let program = if unpacked.exists() {
        unpacked
    } else {
        PathBuf::from("promtool")
    };
    let mut promtool = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("promtool does not run: {error}; run scripts/install promtool")
        });
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    // 3: it was read, and there are remarks.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let remarks = [output.stdout, output.stderr].concat();
    let remarks = String::from_utf8_lossy(&remarks).into_owned();
    let other = remarks.lines().find(|remark| {
        let is_known = remark.starts_with("ratelimit_service_")
            && remark.ends_with("counter metrics should have \"_total\" suffix");
        !is_known && !remark.starts_with("tidegate_build_info")
    });
    assert_eq!(other, None, "{remarks}");
}

fn accept(listener: &TcpListener) -> BufReader<TcpStream> {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

/// The lines that a client sends until one has this in it.
fn lines_until(reader: &mut impl BufRead, wanted: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains(wanted)) {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{lines:?}");
        lines.push(line);
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_is_sent_over_tcp_again_and_again_also_to_a_server_that_comes_back() {
    let port = ReservedPort::new();
    let address = format!("127.0.0.1:{}", port.number());
    let settings =
        format!("statsd: {{address: '{address}', interval: 10ms, tags: {{env: a.b}}}}\n");
    let running = server_with(&settings);
    running.server.log.wait_for("stats cannot be sent to");
    ask(&running, &[routed("user=x")]).await;
    let listener = TcpListener::bind(&address).unwrap();
    let limit = format!("ratelimit.service.rate_limit.infra/gw/http.{ROUTE}_{ROUTE}.user_x");
    let total = format!("{limit}.total_hits.__env=a_b:1|c\n");
    let mut reader = accept(&listener);
    let lines = lines_until(&mut reader, "ShouldRateLimit.response_time");
    assert!(lines.contains(&total), "{lines:?}");
    let within = format!("{limit}.within_limit.__env=a_b:1|c\n");
    assert!(lines.contains(&within), "{lines:?}");
    let timed = lines.last().unwrap();
    assert!(timed.starts_with("ratelimit_server.ShouldRateLimit.response_time.__env=a_b:"));
    assert!(timed.ends_with("|ms\n"), "{timed}");
    // A server that ends and comes back gets what happened meanwhile, and only that.
    drop((reader, listener));
    ask(&running, &vec![routed("user=x"); 2]).await;
    let listener = TcpListener::bind(&address).unwrap();
    let mut reader = accept(&listener);
    let mut hits = 0;
    while hits < 2 {
        let lines = lines_until(&mut reader, ".user_x.total_hits");
        let (_, count) = lines.last().unwrap().rsplit_once(':').unwrap();
        let count = count.strip_suffix("|c\n").unwrap();
        hits += count.parse::<u64>().unwrap();
    }
    assert_eq!(hits, 2);
    // What is left is sent at the end.
    ask(&running, &[routed("user=last")]).await;
    running.server.shut_down();
    lines_until(&mut reader, ".user_last.total_hits");
}

#[tokio::test(flavor = "multi_thread")]
async fn dogstatsd_gets_packets_with_tags_and_rewritten_names() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let settings = format!(
        "statsd:
  address: '{}'
  interval: 10ms
  dialect: dogstatsd
  tags: {{env: test}}
  mogrifiers: [{{pattern: '^ratelimit\\.service\\.rate_limit\\.([^.]+)\\.(.*)\\.total_hits$', name: hits, tags: {{domain: $1}}}}]
",
        socket.local_addr().unwrap()
    );
    let running = server_with(&settings);
    ask(
        &running,
        &vec![routed("masked_remote_address=0.0.0.0/0"); 2],
    )
    .await;
    let wanted = "hits:2|c|#env:test,domain:infra/gw/http";
    let (mut hits, mut packet) = (0, [0; 2_000]);
    while hits < 2 {
        let length = socket.recv(&mut packet).unwrap();
        assert!(length <= 1_432, "{length}");
        let text = std::str::from_utf8(&packet[..length]).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        for line in text.lines().filter(|line| line.starts_with("hits:")) {
            let count = line.strip_prefix("hits:").unwrap();
            let (count, tags) = count.split_once('|').unwrap();
            assert_eq!(tags, wanted.split_once('|').unwrap().1);
            hits += count.parse::<u64>().unwrap();
        }
    }
    assert_eq!(hits, 2);
}
