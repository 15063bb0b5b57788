//! A management server that is away: at the start, later, and back again.

use std::time::Duration;

use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{now, wait_until};
use tidegate_testkit_server::{PATIENCE, TestFolder};
use tidegate_testkit_xds::{ManagementServer, TestAuthority};

use super::{
    Followed, allowed, assert_accepted, at, first_stream, follow, is_allowed, metric, ready, serve,
    users,
};

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_until(what, PATIENCE, || is_so().then_some(()));
}

#[test]
fn a_server_that_is_away_at_the_start_is_replaced_by_the_last_good_rules() {
    let followed = Followed::start(&[users("edge", 2)]);
    let file = followed.folder.path("data/xds-last-good");
    wait_for("the last good rules are kept", || file.exists());
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let (folder, server, address) = followed.end_management();
    server.kill();

    let server = serve(&folder);
    let log = server.log.wait_for("does not provide rules");
    assert!(log.contains("WARN"), "{log}");
    assert!(
        log.contains("the last good rules are in force, received"),
        "{log}"
    );
    assert_eq!(allowed(&server, "edge", "a"), 2);
    let ready_now = ready(&server);
    assert_eq!(ready_now["rules"]["kept"], true, "{ready_now}");
    assert_eq!(ready_now["rules"]["server_version"], "1");
    let warning = ready_now["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("the last good rules are in force"),
        "{warning}"
    );
    assert!((metric(&server, "tidegate_rules_stale") - 1.0).abs() < 0.1);
    assert!(metric(&server, "tidegate_xds_connected").abs() < 0.1);

    // It is back, and counts from one again.
    let management = at(address);
    let stream = first_stream(&management);
    assert_accepted(&stream, "1", &[users("edge", 1)]);
    assert_eq!(allowed(&server, "edge", "b"), 1);
    let ready_now = ready(&server);
    assert_eq!(ready_now["rules"]["kept"], serde_json::Value::Null);
    assert_eq!(ready_now["warnings"], serde_json::json!([]));
    assert!(metric(&server, "tidegate_rules_stale").abs() < 0.1);
    assert!((metric(&server, "tidegate_xds_connected") - 1.0).abs() < 0.1);
}

#[test]
fn without_last_good_rules_nothing_is_decided_until_the_server_answers() {
    let (folder, management) = (TestFolder::new(), ManagementServer::start());
    let address = management.address();
    drop(management);
    follow(&folder, &address, "");
    let server = serve(&folder);
    let log = server.log.wait_for("no rules are known");
    assert!(log.contains("WARN"), "{log}");
    let asked = server.ask("POST /v1/check", r#"{"attributes": {"domain": "edge"}}"#);
    assert_eq!(
        asked.with_status(503).detail(),
        "no rate limit configuration loaded"
    );
    server.ask("GET /readyz", "").with_status(503);
    server.ask("GET /healthz", "").with_status(200);

    let management = at(address);
    let stream = first_stream(&management);
    assert_accepted(&stream, "1", &[users("edge", 2)]);
    assert_eq!(allowed(&server, "edge", "a"), 2);
    ready(&server);
}

#[test]
fn a_server_that_goes_away_later_changes_nothing() {
    let followed = Followed::start(&[users("edge", 2)]);
    let (_folder, server, _) = followed.end_management();
    // More than one attempt fails; it is said once.
    server.log.wait_for("the rules in force stay");
    assert_eq!(allowed(&server, "edge", "a"), 2);
    assert!(metric(&server, "tidegate_xds_connected").abs() < 0.1);
    let rules = ready(&server)["rules"].clone();
    assert_eq!(rules["connected"], false);
    assert!(
        rules["failure"]
            .as_str()
            .is_some_and(|failure| !failure.is_empty()),
        "{rules}"
    );
    let log = server.stop();
    assert_eq!(log.matches("does not provide rules").count(), 1, "{log}");
}

#[test]
fn a_restarted_server_is_followed_and_what_was_used_stays_used() {
    let followed = Followed::start(&[users("edge", 2)]);
    assert!(is_allowed(&followed.server, "edge", "a"));
    let (_folder, server, address) = followed.end_management();
    let management = at(address);
    let stream = first_stream(&management);
    assert_accepted(&stream, "1", &[users("edge", 2), users("other", 1)]);
    assert_eq!(allowed(&server, "edge", "a"), 1);
    assert_eq!(allowed(&server, "other", "a"), 1);
}

/// A management server that starts publishes its gateways one after the other.
#[test]
fn a_domain_that_the_first_response_of_a_stream_lacks_stays_for_a_moment() {
    let domains = [users("one", 1), users("two", 1), users("three", 1)];
    let followed = Followed::start(&domains);
    let (_folder, server, address) = followed.end_management();
    let management = at(address);
    let stream = first_stream(&management);
    let begun = now();
    assert_accepted(&stream, "1", &[users("one", 2)]);
    // Few requests: a busy machine has to answer them before the moment is over.
    let twice = |domain: &str| [(); 2].map(|()| is_allowed(&server, domain, "a"));
    assert_eq!(twice("two"), [true, false]);
    // The second response brings one back, with another limit.
    assert_accepted(&stream, "2", &[users("one", 2), users("two", 2)]);
    assert_eq!(twice("three"), [true, false]);
    assert_eq!(allowed(&server, "one", "a"), 2);
    assert_eq!(allowed(&server, "two", "b"), 2);
    let log = server.log.wait_for("no longer has these rules");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(1_500), "{waited:?}");
    assert!(log.contains("removed=\"three.user\""), "{log}");
    assert_eq!(allowed(&server, "three", "b"), 3);
    assert_eq!(allowed(&server, "two", "c"), 2);
}

