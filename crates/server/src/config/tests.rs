use tidegate::document::{Key, Kind};
use tidegate::rules::{KeyShare, RuleSet, Source};

use super::*;

pub(super) fn load(
    yaml: &str,
    variables: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut all = vec![("config", file.display().to_string())];
    all.extend(flags.iter().map(|(key, value)| (*key, (*value).to_owned())));
    let environment = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name)?;
        Some(found.1.to_owned())
    };
    let overrides = Overrides {
        environment: &environment,
        variables: variables
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect(),
        flags: all,
    };
    Config::load(&overrides).map_err(|error| error.to_string())
}

#[test]
fn a_flag_beats_the_environment_beats_the_file() {
    let yaml = "http: 127.0.0.1:1\n";
    let port = |config: Config| config.http.port();
    assert_eq!(port(load(yaml, &[], &[]).unwrap()), 1);
    let environment = [("TIDEGATE_HTTP", "127.0.0.1:2")];
    assert_eq!(port(load(yaml, &environment, &[]).unwrap()), 2);
    let flags = [("http", "localhost:3")];
    assert_eq!(port(load(yaml, &environment, &flags).unwrap()), 3);
    assert_eq!(port(load("", &[], &[]).unwrap()), 8080);
}

#[test]
fn all_problems_are_reported_together_with_their_positions() {
    let yaml = "htpp: 127.0.0.1:1\nmax_keys: 0\nheaders: [x, y]\n";
    let problems = load(yaml, &[("TIDEGATE_HISTORY", "many")], &[("http", "8080")]).unwrap_err();
    for expected in [
        "tidegate.yaml:1:1: field `htpp`: unknown key `htpp` (did you mean `http`?)",
        "tidegate.yaml:2:11: field `max_keys`:",
        "tidegate.yaml:3:14: field `headers[1]`: `y` is unknown; expected one of",
        "error: TIDEGATE_HISTORY: field `history`:",
        "error: --http: field `http`: `8080` is not an address",
    ] {
        assert!(problems.contains(expected), "{expected}\n---\n{problems}");
    }
}

#[test]
fn a_blank_token_is_an_error_and_a_short_one_a_warning() {
    for blank in ["", " \t\n"] {
        let problems = load("", &[("TIDEGATE_TOKEN", blank)], &[]).unwrap_err();
        assert!(
            problems.contains("error: TIDEGATE_TOKEN: the token is blank"),
            "{problems}"
        );
        assert!(problems.contains("unset"), "{problems}");
        let yaml = "tokens: [{name: app, token_env: APP, scopes: check}]";
        let problems = load(yaml, &[("APP", blank)], &[]).unwrap_err();
        assert!(problems.contains("unset"), "{problems}");
    }
    for (secret, is_short) in [
        ("a", true),
        ("fifteen-letters", true),
        ("sixteen-letters.", false),
        ("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", true),
    ] {
        let config = load("", &[("TIDEGATE_TOKEN", secret)], &[]).unwrap();
        let is_said = |note: &String| note.contains("`TIDEGATE_TOKEN` has");
        assert_eq!(config.notes.iter().any(is_said), is_short, "{secret}");
        assert!(!config.notes.concat().contains(&format!("`{secret}`")));
    }
}

#[test]
fn tokens_come_from_files_and_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let yaml = format!(
        "tokens:\n  - {{name: ops, token_file: {}, scopes: [read, write]}}\n  - {{name: app, token_env: APP, scopes: check}}\n",
        file.display()
    );
    let config = load(&yaml, &[("APP", "a"), ("TIDEGATE_TOKEN", "t")], &[]).unwrap();
    let names: Vec<_> = config
        .tokens
        .iter()
        .map(|token| token.name.as_str())
        .collect();
    assert_eq!(names, ["ops", "app", "TIDEGATE_TOKEN"]);
    assert_eq!(config.tokens[0].secret, "s3cret");
    assert!(!format!("{config:?}").contains("s3cret"));
    assert!(
        load(&yaml, &[], &[])
            .unwrap_err()
            .contains("`APP` is not set")
    );
}

