//! Who a client is: where its address, its key, its name and its tier come from, for every front end
//! that is asked on behalf of others.
//!
//! `source.rs` finds what a request says, in the one form that `spelling.rs` reads; `tokens.rs` believes
//! what is signed, `clients.rs` knows what belongs to a key. What is not asked for in the setting
//! `identify` is not known.

mod clients;
mod cookies;
mod error;
mod fetch;
mod jwks_url;
mod kept_files;
mod keys;
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
use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};
use tidegate::address::{self, ForwardedHeader, TrustedProxies};
use tidegate::{AttributeError, AttributeValue, Attributes};

use clients::{ClientRecord, Clients};
pub use error::IdentityError;
pub use fetch::ClientTls;
pub use jwks_url::JwksUrl;
pub use kept_files::KeptFiles;
use remote_keys::RemoteKeys;
pub use secret::Secret;
pub use settings::{AttributeSource, IdentifySettings, JwtKey, JwtSettings};
pub use source::{FoundValue, Several, parameter};
use tokens::{Refusals, Tokens};

/// The attribute by which clients are found in their table.
const API_KEY: &str = "api_key";

/// Who a client is, by its request. By default a client is known by its address alone.
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
}

/// The table of clients, and where it comes from.
struct ClientTable {
    file: PathBuf,
    clients: ArcSwap<Clients>,
}

/// What is known of one request.
struct KnownRequest<'i, 'r> {
    identity: &'i Identity,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
    client: Option<ClientRecord>,
    /// The claims of its token, once it was looked at. None are those that cannot be believed.
    claims: Option<Map<String, Value>>,
}

