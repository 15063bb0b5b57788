//! Maps a path and a method to a call.

use http::Method;

use crate::problem::HttpProblem;

/// A call of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiCall<'p> {
    Check,
    CheckBatch,
    Explain,
    Authorize,
    ListRules,
    ReplaceRules,
    CreateRule,
    GetRule(&'p str),
    PutRule(&'p str),
    DeleteRule(&'p str),
    ValidateRule(&'p str),
    History,
    RulesVersion(&'p str),
    RulesDiff,
    RollBack,
    ListOverrides,
    ListOverridesOf(&'p str),
    PutOverride(&'p str),
    DeleteOverride(&'p str, &'p str),
    Reset,
    Feedback,
    ReleaseLease(&'p str),
    RenewLease(&'p str),
    ConsoleFile(&'p str),
    ConsoleRedirect,
    Root,
    MakeCode,
    OpenSession,
    ShowSession,
    EndSession,
    Health,
    Readiness,
    Metrics,
    OpenApi,
    Status,
    Activity,
    ActivityStream,
    RuleKeys(&'p str),
}

impl ApiCall<'_> {
    /// Whether it is answered without a token, also where tokens are configured.
    pub(crate) fn never_needs_token(self) -> bool {
        matches!(
            self,
            Self::Authorize
                | Self::Health
                | Self::Readiness
                | Self::Metrics
                | Self::OpenApi
                | Self::OpenSession
                | Self::ConsoleFile(_)
                | Self::ConsoleRedirect
        )
    }
}

/// The path of the call that is made for each request of a client.
pub(super) const CHECK: &str = "/v1/check";

/// The path of the one call whose reply does not end.
pub(super) const ACTIVITY_STREAM: &str = "/v1/activity/stream";

/// The call that a method and a path name.
pub(crate) fn find<'p>(method: &Method, path: &'p str) -> Result<ApiCall<'p>, HttpProblem> {
    let (allowed, call) = match path {
        CHECK => ("POST", post(method, ApiCall::Check)),
        "/v1/check/batch" => ("POST", post(method, ApiCall::CheckBatch)),
        "/v1/explain" => ("POST", post(method, ApiCall::Explain)),
        // Any method: a proxy uses its client's, or its own.
        "/v1/authorize" => ("", Some(ApiCall::Authorize)),
        "/v1/rules" => (
            "GET, HEAD, POST, PUT",
            match *method {
                Method::GET | Method::HEAD => Some(ApiCall::ListRules),
                Method::POST => Some(ApiCall::CreateRule),
                Method::PUT => Some(ApiCall::ReplaceRules),
                _ => None,
            },
        ),
        "/v1/rules/history" => ("GET, HEAD", get(method, ApiCall::History)),
        "/v1/rules/diff" => ("GET, HEAD", get(method, ApiCall::RulesDiff)),
        "/v1/rules/rollback" => ("POST", post(method, ApiCall::RollBack)),
        "/v1/overrides" => ("GET, HEAD", get(method, ApiCall::ListOverrides)),
        "/v1/reset" => ("POST", post(method, ApiCall::Reset)),
        "/v1/feedback" => ("POST", post(method, ApiCall::Feedback)),
        "/v1/activity" => ("GET, HEAD", get(method, ApiCall::Activity)),
        ACTIVITY_STREAM => ("GET, HEAD", get(method, ApiCall::ActivityStream)),
        "/v1/status" => ("GET, HEAD", get(method, ApiCall::Status)),
        "/" if matches!(*method, Method::GET | Method::HEAD) => ("GET, HEAD", Some(ApiCall::Root)),
        "/console" => ("GET, HEAD", get(method, ApiCall::ConsoleRedirect)),
        "/v1/console/code" => ("POST", post(method, ApiCall::MakeCode)),
        "/v1/console/session" => (
            "DELETE, GET, HEAD, POST",
            match *method {
                Method::GET | Method::HEAD => Some(ApiCall::ShowSession),
                Method::POST => Some(ApiCall::OpenSession),
                Method::DELETE => Some(ApiCall::EndSession),
                _ => None,
            },
        ),
        "/healthz" => ("GET, HEAD", get(method, ApiCall::Health)),
        "/readyz" => ("GET, HEAD", get(method, ApiCall::Readiness)),
        "/metrics" => ("GET, HEAD", get(method, ApiCall::Metrics)),
        "/openapi.json" => ("GET, HEAD", get(method, ApiCall::OpenApi)),
        _ => {
            if let Some(id) = below("/v1/rules/", path) {
                let call = match *method {
                    Method::GET | Method::HEAD => Some(ApiCall::GetRule(id)),
                    Method::PUT => Some(ApiCall::PutRule(id)),
                    Method::DELETE => Some(ApiCall::DeleteRule(id)),
                    _ => None,
                };
                ("DELETE, GET, HEAD, PUT", call)
            } else if let Some(id) = keys_of(path) {
                ("GET, HEAD", get(method, ApiCall::RuleKeys(id)))
            } else if let Some(version) = below("/v1/rules/history/", path) {
                ("GET, HEAD", get(method, ApiCall::RulesVersion(version)))
            } else if let Some(id) = of_rule(path, "/validate") {
                ("POST", post(method, ApiCall::ValidateRule(id)))
            } else if let Some(id) = overrides_of(path) {
                let call = match *method {
                    Method::GET | Method::HEAD => Some(ApiCall::ListOverridesOf(id)),
                    Method::POST => Some(ApiCall::PutOverride(id)),
                    _ => None,
                };
                ("GET, HEAD, POST", call)
            } else if let Some((id, key)) = override_of(path) {
                let call = ApiCall::DeleteOverride(id, key);
                ("DELETE", (*method == Method::DELETE).then_some(call))
            } else if let Some(id) = below("/v1/leases/", path) {
                let call = match *method {
                    Method::DELETE => Some(ApiCall::ReleaseLease(id)),
                    Method::PUT => Some(ApiCall::RenewLease(id)),
                    _ => None,
                };
                ("DELETE, PUT", call)
            } else if let Some(file) = path.strip_prefix("/console/") {
                ("GET, HEAD", get(method, ApiCall::ConsoleFile(file)))
            } else {
                return Err(no_such_call(path));
            }
        }
    };
    call.ok_or_else(|| HttpProblem::method_not_allowed(method, path, allowed))
}

pub(super) fn no_such_call(path: &str) -> HttpProblem {
    HttpProblem::not_found(format!(
        "there is no call `{path}`; `/openapi.json` lists the calls"
    ))
}

fn get<'p>(method: &Method, call: ApiCall<'p>) -> Option<ApiCall<'p>> {
    matches!(*method, Method::GET | Method::HEAD).then_some(call)
}

fn post<'p>(method: &Method, call: ApiCall<'p>) -> Option<ApiCall<'p>> {
    (*method == Method::POST).then_some(call)
}

/// The id of the rule that a call about one rule names.
fn of_rule<'p>(path: &'p str, call: &str) -> Option<&'p str> {
    let rest = path.strip_suffix(call)?;
    below("/v1/rules/", rest).filter(|id| *id != "history")
}

/// The rule whose temporary overrides are meant.
fn overrides_of(path: &str) -> Option<&str> {
    below("/v1/rules/", path.strip_suffix("/overrides")?)
}

/// The rule and the key of one temporary override, still percent-encoded.
fn override_of(path: &str) -> Option<(&str, &str)> {
    let (of, key) = path.rsplit_once('/')?;
    let id = overrides_of(of)?;
    (!key.is_empty()).then_some((id, key))
}

/// The one segment below a prefix.
fn below<'p>(prefix: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (!rest.is_empty() && !rest.contains('/')).then_some(rest)
}

/// The rule in `/v1/rules/{id}/keys`.
fn keys_of(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/v1/rules/")?.strip_suffix("/keys")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
