use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// Variables that are set, and lines of the settings that they become.
type VariableCase<'t> = (&'t [(&'t str, &'t str)], &'t [&'t str]);

/// What these variables become: settings as `key: value`, and problems.
fn read_all(set: &[(&str, &str)]) -> (ReadVariables, Vec<String>) {
    let variable = |name: &str| {
        let found = set.iter().find(|(known, _)| *known == name)?;
        Some(found.1.to_owned())
    };
    let names: Vec<String> = set.iter().map(|(name, _)| (*name).to_owned()).collect();
    let environment = Environment {
        variable: &variable,
        names: &names,
        address: &|host| (host == "ratelimit.example.com").then(|| [192, 0, 2, 1].into()),
        exists: &|_| false,
    };
    let mut problems = Problems::new();
    let read = read(&environment, &mut problems);
    let problems = problems.to_string();
    let errors = problems.lines().filter(|line| line.starts_with("error: "));
    (read, errors.map(str::to_owned).collect())
}

/// The settings that are not defaults.
fn made(set: &[(&str, &str)]) -> Vec<String> {
    let (read, problems) = read_all(set);
    assert_eq!(problems, Vec::<String>::new());
    let made = read.settings.iter().filter(|made| !made.is_default);
    made.map(VariableSetting::shown).collect()
}

fn notes(set: &[(&str, &str)]) -> Vec<String> {
    let notes = read_all(set).0.notes;
    let note = |note: VariableNote| format!("{:?} {}", note.level, note.text);
    notes.into_iter().map(note).collect()
}

#[test]
fn all_114_variables_are_in_the_table_and_37_have_no_effect() {
    let own = VARIABLES.iter().filter(|variable| variable.is_own);
    let nothing = own
        .clone()
        .filter(|variable| matches!(variable.effect, Effect::Nothing(..)));
    assert_eq!((own.count(), nothing.count()), (114, 37));
    let names: BTreeSet<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
    assert_eq!(names.len(), VARIABLES.len());
}

#[test]
fn every_default_of_the_table_can_be_read() {
    for variable in VARIABLES
        .iter()
        .filter(|variable| !variable.default.is_empty())
    {
        let (_, problems) = read_all(&[(variable.name, variable.default)]);
        assert_eq!(problems, Vec::<String>::new(), "{}", variable.name);
    }
}

#[test]
fn without_variables_the_defaults_of_envoyproxy_ratelimit_are_made() {
    let (read, problems) = read_all(&[]);
    assert_eq!(problems, Vec::<String>::new());
    assert!(read.settings.iter().all(|made| made.is_default));
    let made: Vec<String> = read.settings.iter().map(VariableSetting::shown).collect();
    let expected = [
        "http: 0.0.0.0:8080",
        "grpc: 0.0.0.0:8081",
        "debug: 0.0.0.0:6070",
        "grpc_max_connection_age: 86400s",
        "grpc_max_connection_age_grace: 3600s",
        "rules: /srv/runtime_data/current/config",
        "statsd: {address: localhost:8125, protocol: tcp, interval: 10s}",
        "log_level: warn",
        "log_format: text",
    ];
    assert_eq!(made, expected);
    assert_eq!(read.mode, EnvoyRatelimit::default());
    let [note] = &read.notes[..] else {
        panic!("{:?}", read.notes)
    };
    assert_eq!(note.level, NoteLevel::Warn);
    assert!(
        note.text.starts_with("`REDIS_URL` is not set"),
        "{}",
        note.text
    );
}

#[test]
fn addresses_by_hand() {
    #[rustfmt::skip]
    let table: [(&[(&str, &str)], &str); 10] = [
        (&[("PORT", "1")],                                "http: 0.0.0.0:1"),
        (&[("HOST", "127.0.0.1")],                        "http: 127.0.0.1:8080"),
        (&[("HOST", "::"), ("PORT", "80")],               "http: [::]:80"),
        (&[("HOST", "[::1]")],                            "http: [::1]:8080"),
        (&[("GRPC_HOST", "::")],                          "grpc: [::]:8081"),
        (&[("GRPC_UDS", "/tmp/r.sock"), ("GRPC_PORT", "1")], "grpc: unix:///tmp/r.sock"),
        (&[("DEBUG_PORT", "6071")],                       "debug: 0.0.0.0:6071"),
        (&[("GRPC_MAX_CONNECTION_AGE", "1h30m")],         "grpc_max_connection_age: 5400s"),
        (&[("GRPC_MAX_CONNECTION_AGE", "1500us")],        "grpc_max_connection_age: 2ms"),
        (&[("GRPC_MAX_CONNECTION_AGE", "0")],             "grpc_max_connection_age: off"),
    ];
    for (set, expected) in table {
        assert_eq!(made(set), [expected], "{set:?}");
    }
}

