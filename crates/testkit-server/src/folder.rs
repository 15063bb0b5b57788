//! A temporary folder with the files of a server, which may be started in it several times.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use tidegate_server::config::SETTINGS;
use tidegate_server::{Config, Overrides};

use crate::InProcessServer;

/// The settings that name a file or a folder.
const PATHS: [&str; 3] = ["config", "rules", "data_dir"];

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
        // Not next to it: a server may read all files of its folder.
        let new = self.path(&format!("{}.new", name.replace('/', "-")));
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
    pub fn serve(&self, arguments: &[&str]) -> InProcessServer {
        self.serve_with(arguments, &[])
    }

    /// The same with environment variables.
    pub fn serve_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> InProcessServer {
        InProcessServer::run(self.config_with(arguments, environment))
    }

    /// The settings of such a server.
    pub fn config(&self, arguments: &[&str]) -> Config {
        self.config_with(arguments, &[])
    }

    fn config_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Config {
        let variable = |name: &str| {
            let (name, value) = environment.iter().find(|(known, _)| *known == name)?;
            Some(self.resolve(name.ends_with("_FILE"), value))
        };
        let config = Config::load(&Overrides {
            environment: &variable,
            variables: environment
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            flags: self.flags(&serve_arguments(arguments)),
        });
        config.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The settings that arguments of `tidegate serve` give.
    fn flags(&self, arguments: &[&str]) -> Vec<(&'static str, String)> {
        let mut flags = Vec::new();
        let mut arguments = arguments.iter().skip(1);
        while let Some(argument) = arguments.next() {
            let mut known = SETTINGS.iter().filter_map(|setting| {
                let (flag, value_name) = setting.flag()?;
                let is_it = argument.strip_prefix("--") == Some(&flag);
                is_it.then_some((setting.key.name, value_name))
            });
            let found = known.next();
            let (key, value_name) = found.unwrap_or_else(|| panic!("no flag is `{argument}`"));
            let is_switch = value_name.is_empty();
            let value = if is_switch {
                "true"
            } else {
                arguments.next().unwrap()
            };
            flags.push((key, self.resolve(PATHS.contains(&key), value)));
        }
        flags
    }

    fn resolve(&self, is_path: bool, value: &str) -> String {
        if is_path {
            self.file(value)
        } else {
            value.to_owned()
        }
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
