//! Identifies clients: where the address, key, name and tier of a client come from, for the front ends that decide
//! proxied requests.
//!
//! `source.rs` reads values from a request, in the normal form of `spelling.rs`; `tokens.rs` verifies signed
//! tokens, `clients.rs` has the attributes of keys. Only the attributes in the setting `identify` are set.

#![forbid(unsafe_code)]

mod challenge;
mod clients;
mod cookies;
mod error;
mod fetch;
mod jwks_url;
mod kept_files;
mod keys;
mod known_request;
mod metrics;
mod remote_keys;
mod secret;
mod settings;
mod source;
mod spelling;
mod tokens;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::address::{self, ForwardedHeader, TrustedProxies};
use tidegate::{AttributeError, Attributes, CredentialProblem};
use tidegate_listen::TlsError;

use challenge::challenge;
use clients::{ClientRecord, Clients};
pub use error::IdentityError;
pub use jwks_url::parse_jwks_url;
pub use kept_files::KeptFiles;
use known_request::{ClientOfRequest, FoundAttribute, KnownRequest};
use remote_keys::RemoteKeys;
pub use secret::Secret;
pub use settings::{AttributeSource, IdentifySettings, JwtKey, JwtSettings};
pub use source::{FoundValue, Several, parameter};
use tokens::{Refusals, Tokens};

/// The attribute by which clients are found in their table.
const API_KEY: &str = "api_key";

/// Identifies clients by their requests. By default a client is known by its address alone.
#[derive(Default)]
pub struct Identity {
    /// Where the key comes from.
    api_key: Vec<AttributeSource>,
    /// All other attributes.
    others: Vec<(Cow<'static, str>, Vec<AttributeSource>)>,
    address_headers: Vec<HeaderName>,
    trusted_proxies: TrustedProxies,
    forwarded_header: ForwardedHeader,
    tokens: Option<Tokens>,
    clients: Option<ClientTable>,
    /// Whether a key that is not in the table is invalid.
    is_clients_complete: bool,
}

/// The table of clients, and where it comes from.
struct ClientTable {
    file: PathBuf,
    clients: ArcSwap<Clients>,
}

impl Identity {
    /// Reads the files that the settings name. Waits for the disk.
    pub fn open(
        settings: &IdentifySettings,
        trusted_proxies: TrustedProxies,
    ) -> Result<Self, IdentityError> {
        let clients = match &settings.clients_file {
            Some(file) => Some(ClientTable {
                file: file.clone(),
                clients: ArcSwap::from_pointee(Clients::read(file)?),
            }),
            None => None,
        };
        let tokens = settings.jwt.clone();
        let tokens = tokens.map(Tokens::open).transpose()?;
        let (mut api_key, mut others) = (Vec::new(), Vec::new());
        for (name, sources) in &settings.attributes {
            match name.as_str() {
                API_KEY => api_key.clone_from(sources),
                "user_id" => others.push(("user_id".into(), sources.clone())),
                "tier" => others.push(("tier".into(), sources.clone())),
                other => others.push((other.to_owned().into(), sources.clone())),
            }
        }
        Ok(Self {
            api_key,
            others,
            address_headers: settings.ip.clone(),
            trusted_proxies,
            forwarded_header: settings.forwarded_header,
            tokens,
            clients,
            is_clients_complete: settings.clients_complete,
        })
    }

    /// The attributes that are read from requests, each with its sources.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &[AttributeSource])> {
        let others = self.others.iter();
        let others = others.map(|(name, sources)| (&**name, &sources[..]));
        std::iter::once((API_KEY, &self.api_key[..])).chain(others)
    }

    /// The headers that are read in addition to those of the rules.
    pub fn headers(&self) -> Vec<HeaderName> {
        let others = self.others.iter().flat_map(|(_, sources)| sources);
        let token = self.tokens.iter().map(Tokens::from);
        let sources = self.api_key.iter().chain(others).chain(token);
        let names = sources.filter_map(|source| match source {
            AttributeSource::Header(name) => Some(name),
            _ => None,
        });
        names.chain(&self.address_headers).cloned().collect()
    }

