//! The table of routes: paths, methods, and who may make which call.

use tidegate_testkit_server::{HttpClient, InProcessServer, TestFolder};

use super::*;

/// The route of a call as `METHOD pattern`, with what its `{…}` stand for; else the status.
fn found<'p>(method: &str, path: &'p str) -> Result<(String, [&'p str; 2]), u16> {
    match find(ServedCalls::All, &method.parse().unwrap(), path) {
        Ok((route, names)) => Ok((format!("{} {}", route.method, route.path), names)),
        Err(problem) => Err(problem.reply().status().as_u16()),
    }
}

#[test]
fn paths_by_hand() {
    #[rustfmt::skip]
    let table = [
        ("POST",    "/v1/check",                        Ok(("POST /v1/check", ["", ""]))),
        ("PURGE",   "/v1/authorize",                    Ok(("any /v1/authorize", ["", ""]))),
        ("HEAD",    "/v1/rules",                        Ok(("GET /v1/rules", ["", ""]))),
        ("GET",     "/v1/rules/history",                Ok(("GET /v1/rules/history", ["", ""]))),
        ("GET",     "/v1/rules/historic",               Ok(("GET /v1/rules/{id}", ["historic", ""]))),
        ("GET",     "/v1/rules/history/7",              Ok(("GET /v1/rules/history/{version}", ["7", ""]))),
        ("GET",     "/v1/rules/history/keys",           Ok(("GET /v1/rules/{id}/keys", ["history", ""]))),
        ("GET",     "/v1/rules/history/overrides",      Ok(("GET /v1/rules/history/{version}", ["overrides", ""]))),
        ("POST",    "/v1/rules/a%2Fb/validate",         Ok(("POST /v1/rules/{id}/validate", ["a%2Fb", ""]))),
        ("DELETE",  "/v1/rules/a/overrides/b",          Ok(("DELETE /v1/rules/{id}/overrides/{key}", ["a", "b"]))),
        ("PUT",     "/v1/leases/1-1-1",                 Ok(("PUT /v1/leases/{id}", ["1-1-1", ""]))),
        ("GET",     "/console/",                        Ok(("GET /console/{file*}", ["", ""]))),
        ("GET",     "/console/pages/a.js",              Ok(("GET /console/{file*}", ["pages/a.js", ""]))),
        ("POST",    "/",                                Ok(("any /", ["", ""]))),
        ("GET",     "",                                 Err(404)),
        ("GET",     "/v1/rules/",                       Err(404)),
        ("GET",     "/v1/rules/a/",                     Err(404)),
        ("GET",     "/v1/rules//keys",                  Err(404)),
        ("GET",     "/v1/rules/a/b/keys",               Err(404)),
        ("DELETE",  "/v1/rules/a/overrides/",           Err(404)),
        ("DELETE",  "/v1/rules/a/overrides/b/c",        Err(404)),
        ("GET",     "/v1/check/",                       Err(404)),
        ("GET",     "/V1/rules",                        Err(404)),
        ("GET",     "/consoles",                        Err(404)),
        ("GET",     "/v1/check",                        Err(405)),
        ("DELETE",  "/v1/rules/diff",                   Err(405)),
        ("POST",    "/v1/rules/a",                      Err(405)),
    ];
    for (method, path, expected) in table {
        let expected = expected.map(|(route, names)| (route.to_owned(), names));
        assert_eq!(found(method, path), expected, "{method} {path}");
    }
}

#[test]
fn a_call_with_another_method_gets_those_that_there_are() {
    #[rustfmt::skip]
    let table = [
        ("/v1/check",               "POST"),
        ("/v1/rules",               "GET, HEAD, POST, PUT"),
        ("/v1/rules/diff",          "GET, HEAD"),
        ("/v1/rules/rollback",      "POST"),
        ("/v1/rules/a",             "DELETE, GET, HEAD, PUT"),
        ("/v1/rules/a/overrides",   "GET, HEAD, POST"),
        ("/v1/leases/a",            "DELETE, PUT"),
        ("/v1/console/session",     "DELETE, GET, HEAD, POST"),
        ("/console/a",              "GET, HEAD"),
    ];
    for (path, allowed) in table {
        let reply = find(ServedCalls::All, &Method::PATCH, path)
            .err()
            .unwrap()
            .reply();
        assert_eq!(reply.status(), 405, "{path}");
        assert_eq!(reply.headers()["allow"], allowed, "{path}");
    }
}

#[test]
fn no_route_hides_another() {
    for route in &ROUTES {
        let method = if route.method == ANY {
            "GET"
        } else {
            route.method
        };
        let expected = format!("{} {}", route.method, route.path);
        assert_eq!(found(method, &path_of(route)).unwrap().0, expected);
    }
}

/// Who may make a call, by the contract. A call that is not listed reads or changes something of the server.
fn contracted(route: &ApiRoute) -> CallScope {
    match (route.method, route.path) {
        (
            _,
            "/v1/authorize" | "/metrics" | "/openapi.json" | "/" | "/console" | "/console/{file*}",
        )
        | ("POST", "/v1/console/session") => Open,
        (_, "/healthz" | "/readyz") => Probe,
        (_, "/v1/check" | "/v1/check/batch" | "/v1/leases/{id}" | "/v1/reserve")
        | ("POST" | "PUT" | "DELETE", "/v1/reservations/{id}" | "/v1/reservations/{id}/settle") => {
            Check
        }
        (_, "/v1/feedback") => Feedback,
        (_, "/v1/console/session") => AnyToken,
        ("POST", "/v1/explain" | "/v1/rules/{id}/validate" | "/v1/console/code") | ("GET", _) => {
            Read
        }
        _ => Write,
    }
}

/// A path of the route, about things that do not exist.
fn path_of(route: &ApiRoute) -> String {
    let named = route
        .path
        .replace("{version}", "77")
        .replace("{file*}", "x");
    named.replace("{id}", "x").replace("{key}", "x")
}

/// The status with which a caller is refused; `None` if it is answered, whatever the answer is.
fn refusal(server: &InProcessServer, route: &ApiRoute, headers: &[(&str, &str)]) -> Option<u16> {
    let method = if route.method == ANY {
        "GET"
    } else {
        route.method
    };
    let body = match (method, route.path) {
        // Without a code, it asks for a token: the tests of the console have that.
        ("POST", "/v1/console/session") => r#"{"code": null}"#,
        ("POST" | "PUT", _) => "{}",
        _ => "",
    };
    let call = format!("{method} {}", path_of(route));
    let status = server.ask_with(&call, headers, body).status;
    assert!(status < 500, "{call}: {status}");
    matches!(status, 401 | 403).then_some(status)
}

fn bearer(secret: &str) -> String {
    format!("Bearer {secret}")
}

/// A new session of the console, as a token.
fn session(server: &InProcessServer, token: &str) -> String {
    let authorization = [("authorization", token)];
    let code = server.ask_with("POST /v1/console/code", &authorization, "{}");
    let code = code.with_status(200).json()["code"].to_string();
    let opened = server.ask("POST /v1/console/session", &format!("{{\"code\": {code}}}"));
    bearer(opened.with_status(200).json()["token"].as_str().unwrap())
}

#[test]
fn every_call_is_answered_only_for_the_scope_that_it_needs() {
    let folder = TestFolder::new();
    let config = "
open_authorize: true
tokens:
  - {name: reader, token_env: READER, scopes: [read]}
  - {name: writer, token_env: WRITER, scopes: [write]}
  - {name: checker, token_env: CHECKER, scopes: [check]}
";
    folder.write("tidegate.yaml", config);
    let secrets = [
        "secret-of-the-reader",
        "secret-of-the-writer",
        "secret-of-the-checker",
    ];
    let [reader, writer, checker] = secrets;
    let environment = [("READER", reader), ("WRITER", writer), ("CHECKER", checker)];
    let server = folder.serve_with(&["--config", "tidegate.yaml"], &environment);
    let [reader, writer, checker] = secrets.map(bearer);
    for route in &ROUTES {
        let name = format!("{} {}", route.method, route.path);
        let scope = contracted(route);
        assert_eq!(route.scope, scope, "{name}");
        let refused =
            |authorization: &str| refusal(&server, route, &[("authorization", authorization)]);
        let unless = |is_allowed: bool| (!is_allowed).then_some(403);
        let is_open = matches!(scope, Open | Probe);
        let is_any = is_open || scope == AnyToken;
        let is_check = matches!(scope, Check | Feedback);
        let (is_read, is_write) = (scope == Read, scope == Write);
        let without = (!is_open).then_some(401);
        assert_eq!(refusal(&server, route, &[]), without, "{name}");
        assert_eq!(refused("Bearer unknown"), without, "{name}");
        assert_eq!(refused(&reader), unless(is_any || is_read), "{name}");
        let may_write = is_any || is_read || is_write;
        assert_eq!(refused(&writer), unless(may_write), "{name}");
        assert_eq!(refused(&checker), unless(is_any || is_check), "{name}");
        // A session may do what its token may, but make another session.
        let is_code = route.path == "/v1/console/code";
        for (token, may) in [(&reader, is_any || is_read), (&writer, may_write)] {
            let session = session(&server, token);
            assert_eq!(refused(&session), unless(may && !is_code), "{name}");
        }
    }
}

/// A parameter that is ignored looks as if it worked: `GET /v1/rules?version=1` would be the rules of today, and
/// `POST /v1/rules/rollback?dry_run=true` would roll back.
#[test]
fn every_call_of_operators_refuses_parameters_that_it_does_not_have() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    for route in ROUTES.iter().filter(|route| route.is_of_operator()) {
        let call = format!("{} {}?x=1", route.method, path_of(route));
        let has_body = matches!(route.method, "POST" | "PUT");
        let body = if has_body { "{}" } else { "" };
        let detail = server.ask(&call, body).with_status(400).detail();
        assert!(detail.contains("unknown parameter `x`"), "{call}: {detail}");
    }
}