#[test]
fn values_that_programs_in_go_accept_are_accepted() {
    #[rustfmt::skip]
    let table: [VariableCase<'_>; 12] = [
        (&[("PORT", "0x1F90")],                           &["http: 0.0.0.0:8080"]),
        (&[("GRPC_PORT", "017")],                         &["grpc: 0.0.0.0:15"]),
        (&[("HOST", "ratelimit.example.com")],            &["http: 192.0.2.1:8080"]),
        (&[("GRPC_HOST", "ratelimit.example.com")],       &["grpc: 192.0.2.1:8081"]),
        (&[("DEBUG_HOST", "[::1]")],                      &["debug: [::1]:6070"]),
        (&[("USE_PROMETHEUS", "1"), ("PROMETHEUS_ADDR", "ratelimit.example.com:1")], &["prometheus: {address: 192.0.2.1:1, path: /metrics}"]),
        (&[("GRPC_MAX_CONNECTION_AGE", "-1s")],           &["grpc_max_connection_age: off"]),
        (&[("REDIS_TIMEOUT", "-1s"), ("REDIS_POOL_SIZE", "0b11"), ("LOCAL_CACHE_SIZE_IN_BYTES", "1_000")], &[]),
        (&[("NEAR_LIMIT_RATIO", "-1")],                   &["near_limit_ratio: 0"]),
        (&[("NEAR_LIMIT_RATIO", "7")],                    &["near_limit_ratio: 1"]),
        (&[("TRACING_ENABLED", "1"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")], &["otlp: http://collector:4318", "otlp_sampling: 1", "otlp_service: {name: RateLimit}"]),
        (&[("TRACING_ENABLED", "1"), ("TRACING_SAMPLING_RATE", "-1")], &["otlp: http://localhost:4318", "otlp_sampling: 0", "otlp_service: {name: RateLimit}"]),
    ];
    for (set, expected) in table {
        assert_eq!(made(set), expected, "{set:?}");
    }
    let (_, problems) = read_all(&[("HOST", "unknown.example.com")]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let expected = "error: HOST: the host `unknown.example.com` is not known";
    assert!(problems[0].starts_with(expected), "{problems:?}");
}

#[test]
fn a_mogrifier_that_the_list_does_not_name_is_said() {
    let set = [
        ("USE_DOG_STATSD", "true"),
        ("USE_DOG_STATSD_MOGRIFIERS", "one"),
        ("DOG_STATSD_MOGRIFIER_ONE_PATTERN", "^a"),
        ("DOG_STATSD_MOGRIFIER_ONE_NAME", "b"),
        ("DOG_STATSD_MOGRIFIER_TWO_PATTERN", "^c"),
        ("DOG_STATSD_MOGRIFIER_ONE_PATERN", "^d"),
    ];
    let (read, problems) = read_all(&set);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(read.fates.len(), set.len(), "{:?}", read.fates);
    let made = "statsd: {address: localhost:8125, dialect: dogstatsd, interval: 10s, mogrifiers: [{pattern: ^a, name: b}]}";
    for (name, value) in &set[2..] {
        let fate = read.fates.iter().find(|fate| fate.name == *name).unwrap();
        assert_eq!(fate.value, *value);
        let is_named = matches!(*value, "^a" | "b");
        assert_eq!(fate.has_effect, is_named, "{fate:?}");
        assert_eq!(fate.became == [made], is_named, "{fate:?}");
    }
    let expected = "Warn `DOG_STATSD_MOGRIFIER_ONE_PATERN`, `DOG_STATSD_MOGRIFIER_TWO_PATTERN`: no effect: `USE_DOG_STATSD_MOGRIFIERS` does not name it";
    assert!(
        notes(&set).iter().any(|note| note == expected),
        "{:?}",
        notes(&set)
    );
}

#[test]
fn the_port_of_a_service_of_kubernetes_is_no_port() {
    for name in ["GRPC_PORT", "STATSD_PORT", "DEBUG_PORT"] {
        let notes = notes(&[(name, "tcp://10.0.0.1:8125"), ("REDIS_URL", "r:1")]);
        let expected = format!("Warn `{name}` is set by Kubernetes");
        assert!(notes[0].starts_with(&expected), "{notes:?}");
    }
    let (read, _) = read_all(&[("STATSD_PORT", "tcp://10.0.0.1:8125")]);
    let statsd = read
        .settings
        .iter()
        .find(|made| made.key == "statsd")
        .unwrap();
    assert_eq!(
        statsd.shown(),
        "statsd: {address: localhost:8125, protocol: tcp, interval: 10s}"
    );
}

#[test]
fn all_values_that_cannot_be_read_are_reported_together() {
    let (_, problems) = read_all(&[
        ("PORT", "http"),
        ("USE_STATSD", "yes"),
        ("REDIS_POOL_SIZE", "many"),
        ("STATS_FLUSH_INTERVAL", "10"),
        ("EXTRA_TAGS", "a=b"),
        ("NEAR_LIMIT_RATIO", "most"),
        ("CONFIG_TYPE", "S3"),
        ("BACKEND_TYPE", "memcache"),
        ("LOG_LEVEL", "loud"),
    ]);
    let expected = [
        "error: PORT: `http` is not a port",
        "error: REDIS_POOL_SIZE: `many` is not a whole number",
        "error: NEAR_LIMIT_RATIO: `most` is not a number",
        "error: USE_STATSD: `yes` is not a boolean",
        "error: STATS_FLUSH_INTERVAL: `10` is not a duration",
        "error: EXTRA_TAGS: `a=b` is not an entry",
        "error: CONFIG_TYPE: `S3` is unknown; expected `FILE` or `GRPC_XDS_SOTW`",
        "error: BACKEND_TYPE: counters in memcached are not exact; set BACKEND_TYPE=redis and REDIS_URL, or unset both for counters in memory",
        "error: LOG_LEVEL: `loud` is not a log level",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for expected in expected {
        assert!(
            problems.iter().any(|problem| problem.starts_with(expected)),
            "{expected}\n{problems:#?}"
        );
    }
}

#[test]
fn redis_by_hand() {
    #[rustfmt::skip]
    let table: [VariableCase<'_>; 11] = [
        (&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")],      &["redis: redis://redis:6379"]),
        (&[("REDIS_URL", "redis:6379")],                                    &["redis: redis://redis:6379"]),
        (&[("REDIS_URL", "redis://u:p@redis:6379/2"), ("REDIS_SOCKET_TYPE", "tcp")], &["redis: redis://…@redis:6379/2"]),
        (&[("REDIS_URL", "/run/redis.sock")],                               &["redis: unix:///run/redis.sock"]),
        (&[("REDIS_URL", "redis:6379"), ("REDIS_TLS", "1")],                &["redis: rediss://redis:6379"]),
        (&[("REDIS_URL", "rediss://redis:6379")],                           &["redis: rediss://redis:6379"]),
        (&[("REDIS_URL", "main,a:1, b:2"), ("REDIS_TYPE", "SENTINEL")],     &["redis: redis+sentinel://a:1,b:2/main"]),
        (&[("REDIS_URL", "main,a:1"), ("REDIS_TYPE", "sentinel"), ("REDIS_SENTINEL_AUTH", "s"), ("REDIS_TLS", "t")], &["redis: rediss+sentinel://a:1/main"]),
        (&[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "CLUSTER")],            &["redis: redis+cluster://a:1,b:2"]),
        (&[("REDIS_URL", "r:1"), ("REDIS_AUTH", "u:p:q")],                  &["redis: redis://r:1", "redis_user: u"]),
        (&[("REDIS_URL", "r:1"), ("REDIS_TLS", "true"), ("REDIS_TLS_CLIENT_CERT", "c"), ("REDIS_TLS_CLIENT_KEY", "k"), ("REDIS_TLS_CACERT", "a"), ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true")],
            &["redis: rediss://r:1", "redis_cert: c", "redis_key: k", "redis_ca: a", "redis_name_check: false"]),
    ];
    for (set, expected) in table {
        assert_eq!(made(set), expected, "{set:?}");
    }
    for (set, expected) in [
        (
            ("REDIS_AUTH", "u:p:q"),
            vec![("TIDEGATE_REDIS_PASSWORD", "p:q".to_owned())],
        ),
        (
            ("REDIS_AUTH", "secret"),
            vec![("TIDEGATE_REDIS_PASSWORD", "secret".to_owned())],
        ),
        (("REDIS_SENTINEL_AUTH", "s"), vec![]),
    ] {
        assert_eq!(read_all(&[("REDIS_URL", "r:1"), set]).0.secrets, expected);
    }
    let (_, problems) = read_all(&[("REDIS_URL", "a"), ("REDIS_TYPE", "sentinel")]);
    assert!(
        problems[0].starts_with("error: REDIS_URL: for REDIS_TYPE=SENTINEL"),
        "{problems:?}"
    );
    let (_, problems) = read_all(&[("REDIS_URL", "a"), ("REDIS_TYPE", "ring")]);
    assert!(
        problems[0].starts_with("error: REDIS_TYPE: `ring` is unknown"),
        "{problems:?}"
    );
}

#[test]
fn the_socket_of_the_default_is_used_if_it_is_there() {
    let exists = |path: &Path| path == Path::new("/var/run/nutcracker/ratelimit.sock");
    let environment = Environment {
        variable: &|_| None,
        names: &[],
        address: &|_| None,
        exists: &exists,
    };
    let read = read(&environment, &mut Problems::new());
    let redis = read
        .settings
        .iter()
        .find(|made| made.key == "redis")
        .unwrap();
    assert_eq!(
        redis.shown(),
        "redis: unix:///var/run/nutcracker/ratelimit.sock"
    );
    assert_eq!(read.notes, []);
}

#[test]
fn a_prefix_of_keys_is_a_namespace_in_its_letters() {
    let long = format!("{}_", "x".repeat(40));
    for (prefix, namespace, is_said) in [
        ("prod", "prod", false),
        ("prod_a:", "prod-a-", true),
        (long.as_str(), &"x".repeat(32), true),
    ] {
        let set = [("REDIS_URL", "r:1"), ("CACHE_KEY_PREFIX", prefix)];
        assert_eq!(made(&set)[1], format!("namespace: {namespace}"));
        let said = notes(&set);
        assert_eq!(
            said.iter()
                .any(|note| note.contains(namespace) && note.starts_with("Warn")),
            is_said,
            "{said:?}"
        );
    }
}

#[test]
fn sinks_by_hand() {
    #[rustfmt::skip]
    let table: [VariableCase<'_>; 10] = [
        (&[("USE_STATSD", "false")], &["statsd: off"]),
        (&[("USE_STATSD", "true"), ("USE_DOG_STATSD", "true")], &["statsd: [{address: localhost:8125, protocol: tcp, interval: 10s}, {address: localhost:8125, dialect: dogstatsd, interval: 10s}]"]),
        (&[("STATSD_HOST", "s"), ("STATSD_PORT", "1"), ("STATSD_PROTOCOL", "UDP"), ("STATS_FLUSH_INTERVAL", "500ms")], &["statsd: {address: s:1, protocol: udp, interval: 500ms}"]),
        (&[("EXTRA_TAGS", "a:b,c:d")], &["statsd: {address: localhost:8125, protocol: tcp, interval: 10s, tags: {a: b, c: d}}"]),
        (&[("DISABLE_STATS", "true"), ("USE_PROMETHEUS", "true")], &["statsd: off", "prometheus: off"]),
        (&[("USE_PROMETHEUS", "true")], &["prometheus: {address: [::]:9090, path: /metrics}"]),
        (&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", "127.0.0.1:1"), ("PROMETHEUS_PATH", "/m"), ("PROMETHEUS_MAPPER_YAML", "f"), ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "1"), ("EXTRA_TAGS", "a:b")],
            &["prometheus: {address: 127.0.0.1:1, path: /m, mapping: f, response_time: milliseconds, tags: {a: b}}"]),
        (&[("USE_PROMETHEUS", "true"), ("USE_STATSD", "true")], &["prometheus: {address: [::]:9090, path: /metrics}", "statsd: {address: localhost:8125, protocol: tcp, interval: 10s}"]),
        (&[("USE_DOG_STATSD", "true")], &["statsd: {address: localhost:8125, dialect: dogstatsd, interval: 10s}"]),
        (&[("USE_DOG_STATSD", "true"), ("USE_DOG_STATSD_MOGRIFIERS", "one,TWO"), ("DOG_STATSD_MOGRIFIER_ONE_PATTERN", "^a(.*)"), ("DOG_STATSD_MOGRIFIER_ONE_NAME", "b"), ("DOG_STATSD_MOGRIFIER_ONE_TAGS", "t:$1"), ("DOG_STATSD_MOGRIFIER_TWO_PATTERN", "x")],
            &["statsd: {address: localhost:8125, dialect: dogstatsd, interval: 10s, mogrifiers: [{pattern: ^a(.*), name: b, tags: {t: $1}}, {pattern: x}]}"]),
    ];
    for (set, expected) in table {
        assert_eq!(made(set), expected, "{set:?}");
    }
}

#[test]
fn answers_logs_and_traces_by_hand() {
    #[rustfmt::skip]
    let table: [VariableCase<'_>; 10] = [
        (&[("NEAR_LIMIT_RATIO", "0.9")], &["near_limit_ratio: 0.9"]),
        (&[("SHADOW_MODE", "T"), ("QUOTA_MODE", "1"), ("RESPONSE_DYNAMIC_METADATA", "TRUE"), ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "f")],
            &["all_or_nothing: false", "shadow: true", "quota: true", "dynamic_metadata: true"]),
        (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_RESET_HEADER", "x-r")],
            &["envoy_headers: {limit: RateLimit-Limit, remaining: RateLimit-Remaining, reset: x-r}"]),
        (&[("LIMIT_RESET_HEADER", "x-r")], &[]),
        (&[("LOG_LEVEL", "Warning"), ("LOG_FORMAT", "JSON")], &["log_level: warn", "log_format: json"]),
        (&[("LOG_LEVEL", "PANIC")], &["log_level: error"]),
        (&[("LOG_FORMAT", "pretty")], &["log_format: text"]),
        (&[("TRACING_ENABLED", "true")], &["otlp: http://localhost:4318", "otlp_sampling: 1", "otlp_service: {name: RateLimit}"]),
        (&[("TRACING_ENABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"), ("TRACING_SAMPLING_RATE", "0.25"), ("TRACING_SERVICE_NAME", "n"), ("TRACING_SERVICE_NAMESPACE", "s"), ("TRACING_SERVICE_INSTANCE_ID", "i")],
            &["otlp: http://c:1", "otlp_sampling: 0.25", "otlp_service: {name: n, namespace: s, instance: i}"]),
        (&[("TRACING_ENABLED", "true"), ("TRACING_EXPORTER_PROTOCOL", "grpc")], &[]),
    ];
    for (set, expected) in table {
        assert_eq!(made(set), expected, "{set:?}");
    }
    let said = notes(&[
        ("TRACING_ENABLED", "1"),
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
    ]);
    assert!(
        said.iter()
            .any(|note| note.starts_with("Warn `TRACING_EXPORTER_PROTOCOL` is `grpc`"))
    );
}

#[test]
fn the_variables_of_envoy_gateway_make_its_management_server_the_source() {
    let set = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
        ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
        ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis.redis-system.svc:6379"),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", ":19001"),
        ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
    ];
    let expected = [
        "grpc_tls_cert: /certs/tls.crt",
        "grpc_tls_key: /certs/tls.key",
        "ignore_dot_files: true",
        "xds: {server: envoy-gateway:18001, node: envoy-ratelimit, tls: true, cert: /certs/tls.crt, key: /certs/tls.key, ca: /certs/ca.crt}",
        "redis: redis://redis.redis-system.svc:6379",
        "prometheus: {address: [::]:19001, path: /metrics, mapping: /etc/statsd-exporter/conf.yaml}",
        "statsd: off",
        "log_level: info",
    ];
    assert_eq!(made(&set), expected);
    let (read, _) = read_all(&set);
    assert!(read.mode.healthy_without_configuration);
    let [note] = &read.notes[..] else {
        panic!("{:?}", read.notes)
    };
    assert_eq!(note.level, NoteLevel::Info);
    for name in [
        "GRPC_SERVER_TLS_CA_CERT",
        "RUNTIME_WATCH_ROOT",
        "RUNTIME_ROOT",
    ] {
        assert!(note.text.contains(name), "{}", note.text);
    }
}

#[test]
fn the_details_of_a_management_server_by_hand() {
    let set = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "a=b,c=d=e"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x-a:b"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "unused"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "2s"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "1048576"),
    ];
    let expected = "xds: {server: localhost:18000, node: default, metadata: {a: b, c: d=e}, headers: …, backoff: {initial: 2s}, max_message: 1048576B}";
    assert_eq!(made(&set), [expected]);
    #[rustfmt::skip]
    let table = [
        ("XDS_CLIENT_BACKOFF_JITTER", "false",               ", backoff: {jitter: false}"),
        ("XDS_CLIENT_BACKOFF_JITTER", "true",                ""),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "0",         ", backoff: {initial: 10ms}"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "-1s",           ", backoff: {max: 10ms}"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0",            ""),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "-1",           ""),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0x10000",      ", max_message: 65536B"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "99999999999",  ", max_message: 4294967295B"),
    ];
    for (name, value, expected) in table {
        let set = [set[0], (name, value)];
        let expected = format!("xds: {{server: localhost:18000, node: default{expected}}}");
        assert_eq!(made(&set), [expected], "{name}={value}");
        let is_said = notes(&set).iter().any(|note| note.contains("is too short"));
        assert_eq!(is_said, name.ends_with("INTERVAL"), "{name}={value}");
    }
    let (_, problems) = read_all(&[set[0], ("CONFIG_GRPC_XDS_NODE_METADATA", "a")]);
    assert!(problems[0].starts_with("error: CONFIG_GRPC_XDS_NODE_METADATA: `a` is no pair"));
}

#[test]
fn folders_are_joined_as_go_joins_them() {
    #[rustfmt::skip]
    let table: [(&[(&str, &str)], &str); 4] = [
        (&[("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")], "/data/ratelimit/config"),
        (&[("RUNTIME_ROOT", "/data/"), ("RUNTIME_SUBDIRECTORY", "/r/")],      "/data/r/config"),
        (&[("RUNTIME_APPDIRECTORY", "a/b")],                                  "/srv/runtime_data/current/a/b"),
        (&[("RUNTIME_ROOT", "data")],                                         "data/config"),
    ];
    for (set, expected) in table {
        assert_eq!(made(set), [format!("rules: {expected}")], "{set:?}");
    }
}

#[test]
fn what_has_no_effect_is_said_once_by_name_and_no_secret_is_shown() {
    let set = [
        ("REDIS_URL", "redis://:hunter2@redis:6379"),
        ("REDIS_AUTH", "hunter2"),
        ("REDIS_TIMEOUT", "1s"),
        ("REDIS_POOL_SIZE", "5"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "100"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", "redis://:hunter2@two:1"),
        ("REDIS_PERSECOND_AUTH", "hunter2"),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "authorization:hunter2",
        ),
    ];
    let said = notes(&set);
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].starts_with("Warn `REDIS_PERSECOND`, `REDIS_PERSECOND_URL`, `REDIS_PERSECOND_AUTH`: no effect: there is no second Redis"), "{said:#?}");
    assert!(said[1].starts_with("Info "), "{said:#?}");
    for name in [
        "`REDIS_TIMEOUT`, `REDIS_POOL_SIZE`",
        "`LOCAL_CACHE_SIZE_IN_BYTES`",
    ] {
        assert_eq!(said[1].matches(name).count(), 1, "{said:#?}");
    }
    let (read, _) = read_all(&set);
    assert_eq!(read.fates.len(), set.len());
    let shown = format!("{said:?}{:?}", read.fates);
    assert!(!shown.contains("hunter2"), "{shown}");
    let fate = |name: &str| read.fates.iter().find(|fate| fate.name == name).unwrap();
    assert_eq!(fate("REDIS_AUTH").became, ["TIDEGATE_REDIS_PASSWORD: …"]);
    assert_eq!(fate("REDIS_URL").value, "redis://…@redis:6379");
    assert!(!fate("REDIS_TIMEOUT").has_effect);
}
