//! The table of routes: every call of the API with its scope, the size of its body, and its handler.
//!
//! Dispatch, 405 with `Allow`, access control and the bounds of bodies follow from it, and the tests compare it with
//! `openapi.json`. A new call is a row here and an operation there.

use std::future::ready;
use std::pin::Pin;

use http::request::Parts;
use http::{Method, Response};
use http_body_util::Either;

use super::ApiBody;
use super::body::{self, LARGE, SMALL, TINY, UNREAD};
use super::call::ApiCall;
use super::{
    activity, activity_stream, check, console, counters, explain, feedback, healthcheck, history,
    overrides, probes, promote, rate_limit_json, reservations, rules, status, validate,
};
use crate::access::CallScope::{AnyToken, Check, Feedback, Open, Probe, Read, Write};
use crate::access::{Access, CallScope, Caller};
use crate::config::Config;
use crate::problem::{ApiReply, HttpProblem};
use ApiHandler::Boxed;

/// One call of the API.
#[derive(Clone, Copy)]
pub(super) struct ApiRoute {
    /// A `GET` answers `HEAD` too.
    pub(super) method: &'static str,
    /// `{…}` stands for one segment, and `{…*}` for the rest of the path, which may be empty.
    pub(super) path: &'static str,
    pub(super) scope: CallScope,
    /// The largest body, in bytes.
    pub(super) body: usize,
    pub(super) handler: ApiHandler,
}

/// The handler of a call.
#[derive(Clone, Copy)]
pub(super) enum ApiHandler {
    /// `POST /v1/check`. Made for each request of a client, so its future is not boxed.
    Check,
    /// `/v1/authorize`, likewise. A proxy sends its client's method, or its own.
    Authorize,
    /// Every other call.
    Boxed(fn(ApiCall) -> ApiFuture),
}

/// The answer of a handler, which may take a while.
pub(super) type ApiFuture =
    Pin<Box<dyn Future<Output = Result<Response<ApiBody>, HttpProblem>> + Send>>;

/// The method of a call that answers to every method.
pub(super) const ANY: &str = "any";

const CHECK: ApiRoute = route("POST", "/v1/check", Check, body::CHECK, ApiHandler::Check);

