//! What a case expects of a decision, compared with what came.

use std::fmt;

use tidegate::{Decision, Micros};

/// A key of `expect`, with the line on which it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expectation {
    pub(super) key: &'static str,
    pub(super) value: ExpectedValue,
    pub(super) line: usize,
}

/// A value of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpectedValue {
    None,
    Flag(bool),
    Number(u64),
    Text(String),
    Span(Micros),
}

impl fmt::Display for ExpectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Span(span) => {
                let (whole, micros) = (span.get() / 1_000_000, span.get() % 1_000_000);
                let text = format!("{whole}.{micros:06}");
                f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

impl Expectation {
    /// What the decision has instead; none if it has what is expected.
    pub(super) fn unmet(&self, decision: &Decision) -> Option<ExpectedValue> {
        let came = came(self.key, decision);
        (came != self.value).then_some(came)
    }
}

/// The value of a decision.
fn came(key: &str, decision: &Decision) -> ExpectedValue {
    let text = |text: &str| ExpectedValue::Text(text.to_owned());
    let came = match key {
        "allowed" => Some(ExpectedValue::Flag(decision.is_allowed())),
        "rule" => decision.rule().map(text),
        "reason" => decision.reason().map(|reason| text(reason.name())),
        "remaining" => decision.remaining().map(ExpectedValue::Number),
        _ => decision
            .retry_after()
            .map(|wait| ExpectedValue::Span(wait.into())),
    };
    came.unwrap_or(ExpectedValue::None)
}
