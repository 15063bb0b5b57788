//! The headers of a line as the identities of clients are read from them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::read::LineRequest;

/// The headers that a line has. What cannot be a header is left out, as no server would have passed it on.
pub(super) fn headers_of(line: &LineRequest<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(line.headers.len());
    for (name, value) in &line.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}
