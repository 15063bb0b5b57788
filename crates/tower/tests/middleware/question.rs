//! What a request is known by, and how it might try to be known by something else.

use axum::Router;
use axum::body::Body;
use http::Request;
use tidegate::address::{TrustedProxies, parse_network};
use tidegate::path::EncodedSlashes;
use tidegate_tower::{ForwardedHeader, PeerAddress, RateLimitLayer, UnderscoreHeaders};

use super::{app, from, gate, request, send, status, text};

const LOGIN: &str = "- {id: login, match: {path: /login}, per: [ip], limit: 1/minute}";

/// What an earlier layer has found out.
#[derive(Clone)]
struct User(&'static str);

/// Whether a second request, in another form, counts as one more of the first.
async fn counts_as(app: &Router, second: Request<Body>) -> bool {
    match status(app, second).await {
        200 => false,
        429 => true,
        other => panic!("answered with {other}"),
    }
}

#[tokio::test]
async fn no_other_spelling_of_a_path_gets_around_a_rule() {
    for path in [
        "//login",
        "/login/",
        "/./login",
        "/a/../login",
        "/%2e%2e/login",
        "/a/%2e%2e/login",
        "/%6cogin",
        "/a%2f..%2flogin",
        "/login;v=1",
        "/login?x=1",
        "/login%3bv=1",
        "http://example.com/login",
    ] {
        let app = app(RateLimitLayer::new(gate(LOGIN)));
        assert_eq!(status(&app, request("/login")).await, 200);
        assert!(counts_as(&app, request(path)).await, "{path}");
    }
    let app = app(RateLimitLayer::new(gate(LOGIN)));
    assert_eq!(status(&app, request("/login")).await, 200);
    for path in ["/LOGIN", "/login/x", "/%256cogin", "/"] {
        assert!(!counts_as(&app, request(path)).await, "{path}");
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_decoded_is_refused() {
    let app = app(RateLimitLayer::new(gate(LOGIN)));
    for path in ["/%zz", "/%00", "/%ff", "/login%"] {
        let refused = send(&app, request(path)).await;
        assert_eq!(refused.status(), 400, "{path}");
        assert_eq!(
            refused.headers()["content-type"],
            "application/problem+json"
        );
        let body: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
        assert_eq!(body["status"], 400);
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.starts_with("attribute `path`: "), "{detail}");
    }
}

#[tokio::test]
async fn an_encoded_slash_may_be_data() {
    let layer = RateLimitLayer::new(gate("- {id: a, match: {path: /a/b}, per: [], limit: 1/m}"));
    let decoding = app(layer.clone());
    assert_eq!(status(&decoding, request("/a%2fb")).await, 200);
    assert!(counts_as(&decoding, request("/a/b")).await);

    let keeping = app(layer.encoded_slashes(EncodedSlashes::Keep));
    assert_eq!(
        status(&keeping, request("/a%2fb")).await,
        200,
        "no rule applies"
    );
    assert!(counts_as(&keeping, request("/a/b")).await);
}

#[tokio::test]
async fn only_trusted_proxies_are_believed_about_addresses() {
    let forwarded = |peer: &str, name: &'static str, value: &str| {
        let mut request = from(peer, "/login");
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    let app_of = |proxies: &[&str]| {
        let proxies = proxies.iter().map(|text| parse_network(text).unwrap());
        let proxies: TrustedProxies = proxies.collect();
        app(RateLimitLayer::new(gate(LOGIN)).trusted_proxies(proxies))
    };
    let app = app_of(&[]);
    assert_eq!(status(&app, request("/login")).await, 200);
    for name in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let spoofed = forwarded("203.0.113.7", name, "198.51.100.1");
        assert!(counts_as(&app, spoofed).await, "{name}");
    }
    assert!(!counts_as(&app, from("203.0.113.8", "/login")).await);

    let app = app_of(&["10.0.0.0/8"]);
    let by = |value| forwarded("10.0.0.1", "x-forwarded-for", value);
    assert_eq!(status(&app, by("198.51.100.1")).await, 200);
    assert_eq!(status(&app, by("198.51.100.2")).await, 200);
    assert!(counts_as(&app, by("6.6.6.6, 198.51.100.1")).await);
    assert!(counts_as(&app, forwarded("10.0.0.2", "forwarded", "for=198.51.100.2")).await);
    let direct = forwarded("203.0.113.7", "x-forwarded-for", "198.51.100.3");
    assert_eq!(status(&app, direct).await, 200);
    assert!(counts_as(&app, request("/login")).await);
}

#[tokio::test]
async fn an_address_counts_in_one_form() {
    let app = app(RateLimitLayer::new(gate(LOGIN)));
    assert_eq!(status(&app, from("203.0.113.7", "/login")).await, 200);
    assert!(counts_as(&app, from("::ffff:203.0.113.7", "/login")).await);
    assert_eq!(status(&app, from("2001:db8::1", "/login")).await, 200);
    assert!(counts_as(&app, from("2001:db8::2", "/login")).await);
}

#[tokio::test]
async fn headers_that_rules_ask_about_are_read() {
    let list = "
- {id: team, match: {path: /team}, per: [header.x-team], missing: deny, limit: 1/minute}
- {id: beta, match: {attributes: {header.x-beta: '1'}}, per: [], limit: blocked}
- {id: eu, match: {when: '\"header.x-region\" in attributes && attributes[\"header.x-region\"] == \"eu\"'}, per: [], limit: blocked}";
    let app = app(RateLimitLayer::new(gate(list)));
    let with = |path, name: &'static str, values: &[&[u8]]| {
        let mut request = request(path);
        for value in values {
            let value = http::HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append(name, value);
        }
        request
    };
    assert_eq!(status(&app, request("/team")).await, 400, "missing");
    assert_eq!(status(&app, with("/team", "x-team", &[b"red"])).await, 200);
    assert_eq!(status(&app, with("/team", "x-team", &[b"red"])).await, 429);
    assert_eq!(
        status(&app, with("/team", "x-team", &[b"red", b"x"])).await,
        400,
        "servers do not agree on which of the two counts"
    );
    assert_eq!(status(&app, with("/team", "x-team", &[b"\xff"])).await, 200);
    assert_eq!(
        status(&app, with("/team", "x-team", &[&[b'x'; 9_000]])).await,
        400
    );
    assert_eq!(status(&app, with("/", "x-beta", &[b"1"])).await, 403);
    assert_eq!(status(&app, with("/", "x-beta", &[b"2"])).await, 200);
    assert_eq!(status(&app, with("/", "x-region", &[b"eu"])).await, 403);
    assert_eq!(status(&app, request("/")).await, 200);
}

