//! One story through every proxy.

use std::net::SocketAddr;

use rustix::process::{Signal, WaitOptions, waitpid};

use super::from::ask;
use super::guide::Guide;
use super::proxy::Proxy;
use crate::server::{ProgramFolder, Server};
use tidegate_testkit_server::ClientReply;
use tidegate_testkit_server::RecordingUpstream;

/// A proxy between clients and a service, and the server that it asks.
pub(crate) struct Setup {
    pub(crate) folder: ProgramFolder,
    pub(crate) server: Server,
    pub(crate) upstream: RecordingUpstream,
    /// Where the proxy forwards to.
    service: SocketAddr,
}

impl Setup {
    /// The server as the guide sets it up, and a service.
    pub(crate) fn of(guide: &Guide) -> Self {
        let folder = ProgramFolder::new();
        folder.write("tidegate.yaml", &guide.yaml("# tidegate.yaml"));
        folder.write("rules.yaml", &guide.yaml("rules:"));
        Self::with_files(folder)
    }

    /// The same, but the server trusts another address than that of the proxy. `more` is added to its settings.
    pub(crate) fn distrusting(guide: &Guide, folder: ProgramFolder, more: &str) -> Self {
        let settings = guide.yaml("# tidegate.yaml");
        let trusting = "trusted_proxies: [127.0.0.1]";
        assert!(settings.contains(trusting), "{settings}");
        let settings = settings.replace(trusting, "trusted_proxies: [10.9.9.9]");
        folder.write("tidegate.yaml", &(settings + more));
        folder.write("rules.yaml", &guide.yaml("rules:"));
        Self::with_files(folder)
    }

    /// The server with the files of a folder, and a service.
    pub(crate) fn with_files(folder: ProgramFolder) -> Self {
        Self::with(folder, RecordingUpstream::start(), None)
    }

    /// The server with the files of a folder, and a service of its own.
    pub(crate) fn before(service: SocketAddr, folder: ProgramFolder) -> Self {
        Self::with(folder, RecordingUpstream::start(), Some(service))
    }

    fn with(
        folder: ProgramFolder,
        upstream: RecordingUpstream,
        service: Option<SocketAddr>,
    ) -> Self {
        let server = folder.serve(&["--config", "tidegate.yaml"]);
        Self {
            folder,
            server,
            service: service.unwrap_or(upstream.address),
            upstream,
        }
    }

    /// A text of the guide with the addresses of this setup.
    pub(crate) fn addressed(&self, text: &str) -> String {
        let text = text.replace("127.0.0.1:8080", &self.server.address.to_string());
        text.replace("127.0.0.1:9000", &self.service.to_string())
    }
}

/// What a proxy passes on of the answers that it gets.
pub(crate) struct Manners {
    /// Whether allowed answers have the headers of limits.
    pub(crate) shows_when_allowed: bool,
    /// Whether denied clients get the document that the server wrote.
    pub(crate) passes_problem: bool,
}

fn key(key: &str) -> [(&str, &str); 1] {
    [("x-api-key", key)]
}

