//! Headers by hand, and that no decision whatever makes one that cannot be sent.

use proptest::prelude::*;

use super::*;
use crate::limit::{Algorithm, Anchor, Rate, Window};
use crate::outcome::Retry;
use crate::time::{Micros, Timestamp};

/// In November 2026.
const NOW: Timestamp = Timestamp::from_seconds(1_794_770_000);

/// In February 2024, a month of 29 days in a year of 366.
const LEAP: Timestamp = Timestamp::from_seconds(1_708_000_000);

fn limit(text: &str, algorithm: Algorithm) -> Limit {
    Limit::new(text.parse().unwrap(), algorithm).unwrap()
}

fn allowed(remaining: u64, reset_millis: u64) -> Outcome {
    Outcome {
        allowed: true,
        limit: 100,
        remaining,
        exceeded: 0,
        retry: Retry::Now,
        reset_at: NOW + Micros::from_millis(reset_millis),
        delay: Micros::ZERO,
        at: NOW,
        is_remembered: false,
    }
}

fn denied(retry: Retry, reset_millis: u64) -> Outcome {
    Outcome {
        allowed: false,
        retry,
        ..allowed(0, reset_millis)
    }
}

fn after(millis: u64) -> Retry {
    Retry::After(Micros::from_millis(millis))
}

/// The value of the header `name` when a limit of `100/minute` answers alone.
fn header(settings: HeaderSettings, name: &str, outcome: &Outcome) -> Option<String> {
    let limit: Limit = "100/minute".parse().unwrap();
    let item = Item {
        name: "per-user",
        limit: Some(&limit),
        unit: None,
        outcome,
    };
    value_of(settings, name, &[item], 0)
}

fn value_of(
    settings: HeaderSettings,
    name: &str,
    items: &[Item<'_>],
    headline: usize,
) -> Option<String> {
    let mut values = settings
        .headers(items, headline)
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value);
    let value = values.next();
    assert_eq!(values.next(), None, "`{name}` is sent once");
    value
}

#[test]
fn retry_after_by_hand() {
    #[rustfmt::skip]
    let table = [
        // name                                  outcome                              value
        ("an allowed request has none",          allowed(0, 60_000),                  None),
        ("a wait is rounded up",                 denied(after(1_001), 60_000),        Some("2")),
        ("a whole second stays one",             denied(after(1_000), 60_000),        Some("1")),
        ("a short wait is a second",             denied(after(1), 60_000),            Some("1")),
        ("no wait is a second",                  denied(after(0), 60_000),            Some("1")),
        ("so is a denial that names no wait",    denied(Retry::Now, 60_000),          Some("1")),
        ("waiting would not help",               denied(Retry::Never, 0),             None),
        ("it is the wait and not the reset",     denied(after(30_000), 86_400_000),   Some("30")),
        ("the longest wait there is",            denied(Retry::After(Micros::MAX), 0), Some("9007199255")),
    ];
    for (name, outcome, value) in table {
        let found = header(HeaderSettings::default(), RETRY_AFTER, &outcome);
        assert_eq!(found.as_deref(), value, "{name}");
    }
}

/// Limits and what they said.
type ChargedLimit<'a> = &'a [(&'a Limit, &'a Outcome)];

