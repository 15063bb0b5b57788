//! `tidegate bench` against a real server, over each protocol.

use serde_json::Value;

use crate::server::{ProgramFolder, Server};

/// Every key may send 3 requests, and none comes back during a test.
const RULES: &str =
    "rules:\n  - {id: all, per: [user_id], limit: 3/day, algorithm: fixed_window}\n";

fn serve() -> (ProgramFolder, Server) {
    let folder = ProgramFolder::new();
    folder.write("rules.yaml", RULES);
    let server = folder.serve(&[
        "--rules",
        "rules.yaml",
        "--grpc",
        "127.0.0.1:0",
        "--resp",
        "127.0.0.1:0",
    ]);
    (folder, server)
}

/// The report of a run without a warm-up.
fn bench(folder: &ProgramFolder, arguments: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend(arguments);
    all.extend(["--warm-up", "0s", "--json"]);
    let run = folder.run(&all);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    serde_json::from_str(&run.stdout).unwrap()
}

fn counts(report: &Value) -> [u64; 3] {
    ["requests", "allowed", "denied"].map(|name| report[name].as_u64().unwrap())
}

/// One request is sent first, to see whether the server answers, and is not counted.
#[test]
fn every_front_end_decides_what_it_is_sent() {
    let (folder, server) = serve();
    let http = format!("http://{}", server.address);
    let grpc = server.grpc.unwrap().to_string();
    let resp = server.resp.unwrap().to_string();
    // In order, so that every key comes often enough, however the connections share the requests.
    let mut small = vec!["--requests", "40", "--keys", "5", "--in-order"];
    small.extend(["--connections", "4"]);
    let with = |first: &[&'static str], address: [&str; 2], attribute: &str| {
        let mut line = first.to_vec();
        line.extend(address);
        line.extend(["-a", attribute]);
        line.extend(&small);
        bench(&folder, &line)
    };
    let in_flight = ["--in-flight", "2"];
    let reports = [
        with(&["http"], ["--server", &http], "user_id=h{key}"),
        with(
            &["grpc", in_flight[0], in_flight[1]],
            ["--address", &grpc],
            "user_id=g{key}",
        ),
        with(
            &["resp", in_flight[0], in_flight[1]],
            ["--address", &resp],
            "user_id=r{key}",
        ),
    ];
    for report in reports {
        // Each of 5 keys has 3, one of them taken by the first request.
        assert_eq!(counts(&report), [40, 14, 26], "{report}");
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        let latency = &report["latency"];
        let at = |name: &str| latency[name].as_f64().unwrap();
        assert!(0.0 < at("min") && at("min") <= at("p50"), "{report}");
        assert!(
            at("p50") <= at("p99.9") && at("p99.9") <= at("max") * 1.001,
            "{report}"
        );
        let buckets = latency["buckets"].as_array().unwrap();
        let all: u64 = buckets
            .iter()
            .map(|bucket| bucket["count"].as_u64().unwrap())
            .sum();
        assert_eq!(all, 40, "{report}");
    }
}

#[test]
fn a_throttle_brings_its_own_limit() {
    let (folder, server) = serve();
    let address = server.resp.unwrap().to_string();
    let line = ["resp", "--address", &address, "--limit", "4", "1", "86400"];
    let small = [
        "--requests",
        "10",
        "--keys",
        "1",
        "--connections",
        "1",
        "--in-flight",
        "5",
    ];
    let report = bench(&folder, &[&line[..], &small].concat());
    // A burst of 5, of which the first request took one.
    assert_eq!(counts(&report), [10, 4, 6], "{report}");
}

#[test]
fn keys_in_order_are_each_asked_as_often() {
    let (folder, server) = serve();
    let http = format!("http://{}", server.address);
    let line = ["http", "--server", &http, "--keys", "10", "--in-order"];
    let report = bench(&folder, &[&line[..], &["--requests", "40"]].concat());
    // Each of 10 keys is asked 4 times and has 3; the first request took one of the first key.
    assert_eq!(counts(&report), [40, 29, 11], "{report}");
    assert_eq!(report["in_order"], true, "{report}");
}

#[test]
fn any_command_and_any_method_can_be_sent() {
    let (folder, server) = serve();
    let resp = server.resp.unwrap().to_string();
    let grpc = server.grpc.unwrap().to_string();
    let small = ["--requests", "20", "--connections", "2"];
    let command = ["resp", "--address", &resp, "--command", "PING p{key}"];
    let method = ["grpc", "--address", &grpc, "--method"];
    let health = ["/grpc.health.v1.Health/Check", "--field", "1="];
    for line in [
        [&command[..], &small].concat(),
        [&method[..], &health, &small].concat(),
    ] {
        let report = bench(&folder, &line);
        assert_eq!(counts(&report), [20, 20, 0], "{report}");
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
    }
}

#[test]
fn an_open_loop_sends_at_its_rate_to_any_url() {
    let (folder, server) = serve();
    let url = format!("http://{}/healthz?key={{key}}", server.address);
    let report = bench(
        &folder,
        &["url", &url, "--rate", "200", "--duration", "500ms"],
    );
    assert_eq!(counts(&report), [100, 100, 0], "{report}");
    assert_eq!(report["unsent"], 0);
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.495, "{report}");
    // The query may have secrets in it.
    assert_eq!(
        report["target"],
        format!("GET http://{}/healthz", server.address)
    );
}

#[test]
fn answers_that_are_no_decisions_are_errors_by_kind() {
    let (folder, server) = serve();
    let url = format!("http://{}/nothing/here", server.address);
    let run = folder.run(&["bench", "url", &url, "--requests", "5", "--warm-up", "0s"]);
    assert_eq!(run.code, Some(1), "{}", run.whole());
    assert!(run.stdout.contains("HTTP 404"), "{}", run.whole());
    assert!(run.stdout.contains("5  100.0 %"), "{}", run.whole());
}

#[test]
fn what_cannot_be_sent_is_refused_with_the_reason() {
    let folder = ProgramFolder::new();
    for (line, reason) in [
        (
            "bench resp --address 127.0.0.1:1",
            "cannot connect to 127.0.0.1:1",
        ),
        ("bench grpc --address localhost", "write it as HOST:PORT"),
        ("bench url ftp://127.0.0.1/", "must begin with `http://`"),
        (
            "bench url http://127.0.0.1:1/ --rate 0",
            "the rate `0` must be above 0",
        ),
        (
            "bench url http://127.0.0.1:1/ --in-flight 2",
            "HTTP/1.1 has one request in flight",
        ),
        ("bench http --keys 0", "at least one key"),
        ("bench http --zipf 1 --in-order", "cannot be used with"),
        ("bench resp --command=", "the command is empty"),
        ("bench grpc --method Check", "write it as /package.Service"),
        (
            "bench grpc --method /a.B/C --field x",
            "NUMBER=TEXT or NUMBER:=INTEGER",
        ),
        ("bench http --zipf -1", "the exponent `-1`"),
        ("bench http -a a=1 -a a=2", "`a` is given twice"),
        ("bench http --connections 0", "from 1 to 100000"),
        ("bench http --duration 0s", "a length above zero"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let run = folder.run(&words);
        assert_eq!(run.code, Some(2), "{line}: {}", run.whole());
        assert!(run.stderr.contains(reason), "{line}: {}", run.stderr);
    }
}
