//! Environment variables that no setting has.

use crate::server::ProgramFolder;

#[test]
fn a_misspelt_variable_keeps_the_server_from_starting_and_names_the_right_one() {
    let folder = ProgramFolder::new();
    for (name, meant) in [
        ("TIDEGATE_HTPP", "TIDEGATE_HTTP"),
        ("TIDEGATE_TOKNE", "TIDEGATE_TOKEN"),
        ("TIDEGATE_REDIS_PASSWORDS", "TIDEGATE_REDIS_PASSWORD"),
    ] {
        let run = folder.run_with(&["serve", "--http", "127.0.0.1:0"], &[(name, "x")]);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        let said = format!("error: {name}: no setting has this variable; did you mean `{meant}`?");
        assert!(run.stderr.contains(&said), "{}", run.stderr);
    }
}

#[test]
fn a_blank_token_keeps_the_server_from_starting() {
    let folder = ProgramFolder::new();
    for blank in ["", "  "] {
        let run = folder.run_with(
            &["serve", "--http", "127.0.0.1:0"],
            &[("TIDEGATE_TOKEN", blank)],
        );
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains("unset the variable"), "{}", run.stderr);
    }
    // A command takes it for none, and finds the token of the server on this machine.
    let server = folder.serve(&[]);
    let url = server.url();
    let run = folder.run_with(
        &["rules", "list", "--server", &url, "--data-dir", "data"],
        &[("TIDEGATE_TOKEN", " ")],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn other_unknown_variables_are_a_warning_and_those_of_kubernetes_are_ignored() {
    let folder = ProgramFolder::new();
    folder.write(
        "tidegate.yaml",
        "tokens:\n  - {name: ops, token_env: TIDEGATE_TOKEN2, scopes: [read]}\n",
    );
    let environment = [
        (
            "TIDEGATE_TOKEN2",
            "named in the file, and two edits from another",
        ),
        ("TIDEGATE_SERVER", "http://of-the-commands"),
        ("TIDEGATE_PORT", "tcp://10.0.0.1:8080"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_SERVICE_PORT_HTTP", "8080"),
        ("TIDEGATE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("TIDEGATE_FAVOURITE_COLOUR", "blue"),
    ];
    let server = folder.serve_with(&["--config", "tidegate.yaml"], &environment);
    let log = server
        .log
        .wait_for("the environment variable `TIDEGATE_FAVOURITE_COLOUR` has no effect");
    assert_eq!(log.matches("the environment variable").count(), 1, "{log}");
}