#[tokio::test]
async fn a_host_is_given_once() {
    let list = "- {id: h, match: {host: api.example.com}, per: [], limit: blocked}";
    let app = app(RateLimitLayer::new(gate(list)));
    let hosts = |values: &[&str]| {
        let mut request = request("/");
        for value in values {
            request.headers_mut().append("host", value.parse().unwrap());
        }
        request
    };
    assert_eq!(status(&app, hosts(&["API.example.com:80"])).await, 403);
    assert_eq!(status(&app, hosts(&["other.example.com"])).await, 200);
    assert_eq!(
        status(&app, hosts(&["other.example.com", "api.example.com"])).await,
        400
    );
    for (uri, host, expected) in [
        ("http://api.example.com/", "API.example.com:80", 403),
        // A service may go by either.
        ("http://api.example.com/", "other.example.com", 400),
        ("http://other.example.com/", "api.example.com", 400),
    ] {
        let mut whole = request(uri);
        whole.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(status(&app, whole).await, expected, "{uri} {host}");
    }
}

#[tokio::test]
async fn no_form_of_a_host_gets_around_a_rule() {
    let list = "- {id: h, match: {host: api.example.com}, per: [], limit: blocked}";
    let layer = RateLimitLayer::new(gate(list));
    let limited = app(layer.clone());
    let with_host = |host: &str| {
        let mut request = request("/");
        request.headers_mut().insert("host", host.parse().unwrap());
        request
    };
    for host in [
        "api.example.com.",
        "API.example.com:8080",
        "api.example.com.:1",
    ] {
        assert_eq!(status(&limited, with_host(host)).await, 403, "{host}");
    }
    for host in [
        "api.example.com:x",
        "api.example.com:8x",
        "api.example.com:80:80",
        "api.example.com..",
        "api%2eexample.com",
        "[api.example.com]",
    ] {
        let refused = send(&limited, with_host(host)).await;
        assert_eq!(refused.status(), 400, "{host}");
        let body = text(refused).await;
        assert!(body.contains("is not a host"), "{body}");
    }
    assert_eq!(status(&limited, request("/")).await, 400, "without a host");
    // A program may say that it does not mind, or which host it is.
    let open = app(layer.clone().allow_missing_host());
    assert_eq!(status(&open, request("/")).await, 200);
    let named = app(layer.attributes(|_, attributes| attributes.set("host", "api.example.com")));
    assert_eq!(status(&named, request("/")).await, 403);
    // Where no rule asks for a host, none is needed.
    let free = app(RateLimitLayer::new(gate(LOGIN)));
    assert_eq!(status(&free, request("/")).await, 200);
}

