//! What people see of a request to a language model: its true cost in the activity, and both costs in the access log.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::{HttpClient, PATIENCE, TestFolder, request};

use crate::Server;

/// A server of models whose answers say that they took 20 tokens of input and 5 of output, and on some paths do not
/// end. Its threads end with the process.
fn model_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_all(stream));
        }
    });
    address
}

fn answer_all(stream: TcpStream) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut is_refused) = (0, false);
        let mut begun = None;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
            is_refused |= line.starts_with("post /refused");
            if line.starts_with("post /silent") {
                begun = Some("");
            } else if line.starts_with("post /stream") {
                begun = Some(EVENTS);
            }
            if line.is_empty() {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).ok()?;
        if let Some(begun) = begun {
            stream.get_mut().write_all(begun.as_bytes()).ok()?;
            // Until the gateway leaves.
            stream.read_to_end(&mut Vec::new()).ok()?;
            return None;
        }
        let usage = json!({"prompt_tokens": 20, "completion_tokens": 5});
        let body = json!({"choices": [], "usage": usage}).to_string();
        let status = if is_refused { "500 Broken" } else { "200 OK" };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let reply = head + &body;
        stream.get_mut().write_all(reply.as_bytes()).ok()?;
    }
}

/// The beginning of a stream without usage.
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
    a\r\ndata: {}\n\n\r\n";

const RULES: &str = "
rules:
  - {id: requests, per: [api_key], limit: 300/hour}
  - {id: tokens, per: [api_key], unit: tokens, limit: 1000/day, algorithm: fixed_window}
  - {id: shadow, per: [], unit: output_tokens, limit: 1000/hour, mode: shadow}
";

fn serve(folder: &TestFolder) -> Server {
    folder.write("rules.yaml", RULES);
    folder.write(
        "c.yaml",
        &format!(
            "usage: openai\nidentify: {{api_key: {{header: x-api-key}}}}\naccess_log: {}\n",
            folder.file("access.log")
        ),
    );
    let upstream = format!("http://{}", model_server());
    folder.serve(&[
        "--rules",
        "rules.yaml",
        "--config",
        "c.yaml",
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &upstream,
    ])
}

fn complete(server: &Server, path: &str) -> u16 {
    let body = json!({"model": "small", "max_tokens": 100, "messages": []}).to_string();
    let mut gateway = HttpClient::to(server.gateway.unwrap());
    let headers = [("x-api-key", "k1"), ("content-type", "application/json")];
    let reply = gateway.ask_with(&format!("POST {path}"), &headers, &body);
    reply.status
}

fn get(server: &Server, call: &str) -> Value {
    let reply = server.ask(&format!("GET {call}"), "");
    reply.with_status(200).json()
}

/// How many were allowed, and their cost.
fn counted(series: &Value) -> [u64; 2] {
    ["allowed", "cost"].map(|name| {
        let counts = series[name].as_array().unwrap();
        counts.iter().map(|count| count.as_u64().unwrap()).sum()
    })
}

#[test]
fn the_activity_has_the_cost_that_was_settled_and_not_the_estimate() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    assert_eq!(complete(&server, "/v1/chat/completions"), 200);
    assert_eq!(complete(&server, "/v1/chat/completions"), 200);
    // Nothing is charged for it but the request.
    assert_eq!(complete(&server, "/refused/v1/chat/completions"), 500);
    wait_until("all are settled", PATIENCE, || {
        (get(&server, "/v1/status")["reservations"] == 0).then_some(())
    });
    let activity = get(&server, "/v1/activity");
    let rules = activity["rules"].as_array().unwrap();
    let of = |id: &str| counted(rules.iter().find(|rule| rule["rule"] == id).unwrap());
    assert_eq!(of("requests"), [3, 3]);
    assert_eq!(of("tokens"), [3, 50]);
    assert_eq!(of("shadow"), [3, 10]);
    assert_eq!(counted(&activity["total"]), [3, 3]);

    let keys = get(&server, "/v1/rules/tokens/keys?sort=used&window=1m");
    let [key] = keys["keys"].as_array().unwrap().as_slice() else {
        panic!("{keys}");
    };
    assert_eq!([&key["used"], &key["lower"], &key["upper"]], [50, 50, 50]);
    assert_eq!(key["last"]["cost"], 25, "{key}");
    assert_eq!(key["last"]["front_end"], "gateway");
    assert_eq!(key["last"]["path"], "/v1/chat/completions");
    assert!(key["key"]["api_key"].is_string(), "{key}");
}

