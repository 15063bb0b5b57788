//! Forward-auth as a proxy meets it, on connections by hand. The real proxies are in `tests/proxies`.

use std::io;

use serde_json::json;

use crate::Server;
use tidegate_testkit_server::HttpClient;
use tidegate_testkit_server::TestFolder;

/// A server that trusts this machine, with these settings and rules.
fn serve(folder: &TestFolder, settings: &str, rules: &str) -> Server {
    let settings = settings.replace("clients.yaml", &folder.file("clients.yaml"));
    folder.write("tidegate.yaml", &settings);
    folder.write("rules.yaml", &format!("rules:\n{rules}"));
    folder.serve(&["--config", "tidegate.yaml", "--rules", "rules.yaml"])
}

const TRUSTING: &str = "trusted_proxies: [127.0.0.1]\n";

const LOGIN: &str = "- {id: login, match: {path: /login, method: POST, host: a.example}, per: [ip], limit: 1/hour}\n";

fn login(client: &str) -> [(&str, &str); 4] {
    [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/x/../%6cogin?next=/"),
        ("x-forwarded-host", "A.example:8443"),
        ("x-forwarded-for", client),
    ]
}

#[test]
fn a_trusted_proxy_says_which_request_it_is_about() {
    let folder = TestFolder::new();
    let server = serve(&folder, TRUSTING, LOGIN);
    let mut client = server.client();
    for method in ["GET", "POST", "DELETE", "PROPFIND"] {
        let other = format!("203.0.113.{}", method.len());
        let call = format!("{method} /v1/authorize");
        let allowed = client.ask_with(&call, &login(&other), "").with_status(200);
        assert_eq!(allowed.body, "");
        assert_eq!(allowed.header("x-ratelimit-remaining"), Some("0"));
        let denied = client.ask_with(&call, &login(&other), "").with_status(429);
        assert!(denied.header("retry-after").is_some());
        assert!(
            denied
                .header("ratelimit")
                .unwrap()
                .starts_with("\"login\";r=0;t=")
        );
        assert!(denied.detail().contains("`login` is used up"));
        assert_eq!(denied.json()["violated-policies"], json!(["login"]));
    }
    // What is not said does not match; but a host must be said if a rule asks for it.
    let silent = [("x-forwarded-for", "203.0.113.3")];
    let refused = client
        .ask_with("GET /v1/authorize", &silent, "")
        .with_status(400);
    assert!(refused.detail().contains("`X-Forwarded-Host`"));
    let silent = [silent[0], ("x-forwarded-host", "a.example")];
    let unmatched = client
        .ask_with("GET /v1/authorize", &silent, "")
        .with_status(200);
    assert_eq!(unmatched.header("ratelimit"), None);
    server
        .log
        .wait_for("a trusted proxy asked /v1/authorize without X-Forwarded-Uri");
    let metrics = server.ask("GET /metrics", "").body;
    let counted =
        r#"tidegate_decisions_total{rule="login",front_end="authorize",verdict="denied"} 4"#;
    assert!(metrics.contains(counted), "{metrics}");
    server.log.wait_for("denied rule=\"login\"");
}

#[test]
fn of_others_only_the_address_is_known() {
    let folder = TestFolder::new();
    let rules = format!("{LOGIN}- {{id: each, per: [ip], limit: 3/hour}}\n");
    let server = serve(&folder, "trusted_proxies: [10.0.0.0/8]\n", &rules);
    let mut client = server.client();
    // What no rule reads refuses nothing.
    let others = [("x-forwarded-proto", "https"), ("x-real-ip", "203.0.113.7")];
    for _ in 0..3 {
        let allowed = client.ask_with("POST /v1/authorize", &others, "");
        let allowed = allowed.with_status(200);
        let policy = allowed.header("ratelimit-policy").unwrap();
        assert!(!policy.contains("login"), "{policy}");
    }
    client.ask("POST /v1/authorize", "").with_status(429);
}

/// The headers in which proxies describe another request.
const DESCRIPTIONS: [(&str, &str); 8] = [
    ("X-Forwarded-For", "203.0.113.7"),
    ("X-Forwarded-Method", "POST"),
    ("X-Forwarded-Uri", "/login"),
    ("X-Forwarded-Host", "a.example"),
    ("X-Original-Method", "POST"),
    ("X-Original-URI", "/login"),
    ("X-Original-URL", "http://a.example/login"),
    ("Forwarded", "for=203.0.113.7"),
];

