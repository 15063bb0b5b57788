//! What each command answers, in both versions of the protocol.

use super::{Client, Value, serve};
use tidegate_testkit_server::TestFolder;

const RULES: &str = "
rules:
  - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: skip, limit: 2/day, algorithm: fixed_window}
";

#[test]
fn throttle_answers_as_redis_cell_does() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let mut client = Client::to(&server);
    #[rustfmt::skip]
    let table = [
        ("CL.THROTTLE user123 15 30 60",        [0, 16, 15, -1, 2]),
        ("cl.throttle other 15 30 60 5",        [0, 16, 11, -1, 10]),
        ("CL.THROTTLE strict 0 1 200 1",        [0, 1, 0, -1, 200]),
        ("CL.THROTTLE strict 0 1 200 1",        [1, 1, 0, 200, 200]),
        // No more than it can ever grant, and nothing is taken.
        ("CL.THROTTLE large 4 5 500 6",         [1, 5, 5, -1, 0]),
        ("CL.THROTTLE large 4 5 500 0",         [0, 5, 5, -1, 0]),
        ("CL.THROTTLE large 4 5 500 5",         [0, 5, 0, -1, 500]),
        ("CL.THROTTLE large 4 5 500 2",         [1, 5, 0, 200, 500]),
        ("CL.THROTTLE large 4 5 500 0",         [0, 5, 0, -1, 500]),
        // The key alone names the state.
        ("CL.THROTTLE large 9 5 500 1",         [0, 10, 4, -1, 600]),
        ("CL.THROTTLE large 9 5 250 1",         [0, 10, 3, -1, 350]),
    ];
    for (line, wanted) in table {
        assert_eq!(client.ask(line), Value::integers(&wanted), "{line}");
    }
    #[rustfmt::skip]
    let refused = [
        ("CL.THROTTLE a 15 30",             "ERR CL.THROTTLE takes `key max_burst count period [quantity]`"),
        ("CL.THROTTLE a 15 30 60 1 1",      "ERR CL.THROTTLE takes"),
        ("CL.THROTTLE a 15 30 60 -1",       "ERR quantity must not be negative, and is -1"),
        ("CL.THROTTLE a 15 0 60",           "ERR count must not be 0"),
        ("CL.THROTTLE a x 30 60",           "ERR max_burst must be a whole number, not `x`"),
        ("CL.THROTTLE a 15 30 99999999999", "ERR "),
    ];
    for (line, wanted) in refused {
        let error = client.ask(line).error();
        assert!(error.starts_with(wanted), "{line}: {error}");
    }
}

#[test]
fn a_check_is_decided_by_the_rules() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, &["--rules", "rules.yaml"]);
    let mut client = Client::to(&server);
    let check = "TG.CHECK path /v1/orders user_id u1";
    let reply = pairs(client.ask(check));
    #[rustfmt::skip]
    let names = [
        "allowed", "rule", "limit", "remaining", "reset_time", "retry_after", "delay", "degraded", "lease", "reason",
    ];
    assert_eq!(
        reply.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        names
    );
    let of = |reply: &[(String, Value)], wanted: &str| {
        let found = reply.iter().find(|(name, _)| name == wanted);
        found.unwrap().1.clone()
    };
    assert_eq!(of(&reply, "allowed"), Value::Integer(1));
    assert_eq!(of(&reply, "rule"), Value::text("per-user"));
    assert_eq!(of(&reply, "limit"), Value::Integer(2));
    assert_eq!(of(&reply, "remaining"), Value::Integer(1));
    assert_eq!(of(&reply, "retry_after"), Value::text("0"));
    assert_eq!(of(&reply, "lease"), Value::Null);
    assert_eq!(of(&reply, "reason"), Value::Null);

    // Two more do not fit, one does; the third version has maps, truth values and fractions.
    client.ask("HELLO 3");
    let denied = pairs(client.ask(&[check, " COST 2"].concat()));
    assert_eq!(of(&denied, "allowed"), Value::text("f"));
    assert_eq!(of(&denied, "reason"), Value::text("over_limit"));
    assert_eq!(of(&denied, "remaining"), Value::Integer(1));
    let allowed = pairs(client.ask(&[check, " cost 1"].concat()));
    assert_eq!(of(&allowed, "allowed"), Value::text("t"));
    let unmatched = pairs(client.ask("TG.CHECK path /other"));
    assert_eq!(of(&unmatched, "allowed"), Value::text("t"));
    assert_eq!(of(&unmatched, "rule"), Value::Null);

    for (line, wanted) in [
        (
            "TG.CHECK path",
            "ERR TG.CHECK takes `attribute value ... [COST n]`",
        ),
        (
            "TG.CHECK ip here",
            "ERR attribute `ip` must be an IPv4 or IPv6 address",
        ),
        (
            "TG.CHECK host api.example.com:x",
            "ERR attribute `host`: `api.example.com:x` is not a host",
        ),
        (
            "TG.CHECK a 1 COST -1",
            "ERR COST must be a whole number from 0 to 9007199254740991, not `-1`",
        ),
        (
            "TG.CHECK a 1 COST 9007199254740992",
            "ERR COST must be a whole number from 0 to 9007199254740991, not `9007199254740992`",
        ),
        (
            "TG.RESERVE a 1 COST 9007199254740992",
            "ERR COST must be a whole number from 0 to 9007199254740991, not `9007199254740992`",
        ),
        (
            "TG.SETTLE 0123456789abcdef0123456789abcdef 9007199254740992",
            "ERR the cost must be a whole number from 0 to 9007199254740991, not `9007199254740992`",
        ),
    ] {
        let error = client.ask(line).error();
        assert!(error.starts_with(wanted), "{line}: {error}");
    }
    let metrics = server.ask("GET /metrics", "").body;
    let counted =
        r#"tidegate_decisions_total{rule="per-user",front_end="resp",verdict="allowed"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");
}

