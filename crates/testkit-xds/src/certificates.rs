//! An authority, and the files of certificates that it issues.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// An authority whose files are in a folder.
pub struct TestAuthority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    /// A new one, with its certificate in `NAME.pem`.
    pub fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Self {
            folder: folder.to_path_buf(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a certificate for a name: `FILE.crt` and `FILE.key`. Earlier files are replaced.
    pub fn issue(&self, file: &str, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| self.folder.join(format!("{file}.{end}"));
        fs::write(path("crt"), certificate.pem()).unwrap();
        fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("crt"), path("key"))
    }
}