#[test]
fn grpc_has_an_address_or_is_off() {
    let port = |yaml: &str| load(yaml, &[], &[]).unwrap().grpc.map(|grpc| grpc.port());
    assert_eq!(port(""), Some(8081));
    assert_eq!(port("grpc: off\n"), None);
    assert_eq!(port("grpc: localhost:5\n"), Some(5));
    let problems = load("grpc: on\n", &[], &[]).unwrap_err();
    assert!(problems.contains("or `off`"), "{problems}");
    let problems = load("tls_client_ca: ca.pem\n", &[], &[]).unwrap_err();
    assert!(
        problems.contains("give `tls_cert` and `tls_key`"),
        "{problems}"
    );
}

#[test]
fn every_setting_is_read() {
    for key in settings::keys() {
        // Nothing is a map of one unknown key.
        let problems = load(&format!("{}: {{x y: 1}}\n", key.name), &[], &[]).unwrap_err();
        let is_said = problems.contains(&format!("field `{}", key.name));
        assert!(
            is_said,
            "`{}` is in the table and is not read: {problems}",
            key.name
        );
    }
}

#[test]
fn without_a_setting_the_default_of_the_table_is_in_force() {
    let shown = |yaml: &str| {
        let mut config = load(yaml, &[], &[]).unwrap_or_else(|problems| panic!("{problems}"));
        config.notes.clear();
        format!("{config:?}")
    };
    for key in settings::keys().filter(|key| !key.default.is_empty()) {
        let others = needed(key);
        let with = shown(&format!("{others}{}: {}\n", key.name, key.default));
        assert_eq!(with, shown(others), "{}", key.name);
    }
    let route = "{upstreams: [http://127.0.0.1:2]}";
    let routes = format!("gateway: 127.0.0.1:1\nroutes: [{route}]\n");
    assert_eq!(shown(&routes), shown(GATEWAY));
}

const GATEWAY: &str = "gateway: 127.0.0.1:1\nupstream: http://127.0.0.1:2\n";

/// The settings without which a setting has no meaning.
fn needed(key: &Key) -> &'static str {
    match key.needs {
        ["gateway"] => GATEWAY,
        ["redis"] => "redis: redis://127.0.0.1:1\n",
        ["otlp"] => "otlp: http://127.0.0.1:1\n",
        _ => "",
    }
}

/// A message lists all accepted words.
#[test]
fn every_setting_accepts_the_words_of_its_table() {
    for key in settings::keys() {
        let (Kind::Words(words) | Kind::OneOrMore(_, Kind::Words(words))) = &key.kind else {
            continue;
        };
        let yaml = format!("{}{}: nonsense\n", needed(key), key.name);
        let problems = load(&yaml, &[], &[]).unwrap_err();
        let listed = problems.matches('`').count() / 2;
        for word in *words {
            assert!(
                problems.contains(&format!("`{word}`")),
                "{word}: {problems}"
            );
        }
        // The field and the value are quoted too.
        assert_eq!(listed, words.len() + 2, "{}: {problems}", key.name);
    }
}

#[test]
fn what_is_secret_and_how_many_instances_there_are() {
    let config = load("", &[], &[]).unwrap();
    assert!(config.rule_settings.secret_attributes.is_empty());
    assert_eq!(config.instances, 1);
    let yaml = "secret_attributes: [session, header.Authorization]\ninstances: 3\n";
    let config = load(yaml, &[], &[]).unwrap();
    let secret = config.rule_settings.secret_attributes;
    assert_eq!(secret, ["session", "header.authorization"]);
    assert_eq!(config.instances, 3);
    let environment = [
        ("TIDEGATE_SECRET_ATTRIBUTES", "session, cookie"),
        ("TIDEGATE_INSTANCES", "5"),
    ];
    let config = load(yaml, &environment, &[]).unwrap();
    let secret = config.rule_settings.secret_attributes;
    assert_eq!(secret, ["session", "cookie"]);
    assert_eq!(config.instances, 5);
    let yaml = "secret_attributes: [a b]\ninstances: 0\n";
    let problems = load(yaml, &[], &[]).unwrap_err();
    for expected in [
        "tidegate.yaml:1:21: field `secret_attributes[0]`: `a b` cannot be the name",
        "tidegate.yaml:2:12: field `instances`:",
    ] {
        assert!(problems.contains(expected), "{expected}\n---\n{problems}");
    }
}

