//! What may be written, and what the refusals say.

use super::*;

fn limit(text: &str, algorithm: Algorithm) -> Result<Limit, LimitError> {
    Limit::new(text.parse()?, algorithm)
}

#[test]
fn limits_are_read_as_people_write_them() {
    let minute = Some(Window::Span(Micros::MINUTE));
    #[rustfmt::skip]
    let table = [
        ("100/minute",            100, minute,                                        None),
        ("100/minute burst 20",   100, minute,                                        Some(20)),
        ("100/m burst 20",        100, minute,                                        Some(20)),
        (" 100 / MINUTE ",        100, minute,                                        None),
        ("100 per minute",        100, minute,                                        None),
        ("10 per 2 hours",        10,  Some(Window::Span(Micros::HOUR.times(2))),     None),
        ("10/2hours",             10,  Some(Window::Span(Micros::HOUR.times(2))),     None),
        ("500/7days",             500, Some(Window::Span(Micros::WEEK)),              None),
        ("5/250ms",               5,   Some(Window::Span(Micros::from_millis(250))),  None),
        ("1/w",                   1,   Some(Window::Span(Micros::WEEK)),              None),
        ("1000/month",            1000, Some(Window::Month),                          None),
        ("1000 per 1 year",       1000, Some(Window::Year),                           None),
        ("10",                    10,  None,                                          None),
    ];
    for (text, count, window, burst) in table {
        assert_eq!(
            text.parse(),
            Ok(Rate {
                count,
                window,
                burst
            }),
            "{text}"
        );
    }
}

#[test]
fn several_limits_are_one_list() {
    for text in [
        "10/minute; 2/second",
        "10/minute,2/second",
        "10/minute | 2/second",
    ] {
        assert_eq!(
            Rate::parse_all(text),
            Ok(vec![Rate::per_minute(10), Rate::per_second(2)])
        );
    }
    let burst = Rate::parse_all("10/minute burst 20,100/hour");
    assert_eq!(
        burst,
        Ok(vec![Rate::per_minute(10).burst(20), Rate::per_hour(100)])
    );
    for (text, message) in [
        (
            "5/minute; 10k/day",
            "`10k/day` is not a limit; write `10000/day`",
        ),
        (
            "5/minute; 1,000/day",
            "`1,000/day` is not a limit; write `1000/day`",
        ),
        (
            "5/minute, burst 20",
            "`5/minute, burst 20` is not a limit; write `5/minute burst 20`",
        ),
    ] {
        let refused = Rate::parse_all(text).unwrap_err();
        assert_eq!(refused.to_string(), message, "{text}");
    }
    let same = Rate::parse_all("10/minute; 20/60s").unwrap_err();
    assert_eq!(
        same.to_string(),
        "two limits over the same window `1m`; keep the smaller one"
    );
}