/// All calls. The first path that matches counts, so a path without `{…}` is above those that match it too.
#[rustfmt::skip]
pub(super) static ROUTES: [ApiRoute; 46] = [
    CHECK,
    route(ANY,      "/v1/authorize",                        Open,     TINY,   ApiHandler::Authorize),
    route("POST",   "/v1/check/batch",                      Check,    SMALL,  Boxed(|call| whole(check::batch(call)))),
    route("DELETE", "/v1/leases/{id}",                      Check,    TINY,   Boxed(|call| whole(counters::release(call)))),
    route("PUT",    "/v1/leases/{id}",                      Check,    TINY,   Boxed(|call| whole(counters::renew(call)))),
    route("POST",   "/v1/reserve",                          Check,    body::CHECK, Boxed(|call| whole(reservations::reserve(call)))),
    route("POST",   "/v1/reservations/{id}/settle",         Check,    TINY,   Boxed(|call| whole(reservations::settle(call)))),
    route("DELETE", "/v1/reservations/{id}",                Check,    TINY,   Boxed(|call| whole(reservations::cancel(call)))),
    route("PUT",    "/v1/reservations/{id}",                Check,    TINY,   Boxed(|call| whole(reservations::extend(call)))),
    route("GET",    "/v1/reservations/{id}",                Read,     UNREAD, Boxed(|call| whole(reservations::look(call)))),
    route("POST",   "/v1/feedback",                         Feedback, SMALL,  Boxed(|call| whole(feedback::feedback(call)))),
    route("POST",   "/v1/explain",                          Read,     SMALL,  Boxed(|call| whole(explain::explain(call)))),
    route("GET",    "/v1/rules",                            Read,     UNREAD, Boxed(|call| now(rules::list(&call)))),
    route("POST",   "/v1/rules",                            Write,    LARGE,  Boxed(|call| whole(rules::create(call)))),
    route("PUT",    "/v1/rules",                            Write,    LARGE,  Boxed(|call| whole(rules::replace(call)))),
    route("GET",    "/v1/rules/history",                    Read,     UNREAD, Boxed(|call| whole(history::list(call)))),
    route("GET",    "/v1/rules/diff",                       Read,     UNREAD, Boxed(|call| whole(history::diff(call)))),
    route("POST",   "/v1/rules/rollback",                   Write,    SMALL,  Boxed(|call| whole(history::roll_back(call)))),
    route("GET",    "/v1/rules/{id}",                       Read,     UNREAD, Boxed(|call| now(rules::get(&call)))),
    route("PUT",    "/v1/rules/{id}",                       Write,    LARGE,  Boxed(|call| whole(rules::put(call)))),
    route("DELETE", "/v1/rules/{id}",                       Write,    UNREAD, Boxed(|call| whole(rules::delete(call)))),
    route("GET",    "/v1/rules/{id}/keys",                  Read,     UNREAD, Boxed(|call| whole(activity::keys(call)))),
    route("GET",    "/v1/rules/history/{version}",          Read,     UNREAD, Boxed(|call| whole(history::version(call)))),
    route("POST",   "/v1/rules/{id}/promote",               Write,    TINY,   Boxed(|call| whole(promote::promote(call)))),
    route("POST",   "/v1/rules/{id}/validate",              Read,     SMALL,  Boxed(|call| whole(validate::validate(call)))),
    route("GET",    "/v1/rules/{id}/overrides",             Read,     UNREAD, Boxed(|call| now(overrides::list_of_rule(&call)))),
    route("POST",   "/v1/rules/{id}/overrides",             Write,    SMALL,  Boxed(|call| whole(overrides::put(call)))),
    route("DELETE", "/v1/rules/{id}/overrides/{key}",       Write,    UNREAD, Boxed(|call| whole(overrides::delete(call)))),
    route("GET",    "/v1/overrides",                        Read,     UNREAD, Boxed(|call| now(overrides::list(&call)))),
    route("POST",   "/v1/reset",                            Write,    SMALL,  Boxed(|call| whole(counters::reset(call)))),
    route("GET",    "/v1/activity",                         Read,     UNREAD, Boxed(|call| whole(activity::activity(call)))),
    route("GET",    "/v1/activity/stream",                  Read,     UNREAD, Boxed(|call| Box::pin(ready(activity_stream::open(&call))))),
    route("GET",    "/v1/denied",                           Read,     UNREAD, Boxed(|call| whole(activity::denied(call)))),
    route("GET",    "/v1/clients",                          Read,     UNREAD, Boxed(|call| whole(activity::clients(call)))),
    route("GET",    "/v1/status",                           Read,     UNREAD, Boxed(|call| whole(status::status(call)))),
    route("POST",   "/v1/console/code",                     Read,     TINY,   Boxed(|call| whole(console::make_code(call)))),
    route("GET",    "/v1/console/session",                  AnyToken, UNREAD, Boxed(|call| now(console::show_session(&call)))),
    route("POST",   "/v1/console/session",                  Open,     TINY,   Boxed(|call| whole(console::open_session(call)))),
    route("DELETE", "/v1/console/session",                  AnyToken, TINY,   Boxed(|call| whole(console::end_session(call)))),
    route("GET",    "/healthz",                             Probe,    TINY,   Boxed(|_| now(Ok(probes::health())))),
    route("GET",    "/readyz",                              Probe,    TINY,   Boxed(|call| whole(probes::readiness(call)))),
    route("GET",    "/metrics",                             Open,     TINY,   Boxed(|call| whole(probes::metrics(call)))),
    route("GET",    "/openapi.json",                        Open,     TINY,   Boxed(|call| now(Ok(probes::openapi(&call))))),
    route("GET",    "/console",                             Open,     TINY,   Boxed(|_| now(Ok(console::redirect())))),
    route("GET",    "/console/{file*}",                     Open,     TINY,   Boxed(|call| now(console::file(&call)))),
    route(ANY,      "/",                                    Open,     UNREAD, Boxed(|call| now(console::redirect_browser(&call)))),
];