#[test]
fn counters_are_kept_every_ten_seconds_unless_said() {
    let snapshot = |yaml: &str, variables: &[(&str, &str)]| {
        let snapshot = load(yaml, variables, &[]).unwrap().snapshot;
        snapshot.map(|interval| interval.to_string())
    };
    assert_eq!(snapshot("", &[]).as_deref(), Some("10s"));
    for (text, expected) in [
        ("1s", Some("1s")),
        ("90s", Some("90s")),
        ("1h", Some("1h")),
        ("off", None),
    ] {
        let yaml = format!("counters: {{snapshot: {text}}}\n");
        assert_eq!(snapshot(&yaml, &[]).as_deref(), expected, "{text}");
        let environment = [("TIDEGATE_SNAPSHOT", text)];
        let yaml = "counters: {snapshot: 5s}\n";
        assert_eq!(snapshot(yaml, &environment).as_deref(), expected, "{text}");
    }
    #[rustfmt::skip]
    let table = [
        ("counters: {snapshot: 999ms}", "field `counters.snapshot`: `999ms` is out of range; expected `1s` to `1h`, or `off`"),
        ("counters: {snapshot: 61m}", "`61m` is out of range"),
        ("counters: {snapshot: 0s}", "expected `1s` to `1h`, or `off`"),
        ("counters: {snapshot: 10}", "expected `1s` to `1h`, or `off`"),
        ("counters: {snapshot: never}", "expected `1s` to `1h`, or `off`"),
        ("counters: {}", "give `snapshot`"),
        ("counters: 10s", "field `counters`:"),
        ("counters: {snapshot: 10s, interval: 1s}", "unknown key `interval`"),
    ];
    for (yaml, expected) in table {
        let problems = load(yaml, &[], &[]).unwrap_err();
        assert!(
            problems.contains(expected),
            "{yaml}\n{expected}\n---\n{problems}"
        );
    }
    let problems = load("", &[("TIDEGATE_SNAPSHOT", "2h")], &[]).unwrap_err();
    assert!(problems.contains("TIDEGATE_SNAPSHOT"), "{problems}");
}

#[test]
fn counters_are_not_kept_with_redis_and_with_times_of_requests() {
    for (setting, name) in [
        ("redis: redis://h", "redis"),
        ("trust_timestamps: true", "trust_timestamps"),
    ] {
        let config = load(setting, &[], &[]).unwrap();
        assert_eq!((config.snapshot, config.notes.len()), (None, 0));
        let off = format!("{setting}\ncounters: {{snapshot: off}}\n");
        assert!(load(&off, &[], &[]).unwrap().notes.is_empty());
        let yaml = format!("{setting}\ncounters: {{snapshot: 5s}}\n");
        let config = load(&yaml, &[], &[]).unwrap();
        assert_eq!(config.snapshot, None);
        let [note] = &config.notes[..] else {
            panic!("{:?}", config.notes);
        };
        assert!(note.contains("`counters`") && note.contains(name), "{note}");
    }
}

#[test]
fn the_least_rate_of_bodies_has_a_unit_or_is_off() {
    for (text, rate) in [
        ("off", Some(None)),
        ("256B/s", Some(Some(256))),
        ("1KiB/s", Some(Some(1024))),
        ("2 kB/s", Some(Some(2_000))),
        ("1MiB/s", Some(Some(1 << 20))),
        ("0B/s", None),
        ("256", None),
        ("256B", None),
        ("-1B/s", None),
        ("99999999999999999999B/s", None),
    ] {
        let yaml = format!("gateway: 127.0.0.1:0\nupstream: http://h\nbody_min_rate: {text}\n");
        let found = load(&yaml, &[], &[]).ok();
        let found = found.map(|config| config.gateway.unwrap().body_min_rate);
        assert_eq!(found, rate, "{text}");
    }
}