#[test]
fn refusals_say_what_would_be_accepted() {
    let bucket = Algorithm::TOKEN_BUCKET;
    let slots = |slots| Algorithm::SlidingWindowSlots {
        slots: Some(slots),
        strict: false,
    };
    let first = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    let delayed = |seconds| Algorithm::TokenBucket {
        max_delay: Micros::from_seconds(seconds),
    };
    let example = "write for example `100/minute`, `10 per 2 hours` or `100/minute burst 20`";
    let units = "`ms`, `s`, `m`, `h`, `d`, `w`, `second`, `minute`, `hour`, `day`, `week`, `month` or `year`";
    #[rustfmt::skip]
    let table = [
        ("100/fortnight", bucket, format!("`100/fortnight` is not a limit: `fortnight` is not a unit; use {units}; {example}")),
        ("", bucket, format!("`` is not a limit: it does not start with a count; {example}")),
        ("many/minute", bucket, format!("`many/minute` is not a limit: it does not start with a count; {example}")),
        ("-1/minute", bucket, format!("`-1/minute` is not a limit: it does not start with a count; {example}")),
        ("0.5/second", bucket, "`0.5/second` is not a limit; write `1 per 2 seconds`".into()),
        ("10k/day", bucket, "`10k/day` is not a limit; write `10000/day`".into()),
        ("100x/minute", bucket, format!("`100x/minute` is not a limit: `x` is not expected there; {example}")),
        ("100/", bucket, format!("`100/` is not a limit: the window is missing, one of {units}; {example}")),
        ("100/minute burst", bucket, format!("`100/minute burst` is not a limit: `burst` needs a number; {example}")),
        ("100/minute bursts 3", bucket, format!("`100/minute bursts 3` is not a limit: `bursts` is not expected there; {example}")),
        ("99999999999999999999/s", bucket, format!("`99999999999999999999/s` is not a limit: `99999999999999999999` is too large a number; {example}")),
        ("1/99999999999999999w", bucket, format!("`1/99999999999999999w` is not a limit: the span is too long; 366 days are the most; {example}")),
        ("10 per 2 months", bucket, format!("`10 per 2 months` is not a limit: a `month` is counted one at a time; {example}")),
        ("10", bucket, "`10` names no window; write for example `10/minute`".into()),
        ("0/minute", bucket, "a count of 0 would never let anything pass; give 1 to 1000000000, or say `blocked` if that is meant".into()),
        ("5/minute burst 0", bucket, "a burst of 0 would never let anything pass; give 1 to 1000000000, or say `blocked` if that is meant".into()),
        ("1000000001/minute", bucket, "a count of 1000000001 is too large; give 1 to 1000000000".into()),
        ("1/0s", bucket, "a window of 0us is out of range; give 1ms to 366 days".into()),
        ("1/367d", Algorithm::FIXED_WINDOW, "a window of 367d is out of range; give 1ms to 366 days".into()),
        ("1/d burst 1000000", bucket, "`1/day burst 1000000` takes longer to fill than can be counted exactly (285 years); raise the count, or lower the burst or the window".into()),
        ("1/month", bucket, "`month` is a calendar period, which token_bucket cannot count; use `fixed_window` with `anchor: clock`, or a span such as `30d`".into()),
        ("1/month", first, "`month` is a calendar period, which fixed_window with `anchor: first_request` cannot count; use `fixed_window` with `anchor: clock`, or a span such as `30d`".into()),
        ("5/minute burst 2", Algorithm::SlidingWindowLog, "sliding_window_log has no burst; leave it out, or use `token_bucket` or `leaky_bucket`".into()),
        ("5/minute", slots(7), "7 slots do not divide a window of 1m into whole microseconds; give a number that does".into()),
        ("5/minute", slots(0), "0 slots are out of range; give 1 to 3600".into()),
        ("5/minute", Algorithm::CONCURRENCY, "concurrency counts holders at once and has no window; write `5` instead of `5/minute`".into()),
        ("5/minute", delayed(40_000_000), "a max_delay of 40000000s is too long; give at most 366 days".into()),
        ("900000000/second", delayed(2), "within a max_delay of 2s more than 1000000000 could be owed; shorten it, or lower the count or the burst".into()),
    ];
    for (text, algorithm, message) in table {
        assert_eq!(
            limit(text, algorithm).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
    let permit = Algorithm::Concurrency {
        lease_ttl: Micros::ZERO,
    };
    let message = limit("5", permit).unwrap_err().to_string();
    assert_eq!(
        message,
        "a lease_ttl of 0us is out of range; give 1ms to 366 days"
    );
}

#[test]
fn spans_are_read_as_people_write_them() {
    for (text, span) in [
        ("500ms", 500),
        ("30s", 30_000),
        ("2 hours", 7_200_000),
        ("0s", 0),
    ] {
        assert_eq!(text.parse(), Ok(Micros::from_millis(span)), "{text}");
    }
    for text in [
        "",
        "s",
        "5",
        "1 month",
        "5s more",
        "99999999999999999999s",
        "9999999999999w",
    ] {
        let message = text.parse::<Micros>().unwrap_err().to_string();
        assert!(
            message.contains("write for example `500ms`, `30s` or `5m`"),
            "{message}"
        );
    }
}

/// Every limit and burst up to ten million, with any window, as long as it fills in time.
#[test]
fn nothing_that_people_write_is_refused_for_its_size() {
    for count in [1, 3, 9_999_999, 10_000_000] {
        for window in [
            Micros::MILLISECOND,
            Micros::new(1_001),
            Micros::DAY,
            Micros::DAY.times(366),
        ] {
            for algorithm in [
                Algorithm::TOKEN_BUCKET,
                Algorithm::LEAKY_BUCKET,
                Algorithm::FIXED_WINDOW,
                Algorithm::SlidingWindowLog,
                Algorithm::SlidingWindowCounter,
            ] {
                assert!(
                    Limit::new(Rate::new(count, window), algorithm).is_ok(),
                    "{count}/{window}"
                );
            }
            let burst = Rate::new(count, window).burst(10_000_000);
            let fills_in_time = u128::from(window.get()) * 10_000_000 / u128::from(count) < 1 << 53;
            assert_eq!(
                Limit::new(burst, Algorithm::TOKEN_BUCKET).is_ok(),
                fills_in_time
            );
        }
    }
}

#[test]
fn slots_are_60_or_50_unless_said() {
    let slot = |window: Micros| {
        let limit = Limit::new(Rate::new(5, window), Algorithm::SLIDING_WINDOW_SLOTS);
        match limit.map(|limit| *limit.form()) {
            Ok(Form::SlidingSlots(slots)) => Ok(slots.slot()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    assert_eq!(slot(Micros::MINUTE), Ok(Micros::SECOND));
    assert_eq!(slot(Micros::MILLISECOND), Ok(Micros::new(20)));
    assert!(slot(Micros::new(1_001)).is_err());
}

/// A limit may change its count, burst and waiting and keep its state; nothing else.
#[test]
fn a_shape_is_the_algorithm_and_the_window() {
    let shape = |text, algorithm| limit(text, algorithm).unwrap().shape();
    let bucket = shape("100/minute", Algorithm::TOKEN_BUCKET);
    assert_eq!(bucket, shape("7/60s burst 3", Algorithm::TOKEN_BUCKET));
    assert_eq!(
        bucket,
        shape(
            "7/60s",
            Algorithm::TokenBucket {
                max_delay: Micros::SECOND
            }
        )
    );
    let others = [
        shape("100/hour", Algorithm::TOKEN_BUCKET),
        shape("100/minute", Algorithm::LEAKY_BUCKET),
        shape("100/minute", Algorithm::FIXED_WINDOW),
        shape(
            "100/minute",
            Algorithm::FixedWindow {
                anchor: Anchor::FirstRequest,
            },
        ),
        shape("100/minute", Algorithm::SlidingWindowLog),
        shape("100/minute", Algorithm::SlidingWindowCounter),
        shape("100/minute", Algorithm::SLIDING_WINDOW_SLOTS),
        shape(
            "100/minute",
            Algorithm::SlidingWindowSlots {
                slots: None,
                strict: true,
            },
        ),
        shape(
            "100/minute",
            Algorithm::SlidingWindowSlots {
                slots: Some(30),
                strict: false,
            },
        ),
        shape("100", Algorithm::CONCURRENCY),
    ];
    for (index, other) in others.iter().enumerate() {
        assert!(
            *other != bucket && !others[..index].contains(other),
            "number {index}"
        );
    }
}

#[test]
fn what_is_printed_is_read_again() {
    for text in [
        "100/minute burst 20",
        "7/second",
        "7/week",
        "10/2h",
        "5/250ms",
        "1000/month",
        "3/year",
        "10",
    ] {
        let rate: Rate = text.parse().unwrap();
        assert_eq!(rate.to_string(), text);
    }
}