/// Keys have limits of their own, and so have addresses, whatever clients write into headers.
pub(crate) fn play(setup: &Setup, proxy: &Proxy, manners: &Manners) {
    let get = |last, path: &str, headers: &[(&str, &str)]| {
        ask(last, proxy.address, &format!("GET {path}"), headers)
    };
    for left in [2, 1, 0] {
        let allowed = get(2, "/v1/items?page=1", &key("k1")).with_status(200);
        assert_eq!(allowed.body, "served");
        let limits = allowed.header("ratelimit");
        assert_eq!(limits.is_some(), manners.shows_when_allowed, "{allowed:?}");
        if let Some(limits) = limits {
            assert!(
                limits.contains(&format!("\"per-key\";r={left}")),
                "{limits}"
            );
            let policies = allowed.header("ratelimit-policy").unwrap();
            assert!(policies.contains("\"per-key\";q=3;w=60"), "{policies}");
        }
    }
    is_denied(&get(2, "/v1/items", &key("k1")), "per-key", manners);
    assert_eq!(setup.upstream.heads("/v1/items?page=1").len(), 3);
    assert_eq!(setup.upstream.heads("/v1/items").len(), 0);
    // Another key has its own limit; other paths have none; no spelling walks around the rule.
    get(2, "/v1/items", &key("k2")).with_status(200);
    let other = get(2, "/other", &key("k1")).with_status(200);
    assert_eq!(other.header("ratelimit"), None, "{other:?}");
    get(2, "/other/..//v%31/items", &key("k1")).with_status(429);
    // The service's own answers are left alone.
    get(2, "/forbidden", &[]).with_status(403);

    let spoofs: [&[(&str, &str)]; 4] = [
        &[],
        &[("x-forwarded-for", "203.0.113.1")],
        &[("x-forwarded-for", "203.0.113.2, 203.0.113.3")],
        &[("x-real-ip", "203.0.113.4")],
    ];
    for headers in spoofs {
        get(3, "/v1/items", headers).with_status(200);
    }
    get(3, "/v1/items", &[("x-forwarded-for", "203.0.113.5")]).with_status(200);
    let spoofed = get(3, "/v1/items", &[("x-forwarded-for", "203.0.113.6")]);
    is_denied(&spoofed, "per-address", manners);
    get(4, "/v1/items", &[]).with_status(200);

    // What a client says about its own request never opens anything.
    for headers in [
        [("x-forwarded-uri", "/other")],
        [("x-original-uri", "/other")],
        [("x-original-url", "http://localhost/other")],
        [("x-original-method", "OPTIONS")],
        [("x-forwarded-method", "OPTIONS")],
        [("forwarded", "for=203.0.113.9;host=other")],
        [("content-type", "application/grpc")],
    ] {
        let refused = get(3, "/v1/items", &headers);
        assert!(refused.status >= 400, "{headers:?} {refused:?}");
    }
    // A second identity, in the same header or in one that some services take for it.
    let two = [("x-api-key", "k7"), ("x-api-key", "k8")];
    get(6, "/v1/items", &two).with_status(400);
    let twin = [("x-api-key", "k7"), ("X_Api_Key", "k8")];
    let twin = get(6, "/v1/twin", &twin);
    // A proxy that drops such names passes the request on without it.
    let heads = setup.upstream.heads("/v1/twin");
    assert!(matches!(twin.status, 200 | 400), "{twin:?}");
    assert_eq!(heads.len(), usize::from(twin.status == 200), "{twin:?}");
    assert!(
        heads.iter().all(|head| !head.contains("x_api_key")),
        "{heads:?}"
    );
    // The header that the proxy does not write is not read.
    let other = [("x-api-key", "k9"), ("forwarded", "for=203.0.113.9")];
    get(6, "/v1/items", &other).with_status(200);
    let body = ask_with_body(proxy);
    assert_eq!((body.status, body.body.as_str()), (200, "served"));
}

/// A body goes to the service, and not to the server that decides.
fn ask_with_body(proxy: &Proxy) -> ClientReply {
    let mut client = tidegate_testkit_server::HttpClient::to(proxy.address);
    client.ask_with("POST /v1/upload", &[("x-api-key", "k9")], "{\"a\": 1}")
}

#[track_caller]
fn is_denied(reply: &ClientReply, limit: &str, manners: &Manners) {
    assert_eq!(reply.status, 429, "{reply:?}");
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{reply:?}");
    let limits = reply.header("ratelimit").unwrap();
    assert!(
        limits.contains(&format!("\"{limit}\";r=0;t={wait}")),
        "{limits}"
    );
    assert!(reply.header("ratelimit-policy").is_some(), "{reply:?}");
    let media_type = reply.header("content-type").unwrap();
    assert!(
        media_type.starts_with("application/problem+json"),
        "{media_type}"
    );
    let problem = reply.json();
    assert_eq!(problem["status"], 429);
    let kind = problem["type"].as_str().unwrap();
    assert!(kind.ends_with("#quota-exceeded"), "{kind}");
    if manners.passes_problem {
        assert_eq!(problem["violated-policies"][0], limit);
    }
}

/// The status that a client gets while the server has stopped and answers nothing.
pub(crate) fn status_with_stopped_server(setup: &Setup, proxy: &Proxy) -> u16 {
    setup.server.signal(Signal::STOP);
    // The signal has been sent, but its threads may run on for a while.
    let stopped = waitpid(Some(setup.server.pid()), WaitOptions::UNTRACED).unwrap();
    assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    let status = ask(7, proxy.address, "GET /v1/items", &[]).status;
    setup.server.signal(Signal::CONT);
    status
}

/// The status that clients get when no server can decide.
pub(crate) fn status_without_server(setup: Setup, proxy: &Proxy) -> u16 {
    let Setup {
        server, upstream, ..
    } = setup;
    server.kill();
    let reply = ask(5, proxy.address, "GET /v1/items", &[]);
    let forwarded = upstream
        .heads("/v1/items")
        .iter()
        .filter(|head| head.contains("127.0.0.5"))
        .count();
    assert!(reply.status == 200 || forwarded == 0);
    reply.status
}
