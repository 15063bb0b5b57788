//! The HTTP/1.1 client and the forwarding headers, for the fuzzers. Not a part of the API.

use std::net::IpAddr;

use http::HeaderMap;
use tidegate::address::TrustedProxies;
use tidegate_tower::ForwardedHeader;

use crate::forwarded::{ForwardedHeaders, Forwarding};
pub use crate::http1::fuzzing::{AnswerRefusal, ReadAnswer, read_answer};

/// The headers of a request from `peer` as the next server gets them.
pub fn forwarded(
    mut headers: HeaderMap,
    peer: IpAddr,
    trusted_proxies: &TrustedProxies,
    header: ForwardedHeader,
) -> HeaderMap {
    let forwarding = Forwarding {
        trusted_proxies,
        header,
        is_tls: false,
    };
    let written = ForwardedHeaders::new(&mut headers, peer, &forwarding);
    written.put_into(&mut headers);
    headers
}
