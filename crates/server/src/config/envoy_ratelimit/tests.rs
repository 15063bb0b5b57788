use std::collections::BTreeSet;

use tidegate::headers::HeaderSettings;
use tidegate_codec::grpc::MetadataCalls;
use tidegate_ratelimit::variables::{Effect, VARIABLES};

use super::super::Config;
use super::super::tests::load;
use super::*;

fn load_as(yaml: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    load(yaml, variables, &[("as", EnvoyRatelimit::NAME)])
}

#[test]
fn every_setting_that_variables_make_is_there() {
    let keys = VARIABLES.iter().flat_map(|variable| match variable.effect {
        Effect::Settings(keys) => keys,
        Effect::Mode(_) | Effect::Nothing(..) => &[],
    });
    // Secrets have variables of Tidegate, and no settings.
    let keys = keys.filter(|key| !key.starts_with("TIDEGATE_"));
    let missing: BTreeSet<&str> = keys.copied().filter(|key| !is_setting(key)).collect();
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn an_answer_carries_only_what_is_asked_for() {
    let answers = |variables: &[(&str, &str)]| load_as("", variables).unwrap().answers;
    let plain = answers(&[]);
    assert_eq!(plain.headers, HeaderSettings::NONE);
    assert_eq!((plain.has_reasons, plain.shadow), (false, false));
    assert_eq!(
        (plain.envoy_headers, plain.metadata),
        (None, MetadataCalls::None)
    );
    let own = answers(&[("TIDEGATE_HEADERS", "x,retry-after")]);
    assert!(own.headers.x && own.headers.retry_after && own.has_reasons);
    let asked = answers(&[
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "x-reset"),
        ("RESPONSE_DYNAMIC_METADATA", "true"),
        ("SHADOW_MODE", "1"),
    ]);
    let names = asked.envoy_headers.unwrap();
    let names = [names.limit, names.remaining, names.reset];
    assert_eq!(names, ["RateLimit-Limit", "RateLimit-Remaining", "x-reset"]);
    assert_eq!(
        (asked.headers, asked.has_reasons),
        (HeaderSettings::NONE, false)
    );
    assert_eq!((asked.metadata, asked.shadow), (MetadataCalls::All, true));
    let native = load("", &[], &[]).unwrap().answers;
    assert_eq!(native.headers, HeaderSettings::default());
    assert_eq!(
        (native.has_reasons, native.metadata),
        (true, MetadataCalls::OfQuotas)
    );
}

