//! The client certificate that commands present to servers that require one.

use std::path::Path;

use anyhow::{Context as _, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use ureq::tls::{Certificate, ClientCert, PrivateKey};

use crate::arguments::ServerArgs;

/// A certificate and its key, which fit together.
pub(crate) struct ClientIdentity {
    /// The certificate first.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// The same key as its file has it.
    key_pem: Vec<u8>,
}

/// The certificate of the arguments, if they name one.
pub(crate) fn identity(args: &ServerArgs) -> anyhow::Result<Option<ClientIdentity>> {
    let (certificate, key_file) = match (args.client_cert.as_deref(), args.client_key.as_deref()) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        _ => bail!(
            "a client certificate and its key go together; give both --client-cert and --client-key"
        ),
    };
    let chain = read_chain(certificate)?;
    let shown = key_file.display();
    let key_pem = std::fs::read(key_file).with_context(|| format!("cannot read `{shown}`"))?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem)
        .with_context(|| format!("there is no private key that is not encrypted in `{shown}`"))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider).with_context(|| {
        format!(
            "the certificate in `{}` cannot be used with the key in `{shown}`; give the pair that was issued together",
            certificate.display()
        )
    })?;
    Ok(Some(ClientIdentity {
        chain,
        key,
        key_pem,
    }))
}

fn read_chain(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = file.display();
    let pem = std::fs::read(file).with_context(|| format!("cannot read `{shown}`"))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.with_context(|| format!("`{shown}` is not a PEM file"))?;
    if chain.is_empty() {
        bail!("there is no certificate in `{shown}`; it must have `BEGIN CERTIFICATE` in it");
    }
    Ok(chain)
}

/// The same for the client of the commands.
pub(super) fn client_certificate(identity: &ClientIdentity) -> anyhow::Result<ClientCert> {
    let chain: Vec<Certificate<'static>> = identity
        .chain
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    let key = PrivateKey::from_pem(&identity.key_pem)?;
    Ok(ClientCert::new_with_certs(&chain, key))
}
