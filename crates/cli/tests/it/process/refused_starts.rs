//! Settings and files that keep a server from starting: it ends with exit code 2 and says what to change.

use crate::server::ProgramFolder;

const TOKENS: &str = "
tokens:
  - {name: dashboard, token_file: dashboard.token, scopes: [read]}
  - {name: deployer, token_env: DEPLOYER, scopes: [write]}
  - {name: edge, token_env: EDGE, scopes: [check]}
";

#[test]
fn tokens_that_cannot_be_had_keep_the_server_from_starting() {
    let folder = ProgramFolder::new();
    folder.write("tidegate.yaml", TOKENS);
    let run = folder.fail_to_serve(&["--config", "tidegate.yaml"]);
    insta::assert_snapshot!(run.whole());
}

#[test]
fn what_cannot_be_known_of_clients_keeps_the_server_from_starting() {
    let folder = ProgramFolder::new();
    folder.write(
        "tidegate.yaml",
        "identify: {api_key: {header: x-api-key}}\nclients_file: absent.yaml\n",
    );
    let run = folder.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("cannot read `absent.yaml`"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_second_server_on_one_data_directory_is_refused() {
    let folder = ProgramFolder::new();
    let server = folder.serve(&[]);
    let second = folder.fail_to_serve(&[]);
    assert_eq!(second.code, Some(2));
    let process = server.pid().as_raw_nonzero();
    let said = format!("`data` is in use by another Tidegate server (process {process}); stop it");
    assert!(second.stderr.contains(&said), "{}", second.stderr);
    server.kill();
    folder.serve(&[]);
}

#[test]
fn a_data_directory_of_another_user_is_refused_and_with_a_rule_file_not_read() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files to another user");
        return;
    }
    let folder = ProgramFolder::new();
    folder.serve(&[]).kill();
    let token = folder.path("data/admin-token");
    std::os::unix::fs::chown(&token, Some(4_242), None).unwrap();
    let run = folder.fail_to_serve(&[]);
    assert_eq!(run.code, Some(2));
    for said in [
        "`data/admin-token` belongs to the user 4242",
        "`chown -R 0 data`",
    ] {
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
    folder.write("rules.yaml", "rules: [{id: a, per: [], limit: 2/hour}]");
    let server = folder.serve(&["--rules", "rules.yaml"]);
    let log = server.log.wait_for("belongs to the user 4242");
    assert!(
        log.contains("WARN nothing is kept across restarts"),
        "{log}"
    );
    // Its token is not used either.
    server.ask("GET /v1/rules", "").with_status(403);
    server
        .ask("POST /v1/check", r#"{"attributes": {}}"#)
        .with_status(200);
}

#[test]
fn a_namespace_that_is_none_is_an_error_and_without_redis_it_has_no_effect() {
    let folder = ProgramFolder::new();
    folder.write(
        "tidegate.yaml",
        "redis: redis://127.0.0.1:1\nnamespace: 'a:b'\n",
    );
    let run = folder.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains(
            "tidegate.yaml:2:12: field `namespace`: `a:b` is not a namespace; write 1 to 32"
        ),
        "{}",
        run.stderr
    );
    let server = folder.serve_with(&[], &[("TIDEGATE_NAMESPACE", "staging")]);
    server
        .log
        .wait_for("the setting `namespace` has no effect without `redis`");
}

#[test]
fn a_refused_url_of_redis_does_not_show_its_password() {
    let folder = ProgramFolder::new();
    let run = folder.fail_to_serve(&["--redis", "redis://:open-sesame@127.0.0.1:x"]);
    assert_eq!(run.code, Some(2));
    assert!(!run.whole().contains("open-sesame"), "{}", run.whole());
}
