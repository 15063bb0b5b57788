//! The settings of a layer, shared by all services that it makes.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, request, response};
use tidegate::address::{ForwardedHeader, TrustedProxies};
use tidegate::path::EncodedSlashes;
use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{AttributeError, Attributes, Costs};

use crate::background::BackgroundRequests;
use crate::error::RequestError;
use crate::protocol::Protocol;
use crate::question::peer_in_extensions;
use crate::reply::DenialSettings;
use crate::twins::{self, UnderscoreHeaders};

type PeerAddressFn = dyn Fn(&request::Parts) -> Option<IpAddr> + Send + Sync;
type ClientAddressFn =
    dyn Fn(&request::Parts) -> Result<Option<IpAddr>, AttributeError> + Send + Sync;
type Describe = dyn for<'r> Fn(&'r request::Parts, &mut Attributes<'r>) -> Result<(), AttributeError>
    + Send
    + Sync;
type NextKeys = dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;
type CostsOfHead = dyn Fn(&response::Parts) -> Option<Costs> + Send + Sync;
type CostOfBytes = dyn Fn(u64) -> Option<u64> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) denial: DenialSettings,
    pub(crate) encoded_slashes: EncodedSlashes,
    /// Whether a request without a host is decided although a rule asks for one.
    pub(crate) allows_missing_host: bool,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) forwarded_header: ForwardedHeader,
    pub(crate) underscore_headers: UnderscoreHeaders,
    /// Headers that are read in addition to those of the rules.
    pub(crate) read_headers: Vec<HeaderName>,
    pub(crate) peer: Arc<PeerAddressFn>,
    /// Where the client's address is found, if not by the peer and the trusted proxies.
    pub(crate) client: Option<Arc<ClientAddressFn>>,
    /// Whether a request is described by the closures alone.
    pub(crate) is_bare: bool,
    pub(crate) describe: Vec<Arc<Describe>>,
    /// What a request waits for whose credentials name a key that is not known yet.
    pub(crate) next_keys: Option<Arc<NextKeys>>,
    pub(crate) front_end: FrontEnd,
    /// The protocol of replies, if it does not depend on the request.
    pub(crate) protocol: Option<Protocol>,
    /// Whether permits of concurrency limits are left to the client that gets the answer.
    pub(crate) leaves_permits: bool,
    /// Where requests that hold a permit continue when their client has left. None: they are dropped with
    /// their client.
    pub(crate) background: Option<Arc<BackgroundRequests>>,
    pub(crate) settle: Option<Arc<CostsOfHead>>,
    pub(crate) settle_bytes: Option<Arc<CostOfBytes>>,
}

impl Settings {
    /// Removes headers that the service must not see, or refuses the request.
    pub(crate) fn screen(
        &self,
        headers: &mut HeaderMap,
        rules: &RuleSet,
    ) -> Result<(), RequestError> {
        if let Some(removed) = self.forwarded_header.removed() {
            headers.remove(removed);
        }
        twins::screen(headers, self, rules)
    }

    /// Whether what requests cost is settled afterwards.
    pub(crate) fn is_settled(&self) -> bool {
        self.settle.is_some() || self.settle_bytes.is_some()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            denial: DenialSettings::default(),
            encoded_slashes: EncodedSlashes::default(),
            allows_missing_host: false,
            trusted_proxies: TrustedProxies::default(),
            forwarded_header: ForwardedHeader::default(),
            underscore_headers: UnderscoreHeaders::default(),
            read_headers: Vec::new(),
            peer: Arc::new(peer_in_extensions),
            client: None,
            is_bare: false,
            describe: Vec::new(),
            next_keys: None,
            front_end: FrontEnd::Library,
            protocol: None,
            leaves_permits: false,
            background: Some(Arc::default()),
            settle: None,
            settle_bytes: None,
        }
    }
}
