//! How a client might get a second counter: another spelling of its identity, a second identity, or a
//! header that the server behind takes for another one. Played through the front ends that read what the
//! client itself wrote: the gateway and forward-auth.
//!
//! Each attempt has an identity of its own. It is used up in the plain spelling, and then asked for in
//! the other one.

use crate::Server;
use tidegate_testkit_server::RecordingUpstream;
use tidegate_testkit_server::TestFolder;
use tidegate_testkit_server::{HttpClient, request};

const RULES: &str = r"rules:
- {id: keys, match: {path: /keys}, per: [api_key], missing: deny, limit: 2/hour}
- {id: sessions, match: {path: /sessions}, per: [session], missing: deny, limit: 2/hour}
- {id: addresses, match: {path: /addresses}, per: [ip], missing: deny, limit: 2/hour}
- {id: teams, match: {path: /teams}, per: [header.x-team], missing: deny, limit: 2/hour}
- {id: tokens, match: {path: /tokens}, per: [header.authorization], missing: deny, limit: 2/hour}
";

const SETTINGS: &str = r"trusted_proxies: [127.0.0.1]
identify:
  api_key: [{header: x-api-key}, {query: api_key}]
  session: {cookie: session}
";

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    /// It is counted with all others of the identity, so it is denied.
    Counted,
    /// It is refused with 400.
    Refused,
    /// It is refused with 401: the credentials are there and not valid.
    Invalid,
    /// The gateway drops the header, so the identity is not there; forward-auth refuses it.
    Dropped,
}

/// The plain spelling and another one, in which `ID` stands for the identity and `%ID` for its first
/// letter escaped. A target has a query if it needs one.
struct Attempt {
    target: &'static str,
    plain: &'static [(&'static str, &'static str)],
    other_target: &'static str,
    other: &'static [(&'static str, &'static str)],
    ends: Ends,
}

const KEY: &[(&str, &str)] = &[("x-api-key", "ID")];
const SESSION: &[(&str, &str)] = &[("cookie", "session=ID")];
const ADDRESS: &[(&str, &str)] = &[("x-forwarded-for", "203.0.113.IP")];
const TEAM: &[(&str, &str)] = &[("x-team", "ID")];
const TOKEN: &[(&str, &str)] = &[("authorization", "Bearer ID")];
const BASIC: &[(&str, &str)] = &[("authorization", "Basic ID")];

