//! `tidegate simulate` and `tidegate rules suggest`: logs and rules in files, a report and an exit code out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::support::{CommandRun, tidegate};

const RULES: &str = "rules:
  - {id: per-ip, per: [ip], limit: 4/hour, algorithm: fixed_window, candidate: 2/hour, rollout: 100%}
";

/// A client with six requests, and one with one.
fn log() -> String {
    let line = |ip: &str, second: u64| {
        format!(
            "{ip} - - [15/Nov/2026:19:13:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n"
        )
    };
    let lines: String = (0..6).map(|second| line("10.0.0.1", second)).collect();
    lines + &line("10.0.0.2", 7)
}

fn run(arguments: &[&str]) -> CommandRun {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("rules.yaml", RULES), ("access.log", &log())] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    tidegate(directory.path(), arguments, "")
}

#[test]
fn a_simulation_reports_and_ends_by_what_is_accepted() {
    let simulate = |options: &[&str]| {
        let begin = ["simulate", "--rules", "rules.yaml", "access.log"];
        run(&[&begin, options].concat())
    };
    let reported = simulate(&["--json"]);
    assert_eq!(reported.code, Some(0), "{}", reported.whole());
    let report: Value = serde_json::from_str(&reported.stdout).unwrap();
    assert_eq!(report["total"]["denied"], 4);
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["denied"], &rule["candidate"]["denied"]),
        (&json!(2), &json!(4))
    );
    assert_eq!(rule["enforced"], json!({"allowed": 3, "denied": 4}));
    assert!(
        reported.stdout.contains("`key_secret`"),
        "the rollout has other clients"
    );
    let table = simulate(&[]);
    assert!(
        table.stdout.contains("4 of 7 requests denied"),
        "{}",
        table.whole()
    );
    assert_eq!(simulate(&["--max-denied", "4"]).code, Some(0));
    assert_eq!(simulate(&["--max-denied", "3"]).code, Some(1));
    assert_eq!(
        run(&["simulate", "--rules", "rules.yaml", "none.log"]).code,
        Some(2)
    );
}

#[test]
fn a_suggestion_is_a_rule_file() {
    let begin = ["rules", "suggest", "access.log", "--window", "1h"];
    let options = ["--algorithm", "fixed_window", "--deny-clients", "0%"];
    let suggested = run(&[&begin[..], &options].concat());
    assert_eq!(suggested.code, Some(0), "{}", suggested.whole());
    assert!(suggested.stdout.contains("6/h"), "{}", suggested.stdout);
    let directory = tempfile::tempdir().unwrap();
    let checked = tidegate(
        directory.path(),
        &["rules", "validate", "-"],
        &suggested.stdout,
    );
    assert_eq!(checked.code, Some(0), "{}", checked.whole());
}

/// Lines of JSON from one client, a second apart.
fn json_lines(extra: &str, count: u64) -> String {
    let line = |number: u64| {
        let time = 1_794_770_000 + number;
        format!("{{\"time\": {time}, \"ip\": \"10.0.0.1\"{extra}}}\n")
    };
    (0..count).map(line).collect()
}

#[test]
fn strict_reading_names_the_line_also_after_many_that_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = json_lines(", \"path\": \"/%zz\"", 12);
    let of_second = |second: usize| {
        let lines = json_lines("", 100);
        lines.lines().nth(second).unwrap().to_owned()
    };
    let malformed = format!("{refused}{}\nno request\n", of_second(11));
    let late = format!("{refused}{}\n{}\n", of_second(99), of_second(0));
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    for (text, line) in [(malformed, "line 14"), (late, "line 14")] {
        fs::write(directory.path().join("log"), text).unwrap();
        for command in [["simulate"].as_slice(), &["rules", "suggest"]] {
            let options = ["--rules", "rules.yaml", "--strict", "log"];
            let run = tidegate(directory.path(), &[command, &options].concat(), "");
            assert_eq!(run.code, Some(2), "{}", run.whole());
            assert!(run.stderr.contains(line), "{}", run.whole());
        }
    }
}