#[test]
fn the_longest_wait_of_those_that_deny_counts_and_a_permit_counts_one_second() {
    let permits = limit("3", Algorithm::CONCURRENCY);
    let minute = limit("10/minute", Algorithm::TOKEN_BUCKET);
    let (long, short) = (denied(after(59_000), 0), denied(after(2_500), 0));
    let (never, granted) = (denied(Retry::Never, 0), allowed(3, 90_000));
    #[rustfmt::skip]
    let table: [(ChargedLimit<'_>, Option<&str>); 7] = [
        (&[(&permits, &long)],                                       Some("1")),
        (&[(&permits, &long), (&minute, &short)],                    Some("3")),
        (&[(&minute, &short), (&permits, &long)],                    Some("3")),
        (&[(&minute, &short), (&minute, &long), (&minute, &short)],  Some("59")),
        (&[(&permits, &long), (&minute, &granted)],                  Some("1")),
        (&[(&permits, &never)],                                      None),
        (&[(&minute, &short), (&permits, &never)],                   None),
    ];
    for (charged, expected) in table {
        let items: Vec<Item<'_>> = charged
            .iter()
            .map(|(limit, outcome)| Item {
                name: "id",
                limit: Some(limit),
                unit: None,
                outcome,
            })
            .collect();
        let found = value_of(HeaderSettings::default(), RETRY_AFTER, &items, 0);
        assert_eq!(found.as_deref(), expected, "{charged:?}");
    }
}

#[test]
fn x_ratelimit_by_hand() {
    #[rustfmt::skip]
    let table = [
        // name                     outcome                      remaining  reset         in delta
        ("some are left",           allowed(99, 600),            "99",      "1794770001", "1"),
        ("whole seconds",           allowed(40, 36_000),         "40",      "1794770036", "36"),
        ("a bit more",              allowed(40, 36_001),         "40",      "1794770037", "37"),
        ("all are there",           allowed(100, 0),             "100",     "1794770000", "0"),
        ("denied, for a while",     denied(after(600), 60_000),  "0",       "1794770060", "60"),
        ("denied, for ever",        denied(Retry::Never, 1_500), "0",       "1794770002", "2"),
    ];
    let unix = HeaderSettings::default();
    let delta = HeaderSettings {
        reset: ResetForm::DeltaSeconds,
        ..unix
    };
    for (name, outcome, remaining, reset, in_delta) in table {
        let found = [
            header(unix, X_RATELIMIT_LIMIT, &outcome),
            header(unix, X_RATELIMIT_REMAINING, &outcome),
            header(unix, X_RATELIMIT_RESET, &outcome),
            header(delta, X_RATELIMIT_RESET, &outcome),
        ];
        let wanted = ["100", remaining, reset, in_delta].map(|value| Some(value.to_owned()));
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn a_reset_before_the_decision_is_no_time_away() {
    // The clock went back: the state is whole as of the request, but was changed after it.
    let outcome = Outcome {
        at: NOW + Micros::MINUTE,
        ..allowed(100, 0)
    };
    let delta = HeaderSettings {
        reset: ResetForm::DeltaSeconds,
        ..HeaderSettings::default()
    };
    let reset = header(delta, X_RATELIMIT_RESET, &outcome);
    assert_eq!(reset.as_deref(), Some("0"));
    let standing = header(delta, RATELIMIT, &outcome);
    assert_eq!(standing.as_deref(), Some(r#""per-user";r=100;t=0"#));
}

#[test]
fn policies_by_hand() {
    let first_request = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    #[rustfmt::skip]
    let table = [
        // name                         limit                  algorithm                         at    parameters
        ("a bucket fills in its window", "100/minute",         Algorithm::TOKEN_BUCKET,          NOW,  "q=100;w=60"),
        ("its capacity is its burst",   "100/minute burst 20", Algorithm::TOKEN_BUCKET,          NOW,  "q=20;w=12"),
        ("a burst above the count",     "1/second burst 90",   Algorithm::LEAKY_BUCKET,          NOW,  "q=90;w=90"),
        ("a time to fill, rounded up",  "3/second burst 4",    Algorithm::TOKEN_BUCKET,          NOW,  "q=4;w=2"),
        ("one that fills in 10 ms",     "100/second burst 1",  Algorithm::TOKEN_BUCKET,          NOW,  "q=1;w=1"),
        ("a fixed window",              "10/day",              Algorithm::FIXED_WINDOW,          NOW,  "q=10;w=86400"),
        ("from the first request",      "10/hour",             first_request,                    NOW,  "q=10;w=3600"),
        ("a log",                       "10/2h",               Algorithm::SlidingWindowLog,      NOW,  "q=10;w=7200"),
        ("a counter",                   "10/week",             Algorithm::SlidingWindowCounter,  NOW,  "q=10;w=604800"),
        ("slots",                       "10/minute",           Algorithm::SLIDING_WINDOW_SLOTS,  NOW,  "q=10;w=60"),
        ("a quarter of a second",       "5/250ms",             Algorithm::FIXED_WINDOW,          NOW,  "q=5;w=1"),
        ("a second and a half",         "5/1500ms",            Algorithm::SlidingWindowLog,      NOW,  "q=5;w=2"),
        ("November has 30 days",        "10/month",            Algorithm::FIXED_WINDOW,          NOW,  "q=10;w=2592000"),
        ("February 2024 had 29",        "10/month",            Algorithm::FIXED_WINDOW,          LEAP, "q=10;w=2505600"),
        ("a year",                      "10/year",             Algorithm::FIXED_WINDOW,          NOW,  "q=10;w=31536000"),
        ("a leap year",                 "10/year",             Algorithm::FIXED_WINDOW,          LEAP, "q=10;w=31622400"),
        ("concurrency has no window",   "10",                  Algorithm::CONCURRENCY,           NOW,  r#"q=10;qu="concurrent-requests""#),
    ];
    for (name, text, algorithm, at, parameters) in table {
        let item = Item {
            name: "id",
            limit: Some(&limit(text, algorithm)),
            unit: None,
            outcome: &Outcome {
                at,
                ..allowed(1, 0)
            },
        };
        let found = value_of(HeaderSettings::default(), RATELIMIT_POLICY, &[item], 0);
        assert_eq!(found, Some(format!("\"id\";{parameters}")), "{name}");
    }
}

#[test]
fn standings_by_hand() {
    let beyond = Outcome {
        remaining: u64::MAX,
        reset_at: Timestamp::MAX,
        at: Timestamp::EPOCH,
        ..allowed(0, 0)
    };
    #[rustfmt::skip]
    let table = [
        // name                                 outcome                       parameters
        ("allowed: until all is there",         allowed(99, 600),             "r=99;t=1"),
        ("all is there",                        allowed(100, 0),              "r=100;t=0"),
        ("denied: until it may come again",     denied(after(600), 60_000),   "r=0;t=1"),
        ("rounded up",                          denied(after(2_001), 60_000), "r=0;t=3"),
        ("denied without a wait",               denied(after(0), 60_000),     "r=0;t=1"),
        ("denied for ever",                     denied(Retry::Never, 60_000), "r=0"),
        ("fifteen digits are the most",         beyond,                       "r=999999999999999;t=9007199255"),
    ];
    for (name, outcome, parameters) in table {
        let found = header(HeaderSettings::default(), RATELIMIT, &outcome);
        assert_eq!(found, Some(format!("\"per-user\";{parameters}")), "{name}");
    }
}

#[test]
fn every_limit_is_listed_and_the_headline_decides() {
    let minute = limit("100/minute", Algorithm::TOKEN_BUCKET);
    let second = limit("5/second", Algorithm::FIXED_WINDOW);
    let holders = limit("3", Algorithm::CONCURRENCY);
    let outcomes = [
        allowed(40, 36_000),
        denied(after(300), 300),
        denied(after(4_000), 9_000),
    ];
    let items = [
        Item {
            name: "per-user",
            limit: Some(&minute),
            unit: None,
            outcome: &outcomes[0],
        },
        Item {
            name: "per-user/1s",
            limit: Some(&second),
            unit: None,
            outcome: &outcomes[1],
        },
        Item {
            name: "uploads",
            limit: Some(&holders),
            unit: None,
            outcome: &outcomes[2],
        },
    ];
    let policies =
        r#""per-user";q=100;w=60, "per-user/1s";q=5;w=1, "uploads";q=3;qu="concurrent-requests""#;
    let standings = r#""per-user";r=40;t=36, "per-user/1s";r=0;t=1, "uploads";r=0;t=1"#;

    let settings = HeaderSettings::default();
    let headers = |headline| -> Vec<_> { settings.headers(&items, headline).collect() };
    let listed = [(RATELIMIT_POLICY, policies), (RATELIMIT, standings)];
    let with = |own: &[(&'static str, &str)]| -> Vec<_> {
        let owned = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        own.iter().chain(&listed).map(owned).collect()
    };

    let denied_by_uploads = with(&[
        (RETRY_AFTER, "1"),
        (X_RATELIMIT_LIMIT, "100"),
        (X_RATELIMIT_REMAINING, "0"),
        (X_RATELIMIT_RESET, "1794770009"),
    ]);
    assert_eq!(headers(2), denied_by_uploads);
    let allowed_by_per_user = with(&[
        (X_RATELIMIT_LIMIT, "100"),
        (X_RATELIMIT_REMAINING, "40"),
        (X_RATELIMIT_RESET, "1794770036"),
    ]);
    assert_eq!(headers(0), allowed_by_per_user);
    assert_eq!(headers(3), with(&[]), "no item has the index 3");
}

#[test]
fn names_are_escaped_and_stay_different() {
    #[rustfmt::skip]
    let table = [
        ("per-user/1s",      r#""per-user/1s""#),
        ("",                 r#""""#),
        ("two words",        r#""two words""#),
        (r#"say "when""#,    r#""say \"when\"""#),
        (r"back\slash",      r#""back\\slash""#),
        ("50%",              r#""50%""#),
        ("caf\u{e9}",        r#""caf%c3%a9""#),
        ("caf\u{e8}",        r#""caf%c3%a8""#),
        ("a\r\nset-cookie:", r#""a%0d%0aset-cookie:""#),
        ("\u{7f}",           r#""%7f""#),
        ("\u{1f30a}",        r#""%f0%9f%8c%8a""#),
    ];
    let limit: Limit = "100/minute".parse().unwrap();
    for (name, escaped) in table {
        let outcome = allowed(1, 1_000);
        let item = Item {
            name,
            limit: Some(&limit),
            unit: None,
            outcome: &outcome,
        };
        let settings = HeaderSettings::default();
        let policy = value_of(settings, RATELIMIT_POLICY, &[item], 0);
        assert_eq!(policy, Some(format!("{escaped};q=100;w=60")), "{name}");
        let standing = value_of(settings, RATELIMIT, &[item], 0);
        assert_eq!(standing, Some(format!("{escaped};r=1;t=1")), "{name}");
    }
}

#[test]
fn only_what_is_asked_for_is_sent() {
    let none = HeaderSettings::NONE;
    let x = HeaderSettings { x: true, ..none };
    let draft_10 = HeaderSettings {
        draft_10: true,
        ..none
    };
    let retry_after = HeaderSettings {
        retry_after: true,
        ..none
    };
    let table = [
        (none, vec![]),
        (
            x,
            vec![X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET],
        ),
        (draft_10, vec![RATELIMIT_POLICY, RATELIMIT]),
        (retry_after, vec![RETRY_AFTER]),
    ];
    let limit: Limit = "100/minute".parse().unwrap();
    let outcome = denied(after(600), 60_000);
    let item = Item {
        name: "per-user",
        limit: Some(&limit),
        unit: None,
        outcome: &outcome,
    };
    for (settings, wanted) in table {
        let names: Vec<_> = settings.headers(&[item], 0).map(|(name, _)| name).collect();
        assert_eq!(names, wanted, "{settings:?}");
    }
}

#[test]
fn without_limits_there_are_no_headers() {
    assert_eq!(HeaderSettings::default().headers(&[], 0).count(), 0);
}

#[test]
fn later_limits_are_named_by_their_window() {
    #[rustfmt::skip]
    let table = [
        // index  limit         algorithm                      name
        (0,       "100/minute", Algorithm::TOKEN_BUCKET,       "id"),
        (0,       "3",          Algorithm::CONCURRENCY,        "id"),
        (1,       "5/second",   Algorithm::TOKEN_BUCKET,       "id/1s"),
        (2,       "5/250ms",    Algorithm::SlidingWindowLog,   "id/250ms"),
        (1,       "9/60s",      Algorithm::FIXED_WINDOW,       "id/1m"),
        (1,       "9/month",    Algorithm::FIXED_WINDOW,       "id/month"),
        (3,       "9/year",     Algorithm::FIXED_WINDOW,       "id/year"),
        (1,       "3",          Algorithm::CONCURRENCY,        "id/concurrency"),
    ];
    for (index, text, algorithm, name) in table {
        assert_eq!(limit_name("id", index, &limit(text, algorithm)), name);
    }
}

/// Reads a list of structured fields to the end: each item's name and the integers it carries.
fn read_list(value: &str) -> Option<Vec<(String, Vec<u64>)>> {
    let mut items = Vec::new();
    let mut rest = value;
    loop {
        let (name, after_name) = read_string(rest)?;
        let mut integers = Vec::new();
        rest = after_name;
        while let Some(parameter) = rest.strip_prefix(';') {
            let (_key, after_key) = parameter.split_once('=')?;
            if after_key.starts_with('"') {
                rest = read_string(after_key)?.1;
            } else {
                let end = after_key.find([';', ',']).unwrap_or(after_key.len());
                integers.push(after_key[..end].parse().ok()?);
                rest = &after_key[end..];
            }
        }
        items.push((name, integers));
        if rest.is_empty() {
            return Some(items);
        }
        rest = rest.strip_prefix(", ")?;
    }
}

/// Reads a String of structured fields: what it says, and what follows it.
fn read_string(text: &str) -> Option<(String, &str)> {
    let mut said = String::new();
    let mut chars = text.strip_prefix('"')?.chars();
    loop {
        match chars.next()? {
            '"' => return Some((said, chars.as_str())),
            '\\' => said.push(chars.next().filter(|next| matches!(next, '"' | '\\'))?),
            other => said.push(other),
        }
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let window = prop_oneof![
        (1..=366 * 86_400_000_u64).prop_map(|millis| Some(Micros::from_millis(millis).into())),
        Just(Some(Window::Month)),
        Just(Some(Window::Year)),
        Just(None),
    ];
    let algorithm = prop_oneof![
        Just(Algorithm::FIXED_WINDOW),
        Just(Algorithm::SlidingWindowLog),
        Just(Algorithm::SlidingWindowCounter),
        Just(Algorithm::SLIDING_WINDOW_SLOTS),
        Just(Algorithm::TOKEN_BUCKET),
        Just(Algorithm::LEAKY_BUCKET),
        Just(Algorithm::CONCURRENCY),
    ];
    let count = 1..=crate::limit::MAX_COUNT;
    let burst = proptest::option::of(count.clone());
    (count, window, burst, algorithm).prop_map(|(count, window, burst, algorithm)| {
        let fitting = Rate {
            count,
            window: window.filter(|_| !matches!(algorithm, Algorithm::Concurrency { .. })),
            burst: burst.filter(|_| algorithm.is_bucket()),
        };
        Limit::new(fitting, algorithm).unwrap_or_else(|_| {
            Limit::new(Rate::per_minute(count), Algorithm::FIXED_WINDOW).unwrap()
        })
    })
}

/// Any outcome that the type can hold, whether or not an algorithm would answer so.
fn any_outcome() -> impl Strategy<Value = Outcome> {
    let micros = || any::<u64>().prop_map(Micros::new);
    let timestamp = || any::<u64>().prop_map(Timestamp::from_micros);
    let retry = prop_oneof![
        Just(Retry::Now),
        micros().prop_map(Retry::After),
        Just(Retry::Never),
    ];
    let numbers = (any::<bool>(), any::<u64>(), any::<u64>());
    let times = (timestamp(), micros(), timestamp());
    (numbers, retry, times).prop_map(
        |((allowed, limit, remaining), retry, (reset_at, delay, at))| Outcome {
            allowed,
            limit,
            remaining,
            exceeded: 0,
            retry,
            reset_at,
            delay,
            at,
            is_remembered: false,
        },
    )
}

fn any_name() -> impl Strategy<Value = String> {
    let character = prop_oneof![any::<char>(), prop::char::range('\0', '\u{ff}')];
    prop::collection::vec(character, 0..12).prop_map(|chars| chars.into_iter().collect())
}

fn any_settings() -> impl Strategy<Value = HeaderSettings> {
    let reset = prop_oneof![Just(ResetForm::UnixSeconds), Just(ResetForm::DeltaSeconds)];
    (any::<[bool; 3]>(), reset).prop_map(|([x, draft_10, retry_after], reset)| HeaderSettings {
        x,
        draft_10,
        retry_after,
        reset,
        ..HeaderSettings::NONE
    })
}

proptest! {
    /// A value with any other byte would be refused by a web framework, or split a response.
    #[test]
    fn every_value_can_be_sent(
        settings in any_settings(),
        parts in prop::collection::vec((any_name(), any_limit(), any_outcome()), 0..5),
        headline in 0..6_usize,
    ) {
        let items: Vec<_> = parts
            .iter()
            .map(|(name, limit, outcome)| Item { name, limit: Some(limit), unit: None, outcome })
            .collect();
        for (name, value) in settings.headers(&items, headline) {
            prop_assert!(!value.is_empty(), "{name} is empty");
            prop_assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}: {value:?}");
        }
    }

    /// Both fields of the draft are lists that a reader of structured fields accepts, with the
    /// names that went in.
    #[test]
    fn the_draft_fields_read_back(
        parts in prop::collection::vec((any_name(), any_limit(), any_outcome()), 1..5),
    ) {
        let items: Vec<_> = parts
            .iter()
            .map(|(name, limit, outcome)| Item { name, limit: Some(limit), unit: None, outcome })
            .collect();
        // A quota or a window of zero would mean nothing; what is left and the wait may be zero.
        for (field, least) in [(RATELIMIT_POLICY, 1), (RATELIMIT, 0)] {
            let value = value_of(HeaderSettings::default(), field, &items, 0).unwrap();
            let read = read_list(&value);
            prop_assert!(read.is_some(), "{value:?}");
            let read = read.unwrap();
            prop_assert_eq!(read.len(), items.len());
            for ((name, integers), item) in read.iter().zip(&items) {
                let in_range = least..=999_999_999_999_999;
                prop_assert!(integers.iter().all(|integer| in_range.contains(integer)));
                if item.name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                    prop_assert_eq!(name, item.name);
                }
            }
        }
    }
}
