//! The settings of Redis. Contradictions are reported; passwords are never printed.

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate::Micros;
use tidegate::document::{Fields, Problems};
use tidegate_identity::Secret;
use tidegate_listen::Tls;
use tidegate_redis::{Namespace, NamespaceError, RedisSettings, RedisTls, RedisUrl, UrlError};

use super::read::{flag, need_both, setting, span};
use super::{Overrides, secret, settings};

/// The shortest time that Redis can be given.
const LEAST_DEADLINE: Micros = Micros::new(1_000);

const OF_SENTINELS: [&str; 2] = ["redis_sentinel_user", "redis_sentinel_password_file"];
const OF_TLS: [&str; 3] = ["redis_ca", "redis_cert", "redis_key"];

/// Settings that have an effect only with Redis, and are harmless without.
const SHARED_ONLY: [&str; 2] = ["namespace", "instances"];

pub(super) fn read(
    fields: &mut Fields<'_>,
    key_secret: Option<&Secret>,
    overrides: &Overrides<'_>,
    notes: &mut Vec<String>,
    problems: &mut Problems,
) -> Option<(RedisSettings, RedisTlsFiles)> {
    let Some((spot, node)) = fields.take("redis") else {
        let message = "this has no meaning without `redis`, the URL of the Redis to use";
        for key in settings::keys().filter(|key| key.needs == ["redis"]) {
            fields.refuse(key.name, message, problems);
        }
        for key in SHARED_ONLY {
            if fields.key(key).is_some() {
                notes.push(format!("the setting `{key}` has no effect without `redis`"));
            }
        }
        // Checked anyway: a server without Redis may get one later.
        fields.parsed("namespace", namespace, problems);
        return None;
    };
    // Only the scheme, which is never a secret.
    let text = spot.text(node, problems)?;
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let (is_tls, is_sentinel) = (scheme.starts_with("rediss"), scheme.ends_with("+sentinel"));
    let url = spot.parsed(node, url, problems);
    let namespace = fields.parsed("namespace", namespace, problems);
    let user = fields.text("redis_user", problems).map(str::to_owned);
    let password = secret::read(fields, "redis_password_file", overrides, problems);
    let (tls, tls_files) = if is_tls {
        tls(fields, problems)
    } else {
        let message =
            "this is for TLS; write `rediss` instead of `redis` in the URL, or leave this out";
        for key in OF_TLS {
            fields.refuse(key, message, problems);
        }
        Default::default()
    };
    let (sentinel_user, sentinel_password) = if is_sentinel {
        let [user, password] = OF_SENTINELS;
        let user = fields.text(user, problems).map(str::to_owned);
        (user, secret::read(fields, password, overrides, problems))
    } else {
        let message = "this has no meaning without sentinels, `redis+sentinel://`; leave it out";
        for key in OF_SENTINELS {
            fields.refuse(key, message, problems);
        }
        (None, None)
    };
    let name_check = flag(fields, "redis_name_check", problems);
    let deadline = setting(fields, "redis_deadline", deadline, problems);

    let mut settings = RedisSettings::new(url?);
    settings.user = user;
    settings.password = password.map(|password| password.text().to_owned());
    settings.sentinel_user = sentinel_user;
    settings.sentinel_password = sentinel_password.map(|password| password.text().to_owned());
    settings.tls = tls;
    settings.any_name = !name_check?;
    settings.key_secret = key_secret.map(|secret| secret.bytes().to_vec());
    settings.namespace = namespace;
    settings.deadline = deadline?;
    Some((settings, tls_files))
}

/// The URL. An error repeats a part of it only if that cannot be a password.
fn url(text: &str) -> Result<RedisUrl, String> {
    text.parse().map_err(|error: UrlError| {
        let is_open = !text.contains(['@', '?']);
        match error {
            UrlError::ManyHosts
            | UrlError::NoMasterName
            | UrlError::NoPath
            | UrlError::Credentials => error.to_string(),
            _ if is_open => error.to_string(),
            _ => {
                "this is not the URL of a Redis, such as `rediss://user@redis.example.com:6380/0`; \
                  in a password, everything but letters and digits must be percent-encoded, or put \
                  it into a file and name that in `redis_password_file`"
                    .to_owned()
            }
        }
    })
}

fn namespace(text: &str) -> Result<Namespace, String> {
    text.parse()
        .map_err(|error: NamespaceError| error.to_string())
}

fn deadline(text: &str) -> Result<Duration, String> {
    match span(text)? {
        short if short < LEAST_DEADLINE => Err(format!(
            "`{text}` is too short for Redis to answer; give at least `1ms`"
        )),
        deadline => Ok(deadline.into()),
    }
}

fn tls(fields: &Fields<'_>, problems: &mut Problems) -> (RedisTls, RedisTlsFiles) {
    need_both(fields, ["redis_cert", "redis_key"], problems);
    let mut file = |key, read: fn(&str) -> Result<Vec<u8>, String>| {
        let read = |path: &str| read(path).map(|pem| (pem, PathBuf::from(path)));
        fields.parsed(key, read, problems).unzip()
    };
    let (ca, ca_file) = file("redis_ca", certificates);
    let (cert, cert_file) = file("redis_cert", certificates);
    let (key, key_file) = file("redis_key", private_key);
    let files = RedisTlsFiles {
        ca: ca_file,
        cert: cert_file,
        key: key_file,
    };
    (RedisTls { ca, cert, key }, files)
}

/// The PEM files for TLS with Redis.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisTlsFiles {
    /// The trusted authorities.
    pub ca: Option<PathBuf>,
    /// The client certificate.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl RedisTlsFiles {
    /// Those that are named.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.ca, &self.cert, &self.key].into_iter().flatten()
    }

    pub(crate) fn is_any(&self) -> bool {
        self.paths().next().is_some()
    }

    /// Reads them again. Waits for the disk.
    pub(crate) fn read(&self) -> Result<RedisTls, String> {
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            Tls::load(cert, key).map_err(|error| error.to_string())?;
        }
        let file = |path: &Option<PathBuf>, read: fn(&str) -> Result<Vec<u8>, String>| {
            let path = path.as_ref().map(|path| path.to_string_lossy());
            path.map(|path| read(&path)).transpose()
        };
        Ok(RedisTls {
            ca: file(&self.ca, certificates)?,
            cert: file(&self.cert, certificates)?,
            key: file(&self.key, private_key)?,
        })
    }
}

fn file(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read `{path}`: {error}"))
}

/// A file with certificates.
pub(super) fn certificates_file(path: &str) -> Result<PathBuf, String> {
    certificates(path).map(|_| path.into())
}

fn certificates(path: &str) -> Result<Vec<u8>, String> {
    let pem = file(path)?;
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        certificate.map_err(|error| format!("`{path}` is not valid PEM: {error}"))?;
        found += 1;
    }
    if found == 0 {
        return Err(format!("there is no certificate in `{path}`"));
    }
    Ok(pem)
}

fn private_key(path: &str) -> Result<Vec<u8>, String> {
    let pem = file(path)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(_) => Err(format!("there is no private key in PEM form in `{path}`")),
    }
}
