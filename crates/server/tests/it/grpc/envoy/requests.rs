//! Requests that pass, that are over a limit, and that cannot be decided.

use super::{Front, printed};

const USER: [(&str, &str); 1] = [("x-user", "u1")];

#[test]
fn the_guide_works_as_it_is_printed() {
    let front = Front::new(&printed("rules:"), |config| config);
    for left in (0..5).rev() {
        let reply = front.envoy.get("/", &USER);
        assert_eq!((reply.status, reply.body.as_str()), (200, "0123456789"));
        assert_eq!(
            reply.header("x-ratelimit-remaining"),
            Some(left.to_string().as_str())
        );
    }
    let denied = front.envoy.get("/", &USER);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("5"));
    assert!(
        denied
            .header("ratelimit")
            .unwrap()
            .contains("\"per-user\";r=0")
    );
    let waits = denied
        .headers
        .iter()
        .filter(|(name, _)| name == "retry-after");
    let waits: Vec<u64> = waits.map(|(_, value)| value.parse().unwrap()).collect();
    assert!(matches!(waits.as_slice(), [1..=12]), "{waits:?}");
    // A request that one descriptor denies is not charged by the other.
    assert_eq!(
        front.left(r#"{"domain": "web", "remote_address": "127.0.0.1"}"#),
        15
    );
    assert_eq!(front.envoy.get("/", &[("x-user", "u2")]).status, 200);
}

#[test]
fn a_file_of_the_other_service_is_served_as_it_is() {
    let front = Front::new(&printed("domain: web"), |config| config);
    for expected in [200, 200, 200, 200, 200, 429] {
        assert_eq!(front.envoy.get("/", &USER).status, expected);
    }
    for _ in 0..20 {
        assert_eq!(front.envoy.get("/", &[("x-user", "vip")]).status, 200);
    }
    let limits = front.server.ask("GET /v1/rules", "").json();
    assert_eq!(limits["rules"][0]["id"], "web.user");
}

#[test]
fn the_headers_of_draft_03_come_from_envoy_alone() {
    let enabled = "domain: web\n                      enable_x_ratelimit_headers: DRAFT_VERSION_03";
    let change = |config: String| config.replace("domain: web", enabled);
    let all = |front: &Front, name: &str| -> Vec<String> {
        let reply = front.envoy.get("/", &USER);
        let headers = reply.headers.iter().filter(|(known, _)| known == name);
        headers.map(|(_, value)| value.clone()).collect()
    };
    // By default both send theirs, with two meanings.
    let front = Front::new(&printed("rules:"), change);
    let both = all(&front, "x-ratelimit-reset").join(", ");
    assert!(both.contains(", "), "{both}");
    drop(front);
    let settings = printed("# tidegate.yaml");
    let front = Front::with_settings(&printed("rules:"), &settings, change);
    let reset = all(&front, "x-ratelimit-reset");
    let [seconds] = reset.as_slice() else {
        panic!("{reset:?}")
    };
    assert!((0..=60).contains(&seconds.parse().unwrap()), "{seconds}");
    assert_eq!(all(&front, "x-ratelimit-remaining").len(), 1);
    assert_eq!(all(&front, "ratelimit-policy").len(), 1);
}

#[test]
fn envoy_decides_what_happens_without_the_server() {
    for (deny, expected) in [("false", 200), ("true", 500)] {
        let mode = format!("failure_mode_deny: {deny}");
        let change = |config: String| config.replace("failure_mode_deny: false", &mode);
        let front = Front::new(&printed("rules:"), change);
        assert_eq!(front.envoy.get("/", &USER).status, 200);
        let Front {
            server,
            envoy,
            folder,
            _application,
        } = front;
        server.kill();
        assert_eq!(envoy.get("/", &USER).status, expected, "{mode}");
        drop(folder);
    }
}

#[test]
fn a_rule_that_denies_without_its_store_is_429_and_says_why() {
    let rules = "rules: [{id: closed, per: [user], limit: 5/minute, on_store_failure: deny}]";
    let front = Front::without_redis(rules);
    let denied = front.envoy.get("/", &USER);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("x-tidegate-degraded"), Some("deny"));
}
