//! Which headers of a decision reach clients through a proxy, and that each arrives once, also where the
//! service sends headers of the same names.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::from::ask;
use super::proxy::Proxy;
use tidegate_testkit_server::PATIENCE;
use tidegate_testkit_server::{ClientReply, request};
use tidegate_testkit_server::{OWN_HEADERS, OWN_VALUE};

/// The headers of a limit that allowed and denied clients get alike.
const LIMITS: [&str; 5] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit",
    "ratelimit-policy",
];

/// What a proxy does with headers.
#[derive(Clone, Copy)]
pub(crate) struct Passing {
    /// Whether allowed clients get the headers of the limit.
    pub(crate) when_allowed: bool,
    /// Whether the service's own headers arrive where no rule applies.
    pub(crate) keeps_own: bool,
}

/// A limit of three requests, used up against a service that sends headers of the same names.
pub(crate) fn each_header_arrives_once(proxy: &Proxy, passing: Passing) {
    let get = |path: &str, key: &str| {
        let call = format!("GET {path}");
        ask(20, proxy.address, &call, &[("x-api-key", key)])
    };
    for left in ["2", "1", "0"] {
        let allowed = get("/v1/own", "h1").with_status(200);
        // The service says when to come back, and Tidegate does not.
        assert_eq!(values(&allowed, "retry-after"), [OWN_VALUE], "{allowed:?}");
        if passing.when_allowed {
            has_limits(&allowed, left);
        } else {
            for name in LIMITS {
                assert_eq!(values(&allowed, name), [OWN_VALUE], "{name}: {allowed:?}");
            }
        }
    }
    let denied = get("/v1/own", "h1").with_status(429);
    has_limits(&denied, "0");
    let wait = values(&denied, "retry-after");
    assert!(
        matches!(wait[..], [wait] if wait != OWN_VALUE),
        "{denied:?}"
    );

    // Errors of the service have them too.
    let failed = get("/v1/forbidden", "h2").with_status(403);
    let count = usize::from(passing.when_allowed);
    for name in LIMITS {
        assert_eq!(values(&failed, name).len(), count, "{name}: {failed:?}");
    }
    // No rule applies: there is nothing to say, and nothing empty is said.
    for (path, is_own) in [("/free", false), ("/own", true)] {
        let unlimited = get(path, "h1").with_status(200);
        let count = usize::from(is_own && passing.keeps_own);
        for name in LIMITS {
            let values = values(&unlimited, name);
            assert_eq!(values, vec![OWN_VALUE; count], "{name}: {unlimited:?}");
        }
    }
    // A request without a clear meaning has not been counted.
    let two = [("x-api-key", "h3"), ("x-api-key", "h4")];
    let refused = ask(20, proxy.address, "GET /v1/own", &two).with_status(400);
    for name in OWN_HEADERS {
        assert_eq!(values(&refused, name), [""; 0], "{name}: {refused:?}");
    }
}

#[track_caller]
fn has_limits(reply: &ClientReply, left: &str) {
    for name in LIMITS {
        let values = values(reply, name);
        assert!(
            matches!(values[..], [value] if value != OWN_VALUE),
            "{name}: {reply:?}"
        );
    }
    assert_eq!(reply.header("x-ratelimit-limit"), Some("3"), "{reply:?}");
    assert_eq!(
        reply.header("x-ratelimit-remaining"),
        Some(left),
        "{reply:?}"
    );
    let reset: u64 = reply.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset > 1_700_000_000, "{reply:?}");
    let limits = reply.header("ratelimit").unwrap();
    assert!(
        limits.starts_with(&format!("\"per-key\";r={left};t=")),
        "{limits}"
    );
    // A rule for each of two limits, in one header.
    assert!(limits.contains("\"per-address\";r="), "{limits}");
    let policies = reply.header("ratelimit-policy").unwrap();
    assert_eq!(
        policies.replace(' ', ""),
        "\"per-key\";q=3;w=60,\"per-address\";q=5;w=60"
    );
    for internal in ["x-ratelimit-status", "x-tidegate-lease"] {
        assert_eq!(reply.header(internal), None, "{reply:?}");
    }
}

fn values<'r>(reply: &'r ClientReply, name: &str) -> Vec<&'r str> {
    let named = reply.headers.iter().filter(|(known, _)| known == name);
    named.map(|(_, value)| value.as_str()).collect()
}

/// The beginning of a response arrives while its service is still writing.
pub(crate) fn a_response_is_streamed(proxy: &Proxy) {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let question = request("GET /v1/stream", &[("x-api-key", "h5")], "");
    stream.write_all(question.as_bytes()).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"data: first\n\n\r\n") {
        let mut bytes = [0; 1024];
        let length = stream.read(&mut bytes).unwrap();
        let so_far = String::from_utf8_lossy(&received);
        assert!(length > 0, "it ended after {so_far}");
        received.extend_from_slice(&bytes[..length]);
    }
    let head = String::from_utf8(received).unwrap().to_lowercase();
    assert!(head.contains("\r\nx-ratelimit-remaining: 2\r\n"), "{head}");
}
