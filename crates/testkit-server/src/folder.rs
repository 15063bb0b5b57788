//! A temporary folder with the files of a server, which may be started in it several times.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::{InProcess, TestServer};

/// The folder. Removed when it is dropped.
#[derive(Debug)]
pub struct TestFolder {
    directory: TempDir,
}

impl TestFolder {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "no two are alike")]
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same as text, for settings that name a file.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file. An existing one is replaced in one step.
    pub fn write(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Writes a certificate authority, and `cert.pem` and `key.pem` of it for a name.
    pub fn write_certificates(&self, authority: &str, name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, authority);
        self.write(authority, &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        self.write("cert.pem", &params.signed_by(&key, &issuer).unwrap().pem());
        self.write("key.pem", &key.serialize_pem());
    }

    /// A server in this process, with the flags of `tidegate serve`. Files that flags name are in this folder.
    pub fn serve(&self, arguments: &[&str]) -> TestServer<InProcess> {
        self.serve_with(arguments, &[])
    }

    /// The same with environment variables.
    pub fn serve_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> TestServer<InProcess> {
        InProcess::start(self, arguments, environment)
    }
}

/// The arguments of `tidegate serve` for a test: free ports, and the data directory `data`, unless others are given.
pub fn serve_arguments<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let defaults = [
        ("--data-dir", "data"),
        ("--http", "127.0.0.1:0"),
        ("--grpc", "off"),
    ];
    let mut all = vec!["serve"];
    for (flag, value) in defaults {
        // A flag that is given twice is an error.
        if !arguments.contains(&flag) {
            all.extend([flag, value]);
        }
    }
    all.extend(arguments);
    all
}