#[test]
fn a_proxy_that_is_not_trusted_gets_no_request_through() {
    let folder = TestFolder::new();
    let server = serve(&folder, "trusted_proxies: [10.9.9.9]\n", LOGIN);
    let mut client = server.client();
    for header in DESCRIPTIONS {
        let refused = client.ask_with("GET /v1/authorize", &[header], "");
        let refused = refused.with_status(403);
        assert_eq!(refused.json()["reason"], "untrusted_proxy", "{header:?}");
        let detail = refused.detail();
        assert!(
            detail.contains("`127.0.0.1`") && detail.contains("`trusted_proxies`"),
            "{detail}"
        );
        for status in [401, 403, 429] {
            let call = format!("GET /v1/authorize?deny_status={status}");
            let refused = client.ask_with(&call, &[header], "").with_status(status);
            assert_eq!(refused.header("x-ratelimit-status"), Some("403"));
            let reason = refused.header("x-ratelimit-reason");
            assert_eq!(reason, Some("untrusted_proxy"));
        }
    }
    // Said once, whatever comes.
    let logged = server.log.wait_for("is not a trusted proxy");
    assert_eq!(
        logged.matches("is not a trusted proxy").count(),
        1,
        "{logged}"
    );
    let metrics = server.ask("GET /metrics", "").body;
    assert!(
        metrics.contains("tidegate_untrusted_proxy_total 32"),
        "{metrics}"
    );
    let ready = server.ask("GET /readyz", "").with_status(200).json();
    let warnings = ready["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{ready}");
    let warning = warnings[0].as_str().unwrap();
    assert!(
        warning.contains("`127.0.0.1` to `trusted_proxies`"),
        "{warning}"
    );
    // What the console shows.
    let status = server.ask("GET /v1/status", "").json();
    assert_eq!(status["warnings"], ready["warnings"]);
}

#[test]
fn denied_clients_get_what_the_rule_or_the_settings_say() {
    let folder = TestFolder::new();
    let settings =
        format!("{TRUSTING}denied: {{title: 'Slow down', headers: {{X-Help: '{{rule}}'}}}}\n");
    let rules = "- {id: all, match: {path: /all}, per: [], limit: 1/hour}\n\
        - {id: own, match: {path: /own}, per: [], limit: 1/hour, denied: {status: 403}}\n";
    let server = serve(&folder, &settings, rules);
    let ask = |path| server.ask_with("GET /v1/authorize", &about(path, "203.0.113.7"), "");
    assert_eq!([ask("/all").status, ask("/own").status], [200, 200]);
    let all = ask("/all").with_status(429);
    assert_eq!(all.json()["title"], "Slow down");
    assert_eq!(all.header("x-help"), Some("all"));
    let own = ask("/own").with_status(403);
    assert_eq!(own.header("x-help"), None);
    // How long to wait is said whatever the status is.
    assert!(own.header("retry-after").is_some());
    let check = json!({"attributes": {"path": "/own"}}).to_string();
    server.ask("POST /v1/check", &check).with_status(429);
}

/// Settings with two tokens.
fn with_tokens(folder: &TestFolder, settings: &str) -> String {
    folder.write("proxy-token", "a-token-of-the-proxy");
    folder.write("reader-token", "a-token-of-the-reader");
    let token = |name: &str, scope: &str| {
        let file = folder.file(&format!("{name}-token"));
        format!("- {{name: {name}, token_file: {file}, scopes: [{scope}]}}\n")
    };
    let (proxy, reader) = (token("proxy", "check"), token("reader", "read"));
    format!("{settings}tokens:\n{proxy}{reader}")
}

