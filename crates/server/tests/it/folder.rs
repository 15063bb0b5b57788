//! Rules in a folder of descriptor files: read together, followed through links, refused together.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::rules::RuleSettings;
use tidegate_server::config::RulePath;
use tidegate_server::rulebook::RuleBook;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{now, wait_until};
use tidegate_testkit_server::{HttpClient, PATIENCE, TestFolder};

use crate::Server;

/// A file with a domain in which each user has so many requests a day.
fn users(domain: &str, requests: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors: [{{key: user, rate_limit: {{unit: day, requests_per_unit: {requests}}}}}]\n"
    )
}

/// How many requests of a new user are allowed, of three.
fn allowed(server: &Server, domain: &str, user: &str) -> usize {
    let body = json!({"attributes": {"domain": domain, "user": user}}).to_string();
    let asked = (0..3).map(|_| server.ask("POST /v1/check", &body).json());
    asked.filter(|answer| answer["allowed"] == true).count()
}

fn status(server: &Server) -> Value {
    server.ask("GET /v1/status", "").with_status(200).json()["rules"].clone()
}

/// A folder `rules` with a file at two depths, one of which has two documents.
fn folder_of_rules() -> TestFolder {
    let folder = TestFolder::new();
    fs::create_dir_all(folder.path("rules/deeper")).unwrap();
    let two = format!("{}---\n{}", users("one", 1), users("two", 2));
    folder.write("rules/a.yaml", &two);
    folder.write("rules/deeper/without-ending", &users("three", 2));
    folder
}

#[test]
fn all_files_of_a_folder_count_and_are_followed() {
    let folder = folder_of_rules();
    let server = folder.serve(&["--rules", "rules"]);
    assert_eq!(status(&server)["source"], "folder");
    assert_eq!(
        ["one", "two", "three"].map(|domain| allowed(&server, domain, "a")),
        [1, 2, 2]
    );

    // A new file adds rules immediately.
    folder.write("new.yaml", &users("four", 1));
    fs::rename(folder.path("new.yaml"), folder.path("rules/new.yaml")).unwrap();
    server.log.wait_for("added four.user");
    assert_eq!(allowed(&server, "four", "a"), 1);

    // What takes limits away counts after a rest.
    let begun = now();
    fs::remove_file(folder.path("rules/new.yaml")).unwrap();
    server.log.wait_for("removed four.user");
    let waited = now() - begun;
    assert!(waited >= Duration::from_millis(1_400), "{waited:?}");
    assert_eq!(allowed(&server, "four", "b"), 3);
}

#[test]
fn one_wrong_file_refuses_all_with_its_name_and_line() {
    let folder = folder_of_rules();
    let server = folder.serve(&["--rules", "rules"]);
    folder.write("rules/wrong.yaml", "domain: five\ndescriptors: [{key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}]\n");
    let log = server.log.wait_for("wrong.yaml");
    assert!(
        log.contains("ERROR") && log.contains("wrong.yaml:2:43"),
        "{log}"
    );
    let problem = status(&server)["problem"].clone();
    assert!(
        problem.as_str().unwrap().contains("wrong.yaml"),
        "{problem}"
    );
    assert_eq!(allowed(&server, "three", "a"), 2);

    folder.write("rules/wrong.yaml", &users("one", 5));
    let log = server.log.wait_for_times("wrong.yaml", 2);
    assert!(log.contains("ERROR"), "{log}");
    folder.write("rules/wrong.yaml", &users("five", 1));
    server.log.wait_for("added five.user");
    assert_eq!(status(&server)["problem"], Value::Null);
}

