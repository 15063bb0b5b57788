//! TLS where this process is the client: which authorities it trusts, and which certificate it presents.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use crate::TlsError;
use crate::tls::{Files, read_chain};

/// A configuration that trusts the authorities in a PEM file; the usual ones if there is none. Certificates that
/// cannot be used are left out, as bundles have some; one must be left.
pub fn trusting(authorities: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => add(&mut roots, path)?,
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    configuration(roots, None)
}

/// A configuration that trusts the usual authorities and those in a PEM file, and presents the certificate in a PEM file,
/// with the key in another.
pub fn presenting(
    authorities: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = authorities {
        add(&mut roots, path)?;
    }
    configuration(roots, identity)
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    let (added, _) = roots.add_parsable_certificates(read_chain(path)?);
    if added == 0 {
        return Err(TlsError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn configuration(
    roots: RootCertStore,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots);
    let Some((certificate, key)) = identity else {
        return Ok(config.with_no_client_auth());
    };
    let certified = Files {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let certified = Arc::new(certified.read(&provider)?);
    let certified = SingleCertAndKey::from(certified);
    Ok(config.with_client_cert_resolver(Arc::new(certified)))
}