/// The calls that a server has besides while it runs in place of envoyproxy/ratelimit, whose clients have no tokens.
#[rustfmt::skip]
static ENVOY_RATELIMIT: [ApiRoute; 2] = [
    route(ANY,      "/healthcheck",                         Probe,    TINY,   Boxed(|call| whole(healthcheck::check(call)))),
    // Its own limit of the body answers as envoyproxy/ratelimit does.
    route(ANY,      "/json",                                Open,     UNREAD, Boxed(|call| whole(rate_limit_json::answer(call)))),
];

const fn route(
    method: &'static str,
    path: &'static str,
    scope: CallScope,
    body: usize,
    handler: ApiHandler,
) -> ApiRoute {
    ApiRoute {
        method,
        path,
        scope,
        body,
        handler,
    }
}

/// The answer of a handler that may wait.
fn whole(
    answering: impl Future<Output = Result<ApiReply, HttpProblem>> + Send + 'static,
) -> ApiFuture {
    Box::pin(async { Ok(answering.await?.map(Either::Left)) })
}

/// The answer of a handler that does not wait.
fn now(answer: Result<ApiReply, HttpProblem>) -> ApiFuture {
    Box::pin(ready(answer.map(|reply| reply.map(Either::Left))))
}

impl ApiRoute {
    /// The caller, if it may make this call. The only access check of the API.
    pub(super) fn admit(&self, access: &Access, parts: &Parts) -> Result<Caller, HttpProblem> {
        access.may_call(self.scope, parts)
    }

    /// Whether it is made by operators and pages, not for requests of clients.
    pub(super) fn is_of_operator(&self) -> bool {
        matches!(self.scope, Read | Write | AnyToken)
    }

    /// Whether services and their platform make it: decisions, feedback about them, and probes.
    fn is_of_service(&self) -> bool {
        matches!(self.scope, Check | Feedback | Probe)
            || matches!(self.handler, ApiHandler::Authorize)
    }

    /// Whether it is answered only where there is a console.
    pub(super) fn is_of_console(&self) -> bool {
        self.path.starts_with("/console") || self.path.starts_with("/v1/console/")
    }

    fn answers(&self, method: &Method) -> bool {
        let method = match *method {
            Method::HEAD => "GET",
            _ => method.as_str(),
        };
        self.method == ANY || self.method == method
    }
}

/// The calls that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedCalls {
    All,
    /// Those of services; the admin listener serves all.
    OfServices,
    /// Those of envoyproxy/ratelimit.
    OfEnvoyRatelimit,
    /// Those of envoyproxy/ratelimit, and all others: there is a token for them.
    AllWithEnvoyRatelimit,
    /// Those of envoyproxy/ratelimit, and those of services: there is a token, and an admin listener.
    OfServicesWithEnvoyRatelimit,
}

impl ServedCalls {
    /// The calls on the HTTP port.
    pub(crate) fn on_http(config: &Config) -> Self {
        match (config.envoy_ratelimit, config.admin) {
            (Some(_), _) if config.tokens.is_empty() => Self::OfEnvoyRatelimit,
            (Some(_), Some(_)) => Self::OfServicesWithEnvoyRatelimit,
            (Some(_), None) => Self::AllWithEnvoyRatelimit,
            (None, Some(_)) => Self::OfServices,
            (None, None) => Self::All,
        }
    }

