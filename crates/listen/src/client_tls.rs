//! TLS where this process is the client: which authorities it trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

use crate::TlsError;
use crate::tls::read_chain;

/// A configuration that trusts the authorities in a PEM file; the usual ones if there is none. Certificates that
/// cannot be used are left out, as bundles have some; one must be left.
pub fn trusting(authorities: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let (added, _) = roots.add_parsable_certificates(read_chain(path)?);
            if added == 0 {
                return Err(TlsError::NoCertificate {
                    path: path.to_owned(),
                });
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
