//! Turns every error of the API into a reply, as problem+json (RFC 9457).

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value, json};
use tidegate::document::{self, Problems};
use tidegate::gate::{FeedbackError, ResetError};
use tidegate::path::PathError;
use tidegate_codec::CodecError;
use tidegate_tower::{BodyMemoryUsedUp, DenialReason};

use crate::data_dir::DataDirError;
use crate::overrides::OverrideError;
use crate::rulebook::{ChangeError, VersionError};

/// A reply of this front end.
pub(crate) type ApiReply = Response<Full<Bytes>>;

/// Why a call failed, with advice for the caller.
#[derive(Debug)]
pub(crate) struct HttpProblem {
    status: StatusCode,
    detail: String,
    /// The reason, as a word for programs.
    reason: Option<&'static str>,
    /// The problems of rules, field by field.
    problems: Option<Box<Value>>,
    header: Option<Box<(http::HeaderName, HeaderValue)>>,
}

impl HttpProblem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            reason: None,
            problems: None,
            header: None,
        }
    }

    /// The request is malformed.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The path has an encoded slash or a backslash, and `encoded_slashes` refuses them.
    pub(crate) fn hidden_slash() -> Self {
        Self::bad_request(PathError::HiddenSlash.to_string())
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// Refused for a reason that programs distinguish.
    pub(crate) fn forbidden_for(reason: &'static str, detail: impl Into<String>) -> Self {
        Self {
            reason: Some(reason),
            ..Self::forbidden(detail)
        }
    }

    /// No token, or an unknown one.
    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self {
            header: Some(Box::new((
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"tidegate\""),
            ))),
            ..Self::new(StatusCode::UNAUTHORIZED, detail)
        }
    }

    /// There is no room for it now.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self {
            header: Some(Box::new((RETRY_AFTER, HeaderValue::from_static("1")))),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    /// There is no room for it now, for a reason that programs distinguish.
    pub(crate) fn busy_for(reason: &'static str, detail: impl Into<String>) -> Self {
        Self {
            reason: Some(reason),
            ..Self::busy(detail)
        }
    }

    /// The path exists, with another method.
    pub(crate) fn method_not_allowed(method: &http::Method, path: &str, allowed: &str) -> Self {
        let header = HeaderValue::from_str(allowed).ok();
        Self {
            header: header.map(|methods| Box::new((ALLOW, methods))),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("`{path}` does not support {method}; use {allowed}"),
            )
        }
    }

    /// Invalid rules, with their problems by field.
    pub(crate) fn invalid_rules(problems: &Problems) -> Self {
        Self::invalid(&problems.errors().cloned().collect::<Vec<_>>())
    }

    /// An invalid rule that was sent alone: its fields are in no list.
    pub(crate) fn invalid_rule(problems: &Problems) -> Self {
        let alone = |problem: &document::Problem| {
            let field = problem.field.strip_prefix("rules[0]");
            let field = field.unwrap_or(&problem.field).trim_start_matches('.');
            let mut alone = problem.clone();
            field.clone_into(&mut alone.field);
            alone
        };
        Self::invalid(&problems.errors().map(alone).collect::<Vec<_>>())
    }

    fn invalid(problems: &[document::Problem]) -> Self {
        let errors: Vec<Value> = problems
            .iter()
            .map(|problem| json!({"rule": problem.rule, "field": problem.field, "message": problem.message}))
            .collect();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Self {
            problems: Some(Box::new(Value::Array(errors))),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, texts.join("; "))
        }
    }

    /// The same problem, in a part of the body.
    pub(crate) fn in_part(self, part: &str) -> Self {
        Self {
            detail: format!("{part}: {}", self.detail),
            ..self
        }
    }

    /// The same with another status, if a condition holds.
    #[must_use]
    pub(crate) fn with_status_if(self, holds: bool, status: StatusCode) -> Self {
        let status = if holds { status } else { self.status };
        Self { status, ..self }
    }

    pub(crate) fn reply(self) -> ApiReply {
        let mut body = Map::new();
        let title = self.status.canonical_reason().unwrap_or("Error");
        body.insert("type".to_owned(), json!("about:blank"));
        body.insert("title".to_owned(), json!(title));
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("detail".to_owned(), json!(self.detail));
        if let Some(reason) = self.reason {
            body.insert("reason".to_owned(), json!(reason));
        }
        if let Some(problems) = self.problems {
            body.insert("problems".to_owned(), *problems);
        }
        let mut reply = Response::new(Full::from(Value::Object(body).to_string()));
        *reply.status_mut() = self.status;
        let problem_json = HeaderValue::from_static("application/problem+json");
        reply.headers_mut().insert(CONTENT_TYPE, problem_json);
        if let Some((name, value)) = self.header.map(|header| *header) {
            reply.headers_mut().insert(name, value);
        }
        if let Some(reason) = self.reason {
            reply.extensions_mut().insert(DenialReason(reason));
        }
        reply
    }
}