/// Kubernetes swaps a link to the folder with the files.
#[test]
fn a_swapped_config_map_is_followed_and_read_once() {
    let folder = TestFolder::new();
    for (name, requests) in [("..2026_1", 1), ("..2026_2", 2)] {
        fs::create_dir_all(folder.path("rules").join(name)).unwrap();
        folder.write(
            &format!("rules/{name}/config.yaml"),
            &users("one", requests),
        );
    }
    let at = |name: &str| folder.path("rules").join(name);
    symlink("..2026_1", at("..data")).unwrap();
    symlink("..data/config.yaml", at("config.yaml")).unwrap();
    let server = folder.serve(&["--rules", "rules"]);
    assert_eq!(allowed(&server, "one", "a"), 1);
    symlink("..2026_2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    server.log.wait_for("changed one.user");
    assert_eq!(allowed(&server, "one", "b"), 2);
}

/// A server in place of envoyproxy/ratelimit, with the folder `rules`.
fn in_place(folder: &TestFolder, variables: &[(&str, &str)]) -> Server {
    let flags = [
        "--as",
        "envoy-ratelimit",
        "--rules",
        "rules",
        "--grpc",
        "127.0.0.1:0",
        "--debug",
        "127.0.0.1:0",
    ];
    let quiet = [("LOG_LEVEL", "info"), ("USE_STATSD", "false")];
    folder.serve_with(&flags, &[&quiet, variables].concat())
}

/// What a call of a user in the domain `one` gets.
fn answer(server: &Server, user: &str) -> u16 {
    let call =
        json!({"domain": "one", "descriptors": [{"entries": [{"key": "user", "value": user}]}]});
    server.ask("POST /json", &call.to_string()).status
}

fn stats(server: &Server) -> String {
    let mut debug = HttpClient::to(server.debug.unwrap());
    debug.ask("GET /stats", "").with_status(200).body
}

#[test]
fn a_start_with_a_wrong_file_goes_on_with_the_last_good_ones() {
    let (folder, redis) = (folder_of_rules(), RedisServer::start());
    let address = redis.address().to_string();
    let in_redis = [("REDIS_URL", &*address), ("TIDEGATE_REDIS_DEADLINE", "5s")];
    let server = in_place(&folder, &in_redis);
    let file = folder.path("data/xds-last-good");
    wait_until("the rules are kept", PATIENCE, || {
        let kept: Vec<String> = redis.query(&["HKEYS", "tg:{xds}"]);
        (file.exists() && kept.len() == 1).then_some(())
    });
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    assert!(stats(&server).contains("config_load_success: 1\n"));
    server.kill();

    folder.write("rules/a.yaml", "domain: one\ndescriptors: [{key: user, rate_limit: {unit: fortnight, requests_per_unit: 9}}]\n");
    // With the file; then without it, by what Redis has.
    for (user, variables) in [("a", &[][..]), ("b", &in_redis)] {
        let server = in_place(&folder, variables);
        let log = server.log.wait_for("the last good rules are in force");
        assert!(
            log.contains("WARN") && log.contains("a.yaml:2:46: "),
            "{log}"
        );
        assert!(log.contains("`fortnight`"), "{log}");
        assert_eq!((answer(&server, user), answer(&server, user)), (200, 429));
        let health = server.ask("GET /healthcheck", "").with_status(200);
        assert_eq!(health.body, "OK");
        let stats = stats(&server);
        assert!(stats.contains("config_load_success: 0\n"), "{stats}");
        assert!(stats.contains("config_load_error: 1\n"), "{stats}");

        // It is followed as ever.
        let again = format!("added one.plan{user}");
        let two = users("one", 1).replace(
            "[{",
            &format!("[{{key: plan{user}, rate_limit: {{unit: day, requests_per_unit: 1}}}}, {{"),
        );
        let wrong = fs::read_to_string(folder.path("rules/a.yaml")).unwrap();
        folder.write("rules/a.yaml", &format!("{two}---\n{}", users("two", 2)));
        server.log.wait_for(&again);
        folder.write("rules/a.yaml", &wrong);
        server.log.wait_for_times("a.yaml:2:46: ", 2);
        server.kill();
        let _ = fs::remove_file(&file);
    }

    // Nothing is known of another folder.
    fs::rename(folder.path("rules"), folder.path("others")).unwrap();
    fs::create_dir(folder.path("rules")).unwrap();
    folder.write("rules/a.yaml", "domain: ''\n");
    fs::remove_dir_all(folder.path("data")).unwrap();
    let server = in_place(&folder, &[]);
    let log = server.log.wait_for("no rules loaded yet");
    assert!(!log.contains("Redis provides"), "{log}");
    assert_eq!(answer(&server, "c"), 400);
    server.ask("GET /healthcheck", "").with_status(500);
}

#[test]
fn loads_are_counted_also_those_that_change_nothing() {
    let folder = folder_of_rules();
    let server = in_place(&folder, &[]);
    let wait_for = |line: &str| {
        wait_until(line, PATIENCE, || {
            stats(&server).contains(line).then_some(())
        });
    };
    wait_for("config_load_success: 1\n");
    folder.write(
        "rules/deeper/without-ending",
        &format!("# the same\n{}", users("three", 2)),
    );
    wait_for("config_load_success: 2\n");
    folder.write("rules/wrong", "domain: ''\n");
    wait_for("config_load_error: 1\n");
}

#[test]
fn a_folder_without_rules_says_where_it_looked() {
    let folder = TestFolder::new();
    let server = in_place(&folder, &[]);
    let log = server.log.wait_for("there are no rules in `");
    assert!(
        log.contains("WARN") && !log.contains("rules apply"),
        "{log}"
    );
    assert_eq!(answer(&server, "a"), 200);
}

#[test]
fn a_document_that_is_empty_after_the_first_is_no_mistake() {
    let folder = TestFolder::new();
    fs::create_dir_all(folder.path("rules")).unwrap();
    for (name, end) in [
        ("one", "---\n"),
        ("two", "---\n# nothing\n"),
        ("three", "...\n---\n---\n"),
    ] {
        folder.write(
            &format!("rules/{name}"),
            &format!("{}{end}", users(name, 1)),
        );
    }
    let server = folder.serve(&["--rules", "rules"]);
    assert_eq!(
        ["one", "two", "three"].map(|domain| allowed(&server, domain, "a")),
        [1, 1, 1]
    );
}

#[test]
fn a_start_with_a_wrong_file_is_an_error_unless_it_is_in_place_of_another_server() {
    let folder = TestFolder::new();
    fs::create_dir_all(folder.path("rules")).unwrap();
    folder.write("rules/.dot", "domain: ''\n");
    let open = |ignore_dot_files, is_lenient| {
        let path = RulePath {
            path: folder.path("rules"),
            ignore_dot_files,
            is_lenient,
        };
        RuleBook::of_file(path, RuleSettings::default())
    };
    let error = open(false, false).map(drop).unwrap_err().to_string();
    assert!(error.contains(".dot:1:9"), "{error}");
    let (book, rules, _) = open(false, true).unwrap();
    assert!(!book.has_rules() && rules.is_empty());
    assert_eq!(
        book.need_rules().unwrap_err(),
        "no rate limit configuration loaded"
    );
    assert_eq!(book.loads(), (0, 1));
    // Without the file there is none, and that is a configuration.
    let (book, _, _) = open(true, false).unwrap();
    assert!(book.has_rules());
    assert_eq!(book.loads(), (1, 0));
}
