//! The order of requests, and the lines that are no requests.

use serde_json::{Value, json};
use tidegate::Micros;
use tidegate_rehearse::{InputSettings, SimulateError};

use crate::support::{line, log, report, run, settings, shown};

const RULES: &str = "rules: [{id: per-ip, per: [ip], limit: 1/hour, algorithm: fixed_window}]";

fn times(requests: &[Value]) -> Vec<(f64, String)> {
    let ip = |request: &Value| request["attributes"]["ip"].as_str().unwrap().to_owned();
    requests
        .iter()
        .map(|request| {
            (
                request["time"].as_f64().unwrap() - 1_794_769_980.0,
                ip(request),
            )
        })
        .collect()
}

#[test]
fn files_are_merged_by_time_and_equal_times_keep_the_order_of_files() {
    let one: String = [(0, "10.0.0.1"), (2, "10.0.0.2"), (5, "10.0.0.3")]
        .map(|(second, ip)| line(ip, second, "/"))
        .concat();
    let two: String = [(2, "10.0.1.1"), (2, "10.0.1.2"), (4, "10.0.1.3")]
        .map(|(second, ip)| line(ip, second, "/"))
        .concat();
    let requests = shown(
        &[log("one", one), log("two", two)],
        InputSettings::default(),
    );
    let order: Vec<String> = times(&requests).into_iter().map(|(_, ip)| ip).collect();
    assert_eq!(
        order,
        [
            "10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.0.3"
        ]
    );
}

#[test]
fn lines_out_of_order_wait_and_late_ones_are_decided_at_their_own_time() {
    let seconds = [10, 14, 12, 30, 21, 19, 31];
    let text: String = seconds
        .iter()
        .map(|second| line(&format!("10.0.0.{second}"), *second, "/"))
        .collect();
    let requests = shown(&[log("log", text.as_str())], InputSettings::default());
    // 19 is late: it is earlier than 30 less 10 s. It takes the place of 20.
    let order: Vec<f64> = times(&requests)
        .into_iter()
        .map(|(second, _)| second)
        .collect();
    assert_eq!(order, [10.0, 12.0, 14.0, 19.0, 21.0, 30.0, 31.0]);
    let report = report(
        &[log("log", text.as_str())],
        RULES,
        InputSettings::default(),
    );
    assert_eq!(report["input"]["late"], 1);
    assert_eq!(report["input"]["problems"][0]["kind"], "late");
    assert_eq!(report["input"]["problems"][0]["line"], 6);
    let strict = InputSettings {
        strict: true,
        ..InputSettings::default()
    };
    let error = run(&[log("log", text)], settings(RULES, strict))
        .err()
        .unwrap();
    assert!(
        matches!(error, SimulateError::Strict { line: 6, .. }),
        "{error}"
    );
}

#[test]
fn requests_of_one_second_are_spread_over_it() {
    let text = format!(
        "{}{}{}{}",
        line("10.0.0.1", 1, "/"),
        line("10.0.0.2", 1, "/"),
        line("10.0.0.3", 1, "/"),
        line("10.0.0.4", 2, "/")
    );
    let input = InputSettings {
        spread: true,
        ..InputSettings::default()
    };
    let seconds: Vec<i64> = times(&shown(&[log("log", text)], input))
        .into_iter()
        .map(|(second, _)| {
            #[expect(clippy::cast_possible_truncation, reason = "whole microseconds")]
            let micros = (second * 1e6).round() as i64;
            micros
        })
        .collect();
    assert_eq!(seconds, [1_000_000, 1_333_333, 1_666_666, 2_000_000]);
}

#[test]
fn every_line_is_counted_once() {
    let mut text = String::from("\n# comment\n");
    text.push_str(&line("10.0.0.1", 0, "/"));
    text.push_str(&line("10.0.0.1", 1, "/%zz"));
    text.push_str(&line("10.0.0.1", 20, "/"));
    text.push_str(&line("10.0.0.1", 30, "/").replace("GET / HTTP/1.1", "-"));
    text.push_str(&line("10.0.0.1", 40, "/"));
    let input = InputSettings {
        since: Some(tidegate::Timestamp::from_seconds(1_794_769_981)),
        until: Some(tidegate::Timestamp::from_seconds(1_794_770_020)),
        ..InputSettings::default()
    };
    let report = report(&[log("log", text)], RULES, input);
    let counts = &report["input"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(count("lines"), 7);
    assert_eq!(
        ["requests", "malformed", "ignored", "refused", "outside"].map(count),
        [1, 1, 2, 1, 2],
        "{counts}"
    );
    assert!(
        !report.to_string().contains("comment"),
        "texts of lines are not in the report"
    );
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_and_an_empty_one_is_not() {
    let unreadable = run(
        &[log("bad", "x\ny\n")],
        settings(RULES, InputSettings::default()),
    )
    .err()
    .unwrap();
    assert!(unreadable.to_string().contains("`bad`"), "{unreadable}");
    let named = InputSettings {
        format: Some(tidegate_rehearse::FormatName::Caddy),
        ..InputSettings::default()
    };
    let error = run(&[log("bad", "x\ny\n")], settings(RULES, named))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("`bad`") && error.contains("`caddy`") && error.contains("line 1"),
        "{error}"
    );
    let empty = report(&[log("empty", "")], RULES, InputSettings::default());
    assert_eq!(empty["input"]["from"], Value::Null);
    assert_eq!(empty["warnings"], json!(["the log has no requests"]));
}

#[test]
fn a_clock_that_goes_back_gives_nothing() {
    let mut text = line("10.0.0.1", 59, "/");
    text.push_str(&line("10.0.0.1", 0, "/"));
    let input = InputSettings {
        reorder: Micros::ZERO,
        ..InputSettings::default()
    };
    let report = report(&[log("log", text)], RULES, input);
    assert_eq!(report["total"]["denied"], 1);
}

#[test]
fn lines_that_are_not_decided_make_others_late_too() {
    let request = |second: u64| line("10.0.0.1", second, "/");
    let at = |second: u64| Some(tidegate::Timestamp::from_seconds(1_794_769_980 + second));
    let until = InputSettings {
        until: at(30),
        ..InputSettings::default()
    };
    let refused = line("10.0.0.1", 40, "/%zz");
    for (newest, input) in [(request(40), until), (refused, InputSettings::default())] {
        let text = request(1) + &newest + &request(2);
        let report = report(&[log("log", text)], RULES, input);
        assert_eq!(report["input"]["requests"], 2);
        assert_eq!(report["input"]["late"], 1, "{newest}");
    }
}

#[test]
fn strict_reading_refuses_a_line_after_many_that_are_refused() {
    let mut text = line("10.0.0.1", 0, "/%zz").repeat(12);
    text.push_str(&line("10.0.0.1", 1, "/"));
    let strict = || InputSettings {
        strict: true,
        ..InputSettings::default()
    };
    let late = text.clone() + &line("10.0.0.1", 40, "/") + &line("10.0.0.1", 2, "/");
    for (text, expected) in [(text.clone() + "no request\n", 14), (late, 15)] {
        let error = run(&[log("log", text)], settings(RULES, strict()));
        let error = error.err().unwrap();
        assert!(
            matches!(error, SimulateError::Strict { line, .. } if line == expected),
            "{error}"
        );
    }
}