#[tokio::test]
async fn a_service_that_resolves_nothing_is_limited_by_the_path_as_it_was_sent() {
    let list = "- {id: search, match: {path: /v1/**}, per: [ip], limit: 1/minute}";
    for path in [
        "/v1/search/foo%2f..%2f..%2f..%2fx",
        "/v1/files/a/../../../x",
        "/v1/files/%2e%2e/%2e%2e/x",
        "/v1/search/..;/..;/..;/x",
        "/v1/..%3b/x",
        "/v1%2fsearch/../../x",
    ] {
        let app = app(RateLimitLayer::new(gate(list)));
        assert_eq!(status(&app, request("/v1/search/foo")).await, 200);
        assert!(counts_as(&app, request(path)).await, "{path}");
    }
}

#[tokio::test]
async fn a_program_says_who_asks_and_what_it_costs() {
    let list = "
- {id: user, per: [user_id], limit: 10/minute, tiers: {pro: 100/minute}}
- {id: ip, match: {method: GET}, per: [ip], limit: 1/minute}";
    let as_user = |user| {
        let mut request = request("/");
        request.extensions_mut().insert(User(user));
        request
    };
    let layer = RateLimitLayer::new(gate(list)).attributes(|request, attributes| {
        if let Some(user) = request.extensions.get::<User>() {
            attributes.set("user_id", user.0)?;
            attributes.set("tier", "pro")?;
            attributes.set("ip", "")?;
        }
        Ok(())
    });
    let app_of_all = app(layer.cost(|request| if request.uri.path() == "/" { 7 } else { 1 }));
    let answer = send(&app_of_all, as_user("u1")).await;
    assert_eq!(answer.headers()["x-ratelimit-remaining"], "93");
    assert_eq!(
        status(&app_of_all, request("/")).await,
        429,
        "7 of 1 by address"
    );

    let only = RateLimitLayer::new(gate(list)).only_attributes(|request, attributes| {
        let agent = request.headers.get("user-agent");
        attributes.insert(
            "user_id",
            agent.map_or("", |agent| agent.to_str().unwrap_or("?")),
        )
    });
    let only = app(only);
    for _ in 0..3 {
        assert_eq!(
            status(&only, request("/")).await,
            200,
            "no address, no method"
        );
    }
    let failing = RateLimitLayer::new(gate(list))
        .attributes(|_, attributes| attributes.set("ip", "not an address"));
    assert_eq!(status(&app(failing), request("/")).await, 400);
}

#[tokio::test]
async fn the_peer_may_be_found_elsewhere() {
    let layer = RateLimitLayer::new(gate(LOGIN))
        .peer_address(|request| Some(request.extensions.get::<std::net::SocketAddr>()?.ip()));
    let app = app(layer);
    let of = |address: &str| {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = "/login".parse().unwrap();
        let address: std::net::SocketAddr = address.parse().unwrap();
        assert_eq!(PeerAddress::from(address), PeerAddress(address.ip()));
        request.extensions_mut().insert(address);
        request
    };
    assert_eq!(status(&app, of("203.0.113.7:1")).await, 200);
    assert_eq!(status(&app, of("203.0.113.7:2")).await, 429);
    assert_eq!(status(&app, of("203.0.113.8:1")).await, 200);
}

