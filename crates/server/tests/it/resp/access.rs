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
    let place = TestFolder::new();
    place.write("tidegate.yaml", CONFIG);
    let arguments = ["--config", "tidegate.yaml", "--resp", "127.0.0.1:0"];
    let environment = [("DASHBOARD", "d-secret"), ("EDGE", "e-secret")];
    let server = place.serve_with(&arguments, &environment);
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