#[test]
fn a_proxy_is_trusted_by_a_token_too() {
    let folder = TestFolder::new();
    let settings = with_tokens(&folder, "access_log: stderr\n");
    let rules = "- {id: login, match: {path: /login, method: POST, host: a.example}, per: [ip], limit: 1/hour}\n\
        - {id: leak, match: {attributes: {header.x-tidegate-token: a-token-of-the-proxy}}, per: [], limit: blocked}\n";
    let server = serve(&folder, &settings, rules);
    let ask = |token: Option<&str>, client: &str| {
        let mut headers = login(client).to_vec();
        headers.extend(token.map(|token| ("x-tidegate-token", token)));
        server.ask_with("GET /v1/authorize", &headers, "")
    };
    for client in ["203.0.113.7", "203.0.113.8", "127.0.0.1, 203.0.113.9"] {
        let proxy = Some("a-token-of-the-proxy");
        let statuses = [ask(proxy, client).status, ask(proxy, client).status];
        assert_eq!(statuses, [200, 429], "{client}");
    }
    for (token, about) in [
        (None, "`X-Tidegate-Token`"),
        (Some("a-token-of-the-reader"), "the scope `check`"),
        (Some("a-token-of-the-proxi"), "unknown token"),
    ] {
        let refused = ask(token, "203.0.113.7").with_status(403);
        assert_eq!(refused.json()["reason"], "untrusted_proxy");
        assert!(refused.detail().contains(about), "{}", refused.detail());
    }
    let metrics = server.ask("GET /metrics", "").body;
    for (reason, count) in [("unknown", 1), ("scope", 1)] {
        let line = format!(
            "tidegate_token_refused_total{{front_end=\"authorize\",reason=\"{reason}\"}} {count}"
        );
        assert!(metrics.contains(&line), "{metrics}");
    }
    let log = server.log.wait_for("denied rule=\"login\"");
    assert!(!log.contains("a-token-of"), "{log}");
}

#[test]
fn with_tokens_only_proxies_are_answered() {
    for (open, status) in [("", 403), ("open_authorize: true\n", 200)] {
        let folder = TestFolder::new();
        let settings = with_tokens(&folder, open);
        let server = serve(
            &folder,
            &settings,
            "- {id: each, per: [ip], limit: 1/hour}\n",
        );
        let reply = server.ask("GET /v1/authorize", "").with_status(status);
        if status == 403 {
            assert_eq!(reply.json()["reason"], "not_a_proxy");
            for advice in [
                "`trusted_proxies`",
                "`X-Tidegate-Token`",
                "`open_authorize`",
            ] {
                assert!(reply.detail().contains(advice), "{}", reply.detail());
            }
            let metrics = server.ask("GET /metrics", "").body;
            assert!(metrics.contains("tidegate_untrusted_proxy_total 0"));
        } else {
            // By its own address.
            server.ask("GET /v1/authorize", "").with_status(429);
        }
        let described = server.ask_with("GET /v1/authorize", &login("203.0.113.7"), "");
        assert_eq!(
            described.with_status(403).json()["reason"],
            "untrusted_proxy"
        );
    }
}

#[test]
fn a_proxy_chooses_how_a_denial_looks() {
    let folder = TestFolder::new();
    let rules = "- {id: none, per: [], limit: blocked}\n";
    let server = serve(&folder, "", rules);
    for status in [401, 403, 429] {
        let call = format!("GET /v1/authorize?a=b&deny_status={status}");
        let denied = server.ask(&call, "").with_status(status);
        assert_eq!(denied.header("x-ratelimit-status"), Some("403"));
        assert_eq!(denied.header("x-ratelimit-reason"), Some("blocked"));
        assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
        assert_eq!(denied.json()["status"], 403);
    }
    let denied = server.ask("GET /v1/authorize", "").with_status(403);
    assert_eq!(denied.json()["reason"], "blocked");
    assert_eq!(denied.header("x-ratelimit-status"), None);
    assert_eq!(denied.header("x-ratelimit-reason"), None);
    // Never 200, whatever the client speaks: to a proxy that would be a yes.
    let grpc = [("content-type", "application/grpc")];
    server
        .ask_with("POST /v1/authorize", &grpc, "")
        .with_status(403);
    for query in [
        "deny_status=500",
        "deny_status=",
        "deny_status=401&deny_status=403",
        "deny_status",
    ] {
        let refused = server
            .ask(&format!("GET /v1/authorize?{query}"), "")
            .with_status(400);
        assert!(refused.detail().contains("401, 403 or 429"));
    }
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    let folder = TestFolder::new();
    let server = serve(&folder, TRUSTING, LOGIN);
    let table: [&[(&str, &str)]; 5] = [
        &[("x-forwarded-uri", "/%zz")],
        &[("x-original-uri", "/a%00")],
        &[("x-forwarded-uri", "/a"), ("x-original-uri", "/b")],
        &[("x-original-uri", "/a"), ("x-original-uri", "/b")],
        &[("x-forwarded-host", "a, b")],
    ];
    for headers in table {
        let refused = server
            .ask_with("GET /v1/authorize", headers, "")
            .with_status(400);
        refused.detail();
    }
}

/// A question about a request for a path, of an address.
fn about<'a>(path: &'a str, client: &'a str) -> [(&'a str, &'a str); 3] {
    [
        ("x-forwarded-uri", path),
        ("x-forwarded-host", "api.example.com"),
        ("x-forwarded-for", client),
    ]
}

