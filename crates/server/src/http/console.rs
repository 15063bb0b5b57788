//! The console: its files, and the sessions of its pages. The pages get their data from the API.

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tidegate::rules::ALWAYS_SECRET;

use super::call::ApiCall;
use super::conditional::unless_known;
use super::query::parameters;
use super::route::no_such_call;
use super::{body, json};
use crate::access::{CODE_LIFETIME, Caller};
use crate::admin::Admin;
use crate::problem::{ApiReply, HttpProblem};

/// Everything is from this server, no text becomes code, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const FILE_HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Asked for again each time, and sent again only if it has changed.
    (CACHE_CONTROL, "no-cache"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// `GET /console/…`: a file.
pub(super) fn file(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    let [path, _] = &call.names;
    let file = tidegate_console::find(path).ok_or_else(|| {
        HttpProblem::not_found(format!(
            "the console has no file `{path}`; open `/console/`"
        ))
    })?;
    let mut reply = Response::new(Full::from(Bytes::from_static(file.bytes)));
    let media_type = HeaderValue::from_static(file.media_type);
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    if let Ok(tag) = HeaderValue::from_str(&file.etag) {
        reply.headers_mut().insert(ETAG, tag);
    }
    let mut reply = unless_known(&call.parts.headers, reply);
    for (name, value) in FILE_HEADERS {
        let value = HeaderValue::from_static(value);
        reply.headers_mut().insert(name, value);
    }
    Ok(reply)
}

/// `GET /console`: the files are below it.
pub(super) fn redirect() -> ApiReply {
    to_the_page(StatusCode::PERMANENT_REDIRECT)
}

/// `GET /`: a browser is led to the console; for programs there is nothing.
pub(super) fn redirect_browser(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    let accepted = call.parts.headers.get_all(ACCEPT).iter();
    let mut accepted = accepted.filter_map(|accepted| accepted.to_str().ok());
    let is_read = matches!(call.parts.method, Method::GET | Method::HEAD);
    let has_console = call.api.admin.has_console;
    if is_read && has_console && accepted.any(|list| list.contains("text/html")) {
        return Ok(to_the_page(StatusCode::SEE_OTHER));
    }
    Err(no_such_call("/"))
}

fn to_the_page(status: StatusCode) -> ApiReply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    let target = HeaderValue::from_static("/console/");
    reply.headers_mut().insert(LOCATION, target);
    reply
}

/// `POST /v1/console/code`: a code with which a page signs in as the caller.
pub(super) async fn make_code(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    let code = admin.decider.access.make_code(&call.parts)?;
    call.body.read_unused(&admin.decider.bodies).await?;
    let body = json!({"code": code, "expires_in": CODE_LIFETIME.ceil_seconds()});
    Ok(json(StatusCode::OK, body.to_string()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenSession {
    #[serde(default, deserialize_with = "text")]
    code: Option<String>,
}

/// A text that may be left out and not be `null`.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

/// `POST /v1/console/session`: exchanges a code, or the caller's token, for a session.
pub(super) async fn open_session(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    let body = call.body.read(&admin.decider.bodies).await?;
    let access = &admin.decider.access;
    let session = match body::parse(&body)? {
        OpenSession { code: Some(code) } => access.open_session_of_code(&call.parts, &code)?,
        OpenSession { code: None } => access.open_session_of_token(&call.parts)?,
    };
    tracing::info!(
        token = session.caller.name,
        "a session of the console was opened"
    );
    let mut body = described(admin, &session.caller);
    body["token"] = json!(session.secret);
    Ok(json(StatusCode::OK, body.to_string()))
}

/// `GET /v1/console/session`: the permissions of the caller's token.
pub(super) fn show_session(call: &ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let body = described(&call.api.admin, &call.caller);
    Ok(json(StatusCode::OK, body.to_string()))
}

/// `DELETE /v1/console/session`: signs out.
pub(super) async fn end_session(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    admin.decider.access.end_session(&call.parts);
    call.body.read_unused(&admin.decider.bodies).await?;
    Ok(super::no_content())
}

fn described(admin: &Admin, caller: &Caller) -> Value {
    let scopes: Vec<&str> = caller.scopes.iter().map(|scope| scope.name()).collect();
    let settings = admin.book.settings();
    let secret: Vec<&str> = ALWAYS_SECRET
        .into_iter()
        .chain(settings.secret_attributes.iter().map(String::as_str))
        .collect();
    json!({
        "name": caller.name,
        "scopes": scopes,
        "expires_at": caller.ends.map(|ends| ends.as_micros() / 1_000_000),
        "secret_attributes": secret,
    })
}