#[test]
fn a_token_without_the_scope_of_a_call_is_refused_by_its_name() {
    let folder = TestFolder::new();
    let token =
        |scope: &str| format!("  - {{name: {scope}er, token_env: {scope}, scopes: [{scope}]}}\n");
    let config = format!("tokens:\n{}{}", token("read"), token("check"));
    folder.write("tidegate.yaml", &config);
    let environment = [
        ("read", "secret-of-the-reader"),
        ("check", "secret-of-the-checker"),
    ];
    let server = folder.serve_with(&["--config", "tidegate.yaml"], &environment);
    for route in &ROUTES {
        // A token that may not make the call, and the message.
        let (secret, scope) = match contracted(route) {
            Open | Probe | AnyToken => continue,
            Check | Feedback => (environment[0].1, "the scope `check`"),
            Read => (environment[1].1, "the scope `read` or `write`"),
            Write => (environment[0].1, "the scope `write`"),
        };
        let call = format!("{} {}", route.method, path_of(route));
        let headers = [("authorization", &*bearer(secret))];
        let detail = server
            .ask_with(&call, &headers, "")
            .with_status(403)
            .detail();
        assert!(detail.ends_with(scope), "{call}: {detail}");
    }
}

#[test]
fn without_tokens_the_generated_one_opens_what_checks_do_not() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let made = bearer(server.token.as_ref().unwrap());
    for route in &ROUTES {
        let name = format!("{} {}", route.method, route.path);
        let is_open = matches!(contracted(route), Open | Probe | Check);
        let without = (!is_open).then_some(401);
        assert_eq!(
            refusal(&server, route, &[("authorization", "")]),
            without,
            "{name}"
        );
        assert_eq!(
            refusal(&server, route, &[("authorization", &made)]),
            None,
            "{name}"
        );
        // Nor may a page of another site call it with the token.
        let page = [
            ("authorization", made.as_str()),
            ("sec-fetch-site", "cross-site"),
        ];
        let is_refused = !matches!(contracted(route), Open | Probe);
        assert_eq!(
            refusal(&server, route, &page),
            is_refused.then_some(403),
            "{name}"
        );
    }
}

