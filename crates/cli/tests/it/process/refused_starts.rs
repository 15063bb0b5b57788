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
    let place = ProgramFolder::new();
    place.write("tidegate.yaml", TOKENS);
    let run = place.fail_to_serve(&["--config", "tidegate.yaml"]);
    insta::assert_snapshot!(run.whole());
}

#[test]
fn what_cannot_be_known_of_clients_keeps_the_server_from_starting() {
    let place = ProgramFolder::new();
    place.write(
        "tidegate.yaml",
        "identify: {api_key: {header: x-api-key}}\nclients_file: absent.yaml\n",
    );
    let run = place.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("cannot read `absent.yaml`"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_second_server_on_one_data_directory_is_refused() {
    let place = ProgramFolder::new();
    let server = place.serve(&[]);
    let second = place.fail_to_serve(&[]);
    assert_eq!(second.code, Some(2));
    let process = server.pid().as_raw_nonzero();
    let said = format!("`data` is in use by another Tidegate server (process {process}); stop it");
    assert!(second.stderr.contains(&said), "{}", second.stderr);
    server.kill();
    place.serve(&[]);
}

#[test]
fn a_namespace_that_is_none_is_an_error_and_without_redis_it_has_no_effect() {
    let place = ProgramFolder::new();
    place.write(
        "tidegate.yaml",
        "redis: redis://127.0.0.1:1\nnamespace: 'a:b'\n",
    );
    let run = place.fail_to_serve(&["--config", "tidegate.yaml"]);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains(
            "tidegate.yaml:2:12: field `namespace`: `a:b` is not a namespace; write 1 to 32"
        ),
        "{}",
        run.stderr
    );
    let server = place.serve_with(&[], &[("TIDEGATE_NAMESPACE", "staging")]);
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
