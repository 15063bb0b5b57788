//! Keys of zones through `map`, `geo`, `set` and `if`: nginx itself says the key of a request, and the rules count it
//! alike. A request without a key is not limited; requests with one key share a counter, others do not.

use std::fmt::Write as _;

use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore};
use tidegate_testkit::block_on;
use tidegate_testkit::nginx::NginxProcess;

use super::support::{import, rules};

/// Tables, and the keys that are made of them.
const TABLES: &str = r#"
  geo $inside { default 0; 127.0.0.0/8 1; 127.0.0.1 2; 10.0.0.0/8 1; }
  geo $outside { default 1; 192.168.0.0/16 0; }
  map $outside $by_network { 0 ""; 1 $binary_remote_addr; }
  map $inside $by_inner { 2 inner; 1 outer; default ""; }
  map $request_method $writes { default ""; POST $remote_addr; PUT $remote_addr; }
  map $http_x_plan $plan_key { default $remote_addr; gold ""; ~^team- $http_x_plan; "" anonymous; }
  map $http_user_agent $bot { default ""; ~*bot crawler; "~Bot/2" $http_user_agent; }
  map $uri $by_path { default ""; /export "e"; ~^/search $uri; ~/private ""; }
  map "$writes" $chained { "" reads; default $writes; }
  map $http_x_skip $kept { default $remote_addr; 1 ""; }
"#;
const KEYS: [&str; 12] = [
    "$by_network",
    "$by_inner",
    "$writes",
    "$plan_key",
    "$bot",
    "$by_path",
    "$kept",
    "$set_key",
    "$remote_addr$http_x_plan",
    "fixed$http_x_plan",
    "$http_x_plan$arg_none",
    "${host}-$request_method",
];
const SETS: &str = r#"
    set $set_key $http_x_plan;
    if ($request_method = POST) { set $set_key "post$http_x_plan"; }
    if ($http_x_skip) { set $set_key ""; }
    if ($http_user_agent ~* "bot") { set $set_key bots; }
"#;

struct AskedRequest {
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

fn requests() -> Vec<AskedRequest> {
    let mut requests = Vec::new();
    let plans = ["", "gold", "team-1", "team-2", "free"];
    let agents = ["", "curl", "GoogleBot", "xBot/2"];
    for (index, plan) in plans.into_iter().enumerate() {
        for (second, agent) in agents.into_iter().enumerate() {
            let paths = ["/", "/export", "/search/a", "/search/private"];
            let methods = ["GET", "POST", "PUT"];
            let mut headers = vec![("host", ["a.example", "b.example"][second % 2])];
            headers.extend(
                [("x-plan", plan), ("user-agent", agent)]
                    .into_iter()
                    .filter(|(_, v)| !v.is_empty()),
            );
            if (index + second) % 3 == 0 {
                headers.push(("x-skip", "1"));
            }
            requests.push(AskedRequest {
                method: methods[(index + 2 * second) % 3],
                path: paths[(index + second) % 4],
                headers,
            });
        }
    }
    requests
}

/// The rule that applies to a request, and the counter that it has there.
fn counted(rules: &RuleSet, request: &AskedRequest) -> Option<(String, String)> {
    let mut attributes = Attributes::new();
    attributes.insert("ip", "127.0.0.1").unwrap();
    attributes.insert("method", request.method).unwrap();
    attributes.insert("path", request.path).unwrap();
    for (name, value) in &request.headers {
        let name = if *name == "host" {
            "host".to_owned()
        } else {
            format!("header.{name}")
        };
        attributes.insert(name, *value).unwrap();
    }
    let gate = Gate::new(MemoryStore::new(), rules.clone());
    let explained = block_on(gate.explain(&attributes, &|_, value| value.to_owned()));
    let applied: Vec<_> = explained
        .rules()
        .iter()
        .filter(|rule| rule.applies())
        .collect();
    assert!(applied.len() <= 1, "one rule for each key: {applied:?}");
    let rule = applied.first()?;
    Some((rule.rule.id().to_owned(), format!("{:?}", rule.key)))
}

#[test]
fn requests_are_counted_by_the_key_that_nginx_has() {
    let mut headers = String::new();
    for (index, key) in KEYS.iter().enumerate() {
        writeln!(headers, "add_header X-Key-{index} \"[{key}]\" always;").unwrap();
    }
    let server = format!(
        "server {{ listen 127.0.0.1:PORT; root FOLDER; {SETS} location / {{ {headers} return 200 ok; }} }}"
    );
    let nginx = NginxProcess::start("nginx", &format!("{TABLES} {server}"));
    let mut connection = nginx.connect().unwrap();
    let requests = requests();
    let answers: Vec<_> = requests
        .iter()
        .map(|request| {
            let line = format!("{} {}", request.method, request.path);
            let headers = [&request.headers[..], &[("content-length", "0")]].concat();
            connection.ask(&line, &headers).unwrap()
        })
        .collect();
    for (index, key) in KEYS.iter().enumerate() {
        let text = format!(
            "{TABLES} limit_req_zone \"{key}\" zone=z:1m rate=1r/s; server {{ {SETS} limit_req zone=z; }}"
        );
        let imported = import(&text).unwrap();
        let rules = rules(&imported);
        let header = format!("x-key-{index}");
        let by_nginx: Vec<&str> = answers
            .iter()
            .map(|answer| answer.header(&header).unwrap())
            .collect();
        let by_rules: Vec<_> = requests
            .iter()
            .map(|request| counted(&rules, request))
            .collect();
        for (first, key_of_first) in by_nginx.iter().enumerate() {
            let at = || {
                format!(
                    "{key}: {} {} {:?} has {key_of_first}\n{}",
                    requests[first].method,
                    requests[first].path,
                    requests[first].headers,
                    imported.text
                )
            };
            assert_eq!(*key_of_first == "[]", by_rules[first].is_none(), "{}", at());
            for (second, key_of_second) in by_nginx.iter().enumerate() {
                let is_same = by_rules[first] == by_rules[second];
                assert_eq!(
                    key_of_first == key_of_second,
                    is_same,
                    "{} and {key_of_second}",
                    at()
                );
            }
        }
    }
}