/// What a server that does not resolve paths takes for `/v1/...`, and what another one would take for it.
const SPELLINGS: [&str; 9] = [
    "/v1/files/a/../../../x",
    "/v1/files/%2e%2e/%2E%2e/x",
    "/v1/search/..",
    "/v1/./search",
    "/v1/search/..;/..;/..;/x",
    "/v1/..%3b/x",
    "/x/../v1/search",
    "/x/..//v1;y/search",
    "//v1//search",
];

#[test]
fn a_path_that_goes_on_as_it_came_loses_no_rule() {
    let folder = TestFolder::new();
    let rules = "- {id: v1, match: {path: /v1/**}, per: [ip], limit: 2/hour}\n\
        - {id: x, match: {path: /x}, per: [ip], limit: 9/hour}\n";
    let server = serve(&folder, TRUSTING, rules);
    let mut client = server.client();
    for (last, path) in SPELLINGS.iter().enumerate() {
        let address = format!("203.0.113.{last}");
        let call = "GET /v1/authorize";
        client
            .ask_with(call, &about("/v1/search/foo", &address), "")
            .with_status(200);
        // Charged once, whatever matches.
        let allowed = client
            .ask_with(call, &about(path, &address), "")
            .with_status(200);
        let limits = allowed.header("ratelimit").unwrap();
        assert!(limits.contains("\"v1\";r=0"), "{path}: {limits}");
        assert_eq!(limits.matches("\"v1\"").count(), 1, "{path}: {limits}");
        client
            .ask_with(call, &about(path, &address), "")
            .with_status(429);
    }
    // The rule for what the path resolves to applies as well.
    let both = client
        .ask_with("GET /v1/authorize", &about("/v1/../x", "203.0.113.99"), "")
        .with_status(200);
    let policies = both.header("ratelimit-policy").unwrap();
    assert!(
        policies.contains("\"v1\"") && policies.contains("\"x\""),
        "{policies}"
    );
}

#[test]
fn a_fragment_hides_neither_a_path_nor_a_key() {
    let folder = TestFolder::new();
    let settings = format!("{TRUSTING}identify: {{api_key: {{query: api_key}}}}\n");
    let rules = "- {id: items, match: {path: /v1/*/items}, per: [ip], limit: 1/hour}\n\
        - {id: keys, match: {path: /keys}, per: [api_key], missing: deny, limit: 1/hour}\n";
    let server = serve(&folder, &settings, rules);
    let mut client = server.client();
    let mut ask = |path: &str| {
        let question = about(path, "203.0.113.7");
        client.ask_with("GET /v1/authorize", &question, "").status
    };
    // Go and wsgiref take the fragment for a part of the path, Express and nginx do not.
    assert_eq!([ask("/v1/a#/items"), ask("/v1/b#/items")], [200, 429]);
    assert_eq!(ask("/v1/c/items#x"), 429);
    // To Express and nginx all of these are the same key.
    assert_eq!(
        [ask("/keys?api_key=k#1"), ask("/keys?api_key=k#2")],
        [200, 429]
    );
    assert_eq!(ask("/keys?api_key=k"), 429);
}

#[test]
fn an_encoded_slash_is_refused_or_kept_as_at_the_gateway() {
    let hidden = [
        "/v1/search/foo%2f..%2f..%2f..%2fx",
        "/v1%2Fsearch",
        "/v1/search/a%5c..%5cb",
        "/v1/search/a\\b",
    ];
    let rules = "- {id: v1, match: {path: '/v1/search/*'}, per: [ip], limit: 1/hour}\n";
    let folder = TestFolder::new();
    let server = serve(&folder, TRUSTING, rules);
    for path in hidden {
        let refused = server
            .ask_with("GET /v1/authorize", &about(path, "203.0.113.1"), "")
            .with_status(400);
        assert!(refused.detail().contains("encoded slash"), "{path}");
    }
    let folder = TestFolder::new();
    let keeping = format!("{TRUSTING}encoded_slashes: keep\n");
    let server = serve(&folder, &keeping, rules);
    for (last, (path, applies)) in hidden.iter().zip([true, false, true, true]).enumerate() {
        let address = format!("203.0.113.{last}");
        let ask = || {
            server
                .ask_with("GET /v1/authorize", &about(path, &address), "")
                .status
        };
        assert_eq!(
            [ask(), ask()],
            [200, if applies { 429 } else { 200 }],
            "{path}"
        );
    }
}

