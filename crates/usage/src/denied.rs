//! The bodies of denials in the words of each provider, so that its clients raise their own errors.

use serde_json::{Value, json};

use crate::form::FormName;

/// A denial, as its body describes it. The body follows the status.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeniedFacts<'a> {
    /// The status of the answer.
    pub status: u16,
    /// The rule, the unit, what was asked, what remains and when, in words.
    pub message: &'a str,
    /// The unit of the rule that denies.
    pub unit: &'a str,
    /// The seconds of `Retry-After`; `None` if waiting does not help.
    pub retry_after: Option<u64>,
    /// The id of the request, if it has one.
    pub request_id: Option<&'a str>,
}

/// Clients wait for as long as they are asked to. Above this they should return to their caller instead.
const LONGEST_WAIT: u64 = 120;

impl<'a> DeniedFacts<'a> {
    /// A denial without a time to wait for, and without an id.
    pub fn new(status: u16, message: &'a str, unit: &'a str) -> Self {
        Self {
            status,
            message,
            unit,
            retry_after: None,
            request_id: None,
        }
    }

    /// Whether a client should try again by itself: waiting helps, and takes two minutes at most.
    pub fn should_retry(&self) -> bool {
        self.retry_after
            .is_some_and(|seconds| seconds <= LONGEST_WAIT)
    }

    /// The body, `application/json`. `None` for a form of the operator's own, which has no words of its own.
    ///
    /// ```
    /// use tidegate_usage::{DeniedFacts, FormName};
    ///
    /// let denied = DeniedFacts::new(429, "used up", "tokens");
    /// assert_eq!(
    ///     denied.body(FormName::OpenAi).unwrap(),
    ///     r#"{"error":{"message":"used up","type":"tokens","param":null,"code":"insufficient_quota"}}"#
    /// );
    /// ```
    pub fn body(&self, form: FormName) -> Option<String> {
        let body = match form {
            FormName::OpenAi => self.openai(),
            FormName::Anthropic => self.anthropic(),
            FormName::Gemini => self.gemini(),
            FormName::Own => return None,
        };
        Some(body.to_string())
    }

    fn openai(&self) -> Value {
        let (kind, code) = match self.status {
            401 => ("invalid_request_error", "invalid_api_key"),
            403 => ("permission_denied", "permission_denied"),
            429 if self.should_retry() => (self.unit, "rate_limit_exceeded"),
            429 => (self.unit, "insufficient_quota"),
            500.. => ("server_error", "server_error"),
            _ => ("invalid_request_error", "invalid_request_error"),
        };
        json!({"error": {"message": self.message, "type": kind, "param": null, "code": code}})
    }

    fn anthropic(&self) -> Value {
        let kind = match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        json!({
            "type": "error",
            "error": {"type": kind, "message": self.message},
            "request_id": self.request_id,
        })
    }

    fn gemini(&self) -> Value {
        let status = match self.status {
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            500.. => "INTERNAL",
            _ => "INVALID_ARGUMENT",
        };
        let mut error = json!({"code": self.status, "message": self.message, "status": status});
        if let Some(seconds) = self.retry_after {
            error["details"] = json!([{
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": format!("{seconds}s"),
            }]);
        }
        json!({"error": error})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_words_for_each_status() {
        let mut denied = DeniedFacts::new(429, "used up", "tokens");
        denied.retry_after = Some(20);
        denied.request_id = Some("req_1");
        for (form, body) in [
            (
                FormName::OpenAi,
                r#"{"error":{"message":"used up","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            ),
            (
                FormName::Anthropic,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"used up"},"request_id":"req_1"}"#,
            ),
            (
                FormName::Gemini,
                r#"{"error":{"code":429,"message":"used up","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"20s"}]}}"#,
            ),
        ] {
            assert_eq!(denied.body(form).unwrap(), body);
        }
        assert_eq!(denied.body(FormName::Own), None);
        for (status, openai, anthropic, gemini) in [
            (
                401,
                "invalid_api_key",
                "authentication_error",
                "UNAUTHENTICATED",
            ),
            (
                403,
                "permission_denied",
                "permission_error",
                "PERMISSION_DENIED",
            ),
            (503, "server_error", "overloaded_error", "UNAVAILABLE"),
            (500, "server_error", "api_error", "INTERNAL"),
            (
                413,
                "invalid_request_error",
                "request_too_large",
                "INVALID_ARGUMENT",
            ),
        ] {
            let denied = DeniedFacts::new(status, "no", "requests");
            for (form, word) in [
                (FormName::OpenAi, openai),
                (FormName::Anthropic, anthropic),
                (FormName::Gemini, gemini),
            ] {
                let body = denied.body(form).unwrap();
                assert!(body.contains(&format!("\"{word}\"")), "{body}");
            }
        }
    }

    #[test]
    fn clients_retry_only_soon() {
        let mut denied = DeniedFacts::new(429, "used up", "tokens");
        for (seconds, retries) in [
            (None, false),
            (Some(1), true),
            (Some(120), true),
            (Some(121), false),
        ] {
            denied.retry_after = seconds;
            assert_eq!(denied.should_retry(), retries);
            let body = denied.body(FormName::OpenAi).unwrap();
            assert_eq!(body.contains("insufficient_quota"), !retries);
        }
    }
}