#[test]
fn the_variable_of_headers_names_them() {
    let names = |text: &str| {
        let loaded = load("", &[("TIDEGATE_ENVOY_HEADERS", text)], &[]);
        loaded.map(|config| config.answers.envoy_headers.unwrap().remaining)
    };
    assert_eq!(names("limit:a,remaining:b").unwrap(), "b");
    for wrong in ["remaining", "left:b", "remaining:b c"] {
        assert!(names(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn defaults_of_envoyproxy_ratelimit_are_below_the_file_and_its_variables_above() {
    let shown = |yaml: &str, variables: &[(&str, &str)]| {
        let config = load_as(yaml, variables).unwrap();
        (config.http.to_string(), config.log.level)
    };
    let expected = |http: &str, level: &str| (http.to_owned(), level.to_owned());
    assert_eq!(shown("", &[]), expected("0.0.0.0:8080", "warn"));
    let yaml = "http: 127.0.0.1:1\nlog_level: debug\n";
    assert_eq!(shown(yaml, &[]), expected("127.0.0.1:1", "debug"));
    let set = [("PORT", "2"), ("LOG_LEVEL", "INFO")];
    assert_eq!(shown(yaml, &set), expected("0.0.0.0:2", "info"));
    let own = [
        ("PORT", "2"),
        ("LOG_LEVEL", "INFO"),
        ("TIDEGATE_HTTP", "127.0.0.1:3"),
        ("TIDEGATE_LOG_LEVEL", ""),
    ];
    assert_eq!(shown(yaml, &own), expected("127.0.0.1:3", "info"));
    // The image sets this for every server in it.
    let image = [("TIDEGATE_HTTP", "0.0.0.0:8080"), ("HOST", "::")];
    assert_eq!(shown("", &image), expected("[::]:8080", "warn"));
    let flags = [("as", EnvoyRatelimit::NAME), ("http", "127.0.0.1:4")];
    assert_eq!(load(yaml, &own, &flags).unwrap().http.port(), 4);
}

#[test]
fn variables_of_others_are_read_in_this_mode_alone() {
    let config = load("", &[("PORT", "2"), ("LOG_LEVEL", "loud")], &[]).unwrap();
    assert_eq!(config.http.to_string(), "127.0.0.1:8080");
    assert_eq!(config.envoy_ratelimit, None);
    assert_eq!(config.debug, None);
    let as_variable = [("TIDEGATE_AS", "envoy-ratelimit"), ("PORT", "2")];
    let config = load("", &as_variable, &[]).unwrap();
    assert_eq!(config.http.to_string(), "0.0.0.0:2");
    assert_eq!(config.debug.unwrap().to_string(), "0.0.0.0:6070");
    assert_eq!(config.envoy_ratelimit, Some(EnvoyRatelimit::default()));
    let refused = load("", &[("TIDEGATE_AS", "envoy")], &[]).unwrap_err();
    assert!(
        refused.contains("TIDEGATE_AS: `envoy` is unknown; expected one of `envoy-ratelimit`"),
        "{refused}"
    );
}

#[test]
fn all_problems_are_reported_together_by_the_names_of_their_variables() {
    let set = [
        ("PORT", "http"),
        ("HOST", "ratelimit.invalid"),
        ("BACKEND_TYPE", "memcache"),
        ("TIDEGATE_HISTORY", "many"),
    ];
    let problems = load_as("htpp: 1\n", &set).unwrap_err();
    for expected in [
        "error: PORT: `http` is not a port",
        "error: HOST: the host `ratelimit.invalid` is not known",
        "error: BACKEND_TYPE: counters in memcached are not exact",
        "error: TIDEGATE_HISTORY: field `history`",
        "unknown key `htpp`",
    ] {
        assert!(problems.contains(expected), "{expected}\n---\n{problems}");
    }
}

#[test]
fn redis_and_its_passwords_are_passed_on() {
    let set = [
        ("REDIS_URL", "redis:6379"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_AUTH", "someone:hunter2"),
        ("CACHE_KEY_PREFIX", "prod"),
    ];
    let redis = load_as("", &set).unwrap().redis.unwrap();
    assert_eq!(redis.url.to_string(), "redis://redis:6379");
    assert_eq!(redis.user.as_deref(), Some("someone"));
    assert_eq!(redis.password.as_deref(), Some("hunter2"));
    assert_eq!(redis.namespace.unwrap().to_string(), "prod");
    let own = [&set[..], &[("TIDEGATE_REDIS_PASSWORD", "other")]].concat();
    let redis = load_as("", &own).unwrap().redis.unwrap();
    assert_eq!(redis.password.as_deref(), Some("other"));
    let sentinel = [
        ("REDIS_URL", "main,a:1"),
        ("REDIS_TYPE", "SENTINEL"),
        ("REDIS_SENTINEL_AUTH", "s3ntinel"),
    ];
    let redis = load_as("", &sentinel).unwrap().redis.unwrap();
    assert_eq!(redis.sentinel_password.as_deref(), Some("s3ntinel"));
}

#[test]
fn rules_have_one_source() {
    let rules = |yaml: &str, variables: &[(&str, &str)]| {
        let rules = load_as(yaml, variables).unwrap().rules;
        rules.map(|path| path.path.display().to_string())
    };
    let root = ("RUNTIME_ROOT", "/data");
    let default = "/srv/runtime_data/current/config";
    assert_eq!(rules("", &[]).as_deref(), Some(default));
    assert_eq!(rules("rules: a.yaml", &[]).as_deref(), Some("a.yaml"));
    assert_eq!(
        rules("rules: a.yaml", &[root]).as_deref(),
        Some("/data/config")
    );
    let own = [root, ("TIDEGATE_RULES", "b.yaml")];
    assert_eq!(rules("rules: a.yaml", &own).as_deref(), Some("b.yaml"));
}
