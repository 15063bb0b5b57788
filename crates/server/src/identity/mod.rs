//! Who a client is: where its address, its key, its name and its tier come from, for every front end
//! that is asked on behalf of others.
//!
//! `source.rs` finds what a request says, `tokens.rs` believes what is signed, `clients.rs` knows what
//! belongs to a key. What is not asked for in the setting `identify` is not known.

mod clients;
mod error;
mod keys;
mod source;
mod tokens;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};
use tidegate::address::{self, TrustedProxies};
use tidegate::{AttributeError, Attributes};

use crate::config::{IdentifySettings, Source};
use clients::{Client, Clients};
pub use error::IdentityError;
pub(crate) use source::parameter;
pub(crate) use tokens::Refusals;
use tokens::Tokens;

/// The attribute by which clients are found in their table.
const API_KEY: &str = "api_key";

/// Who a client is, by its request. By default nobody is known by anything but its address.
#[derive(Default)]
pub(crate) struct Identity {
    /// Where the key comes from.
    api_key: Vec<Source>,
    /// All other attributes.
    others: Vec<(Cow<'static, str>, Vec<Source>)>,
    address_headers: Vec<HeaderName>,
    trusted_proxies: TrustedProxies,
    tokens: Option<Tokens>,
    clients: Option<Table>,
}

/// The table of clients, and where it comes from.
struct Table {
    file: PathBuf,
    clients: ArcSwap<Clients>,
}

/// What is known of one request.
struct Known<'i, 'r> {
    identity: &'i Identity,
    headers: &'r HeaderMap,
    query: Option<&'r str>,
    client: Option<Client>,
    /// The claims of its token, once it was looked at. None are those that cannot be believed.
    claims: Option<Map<String, Value>>,
}

impl Identity {
    /// Reads the files that the settings name. Waits for the disk.
    pub(crate) fn open(
        settings: &IdentifySettings,
        trusted_proxies: TrustedProxies,
    ) -> Result<Self, IdentityError> {
        let clients = match &settings.clients_file {
            Some(file) => Some(Table {
                file: file.clone(),
                clients: ArcSwap::from_pointee(Clients::read(file)?),
            }),
            None => None,
        };
        let tokens = settings.jwt.clone().map(Tokens::open).transpose()?;
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
            tokens,
            clients,
        })
    }

    /// Adds what is known of the client that sent a request with these headers and this query.
    ///
    /// Fails for a request that says two different things where one is looked for: nobody can tell which
    /// of them the upstream will go by.
    pub(crate) fn describe<'r>(
        &self,
        headers: &'r HeaderMap,
        query: Option<&'r str>,
        attributes: &mut Attributes<'r>,
    ) -> Result<(), AttributeError> {
        let mut known = Known {
            identity: self,
            headers,
            query,
            client: None,
            claims: None,
        };
        if let Some(key) = known.first(API_KEY, &self.api_key)? {
            known.client = self.clients.as_ref().and_then(|table| table.find(&key));
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
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.is_trusted(peer)
    }

    /// Whose request it is that came from `peer` with these headers: the peer's own, unless it is a
    /// trusted proxy that names somebody.
    pub(crate) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.trusts(peer) {
            return address::canonical(peer);
        }
        for name in &self.address_headers {
            let mut values = headers.get_all(name).iter();
            let Some(first) = values.next() else {
                continue;
            };
            let address = first
                .to_str()
                .ok()
                .and_then(|text| address::parse(text.trim()));
            let is_one = values.all(|value| value == first);
            // What is no address, or several, cannot be believed.
            return address
                .filter(|_| is_one)
                .unwrap_or_else(|| address::canonical(peer));
        }
        tidegate_tower::client_address(headers, peer, &self.trusted_proxies)
    }

    /// Reads the files again. What cannot be used leaves what was there before. Waits for the disk.
    pub(crate) fn reload(&self) {
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
                Ok(()) => tracing::info!("the keys of tokens were read again"),
                Err(error) => tracing::error!("the keys of tokens stay as they were: {error}"),
            }
        }
    }

    /// How often tokens were refused, by reason.
    pub(crate) fn refusals(&self) -> Option<&Refusals> {
        self.tokens.as_ref().map(Tokens::refusals)
    }
}

impl Table {
    fn find(&self, key: &str) -> Option<Client> {
        self.clients.load().find(key)
    }
}

impl<'r> Known<'_, 'r> {
    /// The first of the sources that there is.
    fn first(
        &mut self,
        name: &str,
        sources: &[Source],
    ) -> Result<Option<Cow<'r, str>>, AttributeError> {
        for source in sources {
            let value = match source {
                Source::Jwt(claim) => self.claim(claim)?.map(Cow::Owned),
                Source::Client(column) => self.column(column).map(Cow::Owned),
                given => source::find(given, self.headers, self.query)
                    .map_err(|source::Several| twice(name))?,
            };
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                return Ok(Some(value));
            }
        }
        Ok(None)
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

#[cfg(test)]
mod tests;