impl From<BodyMemoryUsedUp> for HttpProblem {
    fn from(_: BodyMemoryUsedUp) -> Self {
        Self::busy(BodyMemoryUsedUp::DETAIL)
    }
}

impl From<CodecError> for HttpProblem {
    fn from(error: CodecError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<ChangeError> for HttpProblem {
    fn from(error: ChangeError) -> Self {
        let status = match &error {
            ChangeError::FromFile { .. }
            | ChangeError::FromServer { .. }
            | ChangeError::Duplicate(_)
            | ChangeError::Unreadable(_) => StatusCode::CONFLICT,
            ChangeError::Shared(_) => StatusCode::SERVICE_UNAVAILABLE,
            ChangeError::Stale(_) | ChangeError::OtherVersion { .. } => {
                StatusCode::PRECONDITION_FAILED
            }
            ChangeError::NoSuchRule(_) => StatusCode::NOT_FOUND,
            ChangeError::NothingToPromote(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ChangeError::Version(error) => status_of(error),
            ChangeError::Invalid(problems) => return Self::invalid_rules(problems),
            ChangeError::NotKept(error) => not_kept(error),
            ChangeError::Interrupted => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, with_source(&error))
    }
}

fn status_of(error: &VersionError) -> StatusCode {
    match error {
        VersionError::NoSuchVersion { .. } => StatusCode::NOT_FOUND,
        VersionError::Unreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
        VersionError::DataDir(_) | VersionError::Interrupted => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<VersionError> for HttpProblem {
    fn from(error: VersionError) -> Self {
        Self::new(status_of(&error), with_source(&error))
    }
}

impl From<OverrideError> for HttpProblem {
    fn from(error: OverrideError) -> Self {
        let status = match &error {
            OverrideError::NoSuchOverride(_) => StatusCode::NOT_FOUND,
            OverrideError::TooMany(_) | OverrideError::TooLarge => StatusCode::UNPROCESSABLE_ENTITY,
            OverrideError::Unreadable(_) | OverrideError::Contended => StatusCode::CONFLICT,
            OverrideError::Shared(_) => StatusCode::SERVICE_UNAVAILABLE,
            OverrideError::NotKept(error) => not_kept(error),
        };
        Self::new(status, with_source(&error))
    }
}

fn not_kept(error: &DataDirError) -> StatusCode {
    match error {
        DataDirError::Full { .. } => StatusCode::INSUFFICIENT_STORAGE,
        DataDirError::Denied { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<ResetError> for HttpProblem {
    fn from(error: ResetError) -> Self {
        let status = match &error {
            ResetError::NoSuchRule { .. } => StatusCode::NOT_FOUND,
            ResetError::WhoIsMissing { .. } | ResetError::NoCounter { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<FeedbackError> for HttpProblem {
    fn from(error: FeedbackError) -> Self {
        let status = match &error {
            FeedbackError::NoSuchRule { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.to_string())
    }
}

impl From<tidegate::StoreError> for HttpProblem {
    fn from(error: tidegate::StoreError) -> Self {
        Self::busy(error.to_string())
    }
}

/// The error with its sources.
fn with_source(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = inner.source();
    }
    text
}
