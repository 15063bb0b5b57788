//! Active health checks of the servers behind the gateway, if configured.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::uri::{Scheme, Uri};
use http::{HeaderValue, Request, Version};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::Gateway;
use crate::capacity::Shortage;
use crate::connect::{Connected, send_http2};
use crate::request_body::RequestBody;
use crate::settings::HealthConfig;
use crate::upstream::Upstream;
use crate::upstream_url::UpstreamScheme;

/// The timeout of a check.
const LONGEST: Duration = Duration::from_secs(5);

/// Checks all servers, for ever.
pub async fn check_all(gateway: Arc<Gateway>) {
    let Some(health) = gateway.health.clone() else {
        return;
    };
    let mut checks = JoinSet::new();
    for upstream in &gateway.upstreams {
        let (gateway, upstream, health) =
            (Arc::clone(&gateway), Arc::clone(upstream), health.clone());
        checks.spawn(async move {
            let mut times = interval(health.interval);
            times.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                times.tick().await;
                let patience = health.interval.clamp(Duration::from_millis(100), LONGEST);
                let asked = timeout(patience, is_well(&gateway, &upstream, &health)).await;
                if let Some(is_well) = asked.unwrap_or(Some(false)) {
                    upstream.health.checked(is_well);
                }
            }
        });
    }
    while checks.join_next().await.is_some() {}
}

/// Whether a server answers with 2xx or 3xx; `None` if this process could not check.
async fn is_well(gateway: &Gateway, upstream: &Upstream, health: &HealthConfig) -> Option<bool> {
    match gateway.connector.connect(upstream, false, None).await {
        Ok(connected) => Some(answers_well(connected, upstream, health).await),
        Err(error) => Shortage::from_error(&error).is_none().then_some(false),
    }
}

async fn answers_well(connected: Connected, upstream: &Upstream, health: &HealthConfig) -> bool {
    let mut request = Request::new(RequestBody::None);
    let agent = HeaderValue::from_static("tidegate-health");
    request.headers_mut().insert(USER_AGENT, agent);
    let Ok(mut uri) = health.path.parse::<Uri>().map(Uri::into_parts) else {
        return false;
    };
    if matches!(connected, Connected::Http2(_)) {
        let is_tls = upstream.url.scheme == UpstreamScheme::Https;
        uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(upstream.url.authority.clone());
        *request.version_mut() = Version::HTTP_2;
    } else if let Some(host) = &upstream.host {
        request.headers_mut().insert(HOST, host.clone());
    }
    let Ok(uri) = Uri::from_parts(uri) else {
        return false;
    };
    *request.uri_mut() = uri;
    let status = match connected {
        Connected::Http1(mut connection) => {
            let (head, body) = request.into_parts();
            connection.begin(&head, None, None, body);
            let answer = poll_fn(|cx| connection.poll_answer(cx)).await;
            answer.ok().map(|head| head.status)
        }
        Connected::Http2(mut sender) => {
            let answer = send_http2(&mut sender, request).await;
            answer.ok().map(|answer| answer.status())
        }
    };
    status.is_some_and(|status| status.is_success() || status.is_redirection())
}