    fn has(self, route: &ApiRoute) -> bool {
        match self {
            Self::All | Self::AllWithEnvoyRatelimit => true,
            Self::OfServices | Self::OfServicesWithEnvoyRatelimit => route.is_of_service(),
            Self::OfEnvoyRatelimit => route.path == "/healthz",
        }
    }

    /// The call of envoyproxy/ratelimit with this path, if it is served.
    fn of_envoy_ratelimit(self, path: &str) -> Option<&'static ApiRoute> {
        let mut routes = ENVOY_RATELIMIT
            .iter()
            .filter(|_| !matches!(self, Self::All | Self::OfServices));
        routes.find(|route| route.path == path)
    }

    fn no_such_call(self, path: &str) -> HttpProblem {
        match self {
            Self::All | Self::AllWithEnvoyRatelimit => no_such_call(path),
            Self::OfEnvoyRatelimit => HttpProblem::not_found(format!(
                "`{path}` is not served here: without a token, this address has only what envoyproxy/ratelimit has; set TIDEGATE_TOKEN or `tokens`"
            )),
            Self::OfServices | Self::OfServicesWithEnvoyRatelimit => {
                HttpProblem::not_found(format!(
                    "`{path}` is not served here: this address has checks, `/v1/authorize` and probes only; all other calls are on the admin listener, whose address is the setting `admin`"
                ))
            }
        }
    }
}

/// The route of a call, and the values of the `{…}` in its path.
pub(super) fn find<'p>(
    calls: ServedCalls,
    method: &Method,
    path: &'p str,
) -> Result<(&'static ApiRoute, [&'p str; 2]), HttpProblem> {
    // In front of the table, because it is called for each request of a client.
    if path == CHECK.path && *method == Method::POST && calls.has(&CHECK) {
        return Ok((&CHECK, [""; 2]));
    }
    if let Some(route) = calls.of_envoy_ratelimit(path) {
        return Ok((route, [""; 2]));
    }
    let matching = |route: &ApiRoute| Some((route.path, names(route.path, path)?));
    let served = ROUTES.iter().filter(|route| calls.has(route));
    let found = served.clone().find_map(matching);
    let (pattern, names) = found.ok_or_else(|| calls.no_such_call(path))?;
    let same_path = served.filter(|route| route.path == pattern);
    let mut everywhere = ROUTES.iter().filter(|route| route.path == pattern);
    match same_path.clone().find(|route| route.answers(method)) {
        Some(route) => Ok((route, names)),
        // A call of another listener is not here, even if its path has calls that are.
        None if everywhere.any(|route| route.answers(method)) => Err(calls.no_such_call(path)),
        None => Err(HttpProblem::method_not_allowed(
            method,
            path,
            &allowed(same_path),
        )),
    }
}

/// The methods of routes, as in `Allow`.
fn allowed<'r>(routes: impl Iterator<Item = &'r ApiRoute>) -> String {
    let mut methods: Vec<&str> = routes.map(|route| route.method).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    methods.join(", ")
}

/// The values of the `{…}` of a pattern, if the path matches it.
fn names<'p>(pattern: &str, path: &'p str) -> Option<[&'p str; 2]> {
    let mut names = [""; 2];
    let (mut pattern, mut path) = (pattern, path);
    for name in &mut names {
        let Some((before, rest)) = pattern.split_once('{') else {
            break;
        };
        let (kind, after) = rest.split_once('}')?;
        path = path.strip_prefix(before)?;
        let is_rest = kind.ends_with('*');
        let length = path.find('/').filter(|_| !is_rest).unwrap_or(path.len());
        if length == 0 && !is_rest {
            return None;
        }
        (*name, path) = path.split_at(length);
        pattern = after;
    }
    (path == pattern).then_some(names)
}

pub(super) fn no_such_call(path: &str) -> HttpProblem {
    HttpProblem::not_found(format!(
        "there is no call `{path}`; `/openapi.json` lists the calls"
    ))
}

#[cfg(test)]
mod tests;
