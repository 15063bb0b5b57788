//! An authority made for one test, with a certificate for the server and one for its clients.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use redis::{ClientTlsConfig, TlsCertificates};

/// Files in PEM form, in the folder of the server that they were made for.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The certificate of the authority that signed all others.
    pub authority: PathBuf,
    /// The server's certificate, for `localhost` and `127.0.0.1`.
    pub server: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// A client's certificate.
    pub client: PathBuf,
    /// The client's key.
    pub client_key: PathBuf,
}

impl Certificates {
    /// Makes them, as files in this folder.
    pub fn new(folder: &Path) -> Self {
        let authority = authority();
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).expect("the folder can be written");
            path
        };
        let (server, server_key) = signed(&authority, ExtendedKeyUsagePurpose::ServerAuth);
        let (client, client_key) = signed(&authority, ExtendedKeyUsagePurpose::ClientAuth);
        Self {
            authority: write("authority.pem", authority.pem()),
            server: write("server.pem", server),
            server_key: write("server.key", server_key),
            client: write("client.pem", client),
            client_key: write("client.key", client_key),
        }
    }

    /// For the `redis` crate, with the client's certificate.
    pub fn with_client(&self) -> TlsCertificates {
        TlsCertificates {
            client_tls: Some(ClientTlsConfig {
                client_cert: read(&self.client),
                client_key: read(&self.client_key),
            }),
            root_cert: Some(read(&self.authority)),
        }
    }

    /// For the `redis` crate, without a certificate of the client's own.
    pub fn without_client(&self) -> TlsCertificates {
        TlsCertificates {
            client_tls: None,
            root_cert: Some(read(&self.authority)),
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("the certificate is there")
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let name = "authority of one test";
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority signs itself")
}

/// A certificate and its key.
fn signed(
    authority: &CertifiedIssuer<'static, KeyPair>,
    purpose: ExtendedKeyUsagePurpose,
) -> (String, String) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("names that a certificate can hold");
    params.extended_key_usages = vec![purpose];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a signature");
    (certificate.pem(), key.serialize_pem())
}