#[test]
fn a_gateway_is_set_up_by_flags_or_by_routes() {
    let flags = [("gateway", "127.0.0.1:0"), ("upstream", "http://h:1")];
    let config = load("", &[], &flags).unwrap();
    assert!(config.encoded_slashes.is_none());
    let gateway = config.gateway.unwrap();
    assert_eq!(gateway.routes.len(), 1);
    assert_eq!(gateway.routes[0].upstreams[0].to_string(), "http://h:1");
    assert!(gateway.health.is_none());
    assert_eq!(gateway.body_min_rate, Some(256));

    let yaml = "gateway: 127.0.0.1:0\nupstream: h2c://h\nencoded_slashes: keep\n\
        upstream_health: {path: /up, interval: 1s}\nroutes:\n  \
        - {host: '*.Example.com', prefix: /v1, upstreams: [http://a, 'https://b:8443'], timeout: 5s, \
        connect_timeout: 1s, idle_timeout: 1m, retries: 0, host_header: upstream, strip_prefix: true}\n";
    let config = load(yaml, &[], &[]).unwrap();
    assert_eq!(config.encoded_slashes, Some(EncodedSlashes::Keep));
    let gateway = config.gateway.unwrap();
    let [route, rest] = &gateway.routes[..] else {
        panic!("{gateway:?}");
    };
    let host = route.host.as_ref().unwrap();
    assert_eq!(host.to_string(), "*.example.com");
    assert_eq!((route.prefix.as_str(), route.upstreams.len()), ("/v1", 2));
    assert_eq!(
        (route.timeout.as_secs(), route.idle_timeout.as_secs()),
        (5, 60)
    );
    assert!(route.retries == 0 && route.replaces_host && route.strips_prefix);
    assert_eq!(rest.prefix, "/");
    assert_eq!(gateway.health.unwrap().path, "/up");
    assert!(load("", &[], &[]).unwrap().gateway.is_none());
    // Forward-auth goes by it too.
    let alone = load("encoded_slashes: keep\n", &[], &[]).unwrap();
    assert_eq!(alone.encoded_slashes, Some(EncodedSlashes::Keep));
}

#[test]
fn mistakes_in_the_gateway_are_reported() {
    #[rustfmt::skip]
    let table = [
        ("upstream: http://h", "field `upstream`: this has no meaning without `gateway`"),
        ("routes: []", "field `routes`: this has no meaning without `gateway`"),
        ("gateway: 127.0.0.1:1", "set `upstream` (--upstream URL) or `routes`"),
        ("gateway: 80\nupstream: http://h", "`80` is not an address to listen on"),
        ("gateway: 127.0.0.1:1\nupstream: h:80", "this is not a URL"),
        ("gateway: 127.0.0.1:1\nupstream: http://h/v1", "leave out everything after the host"),
        ("gateway: 127.0.0.1:1\nroutes: {}", "must be a list of routes"),
        ("gateway: 127.0.0.1:1\nroutes: [{}]", "a route needs `upstreams`"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: []}]", "at least one upstream"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [ftp://h]}]", "field `routes[0].upstreams[0]`:"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [http://h, http://h]}]", "listed twice"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [http://h], prefix: v1}]", "write `/v1`"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [http://h], host: 'a:80'}]", "`a:80` is not a host"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [http://h], timeout: 0s}]", "more than zero"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [http://h]}, {upstreams: [http://i]}]", "same host and prefix"),
        ("gateway: 127.0.0.1:1\nroutes: [{upstreams: [http://h], upstreem: 1}]", "unknown key `upstreem`"),
        ("gateway: 127.0.0.1:1\nupstream: http://h\nupstream_health: {}", "`path` is missing"),
        ("gateway: 127.0.0.1:1\nupstream: http://h\nupstream_ca: absent.pem", "cannot read `absent.pem`"),
        ("gateway: 127.0.0.1:1\nupstream: http://h\nencoded_slashes: no", "expected one of"),
        ("gateway: 127.0.0.1:1\nupstream: http://h\ngateway_tls_cert: x", "goes together with `gateway_tls_key`"),
    ];
    for (yaml, expected) in table {
        let problems = load(yaml, &[], &[]).unwrap_err();
        assert!(
            problems.contains(expected),
            "{yaml}\n{expected}\n---\n{problems}"
        );
    }
}

