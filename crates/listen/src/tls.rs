//! Certificates of servers and the authorities of their clients: read from PEM files, and read again when they are
//! renewed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::named_clients::NamedClients;

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}; check the path and the permissions of the file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is truncated or not PEM.
    #[error("`{}` is not valid PEM: {source}; it may be truncated", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The certificate file holds no certificate.
    #[error(
        "no certificate in `{}`: it must hold `BEGIN CERTIFICATE` blocks, the server's own first",
        path.display()
    )]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The key file holds no key.
    #[error(
        "no private key in `{}`: it must hold a `BEGIN PRIVATE KEY` block (or `RSA` or `EC`) that is \
         not encrypted",
        path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The certificate and the key do not match.
    #[error(
        "the private key in `{}` is not that of the first certificate in `{}`: give the pair that \
         was issued together",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The pair is of an unsupported kind.
    #[error(
        "the certificate in `{}` with the key in `{}` cannot be used: {source}; use an X.509 \
         certificate with an ECDSA, Ed25519 or RSA key",
        certificate.display(),
        key.display()
    )]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        source: rustls::Error,
    },
    /// The authorities of client certificates cannot be used.
    #[error(
        "the certificates in `{}` cannot be used to verify clients: {problem}; give those of the \
         authorities that issued theirs",
        path.display()
    )]
    Authorities {
        /// Their file.
        path: PathBuf,
        /// What is wrong with them.
        problem: String,
    },
    /// The name of clients is no name of a server.
    #[error("`{name}` is not a DNS name; write one such as `envoy.example.com`")]
    ClientName {
        /// The given name.
        name: String,
    },
    /// TLS itself could not be set up.
    #[error("cannot set up TLS: {0}")]
    Setup(#[source] rustls::Error),
}

/// The certificate of a listener, and the authorities of its clients' certificates. Both can be replaced while it
/// serves; open connections keep what they have.
///
/// Cheap to clone; clones serve the same certificate.
#[derive(Debug, Clone)]
pub struct Tls {
    files: Arc<Files>,
    current: Arc<Current>,
    clients: Option<Arc<ClientVerification>>,
    config: Arc<ArcSwap<ServerConfig>>,
}

/// A certificate and its key.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Which certificates clients present.
#[derive(Debug)]
struct ClientVerification {
    /// The file with the authorities that issued them.
    authorities: PathBuf,
    /// Whether a client without one is refused.
    is_required: bool,
    /// The name that it must be for.
    name: Option<ServerName<'static>>,
}

/// The certificate of the next handshake.
struct Current(ArcSwap<CertifiedKey>);

