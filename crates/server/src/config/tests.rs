use super::*;

fn load(
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
    let outside = Outside {
        environment: &environment,
        flags: all,
    };
    Config::load(&outside).map_err(|error| error.to_string())
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
fn all_problems_are_told_at_once_with_their_places() {
    let yaml = "htpp: 127.0.0.1:1\nmax_keys: 0\nheaders: [x, y]\n";
    let problems = load(yaml, &[("TIDEGATE_HISTORY", "many")], &[("http", "8080")]).unwrap_err();
    for expected in [
        "tidegate.yaml:1:1: field `htpp`: unknown key `htpp` (did you mean `http`?)",
        "tidegate.yaml:2:11: field `max_keys`:",
        "tidegate.yaml:3:14: field `headers[1]`: `y` is none of",
        "error: TIDEGATE_HISTORY: field `history`:",
        "error: --http: field `http`: `8080` is not an address",
    ] {
        assert!(problems.contains(expected), "{expected}\n---\n{problems}");
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
fn what_is_not_built_is_refused_and_not_ignored() {
    assert!(
        load("redis: redis://h\n", &[], &[])
            .unwrap_err()
            .contains("no `redis` yet")
    );
    assert!(load("grpc: off\n", &[], &[]).unwrap().notes.is_empty());
    assert_eq!(
        load("", &[], &[("grpc", "127.0.0.1:0")])
            .unwrap()
            .notes
            .len(),
        1
    );
}

#[test]
fn every_setting_is_read() {
    for setting in SETTINGS.iter().filter(|setting| setting.key != "config") {
        let problems = load(&format!("{}: {{}}\n", setting.key), &[], &[]).unwrap_err();
        assert!(
            !problems.contains("unknown key"),
            "{}: {problems}",
            setting.key
        );
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