#[test]
fn redis_is_set_up_by_settings_without_a_secret_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "of-a-file\n").unwrap();
    let secret = secret.display();
    let yaml = format!(
        "redis: redis+sentinel://h:1/m\nredis_user: u\nredis_password_file: {secret}\n\
         redis_sentinel_user: s\nredis_sentinel_password_file: {secret}\nredis_deadline: 30ms\n\
         key_secret_file: {secret}\n"
    );
    let config = load(&yaml, &[], &[]).unwrap();
    let redis = config.redis.as_ref().unwrap();
    assert_eq!(redis.url.to_string(), "redis+sentinel://h:1/m");
    assert_eq!(redis.user.as_deref(), Some("u"));
    assert_eq!(redis.password.as_deref(), Some("of-a-file"));
    assert_eq!(redis.sentinel_user.as_deref(), Some("s"));
    assert_eq!(redis.sentinel_password.as_deref(), Some("of-a-file"));
    assert_eq!(redis.deadline, std::time::Duration::from_millis(30));
    assert_eq!(redis.key_secret.as_deref(), Some(&b"of-a-file"[..]));
    assert!(!format!("{config:?}").contains("of-a-file"));

    let environment = [
        ("TIDEGATE_REDIS_PASSWORD", " of-the-environment\n"),
        ("TIDEGATE_REDIS_SENTINEL_PASSWORD", "of-the-environment"),
        ("TIDEGATE_KEY_SECRET", "of-the-environment"),
    ];
    let config = load(&yaml, &environment, &[]).unwrap();
    let redis = config.redis.unwrap();
    assert_eq!(redis.password.as_deref(), Some("of-the-environment"));
    let sentinel = redis.sentinel_password.as_deref();
    assert_eq!(sentinel, Some("of-the-environment"));
    let secret = config.key_secret.unwrap();
    assert_eq!(secret.text(), "of-the-environment");

    let config = load("", &[], &[("redis", "redis://h")]).unwrap();
    let deadline = config.redis.unwrap().deadline;
    assert_eq!(deadline, std::time::Duration::from_millis(15));
}

#[test]
fn contradicting_settings_of_redis_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.display();
    #[rustfmt::skip]
    let table = [
        ("redis_user: u".to_owned(), "1:1: field `redis_user`: this has no meaning without `redis`"),
        ("redis_ca: x".to_owned(), "1:1: field `redis_ca`: this has no meaning without `redis`"),
        ("redis: redis://h\nredis_ca: x".to_owned(), "2:1: field `redis_ca`: this is for TLS"),
        ("redis: redis://h\nredis_sentinel_user: x".to_owned(), "has no meaning without sentinels"),
        ("redis: redis://h\nredis_deadline: 500us".to_owned(), "field `redis_deadline`:"),
        ("redis: redis://h\nredis_deadline: 0ms".to_owned(), "give at least `1ms`"),
        ("redis: rediss://h\nredis_ca: absent.pem".to_owned(), "cannot read `absent.pem`"),
        (format!("redis: rediss://h\nredis_ca: {empty}"), "there is no certificate in"),
        (format!("redis: rediss://h\nredis_key: {empty}"), "goes together with `redis_cert`"),
        (format!("redis: rediss://h\nredis_cert: {empty}\nredis_key: {empty}"), "there is no private key"),
        ("redis: redis://h\nredis_password_file: absent".to_owned(), "cannot read the secret in `absent`"),
        (format!("key_secret_file: {empty}"), "there is no secret in"),
        ("redis: localhost".to_owned(), "begins with `redis://`"),
        ("redis: []".to_owned(), "field `redis`:"),
    ];
    for (yaml, expected) in table {
        let problems = load(&yaml, &[], &[]).unwrap_err();
        assert!(
            problems.contains(expected),
            "{yaml}\n{expected}\n---\n{problems}"
        );
    }
    let notes = load("instances: 2", &[], &[]).unwrap().notes;
    assert!(
        notes.len() == 1 && notes[0].contains("instances"),
        "{notes:?}"
    );
    // They bound the counters of rules that decide without Redis.
    let bounds = "redis: redis://h\nmax_keys: 5\nmax_memory: 1MiB";
    let notes = load(bounds, &[], &[]).unwrap().notes;
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn no_url_shows_its_password_whatever_is_wrong_with_it() {
    for url in [
        "redis://:s3cret@a:b",
        "redis://:s3/cret@host",
        "redis://:s3cret?x@host",
        "redis+cluster://:a@h/s3cret",
        "unix:///run/redis.sock?user=u&pass=s3cret",
        "s3cret@host:6379",
        "redis://:%s3cret@a",
    ] {
        let as_flag = load("", &[], &[("redis", url)]).unwrap_err();
        let as_key = load(&format!("redis: \"{url}\"\n"), &[], &[]).unwrap_err();
        for problems in [as_flag, as_key] {
            assert!(!problems.contains("s3"), "{url}\n{problems}");
            assert!(!problems.contains("cret"), "{url}\n{problems}");
        }
    }
}

