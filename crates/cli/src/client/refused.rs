//! A refused call: the server's own message, and advice.

use std::fmt;

use serde_json::Value;
use ureq::http::Method;

use super::Call;
use crate::output::plain;

/// Why a call was refused.
#[derive(Debug)]
pub(crate) struct Refused {
    /// `None` if the rules were found invalid here, and the server was not called.
    pub(crate) status: Option<u16>,
    pub(crate) message: String,
    /// The problems of the rules, each with `rule`, `field` and `message`.
    pub(crate) problems: Vec<Value>,
}

impl Refused {
    pub(super) fn new(call: &Call, status: u16, body: &Value) -> Self {
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(plain);
        let said = text("detail").or_else(|| text("title"));
        let advice = match text("reason").as_deref() {
            Some("client_certificate") => Some(CERTIFICATE.to_owned()),
            _ => advice(call, status),
        };
        let message = match (said, advice) {
            // The caller knows better than the server what is missing here.
            (_, Some(advice)) if status == 401 && call.no_token.is_some() => advice,
            (Some(said), Some(advice)) => format!("{said}; {advice}"),
            (Some(said), None) => said,
            (None, Some(advice)) => format!("the server answered {status}; {advice}"),
            (None, None) => call.unlike(status, "does not say why"),
        };
        let problems = body.get("problems").and_then(Value::as_array).cloned();
        Self {
            status: Some(status),
            message,
            problems: problems.unwrap_or_default(),
        }
    }
}

/// Advice for a missing certificate.
const CERTIFICATE: &str = "give it and its key by --client-cert and --client-key";

/// Advice for a missing or unknown token.
fn advice(call: &Call, status: u16) -> Option<String> {
    let scope = call.scope();
    match (status, &call.no_token) {
        (401, Some(why)) => Some(format!("no token: {why} (scope `{scope}`)")),
        (401 | 403, None) => Some(format!(
            "give a token with the scope `{scope}` by --token or TIDEGATE_TOKEN"
        )),
        (403, Some(_)) => Some(format!(
            "if the server has tokens, give one with the scope `{scope}` by --token or TIDEGATE_TOKEN"
        )),
        _ => None,
    }
}

impl Call {
    /// The scope that a token needs for this call.
    fn scope(&self) -> &'static str {
        let reads = ["/v1/explain", "/v1/console/code"].contains(&self.path.as_str())
            || self.path.ends_with("/validate");
        if self.path.starts_with("/v1/check") {
            "check"
        } else if self.method == Method::GET || reads {
            "read"
        } else {
            "write"
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for problem in &self.problems {
            let text = |key: &str| {
                let text = problem.get(key).and_then(Value::as_str);
                text.filter(|text| !text.is_empty()).map(plain)
            };
            f.write_str("\n  ")?;
            match (text("rule"), text("field")) {
                (Some(rule), Some(field)) => write!(f, "rule `{rule}`, field `{field}`: ")?,
                (Some(rule), None) => write!(f, "rule `{rule}`: ")?,
                (None, Some(field)) => write!(f, "field `{field}`: ")?,
                (None, None) => {}
            }
            f.write_str(&text("message").unwrap_or_default())?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}