#[test]
fn with_an_admin_listener_the_http_port_has_only_the_calls_of_services() {
    let folder = TestFolder::new();
    let server = folder.serve(&["--admin", "127.0.0.1:0"]);
    let admin = server.admin.unwrap();
    assert_ne!(server.address, admin);
    let token = bearer(server.token.as_ref().unwrap());
    let authorization = [("authorization", token.as_str())];
    for route in &ROUTES {
        let is_of_service =
            matches!(contracted(route), Check | Feedback | Probe) || route.path == "/v1/authorize";
        for (address, is_served) in [(server.address, is_of_service), (admin, true)] {
            let method = if route.method == ANY {
                "GET"
            } else {
                route.method
            };
            let call = format!("{method} {}", path_of(route));
            let mut client = HttpClient::to(address);
            let reply = client.ask_with(&call, &authorization, "{}");
            let is_elsewhere = reply.body.contains("on the admin listener");
            assert_eq!(is_elsewhere, !is_served, "{call} on {address}: {reply:?}");
            assert!(!is_elsewhere || reply.status == 404, "{call}: {reply:?}");
            // A method that it does not have reveals no more.
            let call = format!("PATCH {}", path_of(route));
            let status = HttpClient::to(address).ask(&call, "").status;
            let has_others = route.path == "/v1/reservations/{id}";
            assert!(is_served || has_others || status == 404, "{call}: {status}");
        }
    }
    for path in ["/nothing", "/v1/nothing", "/"] {
        let call = format!("GET {path}");
        let browser = [("accept", "text/html")];
        let reply = server.ask_with(&call, &browser, "").with_status(404);
        let detail = reply.detail();
        assert!(detail.contains("the setting `admin`"), "{detail}");
    }
}

#[test]
fn in_place_of_envoyproxy_ratelimit_no_other_call_is_open_without_a_token() {
    let (mut refused, methods) = (0, [Method::GET, Method::POST, Method::PUT, Method::DELETE]);
    for route in ROUTES.iter().filter(|route| route.path != "/healthz") {
        for method in &methods {
            let path = path_of(route);
            let found = find(ServedCalls::OfEnvoyRatelimit, method, &path);
            let status = found.map_or_else(|problem| problem.reply().status().as_u16(), |_| 200);
            assert_eq!(status, 404, "{method} {path}");
            refused += 1;
        }
    }
    assert_eq!(refused, (ROUTES.len() - 1) * methods.len());
    for route in &ENVOY_RATELIMIT {
        for calls in [ServedCalls::All, ServedCalls::OfServices] {
            assert!(find(calls, &Method::GET, route.path).is_err());
        }
        let calls = ServedCalls::AllWithEnvoyRatelimit;
        assert!(find(calls, &Method::GET, route.path).is_ok());
    }
}