#[rustfmt::skip]
const ATTEMPTS: [Attempt; 69] = [
    // A second identity.
    attempt("/keys", KEY, "/keys?api_key=ID",           &[("x-api-key", "junk")],                                   Ends::Refused),
    attempt("/keys", KEY, "/keys?api_key=junk",         &[("x-api-key", "ID")],                                     Ends::Refused),
    attempt("/keys", KEY, "/keys?api_key=ID&api_key=x", &[],                                                        Ends::Refused),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID"), ("x-api-key", "x")],                 Ends::Refused),
    attempt("/keys", KEY, "/keys?api_key=ID",           &[("x-api-key", "ID")],                                     Ends::Counted),
    attempt("/keys", KEY, "/keys?api_key=",             &[("x-api-key", "ID")],                                     Ends::Counted),
    attempt("/teams", TEAM, "/teams",                   &[("x-team", "ID"), ("x-team", "x")],                       Ends::Refused),
    attempt("/teams", TEAM, "/teams",                   &[("x-team", "ID"), ("x-team", "ID")],                      Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=ID; session=x")],                     Ends::Refused),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "Bearer ID"), ("authorization", "x")],  Ends::Refused),
    attempt("/keys", KEY, "/keys?[api_key]=ID",         &[("x-api-key", "junk")],                                   Ends::Refused),
    attempt("/keys", KEY, "/keys?API_KEY=ID",           &[("x-api-key", "junk")],                                   Ends::Refused),
    attempt("/keys", KEY, "/keys?api.key=ID",           &[("x-api-key", "junk")],                                   Ends::Refused),
    attempt("/keys", KEY, "/keys?api_key=x;api_key=ID", &[],                                                        Ends::Refused),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=x session=ID")],                      Ends::Refused),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=ID Path=/x")],                        Ends::Refused),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=x,session=ID")],                      Ends::Refused),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "Session=ID; session=x")],                     Ends::Refused),
    // Another spelling.
    attempt("/keys", KEY, "/keys?api_key=ID#x",         &[],                                                        Ends::Counted),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID\u{a0}")],                               Ends::Counted),
    attempt("/keys", KEY, "/keys?API_KEY=ID",           &[],                                                        Ends::Counted),
    attempt("/keys", KEY, "/keys?%5Bapi_key%5D=ID",     &[],                                                        Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=\u{2003}ID\u{a0}\u{a0}")],            Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "a=1 session=ID")],                            Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "a=1,SESSION=ID")],                            Ends::Counted),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "Bearer \u{a0}ID")],                    Ends::Counted),
    attempt("/keys", KEY, "/keys?api_key=ID",           &[],                                                        Ends::Counted),
    attempt("/keys", KEY, "/keys?api_key=%ID",          &[],                                                        Ends::Counted),
    attempt("/keys", KEY, "/keys?%61pi_key=%ID",        &[],                                                        Ends::Counted),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "  ID \t")],                                Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=%ID")],                               Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=\"ID\"")],                            Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=\"%ID\"")],                           Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=\"\\ID\"")],                          Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "a=1"), ("cookie", "session=%ID")],            Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session=ID; session=%ID")],                   Ends::Counted),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "bearer ID")],                          Ends::Counted),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "BEARER \t ID ")],                      Ends::Counted),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "Bearer\tID")],                         Ends::Counted),
    attempt("/teams", TEAM, "/teams",                   &[("x-team", " ID ")],                                      Ends::Counted),
    attempt("/keys", KEY, "/keys?api_key%00x=ID",       &[("x-api-key", "junk")],                                   Ends::Refused),
    attempt("/keys", KEY, "/keys?api_key=junk&api_key%00=ID", &[],                                                  Ends::Refused),
    attempt("/keys", KEY, "/keys?api_key%00x=ID",       &[],                                                        Ends::Counted),
    attempt("/keys", KEY, "/keys?%20api.key%00[x]=ID",  &[],                                                        Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "session%00x=ID")],                            Ends::Counted),
    attempt("/sessions", SESSION, "/sessions",          &[("cookie", "%73ession=ID; session=x")],                   Ends::Refused),
    // Credentials that some servers read another one in.
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "Bearer ID x")],                        Ends::Invalid),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "bearer\tID\tx")],                      Ends::Invalid),
    attempt("/tokens", TOKEN, "/tokens",                &[("authorization", "Bearer ID\u{a0}x")],                   Ends::Invalid),
    attempt("/tokens", BASIC, "/tokens",                &[("authorization", "basic ID==")],                         Ends::Counted),
    attempt("/tokens", BASIC, "/tokens",                &[("authorization", "Basic .ID~=")],                        Ends::Counted),
    attempt("/tokens", BASIC, "/tokens",                &[("authorization", "Basic \t ! ID")],                     Ends::Counted),
    attempt("/tokens", BASIC, "/tokens",                &[("authorization", "Basic -ID")],                          Ends::Invalid),
    attempt("/tokens", BASIC, "/tokens",                &[("authorization", "Basic ID==ID")],                       Ends::Invalid),
    // A header that other servers take for the one that is read.
    attempt("/keys", KEY, "/keys",                      &[("X.Api.Key", "ID")],                                     Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("X~Api_Key", "ID")],                                     Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID"), ("X'Api!Key", "junk")],              Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("X+Api-Key", "ID")],                                     Ends::Dropped),
    attempt("/teams", TEAM, "/teams",                   &[("X.Team", "ID")],                                        Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID"), ("X.Forwarded.For", "6.6.6.6")],     Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("X_Api_Key", "ID")],                                     Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("X-Api_Key", "ID")],                                     Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID"), ("x_api_key", "junk")],              Ends::Dropped),
    attempt("/teams", TEAM, "/teams",                   &[("X_Team", "ID")],                                        Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID"), ("Content_Length", "7")],            Ends::Dropped),
    attempt("/keys", KEY, "/keys",                      &[("x-api-key", "ID"), ("Transfer_Encoding", "chunked")],   Ends::Dropped),
    // Another address.
    attempt("/addresses", ADDRESS, "/addresses", &[("x-forwarded-for", "203.0.113.IP"), ("forwarded", "for=6.6.6.6")], Ends::Refused),
    attempt("/addresses", ADDRESS, "/addresses", &[("x-forwarded-for", "203.0.113.IP"), ("forwarded", "for=unknown")], Ends::Refused),
    attempt("/addresses", ADDRESS, "/addresses", &[("x-forwarded-for", "6.6.6.6, 203.0.113.IP")],                   Ends::Counted),
];

