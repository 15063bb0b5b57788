//! What the commands say about tokens: each names the scope that its calls need, and a token with that is enough.

use crate::server::ProgramFolder;

const CONFIG: &str = "
tokens:
  - {name: checker, token_env: CHECKER, scopes: [check]}
  - {name: reader, token_env: READER, scopes: [read]}
  - {name: writer, token_env: WRITER, scopes: [write]}
";
const SECRETS: [(&str, &str); 3] = [
    ("CHECKER", "secret-of-the-checker"),
    ("READER", "secret-of-the-reader"),
    ("WRITER", "secret-of-the-writer"),
];
const RULES: &str = "rules: [{id: r, per: [user_id], limit: 5/minute}]";

/// The scopes that a message names.
fn scopes(text: &str) -> Vec<&str> {
    let words = text.split('`').skip(1).step_by(2);
    let is_scope = |word: &&str| ["check", "read", "write"].contains(word);
    words.filter(is_scope).collect()
}

#[test]
fn every_command_asks_for_the_scope_that_it_needs() {
    let folder = ProgramFolder::new();
    folder.write("tidegate.yaml", CONFIG);
    folder.write("rules.yaml", RULES);
    let server = folder.serve_with(&["--config", "tidegate.yaml"], &SECRETS);
    let url = server.url();
    let [checker, reader, writer] = SECRETS.map(|(_, secret)| secret);
    // In an order in which each finds what it is about.
    #[rustfmt::skip]
    let commands = [
        // command                                              scope       enough      not enough
        ("rules apply -f rules.yaml",                           "write",    writer,     reader),
        ("check -a user_id=u",                                  "check",    checker,    reader),
        ("explain -a user_id=u",                                "read",     reader,     checker),
        ("console --no-open",                                   "read",     reader,     checker),
        ("status",                                              "read",     reader,     checker),
        ("top --once",                                          "read",     reader,     checker),
        ("rules list",                                          "read",     reader,     checker),
        ("rules history",                                       "read",     reader,     checker),
        ("rules diff --from 0 --to 1",                          "read",     reader,     checker),
        ("override r u unlimited --for 1h --reason test",       "write",    writer,     reader),
        ("override",                                            "read",     reader,     checker),
        ("reset -a user_id=u",                                  "write",    writer,     reader),
        ("rules rollback 1",                                    "write",    writer,     reader),
        ("rules delete r",                                      "write",    writer,     reader),
    ];
    for (line, scope, enough, not_enough) in commands {
        let run = |secret: Option<&str>| {
            let arguments = line.split(' ').chain(["--server", &url]);
            let arguments: Vec<&str> = arguments.collect();
            let token = secret.map(|secret| ("TIDEGATE_TOKEN", secret));
            let nowhere = ("TIDEGATE_DATA_DIR", "nowhere");
            let environment: Vec<_> = token.into_iter().chain([nowhere]).collect();
            folder.run_with(&arguments, &environment)
        };
        // It reads the rules first.
        let first = if line.starts_with("rules apply") {
            "read"
        } else {
            scope
        };
        for (secret, scope) in [
            (None, first),
            (Some("unknown-to-the-server"), first),
            (Some(not_enough), scope),
        ] {
            let refused = run(secret);
            assert_eq!(refused.code, Some(2), "{line}: {}", refused.whole());
            let advice = refused.stderr.rsplit("; ").next().unwrap();
            assert_eq!(scopes(advice), [scope], "{line}: {}", refused.whole());
        }
        let done = run(Some(enough));
        assert_ne!(done.code, Some(2), "{line}: {}", done.whole());
    }
}