#[test]
fn the_access_log_has_the_model_both_costs_and_what_the_answer_said() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    assert_eq!(complete(&server, "/v1/chat/completions"), 200);
    assert_eq!(complete(&server, "/refused/v1/chat/completions"), 500);
    let made = json!({"attributes": {"api_key": "k2"}, "costs": {"tokens": 60}}).to_string();
    let made = server
        .ask("POST /v1/reserve", &made)
        .with_status(200)
        .json();
    let id = made["reservation"].as_str().unwrap().to_owned();
    let settle = format!("POST /v1/reservations/{id}/settle");
    let cost = json!({"costs": {"tokens": 25}}).to_string();
    server.ask(&settle, &cost).with_status(200);
    server
        .ask(&format!("GET /v1/reservations/{id}"), "")
        .with_status(200);
    let text = wait_until("lines of the access log", Duration::from_secs(20), || {
        let text = std::fs::read_to_string(folder.path("access.log")).unwrap_or_default();
        (text.lines().count() >= 5).then_some(text)
    });
    assert!(!text.contains(&id), "{text}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |part: &str| {
        let has_path = |line: &&Value| line["path"].as_str().unwrap().ends_with(part);
        lines.iter().find(has_path).unwrap()
    };
    let reported = find("/completions");
    assert_eq!(reported["model"], "small", "{reported}");
    assert_eq!(reported["estimate"]["output_tokens"], 100, "{reported}");
    let settled = lines.iter().map(|line| &line["usage"]);
    assert_eq!(settled.filter(|usage| **usage == "reported").count(), 1);
    for line in lines.iter().filter(|line| line["front_end"] == "gateway") {
        let (usage, tokens) = match line["status"].as_u64() {
            Some(200) => ("reported", 25),
            _ => ("failed", 0),
        };
        assert_eq!(line["usage"], usage, "{line}");
        assert_eq!(line["settled"]["tokens"], tokens, "{line}");
    }
    let short = &id[..8];
    for path in [
        format!("{short}…/settle"),
        format!("/v1/reservations/{short}…"),
    ] {
        assert_eq!(find(&path)["front_end"], "http");
    }
    assert_eq!(find("/v1/reserve")["reservation"], short);
}

#[test]
fn the_access_log_has_what_a_call_cost_that_the_client_cut() {
    let folder = TestFolder::new();
    let server = serve(&folder);
    for path in ["/stream/chat/completions", "/silent/chat/completions"] {
        let mut stream = TcpStream::connect(server.gateway.unwrap()).unwrap();
        let body = json!({"model": "small", "max_tokens": 100, "messages": []}).to_string();
        let headers = [("x-api-key", "k1")];
        let request = request(&format!("POST {path}"), &headers, &body);
        stream.write_all(request.as_bytes()).unwrap();
        if path.starts_with("/stream") {
            stream.read_exact(&mut [0; 12]).unwrap();
        }
        wait_until("it is charged", PATIENCE, || {
            (get(&server, "/v1/status")["reservations"] == 1).then_some(())
        });
        drop(stream);
        let name = folder.path("access.log");
        let line = wait_until("its line in the access log", PATIENCE, || {
            let text = std::fs::read_to_string(&name).unwrap_or_default();
            let line = text.lines().find(|line| line.contains(path))?;
            serde_json::from_str::<Value>(line).ok()
        });
        assert_eq!(line["usage"], "cut", "{line}");
        assert_eq!(line["settled"], line["estimate"], "{line}");
        assert_eq!(line["settled"]["output_tokens"], 100, "{line}");
    }
}
