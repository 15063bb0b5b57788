//! TLS where this process is the client: which authorities it trusts.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// A configuration that trusts these authorities, the text of a PEM file; the usual ones if there are none.
pub fn trusting(authorities: Option<&[u8]>) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    match authorities {
        // They were read before, when the configuration was.
        Some(pem) => {
            let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
            roots.add_parsable_certificates(certificates);
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