#[test]
fn rules_are_read_with_what_the_front_end_knows() {
    let described = |yaml: &str| load(yaml, &[], &[]).unwrap().rule_settings.described_by;
    assert_eq!(described("http: 127.0.0.1:1"), None);
    let identify = "identify: {user_id: {header: x-user}}\n";
    assert_eq!(described(identify), None, "callers send attributes");
    let forward_auth = described(&format!("{identify}trusted_proxies: [10.0.0.1]\n")).unwrap();
    assert_eq!(forward_auth.place, "for forward-auth");
    let token =
        |scope: &str| format!("tokens: [{{name: proxy, token_env: TOKEN, scopes: [{scope}]}}]\n");
    let with_token = |yaml: &str| {
        let secret = [("TOKEN", "0123456789abcdef0123456789abcdef")];
        load(yaml, &secret, &[]).unwrap().rule_settings.described_by
    };
    let by_token = with_token(&[identify, &token("check")].concat());
    assert_eq!(by_token, Some(forward_auth), "a proxy may send the token");
    assert_eq!(with_token(&token("check")), None, "callers send attributes");
    assert_eq!(with_token(&[identify, &token("read")].concat()), None);
    let gateway = "gateway: 127.0.0.1:2\nupstream: http://127.0.0.1:3\n";
    let gateway = described(&format!("{identify}{gateway}")).unwrap();
    assert_eq!(
        (gateway.place, gateway.identified),
        ("at the gateway", vec!["user_id".to_owned()])
    );
}

