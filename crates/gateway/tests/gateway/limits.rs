//! The rules before the gateway: what they deny is not passed on.

use std::time::Duration;

use tidegate_listen::clock::now;

use crate::running::{Gateway, NO_RULES};
use crate::upstream::{Recorder, Upstream};
use tidegate_testkit::header;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn what_is_denied_is_not_passed_on_and_ours_replace_their_headers() {
    let mut upstream = Upstream::start().await;
    let rules = "rules:\n  - {id: admin, match: {path: /admin/**}, per: [ip], limit: 1/hour}\n";
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, rules);
    let (mut client, mut server, _) = gateway
        .begin(
            &mut upstream,
            "GET /x/../admin/a HTTP/1.1\r\nhost: a\r\n\r\n",
        )
        .await;
    server.send("HTTP/1.1 200 OK\r\nratelimit: \"theirs\";r=9\r\nx-ratelimit-limit: 9\r\ncontent-length: 0\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!(answer.matches("ratelimit:").count(), 1, "{answer}");
    assert_eq!(header(&answer, "x-ratelimit-limit"), Some("1"));
    for path in [
        "/admin/b",
        "//admin/b",
        "/%61dmin/b",
        "/admin;x/b",
        "/b/%2e%2e/admin",
    ] {
        client
            .send(&format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
            ))
            .await;
        let answer = client.answer().await;
        assert!(answer.starts_with("HTTP/1.1 429 "), "{path}: {answer}");
        assert_eq!(
            header(&answer, "content-type"),
            Some("application/problem+json")
        );
        assert!(header(&answer, "retry-after").is_some());
    }
    assert_eq!(
        gateway
            .metric(
                "tidegate_decisions_total{rule=\"admin\",front_end=\"gateway\",verdict=\"denied\"}"
            )
            .await,
        Some(5)
    );
}

