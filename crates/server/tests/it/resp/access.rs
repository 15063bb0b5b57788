//! Once there are tokens, one has to be shown first.

use super::{Client, Value};
use tidegate_testkit_server::TestFolder;

const CONFIG: &str = "
tokens:
  - {name: dashboard, token_env: DASHBOARD, scopes: [read]}
  - {name: edge, token_env: EDGE, scopes: [check]}
";

#[test]
fn a_token_opens_a_connection() {
    let folder = TestFolder::new();
    folder.write("tidegate.yaml", CONFIG);
    let arguments = ["--config", "tidegate.yaml", "--resp", "127.0.0.1:0"];
    let environment = [("DASHBOARD", "d-secret"), ("EDGE", "e-secret")];
    let server = folder.serve_with(&arguments, &environment);
    let connect = || Client::to(&server);
    let throttle = "CL.THROTTLE a 15 30 60 0";

    let mut client = connect();
    for line in [
        throttle,
        "TG.CHECK a b",
        "PING",
        "COMMAND",
        "CLIENT ID",
        "FOO",
    ] {
        let error = client.ask(line).error();
        assert!(error.starts_with("NOAUTH "), "{line}: {error}");
    }
    #[rustfmt::skip]
    let refused = [
        ("AUTH x",                      "WRONGPASS unknown token"),
        ("AUTH edge x",                 "WRONGPASS "),
        ("AUTH d-secret",               "NOPERM the token `dashboard` does not have the scope `check`"),
        ("HELLO 3",                     "NOAUTH HELLO must be called"),
        ("HELLO 3 AUTH default x",      "WRONGPASS "),
    ];
    for (line, wanted) in refused {
        let error = client.ask(line).error();
        assert!(error.starts_with(wanted), "{line}: {error}");
        assert!(!error.contains("secret"), "{error}");
        assert!(client.ask(throttle).error().starts_with("NOAUTH "));
    }
    let allowed = Value::integers(&[0, 16, 16, -1, 0]);
    for line in [
        "AUTH e-secret",
        "AUTH default e-secret",
        "HELLO 2 AUTH edge e-secret SETNAME me",
    ] {
        let mut client = connect();
        let reply = client.ask(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        assert_eq!(client.ask(throttle), allowed, "{line}");
        assert_eq!(client.ask("RESET"), Value::text("RESET"));
        assert!(client.ask(throttle).error().starts_with("NOAUTH "));
        assert!(client.ask("AUTH wrong").error().starts_with("WRONGPASS "));
    }
    let metrics = server.ask("GET /metrics", "").body;
    for reason in ["missing", "unknown", "scope"] {
        let counted =
            format!("tidegate_token_refused_total{{front_end=\"resp\",reason=\"{reason}\"}}");
        assert!(metrics.contains(&counted), "{metrics}");
    }
    assert!(!server.log.text().contains("-secret"));
}

#[test]
fn ten_failures_to_authenticate_close_the_connection() {
    let folder = TestFolder::new();
    folder.write("tidegate.yaml", CONFIG);
    let arguments = ["--config", "tidegate.yaml", "--resp", "127.0.0.1:0"];
    let environment = [("DASHBOARD", "d-secret"), ("EDGE", "e-secret")];
    let server = folder.serve_with(&arguments, &environment);
    for guess in ["AUTH x", "HELLO 3 AUTH default x", "AUTH d-secret"] {
        let mut client = Client::to(&server);
        // Guesses that are sent together are cut in the same way.
        client.send(&super::client::command(guess).repeat(1_000));
        let replies = client.rest();
        assert_eq!(replies.matches("\r\n").count(), 10, "{guess}: {replies}");
    }
    let mut client = Client::to(&server);
    for _ in 0..9 {
        client.ask("AUTH x").error();
    }
    assert_eq!(client.ask("AUTH e-secret"), Value::text("OK"));
    assert_eq!(client.ask("PING"), Value::text("PONG"));
    assert!(client.ask("AUTH x").error().starts_with("WRONGPASS "));
    assert_eq!(client.rest(), "");

    let metrics = server.ask("GET /metrics", "").body;
    assert!(
        metrics.contains("tidegate_auth_closed_total 4"),
        "{metrics}"
    );
}

#[test]
fn a_client_without_a_token_sends_short_commands() {
    let folder = TestFolder::new();
    folder.write("tidegate.yaml", CONFIG);
    let arguments = ["--config", "tidegate.yaml", "--resp", "127.0.0.1:0"];
    let environment = [("DASHBOARD", "d-secret"), ("EDGE", "e-secret")];
    let server = folder.serve_with(&arguments, &environment);
    let part = format!("$5000\r\n{}\r\n", "x".repeat(5_000));
    let long = format!("*20\r\n$4\r\nPING\r\n{}", part.repeat(5));
    let mut client = Client::to(&server);
    client.send(long.as_bytes());
    let said = client.rest();
    assert!(said.contains("at most 16384 bytes"), "{said}");
    let mut client = Client::to(&server);
    client.ask("AUTH e-secret");
    client.send(long.as_bytes());
    client.send(part.repeat(14).as_bytes());
    assert!(client.reply().error().contains("wrong number"));
}
