//! Responses that are good: each is one change, and equal ones are none.

use tidegate_server::grpc_messages::rate_limit::Unit;
use tidegate_testkit_xds::{descriptor, domain, limited, per};

use super::{Followed, allowed, assert_accepted, is_allowed, metric, ready, users};

#[test]
fn a_response_replaces_all_rules_and_keeps_counters_of_limits_that_stay() {
    let followed = Followed::start(&[users("stays", 2), users("goes", 1)]);
    let server = &followed.server;
    assert!(is_allowed(server, "stays", "a"));
    assert_accepted(&followed.stream, "2", &[users("new", 1), users("stays", 2)]);
    assert_eq!(allowed(server, "stays", "a"), 1);
    assert_eq!(allowed(server, "new", "a"), 1);
    assert_eq!(allowed(server, "goes", "a"), 3);
    let log = server.log.wait_for("no longer has these rules");
    assert!(log.contains("WARN") && log.contains("goes.user"), "{log}");
}

#[test]
fn an_equal_response_in_another_order_is_no_new_version() {
    let day = |count| per(count, Unit::Day);
    let routes = |is_reversed: bool| {
        let mut routes = vec![
            descriptor("route-a", "route-a", [limited("rule", "", day(1))]),
            descriptor(
                "route-b",
                "route-b",
                [limited("rule", "", day(2)), limited("x", "", day(3))],
            ),
        ];
        if is_reversed {
            routes.reverse();
            routes[0].descriptors.reverse();
        }
        let mut domains = vec![domain("one", routes), users("two", 2)];
        if is_reversed {
            domains.reverse();
        }
        domains
    };
    let followed = Followed::start(&routes(false));
    let server = &followed.server;
    let before = ready(server)["rules"].clone();
    assert_accepted(&followed.stream, "2", &routes(true));
    let after = ready(server)["rules"].clone();
    assert_eq!(after["version"], before["version"]);
    assert_eq!(after["server_version"], "2");
    let unchanged = metric(server, "tidegate_xds_updates_total{result=\"unchanged\"}");
    assert!((unchanged - 1.0).abs() < 0.1);
    assert!((metric(server, "tidegate_xds_streams_total") - 1.0).abs() < 0.1);
    assert!(metric(server, "tidegate_xds_last_update_seconds") > 1e9);
}

#[test]
fn an_empty_response_allows_everything_and_says_how_many_limits_are_gone() {
    let followed = Followed::start(&[users("one", 1), users("two", 1)]);
    let server = &followed.server;
    assert_accepted(&followed.stream, "2", &[]);
    assert_eq!(allowed(server, "one", "a"), 3);
    let log = server.log.wait_for("every request is allowed");
    assert!(log.contains("count=2"), "{log}");
    assert_eq!(ready(server)["rules"]["count"], 0);
}
