//! Bodies of checks: the reader of the usual form, the complete parser and `serde_json` read the same.

use serde_json::Value;
use tidegate::Attributes;
use tidegate_codec::CodecError;
use tidegate_codec::json::explain::{ExplainRequest, ExplainedSubject, MAX_HEADERS};
use tidegate_codec::json::question::{Batch, CheckRequest, ResetRequest, read_timestamp};
use tidegate_codec::json::{parse, parse_part, read_plain};

/// Attributes that have a normal form.
const NORMALISED: [&str; 3] = ["host", "ip", "path"];

/// A body means the same to every reader that accepts it.
pub fn check(body: &[u8]) {
    let complete = parse::<CheckRequest<'_>>(body).and_then(|request| request.attributes(true));
    if let Some(plain) = read_plain(body) {
        assert_eq!(described(&Ok(plain)), described(&complete));
    }
    let read = CheckRequest::parse(body).and_then(|request| request.attributes(true));
    assert_eq!(described(&read), described(&complete));
    match &complete {
        Ok(attributes) => as_serde_reads_it(body, attributes),
        Err(error) => {
            // A message may quote the body, escaped, and has some words of its own.
            assert!(
                error.to_string().len() <= 10 * body.len() + 1_024,
                "{error}"
            );
        }
    }
    if let Ok(batch) = parse::<Batch<'_>>(body) {
        for (index, check) in batch.checks.iter().enumerate() {
            let name = || format!("checks[{index}]");
            let part = parse_part::<CheckRequest<'_>>(check, name).is_ok();
            let alone = CheckRequest::parse(check.get().as_bytes()).is_ok();
            assert_eq!(part, alone, "{check}");
        }
    }
    let _ = parse::<ResetRequest<'_>>(body);
    let explained = parse::<ExplainRequest<'_>>(body).and_then(|request| request.subject(true));
    match (explained, &complete) {
        // Whatever can be checked can be explained.
        (Ok((ExplainedSubject::Attributes(attributes), terms)), _) => {
            assert_eq!(described(&Ok(terms.of(*attributes))), described(&complete));
        }
        (Ok((ExplainedSubject::Request(raw), _)), _) => {
            assert!(raw.headers.len() <= MAX_HEADERS, "{raw:?}");
        }
        (_, complete) => assert!(complete.is_err(), "{}", body.escape_ascii()),
    }
    if let Ok(text) = std::str::from_utf8(body) {
        check_timestamp(text);
    }
}

fn described(read: &Result<Attributes<'_>, CodecError>) -> String {
    match read {
        Ok(attributes) => format!("{attributes:?}"),
        Err(error) => format!("error: {error}"),
    }
}

fn as_serde_reads_it(body: &[u8], attributes: &Attributes<'_>) {
    let Ok(Value::Object(value)) = serde_json::from_slice(body) else {
        unreachable!("it is an object: {}", body.escape_ascii());
    };
    let cost = value.get("cost").map_or(Some(1.0), Value::as_f64);
    #[expect(clippy::cast_precision_loss, reason = "a cost is below 2^53")]
    let read = attributes.cost() as f64;
    assert!(
        cost.is_some_and(|cost| (cost - read).abs() < 0.5),
        "{value:?}"
    );
    let Some(Value::Object(given)) = value.get("attributes") else {
        unreachable!("attributes are an object: {value:?}");
    };
    for (name, value) in attributes.iter() {
        let given = given.get(name).and_then(Value::as_str);
        assert!(given.is_some(), "`{name}` was not given");
        let is_simple = value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_simple && !NORMALISED.contains(&name) {
            assert_eq!(given.map(str::trim), Some(value), "`{name}`");
        }
    }
}

/// A timestamp is the number that it is as a double, as far as a double is exact.
fn check_timestamp(text: &str) {
    let Some(at) = read_timestamp(text) else {
        return;
    };
    let Ok(seconds) = text.parse::<f64>() else {
        unreachable!("`{text}` is not a number");
    };
    #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
    let difference = (at.as_micros() as f64 - seconds * 1e6).abs();
    assert!(difference <= 4.0, "`{text}` is {at:?}");
}