const fn attempt(
    target: &'static str,
    plain: &'static [(&'static str, &'static str)],
    other_target: &'static str,
    other: &'static [(&'static str, &'static str)],
    ends: Ends,
) -> Attempt {
    Attempt {
        target,
        plain,
        other_target,
        other,
        ends,
    }
}

/// Puts an identity of its own into a text: `key7x`, and for addresses the number alone.
fn with_identity(text: &str, number: usize) -> String {
    text.replace("%ID", &format!("%6bey{number}x"))
        .replace("\\ID", &format!("\\153ey{number}x"))
        .replace("ID", &format!("key{number}x"))
        .replace("IP", &(number + 1).to_string())
}

/// A server that is asked through one of the front ends.
struct Asked {
    client: HttpClient,
    is_gateway: bool,
    upstream: RecordingUpstream,
    _server: Server,
    _place: TestFolder,
}

impl Asked {
    fn open(is_gateway: bool, settings: &str) -> Self {
        let folder = TestFolder::new();
        folder.write("rules.yaml", RULES);
        folder.write("tidegate.yaml", settings);
        let upstream = RecordingUpstream::start();
        let url = format!("http://{}", upstream.address);
        let mut arguments = vec!["--rules", "rules.yaml", "--config", "tidegate.yaml"];
        if is_gateway {
            arguments.extend(["--gateway", "127.0.0.1:0", "--upstream", &url]);
        }
        let server = folder.serve(&arguments);
        let client = match server.gateway.filter(|_| is_gateway) {
            Some(gateway) => HttpClient::to(gateway),
            None => server.client(),
        };
        Self {
            client,
            is_gateway,
            upstream,
            _server: server,
            _place: folder,
        }
    }

    fn ask(&mut self, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut headers = headers.to_vec();
        if self.is_gateway {
            let reply = self.client.ask_with(&format!("GET {target}"), &headers, "");
            return reply.status;
        }
        headers.extend([("x-forwarded-method", "GET"), ("x-forwarded-uri", target)]);
        headers.push(("x-forwarded-host", "localhost"));
        let reply = self.client.ask_with("GET /v1/authorize", &headers, "");
        reply.status
    }

    /// Asks in the spelling of an attempt, with an identity of its own.
    fn attempt(
        &mut self,
        number: usize,
        target: &str,
        headers: &[(&'static str, &'static str)],
    ) -> u16 {
        let target = with_identity(target, number);
        let headers: Vec<(&str, String)> = headers
            .iter()
            .map(|(name, value)| (*name, with_identity(value, number)))
            .collect();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        self.ask(&target, &headers)
    }
}

#[track_caller]
fn play(is_gateway: bool, settings: &str, dropped: &[u16]) {
    let mut asked = Asked::open(is_gateway, &format!("{SETTINGS}{settings}"));
    for (number, attempt) in ATTEMPTS.iter().enumerate() {
        let plain = [(); 3].map(|()| asked.attempt(number, attempt.target, attempt.plain));
        let shown = format!("{number}: {} {:?}", attempt.other_target, attempt.other);
        assert_eq!(plain, [200, 200, 429], "{shown}");
        let expected: &[u16] = match attempt.ends {
            Ends::Counted => &[429],
            Ends::Refused => &[400],
            Ends::Invalid => &[401],
            Ends::Dropped => dropped,
        };
        for _ in 0..2 {
            let status = asked.attempt(number, attempt.other_target, attempt.other);
            assert!(expected.contains(&status), "{shown}: {status}");
        }
    }
}