/// Names and values, whichever version they came in.
fn pairs(value: Value) -> Vec<(String, Value)> {
    let pairs: Vec<(Value, Value)> = match value {
        Value::Map(pairs) => pairs,
        Value::Array(flat) => {
            let pair = |pair: &[Value]| (pair[0].clone(), pair[1].clone());
            flat.chunks(2).map(pair).collect()
        }
        other => panic!("names and values, not {other:?}"),
    };
    let named = |(name, value)| match name {
        Value::Text(name) => (name, value),
        other => panic!("a name, not {other:?}"),
    };
    pairs.into_iter().map(named).collect()
}

#[test]
fn clients_get_what_they_ask_for_before_they_begin() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let mut client = Client::to(&server);
    let ok = Value::text("OK");
    #[rustfmt::skip]
    let table = [
        ("PING",                                Value::text("PONG")),
        ("PING hello",                          Value::text("hello")),
        ("ECHO hello",                          Value::text("hello")),
        ("SELECT 0",                            ok.clone()),
        ("CLIENT SETINFO LIB-NAME test",        ok.clone()),
        ("CLIENT GETNAME",                      Value::Null),
        ("CLIENT SETNAME me",                   ok),
        ("CLIENT GETNAME",                      Value::text("me")),
        ("COMMAND COUNT",                       Value::Integer(18)),
        ("RESET",                               Value::text("RESET")),
        ("CLIENT GETNAME",                      Value::Null),
    ];
    for (line, wanted) in table {
        assert_eq!(client.ask(line), wanted, "{line}");
    }
    let Value::Array(commands) = client.ask("COMMAND") else {
        panic!("an array");
    };
    assert_eq!(commands.len(), 18);
    assert!(matches!(client.ask("HELLO 3"), Value::Map(pairs) if pairs.len() == 7));
    assert!(
        matches!(client.ask("COMMAND DOCS cl.throttle"), Value::Map(pairs) if pairs.len() == 1)
    );
    assert!(matches!(client.ask("HELLO 2"), Value::Array(flat) if flat.len() == 14));
    for (line, wanted) in [
        ("GET a", "ERR unknown command 'GET'; this is a rate limiter"),
        ("SELECT 1", "ERR DB index is out of range"),
        ("HELLO 4", "NOPROTO "),
        (
            "HELLO 3 NONSENSE",
            "ERR Syntax error in HELLO option 'NONSENSE'",
        ),
        ("ECHO", "ERR wrong number of arguments for 'echo' command"),
        ("AUTH x", "ERR AUTH called, but this server has no tokens"),
    ] {
        let error = client.ask(line).error();
        assert!(error.starts_with(wanted), "{line}: {error}");
    }
    assert_eq!(client.ask("QUIT"), Value::text("OK"));
    assert_eq!(client.rest(), "", "it is closed");
}

#[test]
fn connections_end_in_good_order_with_the_server() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let (mut idle, mut busy) = (Client::to(&server), Client::to(&server));
    idle.ask("PING");
    busy.send(&super::client::command("CL.THROTTLE a 15 30 60").repeat(100));
    for _ in 0..100 {
        assert!(matches!(busy.reply(), Value::Array(_)));
    }
    server.shut_down();
    assert_eq!(idle.rest(), "");
    assert_eq!(busy.rest(), "");
    server.stop();
}
