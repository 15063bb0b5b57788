//! The request that `check` and `explain` ask about, as arguments.

use clap::Args;
use serde_json::{Number, Value, json};
use tidegate::{Clock as _, SystemClock, Timestamp};

use super::attributes::AttributeArgs;
use crate::times;

/// How many decimals of a timestamp are significant.
const DECIMALS: usize = 6;

#[derive(Debug, Args)]
pub(crate) struct QuestionArgs {
    #[command(flatten)]
    pub(super) attributes: AttributeArgs,

    /// How much the request costs
    #[arg(long, value_name = "N", default_value_t = 1)]
    cost: u64,

    /// Decide at this time, in Unix seconds, if the server trusts timestamps
    #[arg(long, value_name = "SECONDS", value_parser = timestamp)]
    timestamp: Option<Number>,
}

impl QuestionArgs {
    /// The body of the call.
    pub(super) fn body(&self) -> anyhow::Result<Value> {
        let mut request = json!({"attributes": self.attributes.to_json()?, "cost": self.cost});
        if let (Some(timestamp), Value::Object(map)) = (&self.timestamp, &mut request) {
            map.insert("timestamp".to_owned(), Value::Number(timestamp.clone()));
        }
        Ok(request)
    }

    /// The time at which it is decided.
    pub(super) fn now(&self) -> Timestamp {
        let given = self.timestamp.clone().map(Value::Number);
        let now = given.as_ref().and_then(times::instant);
        now.unwrap_or_else(|| SystemClock.now())
    }
}

fn timestamp(text: &str) -> Result<Number, String> {
    let refused = || "write Unix seconds, for example `1794770000.25`".to_owned();
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) {
        return Err(refused());
    }
    // Cut off below a microsecond, as the server does.
    let more = decimals.len().saturating_sub(DECIMALS);
    text[..text.len() - more].parse().map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_sent_as_it_was_given_down_to_the_microsecond() {
        for text in [
            "1794770000",
            "1794770000.25",
            "1794770000.250001",
            "0.000001",
        ] {
            assert_eq!(timestamp(text).unwrap().as_f64(), text.parse().ok());
        }
        assert_eq!(
            timestamp("1794770000.250001").unwrap().to_string(),
            "1794770000.250001"
        );
        for cut in ["1794770000.1234567", "1794770000.12345699999"] {
            assert_eq!(timestamp(cut).unwrap().to_string(), "1794770000.123456");
        }
        for text in ["", ".5", "1.", "-1", "1e9", "1.000000x", "now"] {
            assert!(timestamp(text).is_err(), "{text}");
        }
    }
}
