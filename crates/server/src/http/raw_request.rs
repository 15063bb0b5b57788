//! A raw request that is to be explained: what the gateway would know of it.

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use tidegate::{Attributes, address};

use super::explain_question::RawRequest;
use crate::admin::Admin;
use crate::problem::HttpProblem;

/// The attributes of a request, by the code of the gateway. What the gateway would refuse is a problem with its words.
pub(super) async fn describe(
    admin: &Admin,
    raw: &RawRequest,
) -> Result<Attributes<'static>, HttpProblem> {
    let request = built(raw)?;
    let peer = raw.address.as_deref().map(|text| {
        address::parse(text)
            .ok_or_else(|| refused("`address` must be an IPv4 or IPv6 address, without a port"))
    });
    let layer = admin.decider.limits();
    let describing = admin.screen.describe(layer, request, peer.transpose()?);
    describing.await.map_err(|error| refused(error.to_string()))
}

/// The request as it would have come.
fn built(raw: &RawRequest) -> Result<Request<()>, HttpProblem> {
    let method = Method::from_bytes(raw.method.as_bytes());
    let method = method.map_err(|_| refused("`method` must be a method such as `GET`"))?;
    let uri: Uri = raw.url.parse().map_err(|error| {
        refused(format!(
            "`url` must be a URL such as `https://api.example.com/v1/orders`, or a path: {error}"
        ))
    })?;
    let mut request = Request::new(());
    for (name, value) in &raw.headers {
        let named = HeaderName::from_bytes(name.as_bytes());
        let named = named.map_err(|_| refused("a header has a name that cannot be one"))?;
        // Without the value, which may be a secret.
        let valued = HeaderValue::from_bytes(value.as_bytes());
        let valued = valued.map_err(|_| {
            refused(format!(
                "the header `{named}` has a value that cannot be one"
            ))
        })?;
        let added = request.headers_mut().try_append(named, valued);
        added.map_err(|_| refused("there are too many headers"))?;
    }
    let has_host = uri.authority().is_some() || request.headers().contains_key(http::header::HOST);
    if !has_host {
        // Only such a request may come without a host.
        *request.version_mut() = Version::HTTP_10;
    }
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    Ok(request)
}

fn refused(detail: impl Into<String>) -> HttpProblem {
    HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}