#[test]
fn sources_of_secrets_are_shown_as_digests() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "rules.yaml",
        "rules: [{id: keys, per: [header.x-api-key], limit: 1/hour}, {id: tokens, per: [token], limit: 1/hour}]",
    );
    write(
        "settings.yaml",
        "rules: rules.yaml\nidentify: {api_key: [{header: X-Api-Key}]}\n",
    );
    write("nginx.log", &"127.0.0.1 \"GET /a?key=hidden HTTP/1.1\" 1795020830.069 \"hidden-key\" \"https://x/?q=hidden\"\n".repeat(3));
    write(
        "json.log",
        &json_lines(
            ", \"token\": \"hidden-token\", \"copy\": \"hidden-token\"",
            3,
        ),
    );
    let template = "$remote_addr \"$request\" $msec \"$http_x_api_key\" \"$http_referer\"";
    let proxied: [&str; 5] = [
        "--config",
        "settings.yaml",
        "--log-format",
        template,
        "nginx.log",
    ];
    let mapped = [
        "--rules",
        "rules.yaml",
        "--map",
        "api_key=token",
        "json.log",
    ];
    for input in [proxied, mapped] {
        for output in [
            ["--show", "3"].as_slice(),
            &["--json"],
            &["--html", "page"],
            &["--write-record", "record"],
        ] {
            let run = tidegate(
                directory.path(),
                &[&["simulate"], &input[..], output].concat(),
                "",
            );
            assert_eq!(run.code, Some(0), "{}", run.whole());
            let mut text = run.whole();
            for file in ["page", "record"] {
                text += &fs::read_to_string(directory.path().join(file)).unwrap_or_default();
            }
            assert!(!text.contains("hidden"), "{text}");
        }
    }
}

#[test]
fn a_recording_is_written_next_to_what_it_replaces() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.jsonl");
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    fs::write(directory.path().join("access.log"), log()).unwrap();
    fs::write(&path, "something else").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let simulate = |input: &str| {
        let options = ["--json", "--write-record", "record.jsonl", input];
        let begin = ["simulate", "--rules", "rules.yaml"];
        let run = tidegate(directory.path(), &[&begin[..], &options].concat(), "");
        assert_eq!(run.code, Some(0), "{}", run.whole());
        serde_json::from_str::<Value>(&run.stdout).unwrap()["total"].clone()
    };
    let first = simulate("access.log");
    assert_eq!(first["requests"], 7);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.starts_with("{\"tidegate_record\":1,"), "{written}");
    assert!(
        written.contains("\"attributes\":[\"ip\"],\"secret\":[\"api_key\"]"),
        "{written}"
    );
    assert!(
        written.contains("{\"t\":1794769980.000000,\"front_end\":\"simulate\","),
        "{written}"
    );
    assert_eq!(simulate("record.jsonl"), first, "onto its own input");
    assert_eq!(fs::read_to_string(&path).unwrap(), written);
}

#[test]
fn options_of_one_rule_are_taken_before_the_rules_of_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("rules.yaml", RULES),
        ("access.log", &log()),
        ("settings.yaml", "rules: rules.yaml\n"),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let suggest = |options: &[&str]| {
        let begin = [
            "rules",
            "suggest",
            "--config",
            "settings.yaml",
            "access.log",
        ];
        tidegate(directory.path(), &[&begin[..], options].concat(), "").stdout
    };
    assert!(suggest(&[]).contains("id: per-ip"));
    let one = suggest(&["--per", "ip"]);
    assert!(one.contains("id: suggested"), "{one}");
}

#[test]
fn a_suggested_candidate_can_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "rules: [{id: per-ip, per: [ip], limit: 4/hour, tiers: {pro: 1/hour}, overrides: {10.0.0.9: 1/hour}}]";
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let tiered = json_lines(", \"tier\": \"pro\"", 5).replace("10.0.0.1", "10.0.0.2");
    fs::write(directory.path().join("log"), json_lines("", 6) + &tiered).unwrap();
    let begin = [
        "rules",
        "suggest",
        "--rules",
        "rules.yaml",
        "--as",
        "candidate",
    ];
    let options = ["--deny-clients", "0%", "--headroom", "50%", "log"];
    let suggested = tidegate(directory.path(), &[&begin[..], &options].concat(), "");
    let text = &suggested.stdout;
    assert!(
        text.contains("algorithm: token_bucket") && text.contains("burst"),
        "{text}"
    );
    assert!(text.contains("9/h") && text.contains("8/h"), "{text}");
    let checked = tidegate(directory.path(), &["rules", "validate", "-"], text);
    assert_eq!(checked.code, Some(0), "{}", checked.whole());
}

#[test]
fn mistakes_are_named_once() {
    let unknown = run(&[
        "simulate",
        "--rules",
        "rules.yaml",
        "--scale",
        "off",
        "--scale-rule",
        "zz",
        "access.log",
    ]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.whole());
    let missing = run(&["simulate", "--rules", "rules.yaml", "none.log"]);
    assert_eq!(
        missing.stderr.matches("No such file").count(),
        1,
        "{}",
        missing.whole()
    );
}