impl Tls {
    /// Reads a certificate chain, the server's own first, and its private key.
    ///
    /// Serves TLS 1.2 and 1.3, and offers HTTP/2 before HTTP/1.1.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let certified = files.read(&provider())?;
        let current = Arc::new(Current(ArcSwap::from_pointee(certified)));
        let config = server_config(&current, None)?;
        Ok(Self {
            files: Arc::new(files),
            current,
            clients: None,
            config: Arc::new(ArcSwap::from_pointee(config)),
        })
    }

    /// The same certificate, served only to clients with a certificate of one of the authorities in a PEM file.
    pub fn requiring_certificates(&self, authorities: &Path) -> Result<Self, TlsError> {
        self.with_clients(authorities, true, None)
    }

    /// The same, and the client's certificate must be for this DNS name.
    pub fn requiring_certificates_for(
        &self,
        authorities: &Path,
        name: &str,
    ) -> Result<Self, TlsError> {
        let refused = |_| TlsError::ClientName {
            name: name.to_owned(),
        };
        let name = ServerName::try_from(name.to_owned()).map_err(refused)?;
        self.with_clients(authorities, true, Some(name))
    }

    /// The same certificate, served to clients with a certificate of one of the authorities in a PEM file and to
    /// clients without any: [`Peer::is_certified`](crate::Peer::is_certified) distinguishes them. A client with any
    /// other certificate is refused.
    pub fn asking_for_certificates(&self, authorities: &Path) -> Result<Self, TlsError> {
        self.with_clients(authorities, false, None)
    }

    fn with_clients(
        &self,
        authorities: &Path,
        is_required: bool,
        name: Option<ServerName<'static>>,
    ) -> Result<Self, TlsError> {
        let clients = ClientVerification {
            authorities: authorities.to_owned(),
            is_required,
            name,
        };
        let config = server_config(&self.current, Some(&clients))?;
        Ok(Self {
            clients: Some(Arc::new(clients)),
            config: Arc::new(ArcSwap::from_pointee(config)),
            ..self.clone()
        })
    }

    /// Reads the certificate and its key again, for new connections of all listeners that serve it. After an error
    /// the previous ones stay in use. Blocks while it reads two small files.
    pub fn reload(&self) -> Result<(), TlsError> {
        let certified = self.files.read(&provider())?;
        self.current.0.store(Arc::new(certified));
        Ok(())
    }

    /// Reads the authorities of client certificates again, for new connections. After an error the previous ones stay
    /// in use. Blocks while it reads a small file.
    pub fn reload_authorities(&self) -> Result<(), TlsError> {
        // A new configuration resumes no sessions of clients that the previous authorities had admitted.
        let config = server_config(&self.current, self.clients.as_deref())?;
        self.config.store(Arc::new(config));
        Ok(())
    }

    /// The acceptor of the next handshake.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn server_config(
    current: &Arc<Current>,
    clients: Option<&ClientVerification>,
) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let verifier = match clients {
        Some(clients) => clients.verifier(&provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(current) as Arc<dyn ResolvesServerCert>);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

impl ClientVerification {
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let refused = |problem: String| TlsError::Authorities {
            path: self.authorities.clone(),
            problem,
        };
        let mut roots = RootCertStore::empty();
        for certificate in read_chain(&self.authorities)? {
            let added = roots.add(certificate);
            added.map_err(|error| refused(error.to_string()))?;
        }
        let provider = Arc::clone(provider);
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        let builder = if self.is_required {
            builder
        } else {
            builder.allow_unauthenticated()
        };
        let verifier = builder
            .build()
            .map_err(|error| refused(error.to_string()))?;
        Ok(match &self.name {
            Some(name) => Arc::new(NamedClients::new(verifier, name.clone())),
            None => verifier,
        })
    }
}

impl Files {
    pub(crate) fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = read_chain(&self.certificate)?;
        let key = self.read_key()?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| {
            let (certificate, key) = (self.certificate.clone(), self.key.clone());
            match source {
                rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate, key },
                source => TlsError::Unusable {
                    certificate,
                    key,
                    source,
                },
            }
        })
    }

    fn read_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let path = self.key.clone();
        let pem = read(&self.key)?;
        PrivateKeyDer::from_pem_slice(&pem).map_err(|source| match source {
            pem::Error::NoItemsFound => TlsError::NoKey { path },
            source => TlsError::Malformed { path, source },
        })
    }
}

pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let owned = || path.to_owned();
    let pem = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Malformed {
            path: owned(),
            source,
        })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: owned() });
    }
    Ok(chain)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Current").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn each_mistake_names_its_file() {
        let issue = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (one, other) = (issue(), issue());
        let (_certificate, certificate) = write("server.crt", &one.cert.pem());
        let (_key, key) = write("server.key", &one.signing_key.serialize_pem());
        let (_other, other) = write("other.key", &other.signing_key.serialize_pem());
        let (_empty, empty) = write("empty.pem", "");
        let (_cut, cut) = write("cut.pem", &one.cert.pem()[..100]);
        let absent = empty.with_file_name("absent.pem");

        Tls::load(&certificate, &key).unwrap();
        for (certificate, key, says, names) in [
            (&absent, &key, "cannot read", "absent.pem"),
            (&certificate, &absent, "cannot read", "absent.pem"),
            (&empty, &key, "no certificate in", "empty.pem"),
            (&key, &key, "no certificate in", "server.key"),
            (&cut, &key, "is not valid PEM", "cut.pem"),
            (&certificate, &empty, "no private key in", "empty.pem"),
            (&certificate, &certificate, "no private key", "server.crt"),
            (&certificate, &other, "is not that of", "other.key"),
        ] {
            let error = Tls::load(certificate, key).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(error.contains(names), "{error}");
        }
    }
}