    /// How a client is asked for each attribute that identifies it: the value of `WWW-Authenticate`.
    pub fn challenges(&self) -> Vec<(String, HeaderValue)> {
        let api_key = std::iter::once((API_KEY, &self.api_key));
        let others = self.others.iter();
        let others = others.map(|(name, sources)| (name.as_ref(), sources));
        let all = api_key
            .chain(others)
            .filter(|(_, sources)| !sources.is_empty());
        all.map(|(name, sources)| (name.to_owned(), challenge(sources, &self.api_key)))
            .collect()
    }

    /// Adds the attributes of the client that sent a request with these headers and this query.
    ///
    /// Fails for a request with two different values for one attribute: the service behind may use either of
    /// them. An attribute whose credentials are not valid is [refused](Attributes::refuse). If a key of a token
    /// is unknown that may be fetched now, the attributes [await it](Attributes::awaits_key).
    pub fn describe<'r>(
        &self,
        headers: &'r HeaderMap,
        query: Option<&'r str>,
        attributes: &mut Attributes<'r>,
    ) -> Result<(), AttributeError> {
        let mut known = KnownRequest::new(self, headers, query);
        match known.first(API_KEY, &self.api_key)? {
            FoundAttribute::Value(key) => {
                let table = self.clients.as_ref();
                match table.map(|table| table.find(key.as_bytes())) {
                    None => attributes.set(API_KEY, key)?,
                    Some(Some(client)) => {
                        known.client = ClientOfRequest::Known(client);
                        attributes.set(API_KEY, key)?;
                    }
                    Some(None) if self.is_clients_complete => {
                        let problem = CredentialProblem::Invalid;
                        known.client = ClientOfRequest::Refused(problem);
                        attributes.refuse(API_KEY, problem);
                    }
                    // Ignored: each invented key would get a limit of its own.
                    Some(None) => {}
                }
            }
            FoundAttribute::Refused(problem) => {
                attributes.refuse(API_KEY, problem);
                known.client = ClientOfRequest::Refused(problem);
            }
            FoundAttribute::Nothing => {}
        }
        for (name, sources) in &self.others {
            match known.first(name, sources)? {
                FoundAttribute::Value(value) => attributes.set(name.clone(), value)?,
                FoundAttribute::Refused(problem) => {
                    attributes.refuse(name.clone(), problem);
                }
                FoundAttribute::Nothing => {}
            }
        }
        if known.awaits_key() {
            attributes.await_key();
        }
        Ok(())
    }

    /// Whether the table of clients has this key.
    pub fn knows_key(&self, key: &str) -> bool {
        let table = self.clients.as_ref();
        table.is_some_and(|table| table.find(key.as_bytes()).is_some())
    }

    /// The keys in the table of clients that are meant, read from its file again because only their hashes stay in
    /// memory. Without those that the file has as hashes; none if it cannot be read. Waits for the disk.
    pub fn find_keys(&self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let found = self.clients.as_ref();
        let found = found.map(|table| Clients::find_keys(&table.file, is_meant));
        match found {
            Some(Ok(keys)) => keys,
            None | Some(Err(_)) => Vec::new(),
        }
    }

    /// Whether this peer is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.is_trusted(peer)
    }

    /// The trusted proxies.
    pub fn trusted_proxies(&self) -> &TrustedProxies {
        &self.trusted_proxies
    }

    /// Which of the headers that name a client is read.
    pub fn forwarded_header(&self) -> ForwardedHeader {
        self.forwarded_header
    }

    /// The address of the client of a request from `peer` with these headers: the peer's own, unless it is a
    /// trusted proxy that names another.
    pub fn client_address(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<IpAddr, AttributeError> {
        if !self.trusts(peer) {
            return Ok(address::canonical(peer));
        }
        self.client_by(&self.trusted_proxies, peer, headers)
    }

    /// The same for a peer that is trusted, whatever its address.
    pub fn client_behind(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<IpAddr, AttributeError> {
        self.client_by(&self.trusted_proxies.with(peer), peer, headers)
    }

    fn client_by(
        &self,
        proxies: &TrustedProxies,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<IpAddr, AttributeError> {
        let mut values = self
            .address_headers
            .iter()
            .flat_map(|name| headers.get_all(name))
            .map(|value| value.as_bytes().trim_ascii())
            .filter(|value| !value.is_empty());
        let Some(first) = values.next() else {
            let values = |name| headers.get_all(name).iter().collect();
            return Ok(proxies.client_by(self.forwarded_header, peer, values)?);
        };
        let parsed = |value: &[u8]| str::from_utf8(value).ok().and_then(address::parse);
        let address = parsed(first);
        let is_same = |value: &[u8]| match (address, parsed(value)) {
            (Some(one), Some(other)) => one == other,
            _ => value == first,
        };
        if !values.all(is_same) {
            let name = "ip".to_owned();
            return Err(AttributeError::Contradiction { name });
        }
        // A value that is not an address is ignored.
        Ok(address.unwrap_or_else(|| address::canonical(peer)))
    }

    /// Reloads the files. An unusable file keeps the previous content. Waits for the disk.
    pub fn reload(&self) {
        if let Some(table) = &self.clients {
            match Clients::read(&table.file) {
                Ok(clients) => {
                    let count = clients.len();
                    table.clients.store(Arc::new(clients));
                    // Logged once it is in force, so that the log can be relied on.
                    tracing::info!(clients = count, "the table of clients was read again");
                }
                Err(error) => tracing::error!("the table of clients stays as it was: {error}"),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.reload() {
                // Logged when they have been fetched.
                Ok(()) if tokens.remote().is_some() => {}
                Ok(()) => tracing::info!("the keys of tokens were read again"),
                Err(error) => tracing::error!("the keys of tokens stay as they were: {error}"),
            }
        }
    }

    /// Reads the authorities again that are trusted for the keys of tokens, if keys are fetched. After an error the
    /// previous ones stay in use.
    pub fn reload_authorities(&self) -> Result<(), TlsError> {
        match self.tokens.as_ref().and_then(Tokens::remote) {
            Some(remote) => remote.reload_authorities(),
            None => Ok(()),
        }
    }

    /// Fetches the keys of tokens for the first time, if configured. Returns the time until the next fetch.
    pub async fn first_fetch(&self, data: Option<&Arc<dyn KeptFiles>>) -> Duration {
        match &self.tokens {
            Some(tokens) => tokens.first_fetch(data).await,
            None => Duration::MAX,
        }
    }

    /// Fetches them for ever, `next` from now for the first time. Never returns.
    pub async fn keep_fetching(&self, next: Duration, data: Option<&Arc<dyn KeptFiles>>) {
        match &self.tokens {
            Some(tokens) => tokens.keep_fetching(next, data).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the keys of tokens have been fetched because a token names an unknown one, for a second at
    /// most. Does not wait if they were fetched for that reason a short time ago.
    pub async fn next_keys(&self) {
        if let Some(remote) = self.tokens.as_ref().and_then(Tokens::remote) {
            remote.next_attempt().await;
        }
    }

    /// Whether tokens cannot be verified, because no key was ever loaded.
    pub fn lacks_keys(&self) -> bool {
        self.tokens.as_ref().is_some_and(Tokens::lacks_keys)
    }

    /// How often the keys of tokens were fetched, and how often that failed; `None` if they are not fetched.
    pub fn fetches(&self) -> Option<(u64, u64)> {
        let remote = self.tokens.as_ref().and_then(Tokens::remote);
        remote.map(RemoteKeys::fetches)
    }

    /// A warning for `/readyz`, if there is a problem.
    pub fn warnings(&self) -> Option<String> {
        let remote = self.tokens.as_ref().and_then(Tokens::remote);
        remote.and_then(RemoteKeys::warning)
    }

    /// How often tokens were refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let refusals = self.tokens.iter().map(|tokens| &tokens.refusals);
        refusals.flat_map(Refusals::iter)
    }
}

impl ClientTable {
    fn find(&self, key: &[u8]) -> Option<ClientRecord> {
        self.clients.load().find(key)
    }
}