#[test]
fn no_spelling_of_a_host_escapes_a_rule() {
    let folder = TestFolder::new();
    let rules = "- {id: host, match: {host: api.example.com}, per: [], limit: 1/hour}\n";
    let server = serve(&folder, TRUSTING, rules);
    let ask = |name: &str, host: &str| {
        let headers = [(name, host), ("x-forwarded-for", "203.0.113.1")];
        server.ask_with("GET /v1/authorize", &headers, "").status
    };
    assert_eq!(ask("x-forwarded-host", "api.example.com"), 200);
    for host in ["API.example.com.:80", "api.example.com:443"] {
        assert_eq!(ask("x-forwarded-host", host), 429, "{host}");
    }
    for host in [
        "api.example.com:x",
        "api.example.com:8x",
        "api.example.com:80:80",
        "api.example.com:",
        "api.example.com..",
        "..",
        "api%2eexample.com",
        "[api.example.com]",
    ] {
        assert_eq!(ask("x-forwarded-host", host), 400, "{host}");
        assert_eq!(ask("forwarded", &format!("host=\"{host}\"")), 400, "{host}");
        assert_eq!(ask("x-original-url", &format!("http://{host}/")), 400);
    }
    assert_eq!(ask("x-forwarded-method", "GET"), 400, "no host");
}

#[test]
fn a_refused_question_has_the_status_that_the_proxy_understands() {
    let folder = TestFolder::new();
    let settings =
        format!("{TRUSTING}identify: {{api_key: [{{header: x-api-key}}, {{query: api_key}}]}}\n");
    let server = serve(&folder, &settings, LOGIN);
    let table: [&[(&str, &str)]; 5] = [
        &[("x-api-key", "junk"), ("x-forwarded-uri", "/?api_key=k")],
        &[("x_api_key", "k")],
        &[("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=5.6.7.8")],
        &[("x-forwarded-uri", "/a"), ("x-original-uri", "/b")],
        &[("x-forwarded-uri", "/%zz")],
    ];
    for headers in table {
        for status in [401, 403, 429] {
            let call = format!("GET /v1/authorize?deny_status={status}");
            let refused = server.ask_with(&call, headers, "").with_status(status);
            assert_eq!(refused.header("x-ratelimit-status"), Some("400"));
            assert_eq!(refused.json()["status"], 400, "{headers:?}");
        }
        let refused = server.ask_with("GET /v1/authorize", headers, "");
        let refused = refused.with_status(400);
        assert_eq!(refused.header("x-ratelimit-status"), None);
        refused.detail();
    }
}

#[test]
fn authorization_is_the_clients_own_and_tokens_of_the_api_do_not_matter() {
    let folder = TestFolder::new();
    folder.write(
        "tidegate.yaml",
        "trusted_proxies: [127.0.0.1]\nidentify: {api_key: {header: authorization}}\n",
    );
    let rules = "- {id: key, per: [api_key], limit: 1/hour, missing: deny}\n";
    folder.write("rules.yaml", &format!("rules:\n{rules}"));
    let arguments = ["--config", "tidegate.yaml", "--rules", "rules.yaml"];
    let server = folder.serve_with(&arguments, &[("TIDEGATE_TOKEN", "secret-of-the-operator")]);
    let ask = |value: &str| {
        server
            .ask_with("GET /v1/authorize", &[("authorization", value)], "")
            .status
    };
    assert_eq!(
        [ask("Bearer one"), ask("bearer  one"), ask("Bearer two")],
        [200, 429, 200]
    );
    let missing = server.ask("GET /v1/authorize", "").with_status(401);
    let challenge = missing.header("www-authenticate");
    assert_eq!(challenge, Some("Bearer realm=\"tidegate\""));
    let missing = server.ask("GET /v1/authorize?deny_status=403", "");
    assert_eq!(missing.header("www-authenticate"), challenge);
    assert_eq!(missing.header("x-ratelimit-status"), Some("401"));
    server
        .ask("POST /v1/check", "{\"attributes\": {}}")
        .with_status(401);
}

