//! Responses that cannot be used: the rules in force stay, and the reason is said everywhere.

use serde_json::Value;
use tidegate_server::grpc_messages::rate_limit::Unit;
use tidegate_testkit_xds::{ScriptedResponse, domain, encoded, limited, per};

use super::{Followed, allowed, assert_accepted, first_stream, metric, ready, users};

#[test]
fn a_refused_response_changes_nothing_and_names_the_resource_and_the_field() {
    let followed = Followed::start(&[users("edge", 2)]);
    let server = &followed.server;
    let bad = domain("edge", [limited("user", "", per(1, Unit::Unknown))]);
    let refused = followed
        .stream
        .publish("2", encoded(&[users("good", 1), bad]));
    assert_eq!(
        (&*refused.version_info, &*refused.response_nonce),
        ("1", "n2")
    );
    let detail = refused.error_detail.unwrap();
    assert_eq!(detail.code, 3);
    let begins = "resource `edge`, field `descriptors[0].rate_limit`: the key `unit` is missing";
    assert!(detail.message.starts_with(begins), "{}", detail.message);

    let log = server.log.wait_for("was refused");
    assert!(log.contains("ERROR") && log.contains(begins), "{log}");
    assert_eq!(allowed(server, "edge", "a"), 2);
    assert_eq!(allowed(server, "good", "a"), 3);
    assert_eq!(ready(server)["rules"]["problem"], detail.message);
    assert!((metric(server, "tidegate_rules_stale") - 1.0).abs() < 0.1);
    let updates = |result: &str| {
        metric(
            server,
            &format!("tidegate_xds_updates_total{{result=\"{result}\"}}"),
        )
    };
    assert!((updates("refused") - 1.0).abs() < 0.1);
    assert!((updates("accepted") - 1.0).abs() < 0.1);

    assert_accepted(&followed.stream, "3", &[users("edge", 1)]);
    assert_eq!(ready(server)["rules"]["problem"], Value::Null);
    assert!(metric(server, "tidegate_rules_stale").abs() < 0.1);
}

#[test]
fn what_cannot_be_a_configuration_is_refused() {
    let followed = Followed::start(&[users("edge", 2)]);
    let day = || per(1, Unit::Day);
    #[rustfmt::skip]
    let table = [
        (encoded(&[users("a", 1), users("a", 1)]),                          "the domain `a` is there twice"),
        (encoded(&[users("", 1)]),                                          "field `domain`"),
        (encoded(&[domain("a", [limited("", "", day())])]),                 "descriptors[0].key"),
        (encoded(&[domain("a", [limited("k", "v", day()), limited("k", "v", day())])]), "the same descriptor"),
        (vec![vec![0xff]],                                                  "no RateLimitConfig"),
    ];
    for (index, (resources, expected)) in table.into_iter().enumerate() {
        let refused = followed.stream.publish(&format!("bad-{index}"), resources);
        let message = refused.error_detail.unwrap().message;
        assert!(message.contains(expected), "{message}");
        assert_eq!(refused.version_info, "1");
    }
    followed.stream.respond(&ScriptedResponse {
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        ..ScriptedResponse::new("7", vec![Vec::new()])
    });
    let message = followed
        .stream
        .request()
        .unwrap()
        .error_detail
        .unwrap()
        .message;
    assert!(message.contains("was asked for"), "{message}");
    assert_eq!(ready(&followed.server)["rules"]["problem"], message);
    assert_eq!(allowed(&followed.server, "edge", "a"), 2);
}

#[test]
fn domains_are_merged_if_that_is_set() {
    let other = domain("edge", [limited("path", "", per(1, Unit::Day))]);
    let followed = Followed::with("merge_domains: true\n", &[users("edge", 2), other]);
    assert_eq!(allowed(&followed.server, "edge", "a"), 2);
    let twice = followed
        .stream
        .publish("2", encoded(&[users("edge", 1), users("edge", 1)]));
    let message = twice.error_detail.unwrap().message;
    assert!(message.contains("the same descriptor"), "{message}");
}

#[test]
fn a_response_that_is_too_large_is_named_with_its_setting() {
    let followed = Followed::with("  max_message: 1kB\n", &[users("edge", 2)]);
    let large: Vec<_> = (0..100)
        .map(|index| users(&format!("d{index}"), 1))
        .collect();
    followed
        .stream
        .respond(&ScriptedResponse::new("2", encoded(&large)));
    let log = followed
        .server
        .log
        .wait_for("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES");
    assert!(log.contains("ERROR"), "{log}");
    // It connects again, after a pause.
    let stream = first_stream(&followed.management);
    assert_eq!(allowed(&followed.server, "edge", "a"), 2);
    let problem = ready(&followed.server)["rules"]["problem"].clone();
    assert!(
        problem.as_str().unwrap().contains("xds.max_message"),
        "{problem}"
    );
    assert_accepted(&stream, "3", &[users("edge", 1)]);
    assert_eq!(ready(&followed.server)["rules"]["problem"], Value::Null);
}