#[test]
fn the_last_good_rules_are_in_redis_too_and_the_newer_ones_count() {
    let redis = RedisServer::start();
    let more = format!("redis: {}\nredis_deadline: 5s\n", redis.url());
    let followed = Followed::with(&more, &[users("edge", 2)]);
    let address = followed.management.address();
    let file = followed.folder.path("data/xds-last-good");
    wait_for("the last good rules are kept", || file.exists());
    let kept_first = std::fs::read(&file).unwrap();
    assert_accepted(&followed.stream, "2", &[users("edge", 1)]);
    wait_for("the newer ones are kept", || {
        let in_redis: Vec<u8> = redis.query(&["HGET", "tg:{xds}", "envoy-ratelimit"]);
        std::fs::read(&file).unwrap() != kept_first && in_redis != kept_first
    });
    let (folder, server, _) = followed.end_management();
    server.kill();

    // The file is older than what Redis has, as on another machine.
    std::fs::write(&file, kept_first).unwrap();
    let server = serve(&folder);
    assert_eq!(ready(&server)["rules"]["server_version"], "2");
    assert_eq!(allowed(&server, "edge", "b"), 1);
    server.kill();

    // A machine without a data directory.
    std::fs::remove_dir_all(folder.path("data")).unwrap();
    std::fs::write(folder.path("data"), "no directory").unwrap();
    follow(&folder, &address, &more);
    let server = serve(&folder);
    assert_eq!(allowed(&server, "edge", "c"), 1);
}

#[test]
fn a_refused_certificate_is_an_error_with_the_reason_and_the_file() {
    let folder = TestFolder::new();
    let authority = TestAuthority::new(&folder.path(""), "servers");
    TestAuthority::new(&folder.path(""), "others");
    let files = authority.issue("server", "localhost");
    let management = ManagementServer::with_tls(files, None);
    let server = format!("localhost:{}", management.address().port());
    let ca = |name: &str| format!("  tls: true\n  ca: {}\n", folder.file(name));
    follow(&folder, &server, &ca("others.pem"));
    let running = serve(&folder);
    let log = running.log.wait_for("UnknownIssuer");
    assert!(log.contains("ERROR") && log.contains("others.pem"), "{log}");

    // The file is replaced, and the next connection uses it.
    folder.write(
        "others.pem",
        &std::fs::read_to_string(folder.path("servers.pem")).unwrap(),
    );
    let stream = first_stream(&management);
    assert_accepted(&stream, "1", &[users("edge", 1)]);
    assert_eq!(allowed(&running, "edge", "a"), 1);
}