#[tokio::test]
async fn a_rule_about_get_is_not_escaped_by_head() {
    let recorder = Recorder::start().await;
    let rules = "rules:\n- {id: get, match: {method: GET}, except: [{method: GET, path: /free}], per: [], limit: 1/day}\n";
    let settings = format!("upstream: http://{}\n", recorder.address);
    let gateway = Gateway::start(&settings, rules);
    let head = async |path: &str| {
        let request = format!("HEAD {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        // An answer to HEAD has the length of a body that does not come.
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(head("/a").await.starts_with("HTTP/1.1 200 "));
    for path in ["/a", "/free"] {
        let answer = head(path).await;
        assert!(answer.starts_with("HTTP/1.1 429 "), "{path}: {answer}");
    }
    assert!(gateway.get("/free").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn the_status_of_a_denial_follows_its_reason() {
    let recorder = Recorder::start().await;
    let rules = "rules:
- {id: over, match: {path: /over}, per: [], limit: 1/day}
- {id: blocked, match: {path: /blocked}, per: [], limit: blocked}
- {id: costly, match: {path: /costly}, per: [], limit: 1/day, cost: 2}
- {id: key, match: {path: /key}, per: [ip, api_key], missing: deny, limit: 1/day}
- {id: user, match: {path: /user}, per: [user_id], missing: deny, limit: 1/day}
- {id: team, match: {path: /team}, per: [header.x-team], missing: deny, limit: 1/day}
- {id: own, match: {path: /own}, per: [], limit: blocked, denied: {status: 451, title: Gone, headers: {X-Why: '{rule}'}}}
";
    let settings = format!(
        "upstream: http://{}\nidentify: {{api_key: {{header: x-api-key}}, user_id: {{cookie: session}}}}\ndenied: {{detail: 'ask {{rule}}'}}\n",
        recorder.address
    );
    let gateway = Gateway::start(&settings, rules);
    gateway.get("/over").await;
    let key = Some("ApiKey realm=\"tidegate\", header=\"x-api-key\"");
    for (path, status, title, challenge) in [
        (
            "/over",
            429,
            "Request cannot be satisfied as assigned quota has been exceeded",
            None,
        ),
        ("/blocked", 403, "Forbidden", None),
        (
            "/costly",
            429,
            "Request cannot be satisfied as assigned quota has been exceeded",
            None,
        ),
        ("/key", 401, "Unauthorized", key),
        (
            "/user",
            401,
            "Unauthorized",
            Some("ApiKey realm=\"tidegate\", cookie=\"session\""),
        ),
        ("/team", 400, "Bad Request", None),
        ("/own", 451, "Gone", None),
    ] {
        let answer = gateway.get(path).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {answer}"
        );
        assert_eq!(
            header(&answer, "www-authenticate"),
            challenge,
            "{path}: {answer}"
        );
        assert!(
            answer.contains(&format!("\"title\":\"{title}\",\"status\":{status}")),
            "{answer}"
        );
        let is_asked = answer.contains(&format!("\"detail\":\"ask {}\"", &path[1..]));
        assert_eq!(is_asked, path != "/own", "{answer}");
    }
    let own = gateway.get("/own").await;
    assert_eq!(header(&own, "x-why"), Some("own"));
}

#[tokio::test]
async fn a_client_cannot_choose_its_address() {
    let recorder = Recorder::start().await;
    let rules = "rules:\n  - {id: ip, per: [ip], limit: 1/hour}\n";
    let settings = format!("upstream: http://{}\n", recorder.address);
    let gateway = Gateway::start(&settings, rules);
    for (address, status) in [("1.1.1.1", "200"), ("2.2.2.2", "429")] {
        let answer = gateway
            .ask(&format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {address}\r\nforwarded: for={address}\r\n\r\n"))
            .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_request_that_has_to_wait_does() {
    let recorder = Recorder::start().await;
    let rules = "rules:\n  - {id: shaped, per: [], limit: 5/second burst 1, max_delay: 2s}\n";
    let settings = format!("upstream: http://{}\n", recorder.address);
    let gateway = Gateway::start(&settings, rules);
    let start = now();
    for _ in 0..3 {
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    }
    assert!(
        start.elapsed() >= Duration::from_millis(390),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_place_is_held_until_the_body_has_ended() {
    let mut upstream = Upstream::start().await;
    let rules = "rules:\n  - {id: jobs, per: [], limit: 1, algorithm: concurrency}\n";
    let settings = format!("upstream: http://{}\n", upstream.address);
    let gateway = Gateway::start(&settings, rules);
    let (mut client, mut server, _) = gateway
        .begin(&mut upstream, "GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    server
        .send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        .await;
    client.head().await;
    client.text(2).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "));
    assert_eq!(gateway.metric("tidegate_leases").await, Some(1));
    server.send("cd").await;
    client.text(2).await;
    gateway.metric_is("tidegate_leases", 0).await;
}

const BY_HOST: &str =
    "rules: [{id: host, match: {host: api.example.com}, per: [], limit: 1/hour}]\n";

#[tokio::test]
async fn no_spelling_of_a_host_and_no_missing_one_escapes_a_rule_or_a_route() {
    let recorder = Recorder::start().await;
    let address = recorder.address;
    let settings = format!("upstream: http://{address}\n");
    let gateway = Gateway::start(&settings, BY_HOST);
    let status = async |line: &str, host: &str| {
        let answer = gateway.ask(&format!("{line}\r\n{host}\r\n\r\n")).await;
        answer[9..12].parse::<u16>().unwrap()
    };
    let get = "GET / HTTP/1.1";
    assert_eq!(status(get, "host: api.example.com").await, 200);
    for host in [
        "API.example.com:8080",
        "api.example.com.",
        "api.example.com.:1",
    ] {
        assert_eq!(status(get, &format!("host: {host}")).await, 429, "{host}");
    }
    for host in [
        "api.example.com:x",
        "api.example.com:80:80",
        "api.example.com:8x",
    ] {
        assert_eq!(status(get, &format!("host: {host}")).await, 400, "{host}");
    }
    assert_eq!(status(get, "host: other.example.com").await, 200);
    // Without a host there is none that the rule could be about.
    assert_eq!(status("GET / HTTP/1.0", "x: y").await, 400);
    assert_eq!(
        status("GET / HTTP/1.0", "host: api.example.com:x").await,
        400
    );
    assert_eq!(status("GET / HTTP/1.0", "host: api.example.com").await, 429);
    assert_eq!(
        status("GET / HTTP/1.0", "host: other.example.com").await,
        200
    );

    let routes = format!(
        "routes: [{{host: api.example.com, upstreams: ['http://{address}']}}]\nupstream: http://{address}\n"
    );
    let gateway = Gateway::start(&routes, NO_RULES);
    let answer = gateway.ask("GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.0 400 "));
    // Where neither asks for a host, none is needed.
    let gateway = Gateway::start(&settings, NO_RULES);
    let answer = gateway.ask("GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer[8..].starts_with(" 200 "), "{answer}");
}