#[test]
fn a_table_of_clients_is_followed() {
    let folder = TestFolder::new();
    folder.write(
        "clients.yaml",
        "clients:\n  k1: {user_id: u1, tier: small}\n",
    );
    let settings = "identify: {api_key: {header: x-api-key}, user_id: {client: user_id}, tier: {client: tier}}\nclients_file: clients.yaml\n";
    let rules =
        "- {id: user, per: [user_id], missing: deny, limit: 1/hour, tiers: {big: 3/hour}}\n";
    let server = serve(&folder, settings, rules);
    let ask = || {
        server
            .ask_with("GET /v1/authorize", &[("x-api-key", "k1")], "")
            .status
    };
    assert_eq!([ask(), ask()], [200, 429]);
    let made_up = [("x-api-key", "k2")];
    server
        .ask_with("GET /v1/authorize", &made_up, "")
        .with_status(401);
    folder.write("clients.yaml", "clients:\n  k1: {user_id: u1, tier: big}\n");
    server.log.wait_for("the table of clients was read again");
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    folder.write("clients.yaml", "clients: [k-secret]\n");
    let log = server.log.wait_for("the table of clients stays as it was");
    assert!(!log.contains("k-secret"), "{log}");
    server.reload();
    server
        .log
        .wait_for_times("the table of clients stays as it was", 2);
    assert_eq!(ask(), 429);
}

#[test]
fn the_table_of_the_guide_is_one() {
    let folder = TestFolder::new();
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/identity.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let mut blocks = guide.split("```yaml\n").skip(1);
    let table = blocks.find(|block| block.starts_with("clients:")).unwrap();
    folder.write("clients.yaml", table.split("```").next().unwrap());
    let settings = "identify: {api_key: {header: x-api-key}, user_id: {client: user_id}}\nclients_file: clients.yaml\n";
    let bob = "- {id: bob, match: {attributes: {user_id: bob}}, per: [], limit: blocked}\n";
    let server = serve(&folder, settings, bob);
    for (key, status) in [("k-7Hq2xv9", 200), ("k-3Zp8wd1", 403), ("bob", 200)] {
        let headers = [("x-api-key", key)];
        server
            .ask_with("GET /v1/authorize", &headers, "")
            .with_status(status);
    }
}

#[test]
fn a_place_is_named_and_can_be_released() {
    let folder = TestFolder::new();
    let rules = "- {id: jobs, per: [], limit: 1, algorithm: concurrency, lease_ttl: 1h}\n";
    let server = serve(&folder, "", rules);
    let lease = server.ask("GET /v1/authorize", "").with_status(200);
    let lease = lease.header("x-tidegate-lease").unwrap().to_owned();
    server.ask("GET /v1/authorize", "").with_status(429);
    server
        .ask(&format!("DELETE /v1/leases/{lease}"), "")
        .with_status(204);
    server.ask("GET /v1/authorize", "").with_status(200);
}

#[test]
fn a_body_that_is_not_read_leaves_the_connection_as_it_is() {
    let folder = TestFolder::new();
    let server = serve(&folder, "", "- {id: all, per: [], limit: 100/hour}\n");
    let mut client = server.client();
    for length in [1, 1_000, 16_384] {
        let body = "x".repeat(length);
        client.ask("POST /v1/authorize", &body).with_status(200);
    }
    client.ask("GET /v1/authorize", "").with_status(200);
    let chunked = "POST /v1/authorize HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    client.send(chunked).unwrap();
    assert_eq!(client.reply().unwrap().status, 200);
    client.ask("GET /healthz", "").with_status(200);
}

/// What is left to everybody.
fn remaining(client: &mut HttpClient) -> u64 {
    let check = json!({"attributes": {}, "cost": 0}).to_string();
    client.ask("POST /v1/check", &check).json()["remaining"]
        .as_u64()
        .unwrap()
}

#[test]
fn a_client_that_hangs_up_while_waiting_gets_back_what_it_took() -> io::Result<()> {
    let folder = TestFolder::new();
    let rules = "- {id: slow, per: [], limit: 1/hour burst 5, max_delay: 3h}\n";
    let server = serve(&folder, "", rules);
    let mut watching = server.client();
    for _ in 0..5 {
        watching.ask("GET /v1/authorize", "").with_status(200);
    }
    let used = || {
        let check = json!({"attributes": {}, "cost": 0}).to_string();
        server.ask("POST /v1/check", &check).json()["reset_time"]
            .as_f64()
            .unwrap()
    };
    let before = used();
    let mut waiting = server.client();
    waiting.send("GET /v1/authorize HTTP/1.1\r\nhost: a\r\n\r\n")?;
    let patience = tidegate_testkit_server::PATIENCE;
    tidegate_testkit::wait_until("it was charged", patience, || {
        (used() > before + 1.0).then_some(())
    });
    drop(waiting);
    tidegate_testkit::wait_until("it was given back", patience, || {
        (used() < before + 1.0).then_some(())
    });
    assert_eq!(remaining(&mut watching), 0);
    Ok(())
}
