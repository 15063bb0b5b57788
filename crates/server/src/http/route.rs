//! Which call a path is, and which methods it answers to.

use http::Method;

use crate::problem::Problem;

/// A call of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call<'p> {
    Check,
    CheckBatch,
    Authorize,
    ListRules,
    ReplaceRules,
    CreateRule,
    GetRule(&'p str),
    PutRule(&'p str),
    DeleteRule(&'p str),
    History,
    RollBack,
    Reset,
    Feedback,
    ReleaseLease(&'p str),
    RenewLease(&'p str),
    Health,
    Readiness,
    Metrics,
    OpenApi,
}

/// The call that a method and a path name.
pub(crate) fn find<'p>(method: &Method, path: &'p str) -> Result<Call<'p>, Problem> {
    let (allowed, call) = match path {
        "/v1/check" => ("POST", post(method, Call::Check)),
        "/v1/check/batch" => ("POST", post(method, Call::CheckBatch)),
        // The proxy's own method, which is that of its client or any other.
        "/v1/authorize" => ("", Some(Call::Authorize)),
        "/v1/rules" => (
            "GET, HEAD, POST, PUT",
            match *method {
                Method::GET | Method::HEAD => Some(Call::ListRules),
                Method::POST => Some(Call::CreateRule),
                Method::PUT => Some(Call::ReplaceRules),
                _ => None,
            },
        ),
        "/v1/rules/history" => ("GET, HEAD", get(method, Call::History)),
        "/v1/rules/rollback" => ("POST", post(method, Call::RollBack)),
        "/v1/reset" => ("POST", post(method, Call::Reset)),
        "/v1/feedback" => ("POST", post(method, Call::Feedback)),
        "/healthz" => ("GET, HEAD", get(method, Call::Health)),
        "/readyz" => ("GET, HEAD", get(method, Call::Readiness)),
        "/metrics" => ("GET, HEAD", get(method, Call::Metrics)),
        "/openapi.json" => ("GET, HEAD", get(method, Call::OpenApi)),
        _ => {
            if let Some(id) = below("/v1/rules/", path) {
                let call = match *method {
                    Method::GET | Method::HEAD => Some(Call::GetRule(id)),
                    Method::PUT => Some(Call::PutRule(id)),
                    Method::DELETE => Some(Call::DeleteRule(id)),
                    _ => None,
                };
                ("DELETE, GET, HEAD, PUT", call)
            } else if let Some(id) = below("/v1/leases/", path) {
                let call = match *method {
                    Method::DELETE => Some(Call::ReleaseLease(id)),
                    Method::PUT => Some(Call::RenewLease(id)),
                    _ => None,
                };
                ("DELETE, PUT", call)
            } else {
                return Err(Problem::not_found(format!(
                    "there is no call `{path}`; `/openapi.json` describes those that there are"
                )));
            }
        }
    };
    call.ok_or_else(|| Problem::method_not_allowed(method, path, allowed))
}

fn get<'p>(method: &Method, call: Call<'p>) -> Option<Call<'p>> {
    matches!(*method, Method::GET | Method::HEAD).then_some(call)
}

fn post<'p>(method: &Method, call: Call<'p>) -> Option<Call<'p>> {
    (*method == Method::POST).then_some(call)
}

/// The one segment below a prefix.
fn below<'p>(prefix: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (!rest.is_empty() && !rest.contains('/')).then_some(rest)
}
