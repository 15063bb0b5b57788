//! The settings that identify clients. Files are named here and read when the identity is opened.

use std::path::PathBuf;

use http::HeaderName;
use jsonwebtoken::Algorithm;
use tidegate::Micros;
use tidegate::address::ForwardedHeader;

use tidegate_listen::HttpUrl;

use crate::Secret;

/// Where the identity of a client comes from.
#[derive(Debug, Clone, Default)]
pub struct IdentifySettings {
    /// For each attribute its sources; the first that is present counts.
    pub attributes: Vec<(String, Vec<AttributeSource>)>,
    /// Headers in which trusted proxies send the client's address.
    pub ip: Vec<HeaderName>,
    /// How tokens are verified, if any are.
    pub jwt: Option<JwtSettings>,
    /// The table of clients, by key.
    pub clients_file: Option<PathBuf>,
    /// Whether the table has all keys, so that any other is invalid.
    pub clients_complete: bool,
    /// In which header trusted proxies name the client.
    pub forwarded_header: ForwardedHeader,
}

/// The source of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeSource {
    /// A header.
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// A claim of a verified token.
    Jwt(String),
    /// A column of the table of clients.
    Client(String),
}

impl IdentifySettings {
    /// The named files, to be watched.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let key = self.jwt.iter().filter_map(|jwt| jwt.key.file());
        self.clients_file.iter().chain(key)
    }
}

/// How tokens are verified.
#[derive(Debug, Clone)]
pub struct JwtSettings {
    /// The key.
    pub key: JwtKey,
    /// The accepted algorithms; if none is given, all that the key can be used with.
    pub algorithms: Vec<Algorithm>,
    /// The accepted issuers; if none is given, any.
    pub issuer: Vec<String>,
    /// The accepted audiences; if none is given, any.
    pub audience: Vec<String>,
    /// How much the clock of the issuer may differ.
    pub leeway: Micros,
    /// Where a request has its token.
    pub from: AttributeSource,
}

/// The key of tokens, or where it is.
#[derive(Debug, Clone)]
pub enum JwtKey {
    /// A public key, a PEM file.
    KeyFile(PathBuf),
    /// A JSON Web Key Set, a file.
    JwksFile(PathBuf),
    /// A JSON Web Key Set that is fetched.
    JwksUrl {
        /// Its URL.
        url: HttpUrl,
        /// The authorities trusted there, as PEM; by default the public ones.
        ca: Option<PathBuf>,
    },
    /// A secret that the issuer shares, in a file.
    SecretFile(PathBuf),
    /// A shared secret from the environment.
    Secret(Secret),
}

impl JwtKey {
    /// The file that it is in.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::KeyFile(file) | Self::JwksFile(file) | Self::SecretFile(file) => Some(file),
            Self::JwksUrl { .. } | Self::Secret(_) => None,
        }
    }
}