/// A request with these headers, which need not be text.
fn with(path: &str, headers: &[(&'static str, &[u8])]) -> Request<Body> {
    let mut request = request(path);
    for (name, value) in headers {
        let value = http::HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(*name, value);
    }
    request
}

#[tokio::test]
async fn authorization_counts_in_one_form() {
    let list = "
- {id: a, per: [header.authorization], limit: 1/minute, overrides: {'BEARER  vip': unlimited}}
- {id: b, match: {attributes: {header.authorization: 'Bearer   bad'}}, per: [], limit: blocked}";
    let app = app(RateLimitLayer::new(gate(list)));
    let asks = |value: &'static str| with("/", &[("authorization", value.as_bytes())]);
    assert_eq!(status(&app, asks("Bearer t")).await, 200);
    for value in [
        "bearer t",
        "BEARER t",
        "Bearer   t",
        "Bearer\tt",
        " bearer t ",
    ] {
        assert!(counts_as(&app, asks(value)).await, "{value:?}");
    }
    assert!(!counts_as(&app, asks("Bearer T")).await, "another token");
    for value in ["Bearer vip", "bearer vip", "bearer \t vip"] {
        assert_eq!(status(&app, asks(value)).await, 200, "{value:?}");
    }
    assert_eq!(status(&app, asks("BEARER bad")).await, 403);
    // Express goes by the first of two, others by both.
    let two = [("authorization", &b"Bearer t"[..]), ("authorization", b"x")];
    assert_eq!(status(&app, with("/", &two)).await, 400);
}

#[tokio::test]
async fn headers_that_are_not_utf8_do_not_collide() {
    let list = "- {id: a, per: [header.x-key], limit: 1/minute}";
    let app = app(RateLimitLayer::new(gate(list)));
    for value in [
        &b"k\xff"[..],
        b"k\xfe",
        "k\u{fffd}".as_bytes(),
        "k\u{fffd}FF".as_bytes(),
        b"k",
    ] {
        let asks = || with("/", &[("x-key", value)]);
        assert_eq!(status(&app, asks()).await, 200, "{value:?}");
        assert!(counts_as(&app, asks()).await, "{value:?}");
    }
}

#[tokio::test]
async fn a_header_that_clients_are_counted_by_has_one_value() {
    let list = "
- {id: a, match: {path: /a}, per: [header.x-key], limit: 1/minute}
- {id: c, match: {path: /c}, per: [header.cookie], limit: 1/minute}";
    let app = app(RateLimitLayer::new(gate(list)));
    assert_eq!(status(&app, with("/a", &[("x-key", b"k")])).await, 200);
    let same = [("x-key", &b"k"[..]), ("x-key", b" k ")];
    assert!(counts_as(&app, with("/a", &same)).await);
    let different = [("x-key", &b"k"[..]), ("x-key", b"junk")];
    assert_eq!(status(&app, with("/a", &different)).await, 400);
    // Cookies may come in pieces.
    let whole = with("/c", &[("cookie", b"a=1; b=2")]);
    assert_eq!(status(&app, whole).await, 200);
    let pieces = [("cookie", &b"a=1"[..]), ("cookie", b"b=2")];
    assert!(counts_as(&app, with("/c", &pieces)).await);
}

/// A service that answers with the names of the headers that it got.
fn showing(layer: RateLimitLayer) -> Router {
    let names = async |headers: http::HeaderMap| {
        let names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
        names.join(" ")
    };
    Router::new()
        .fallback(axum::routing::any(names))
        .layer(layer)
}

#[tokio::test]
async fn an_underscore_twin_of_a_header_that_is_read_is_dropped_or_refused() {
    let list = "- {id: a, per: [header.x-api-key], missing: deny, limit: 1/minute}";
    let layer = RateLimitLayer::new(gate(list)).reads_headers(["x-user-id".parse().unwrap()]);
    let dropping = showing(layer.clone());
    let twins = [
        ("x-api-key", &b"k"[..]),
        ("x_api_key", b"other"),
        ("x-user_id", b"u"),
        ("content_length", b"9"),
        ("x_team", b"red"),
    ];
    let answer = send(&dropping, with("/", &twins)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(text(answer).await, "x-api-key x_team");
    let alone = with("/", &[("x_api_key", b"k2")]);
    assert_eq!(status(&dropping, alone).await, 400, "it is missing");

    let refusing = showing(layer.underscore_headers(UnderscoreHeaders::Refuse));
    for name in ["x_api_key", "x-user_id", "transfer_encoding"] {
        let refused = send(&refusing, with("/", &[(name, b"k")])).await;
        assert_eq!(refused.status(), 400, "{name}");
        let detail = text(refused).await;
        assert!(detail.contains(&format!("`{name}`")), "{detail}");
    }
    let other = with("/", &[("x-api-key", b"k9"), ("x_team", b"red")]);
    assert_eq!(status(&refusing, other).await, 200);
}

#[tokio::test]
async fn two_headers_that_name_different_clients_are_refused_or_one_is_read() {
    let proxies: TrustedProxies = [parse_network("203.0.113.0/24").unwrap()]
        .into_iter()
        .collect();
    let layer = || RateLimitLayer::new(gate(LOGIN)).trusted_proxies(proxies.clone());
    let both = [
        ("x-forwarded-for", &b"198.51.100.1"[..]),
        ("forwarded", b"for=198.51.100.2"),
    ];
    let refusing = showing(layer());
    assert_eq!(status(&refusing, with("/login", &both)).await, 400);
    let same = [
        ("x-forwarded-for", &b"198.51.100.1"[..]),
        ("forwarded", b"for=198.51.100.1"),
    ];
    assert_eq!(status(&refusing, with("/login", &same)).await, 200);
    for (header, kept, value) in [
        (ForwardedHeader::XForwardedFor, "x-forwarded-for", both[0].1),
        (ForwardedHeader::Forwarded, "forwarded", both[1].1),
    ] {
        let app = showing(layer().forwarded_header(header));
        let answer = send(&app, with("/login", &both)).await;
        assert_eq!(text(answer).await, kept);
        assert!(counts_as(&app, with("/login", &[(kept, value)])).await);
    }
}