#[test]
fn no_identity_escapes_through_the_gateway() {
    // Without the header there is no key, no team, or the one that is left is counted.
    play(true, "", &[401, 400, 429]);
}

#[test]
fn no_identity_escapes_through_a_gateway_that_refuses_underscores() {
    play(true, "underscore_headers: refuse\n", &[400]);
}

#[test]
fn no_identity_escapes_through_forward_auth() {
    play(false, "", &[400]);
}

#[test]
fn the_server_behind_sees_neither_twins_nor_the_header_that_is_not_read() {
    let mut asked = Asked::open(
        true,
        &format!("{SETTINGS}forwarded_header: x-forwarded-for\n"),
    );
    let twins = [
        ("x-api-key", "shown"),
        ("X_Api_Key", "hidden"),
        ("X.Api~Key", "hidden"),
        ("Content_Length", "7"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x_other", "kept"),
        ("x-forwarded-for", "203.0.113.7"),
        ("forwarded", "for=6.6.6.6"),
    ];
    assert_eq!(asked.ask("/keys", &twins), 200);
    let heads = asked.upstream.heads("/keys");
    let [head] = heads.as_slice() else {
        panic!("one request: {heads:?}");
    };
    for line in ["x-api-key: shown", "x_other: kept"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(
        head.contains("x-forwarded-for: 203.0.113.7, 127.0.0.1\r\n"),
        "{head}"
    );
    for gone in [
        "x_api_key",
        "x.api~key",
        "content_length",
        "x_forwarded_for",
        "\nforwarded:",
        "6.6.6.6",
    ] {
        assert!(!head.contains(gone), "{gone} in {head}");
    }
}

#[test]
fn one_of_the_two_headers_about_the_client_is_read_if_the_setting_says_so() {
    for is_gateway in [true, false] {
        for (setting, read, other) in [
            ("x-forwarded-for", "203.0.113.7", "for=198.51.100.IP"),
            ("forwarded", "198.51.100.IP", "for=203.0.113.7"),
        ] {
            let settings = format!("{SETTINGS}forwarded_header: {setting}\n");
            let mut asked = Asked::open(is_gateway, &settings);
            for number in 0..4 {
                let value = [read, other].map(|text| with_identity(text, number));
                let headers = [
                    ("x-forwarded-for", value[0].as_str()),
                    ("forwarded", value[1].as_str()),
                ];
                let expected = if number < 2 { 200 } else { 429 };
                assert_eq!(asked.ask("/addresses", &headers), expected, "{setting}");
            }
        }
    }
}

#[test]
fn keys_that_are_not_utf8_do_not_collide() {
    for is_gateway in [true, false] {
        let mut asked = Asked::open(is_gateway, SETTINGS);
        let mut ask = |headers: &[u8], query: &str| {
            let target = format!("/keys{query}");
            let plain = if is_gateway {
                request(&format!("GET {target}"), &[], "")
            } else {
                request("GET /v1/authorize", &[("x-forwarded-uri", &target)], "")
            };
            let head = plain.strip_suffix("\r\n").unwrap().as_bytes();
            asked
                .client
                .send_bytes(&[head, headers, b"\r\n"].concat())
                .unwrap();
            asked.client.reply().unwrap().status
        };
        let mut others = ["k\u{fffd}", "k\u{fffd}FF"]
            .map(|key| [b"x-api-key: ", key.as_bytes(), b"\r\n"].concat())
            .to_vec();
        others.push(b"x-api-key: k\xff\r\n".to_vec());
        others.push(b"x-api-key: k\xfe\r\n".to_vec());
        for key in &others {
            let statuses = [(); 3].map(|()| ask(key, ""));
            assert_eq!(statuses, [200, 200, 429], "{}", key.escape_ascii());
        }
        assert_eq!(ask(b"", "?api_key=k%ff"), 429, "the same bytes");
        assert_eq!(ask(b"", "?api_key=k%fd"), 200, "others");
    }
}