#[test]
fn rules_that_count_by_model_are_not_warned_about_where_usage_is_read() {
    let rules = "
rules:
  - {id: requests, per: [api_key], missing: deny, limit: 300/minute}
  - {id: tokens-per-key, per: [api_key], missing: deny, unit: uncached_tokens, limit: 100000/minute}
  - {id: output-per-model, per: [api_key, model], missing: deny, unit: output_tokens, limit: 20000/minute, tiers: {batch: 200000/minute}}
  - {id: team-budget, per: [team], missing: deny, unit: money, limit: 500000/day; 5000000/month, warn_at: 80}
  - {id: large, match: {attributes: {model: large}}, per: [], unit: tokens, limit: 900000000/day}
";
    let yaml = |usage: &str| {
        format!(
            "
gateway: 0.0.0.0:8000
routes:
  - {{prefix: /plain, upstreams: [http://127.0.0.1:1]}}
  - {{prefix: /model, upstreams: [http://127.0.0.1:2], usage: {usage}}}
identify: {{api_key: [{{header: authorization}}, {{header: x-api-key}}], team: {{client: team}}, tier: {{client: tier}}}}
clients_file: clients.yaml
"
        )
    };
    let warnings = |usage: &str| {
        let config = load(&yaml(usage), &[], &[]).unwrap();
        let source = Source::new("rules.yaml", rules);
        let read = RuleSet::read(&source, &config.rule_settings).unwrap();
        read.warnings().to_string()
    };
    for usage in ["openai", "auto"] {
        assert_eq!(warnings(usage), "", "{usage}");
    }
    let off = warnings("off");
    assert_eq!(off.matches("nothing in `identify` sets `model`").count(), 2);
    assert_eq!(off.matches("because no `usage` says").count(), 4, "{off}");
}

#[test]
fn memory_is_given_as_a_size_of_at_least_a_mebibyte() {
    let config = load("body_memory: 8MiB\nmax_memory: 2GB\n", &[], &[]).unwrap();
    assert_eq!(
        (config.body_memory, config.max_memory),
        (8 << 20, 2_000_000_000)
    );
    let config = load("", &[], &[]).unwrap();
    assert_eq!(config.body_memory, 256 << 20);
    assert!(config.max_memory >= 64 << 20, "{}", config.max_memory);
    for setting in ["body_memory", "max_memory"] {
        for (value, expected) in [
            ("1023KiB", "write at least `1MiB`"),
            ("much", "write for example `64MiB`"),
        ] {
            let problems = load(&format!("{setting}: {value}\n"), &[], &[]).unwrap_err();
            assert!(problems.contains(expected), "{problems}");
        }
    }
}

#[test]
fn language_models_are_read_as_their_settings_say() {
    let yaml = "gateway: 127.0.0.1:1
routes:
- {prefix: /a, upstreams: [http://127.0.0.1:2], usage: openai, include_usage: leave, set_headers: {authorization: {env: KEY}}}
- {prefix: /b, upstreams: [http://127.0.0.1:2], usage: {input: [usage.in|in], output: [out]}}
identify: {api_key: {header: authorization}}
clients_file: clients.yaml
estimate: {output: 7, output_cap: 8, bytes_per_token: 3, media: 9}
body_limit: 64KiB
denied_body: gemini
money_unit: 0.01
";
    let config = load(yaml, &[("KEY", "Bearer x")], &[]).unwrap();
    let gateway = config.gateway.unwrap();
    let estimate = &gateway.usage.estimate;
    assert_eq!((estimate.output, estimate.output_cap), (7, Some(8)));
    assert_eq!((estimate.bytes_per_token, estimate.media), (3, 9));
    assert_eq!(gateway.usage.body_limit, 64 << 10);
    assert!(!gateway.routes[0].adds_usage && gateway.routes[1].adds_usage);
    let (name, value) = &gateway.routes[0].set_headers[0];
    assert_eq!(
        (name.as_str(), value.as_bytes()),
        ("authorization", &b"Bearer x"[..])
    );
    assert!(!format!("{value:?}").contains("Bearer"));
}

#[test]
fn mistakes_about_language_models_are_named() {
    let gateway = "gateway: 127.0.0.1:1\nupstream: http://127.0.0.1:2\n";
    let route = |key: &str| {
        format!("gateway: 127.0.0.1:1\nroutes: [{{upstreams: [http://127.0.0.1:2], {key}}}]\n")
    };
    for (yaml, expected) in [
        (
            format!("{gateway}usage: cohere\n"),
            "`cohere` is unknown; expected one of `openai`",
        ),
        (
            format!("{gateway}usage: {{maximum: [a]}}\n"),
            "neither `input` nor `output`",
        ),
        (
            format!("{gateway}usage: {{input: [a..b]}}\n"),
            "`a..b` is not a path",
        ),
        (format!("{gateway}body_limit: 0B\n"), "is not a size"),
        (
            format!("{gateway}money_unit: 0.5\n"),
            "expected 0.000001 to 0.01",
        ),
        (
            format!("{gateway}estimate: {{output_cap: -1}}\n"),
            "write for example `8000`, or `none`",
        ),
        (
            route("set_headers: {authorization: {env: KEY}}"),
            "`KEY` is not set or blank",
        ),
        (
            route("set_headers: {authorization: {}}"),
            "give either a `file` or an `env`",
        ),
        (
            route("set_headers: {'a b': {env: HOME_KEY}}"),
            "is not the name of a header",
        ),
    ] {
        let problems = load(&yaml, &[], &[]).unwrap_err();
        assert!(problems.contains(expected), "{expected}\n---\n{problems}");
    }
    let yaml = route("set_headers: {authorization: {env: KEY}}");
    let problems = load(&yaml, &[("KEY", "x")], &[]).unwrap_err();
    assert!(problems.contains("it needs `clients_file`"), "{problems}");
}

#[test]
fn a_recording_is_a_file_or_a_map() {
    let read = |yaml: &str| load(yaml, &[], &[]).unwrap().record;
    assert_eq!(read("record: off\n"), None);
    let plain = read("record: /r.jsonl\n").unwrap();
    assert_eq!(plain.file, PathBuf::from("/r.jsonl"));
    assert_eq!((plain.size, plain.keep), (100 << 20, 10));
    assert_eq!(plain.sample, KeyShare::ALL);
    let variable = load("", &[("TIDEGATE_RECORD", "/r.jsonl")], &[]);
    assert_eq!(variable.unwrap().record, Some(plain.clone()));
    let map =
        "record: {file: /r, sample: 12.5%, sample_by: [ip], rotate: {size: 64KiB, keep: 2}}\n";
    let map = read(map).unwrap();
    assert_eq!((map.size, map.keep), (64 << 10, 2));
    assert_eq!(map.sample.to_string(), "12.5%");
    assert_eq!(map.sample_by, ["ip"]);
    assert_eq!(
        read("record: {file: /r.jsonl, rotate: {}}\n").unwrap(),
        plain
    );
    let by_more = "record: {file: /r, sample: 5%, sample_by: [ip, header.X-A]}\n";
    assert!(read(by_more).is_some());
    #[rustfmt::skip]
    let wrong = [
        ("record: {}", "give `file`"),
        ("record: {file: \"\"}", "write the path of a file"),
        ("record: \"\"", "field `record`"),
        ("record: [a]", "field `record`"),
        ("record: {file: /r, sample: 10%}", "name the attributes that tell them apart in `sample_by`"),
        ("record: {file: /r, sample: 10, sample_by: ip}", "field `record.sample`: the sign `%` is missing"),
        ("record: {file: /r, sample: 0%, sample_by: ip}", "`0%` records nothing"),
        ("record: {file: /r, sample: 10%, sample_by: [ip, ip]}", "`ip` is listed twice"),
        ("record: {file: /r, sample: 10%, sample_by: [two words]}", "field `record.sample_by[0]`"),
        ("record: {file: /r, rotate: {size: 1023B}}", "`1023B` is too little; write at least `1KiB`"),
        ("record: {file: /r, rotate: {size: 10}}", "`10` is not a size"),
        ("record: {file: /r, rotate: {keep: 0}}", "field `record.rotate.keep`"),
        ("record: {file: /r, keep: 2}", "unknown key `keep`"),
    ];
    for (yaml, message) in wrong {
        let problems = load(&format!("{yaml}\n"), &[], &[]).unwrap_err();
        assert!(problems.contains(message), "{yaml}: {problems}");
    }
}

#[test]
fn stats_go_to_servers_of_statsd_and_to_prometheus() {
    let read = |yaml: &str| load(yaml, &[], &[]).unwrap_or_else(|problems| panic!("{problems}"));
    let stats = read("").stats;
    assert!(stats.statsd.is_empty() && stats.prometheus.is_none());
    assert_eq!(stats.names, 10_000);
    let plain = &read("statsd: stats:8125\n").stats.statsd[0];
    assert_eq!(
        (plain.address.as_str(), plain.is_udp),
        ("stats:8125", false)
    );
    assert_eq!(plain.interval, Micros::from_seconds(10));
    let variables = [
        ("TIDEGATE_STATSD", "[::1]:1"),
        ("TIDEGATE_PROMETHEUS", "127.0.0.1:2"),
    ];
    let stats = load("", &variables, &[]).unwrap().stats;
    assert_eq!(stats.statsd[0].address, "[::1]:1");
    let prometheus = stats.prometheus.unwrap();
    assert_eq!(
        (prometheus.address.port(), prometheus.path.as_str()),
        (2, "/metrics")
    );
    let both = "statsd:
- {}
- {dialect: dogstatsd, interval: 1s, tags: {a: b}, mogrifiers: [{pattern: '(.*)', name: x.$1}]}
prometheus: {path: /m, mapping: f.yaml, response_time: milliseconds, tags: {zone: 1}}
near_limit_ratio: 0.5
";
    let stats = read(both).stats;
    assert_eq!(stats.statsd[0].address, "localhost:8125");
    assert!(stats.statsd[1].is_udp);
    let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(stats.statsd[1].tags, [tag("a", "b")]);
    let prometheus = stats.prometheus.unwrap();
    assert_eq!(prometheus.tags, [tag("zone", "1")]);
    assert_eq!(prometheus.mapping, Some(PathBuf::from("f.yaml")));
    #[rustfmt::skip]
    let wrong = [
        ("statsd: nowhere",                                             "`nowhere` is not the address of a server"),
        ("statsd: {port: 1}",                                           "unknown key `port`"),
        ("statsd: {interval: 25h}",                                     "`25h` is out of range"),
        ("statsd: {dialect: dogstatsd, protocol: tcp}",                 "DogStatsD is sent over UDP"),
        ("statsd: {mogrifiers: []}",                                    "add `dialect: dogstatsd`"),
        ("statsd: {dialect: dogstatsd, mogrifiers: [{pattern: (, name: a}]}", "is not a regular expression"),
        ("statsd: {tags: {a: [b]}}",                                    "field `statsd.tags.a`: this must be text"),
        ("prometheus: 9090",                                            "`9090` is not an address to listen on"),
        ("prometheus: {path: m}",                                       "`m` is not a path"),
        ("near_limit_ratio: -1",                                        "`-1` is not a share of a limit"),
        ("stat_names: 1000001",                                         "from 0 to 1000000"),
    ];
    for (yaml, message) in wrong {
        let problems = load(&format!("{yaml}\n"), &[], &[]).unwrap_err();
        assert!(problems.contains(message), "{yaml}: {problems}");
    }
}