impl Identity {
    /// Reads the files that the settings name. Waits for the disk. Keys that are fetched with TLS are, by
    /// `client_tls`.
    pub fn open(
        settings: &IdentifySettings,
        trusted_proxies: TrustedProxies,
        client_tls: ClientTls,
    ) -> Result<Self, IdentityError> {
        let clients = match &settings.clients_file {
            Some(file) => Some(ClientTable {
                file: file.clone(),
                clients: ArcSwap::from_pointee(Clients::read(file)?),
            }),
            None => None,
        };
        let tokens = settings.jwt.clone();
        let tokens = tokens
            .map(|jwt| Tokens::open(jwt, client_tls))
            .transpose()?;
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
        })
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

    /// Adds what is known of the client that sent a request with these headers and this query.
    ///
    /// Fails for a request that says two different things where one is looked for: the service behind may
    /// use either of them.
    pub fn describe<'r>(
        &self,
        headers: &'r HeaderMap,
        query: Option<&'r str>,
        attributes: &mut Attributes<'r>,
    ) -> Result<(), AttributeError> {
        let mut known = KnownRequest {
            identity: self,
            headers,
            query,
            client: None,
            claims: None,
        };
        if let Some(key) = known.first(API_KEY, &self.api_key)? {
            let table = self.clients.as_ref();
            known.client = table.and_then(|table| table.find(key.as_bytes()));
            // With a table, a key that is made up is no key: each would have a whole limit of its own.
            if self.clients.is_none() || known.client.is_some() {
                attributes.set(API_KEY, key)?;
            }
        }
        for (name, sources) in &self.others {
            if let Some(value) = known.first(name, sources)? {
                attributes.set(name.clone(), value)?;
            }
        }
        Ok(())
    }

    /// Whether what this peer says about others counts.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.is_trusted(peer)
    }

    /// The proxies that are believed about their clients.
    pub fn trusted_proxies(&self) -> &TrustedProxies {
        &self.trusted_proxies
    }

    /// Which of the headers that name a client is read.
    pub fn forwarded_header(&self) -> ForwardedHeader {
        self.forwarded_header
    }

    /// The address of the client whose request came from `peer` with these headers: the peer's own, unless
    /// it is a trusted proxy that names another.
    pub fn client_address(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<IpAddr, AttributeError> {
        if !self.trusts(peer) {
            return Ok(address::canonical(peer));
        }
        let mut values = self
            .address_headers
            .iter()
            .flat_map(|name| headers.get_all(name))
            .map(|value| value.as_bytes().trim_ascii())
            .filter(|value| !value.is_empty());
        let Some(first) = values.next() else {
            let (proxies, header) = (&self.trusted_proxies, self.forwarded_header);
            let values = |name| headers.get_all(name).iter().collect();
            return Ok(proxies.client_by(header, peer, values)?);
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
        // What is not an address names no client.
        Ok(address.unwrap_or_else(|| address::canonical(peer)))
    }

    /// Reads the files again. What cannot be used leaves what was there before. Waits for the disk.
    pub fn reload(&self) {
        if let Some(table) = &self.clients {
            match Clients::read(&table.file) {
                Ok(clients) => {
                    let count = clients.len();
                    table.clients.store(Arc::new(clients));
                    // Once it is in force, so that who reads this can rely on it.
                    tracing::info!(clients = count, "the table of clients was read again");
                }
                Err(error) => tracing::error!("the table of clients stays as it was: {error}"),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.reload() {
                // Logged when they have come.
                Ok(()) if tokens.remote().is_some() => {}
                Ok(()) => tracing::info!("the keys of tokens were read again"),
                Err(error) => tracing::error!("the keys of tokens stay as they were: {error}"),
            }
        }
    }

    /// Fetches the keys of tokens for the first time, if they are fetched. The time until the next.
    pub async fn first_fetch(&self, data: Option<&Arc<dyn KeptFiles>>) -> Duration {
        match &self.tokens {
            Some(tokens) => tokens.first_fetch(data).await,
            None => Duration::MAX,
        }
    }

    /// Fetches them again and again, `next` from now for the first time. Never ends.
    pub async fn keep_fetching(&self, next: Duration, data: Option<&Arc<dyn KeptFiles>>) {
        match &self.tokens {
            Some(tokens) => tokens.keep_fetching(next, data).await,
            None => std::future::pending().await,
        }
    }

    /// How often the keys of tokens were fetched, and how often that failed; none if they are not fetched.
    pub fn fetches(&self) -> Option<(u64, u64)> {
        let remote = self.tokens.as_ref().and_then(Tokens::remote);
        remote.map(RemoteKeys::fetches)
    }

    /// What should be looked at, for those who ask whether the server is ready.
    pub fn warnings(&self) -> Option<String> {
        let remote = self.tokens.as_ref().and_then(Tokens::remote);
        remote.and_then(RemoteKeys::warning)
    }

    /// How often tokens were refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let refusals = self.tokens.iter().map(Tokens::refusals);
        refusals.flat_map(Refusals::iter)
    }
}

impl ClientTable {
    fn find(&self, key: &[u8]) -> Option<ClientRecord> {
        self.clients.load().find(key)
    }
}

impl<'r> KnownRequest<'_, 'r> {
    /// The first of the sources that is there. Those that the client writes must agree, whichever of
    /// them is first: one that is not used here may be the one that the service goes by.
    fn first(
        &mut self,
        name: &str,
        sources: &[AttributeSource],
    ) -> Result<Option<AttributeValue<'r>>, AttributeError> {
        let mut first: Option<AttributeValue<'r>> = None;
        let mut written: Option<AttributeValue<'r>> = None;
        for source in sources {
            let value = match source {
                AttributeSource::Jwt(_) | AttributeSource::Client(_) if first.is_some() => continue,
                AttributeSource::Jwt(claim) => self.claim(claim)?.map(AttributeValue::from),
                AttributeSource::Client(column) => self.column(column).map(AttributeValue::from),
                AttributeSource::Header(_)
                | AttributeSource::Query(_)
                | AttributeSource::Cookie(_) => {
                    let value = source::find(source, self.headers, self.query)
                        .map_err(|source::Several| twice(name))?
                        .filter(|value| !value.is_empty());
                    if value.is_some() && written.is_some() && value != written {
                        let name = name.to_owned();
                        return Err(AttributeError::Contradiction { name });
                    }
                    written = value.clone().or(written);
                    value
                }
            };
            first = first.or(value.filter(|value| !value.is_empty()));
        }
        Ok(first)
    }

    fn column(&self, column: &str) -> Option<String> {
        self.client.as_ref()?.column(column).map(str::to_owned)
    }

    fn claim(&mut self, name: &str) -> Result<Option<String>, AttributeError> {
        let Some(tokens) = &self.identity.tokens else {
            return Ok(None);
        };
        if self.claims.is_none() {
            let token = source::find_token(tokens.from(), self.headers)
                .map_err(|source::Several| twice("jwt"))?;
            let claims = token.and_then(|token| tokens.claims(&token));
            self.claims = Some(claims.unwrap_or_default());
        }
        let claims = self.claims.as_ref();
        Ok(claims.and_then(|claims| tokens::claim(claims, name)))
    }
}

fn twice(name: &str) -> AttributeError {
    AttributeError::Twice {
        name: name.to_owned(),
    }
}
