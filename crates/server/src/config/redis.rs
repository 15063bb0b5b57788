//! The settings of Redis. Contradictions are reported; passwords are never printed.

use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate::Micros;
use tidegate::document::{Fields, Problems};
use tidegate_redis::{Namespace, NamespaceError, RedisSettings, RedisTls, RedisUrl, UrlError};

use super::read::{need_both, setting, span};
use super::{Overrides, secret, settings};

/// The shortest time that Redis can be given.
const LEAST_DEADLINE: Micros = Micros::new(1_000);

const OF_SENTINELS: [&str; 2] = ["redis_sentinel_user", "redis_sentinel_password_file"];
const OF_TLS: [&str; 3] = ["redis_ca", "redis_cert", "redis_key"];

/// Settings that have an effect only with Redis, and are harmless without.
const SHARED_ONLY: [&str; 3] = ["namespace", "instances", "secret_attributes"];

pub(super) fn read(
    fields: &mut Fields<'_>,
    overrides: &Overrides<'_>,
    notes: &mut Vec<String>,
    problems: &mut Problems,
) -> Option<RedisSettings> {
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
    let tls = if is_tls {
        tls(fields, problems)
    } else {
        let message =
            "this is for TLS; write `rediss` instead of `redis` in the URL, or leave this out";
        for key in OF_TLS {
            fields.refuse(key, message, problems);
        }
        RedisTls::default()
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
    let deadline = setting(fields, "redis_deadline", deadline, problems);

    let mut settings = RedisSettings::new(url?);
    settings.user = user;
    settings.password = password.map(|password| password.text().to_owned());
    settings.sentinel_user = sentinel_user;
    settings.sentinel_password = sentinel_password.map(|password| password.text().to_owned());
    settings.tls = tls;
    settings.namespace = namespace;
    settings.deadline = deadline?;
    Some(settings)
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

fn tls(fields: &Fields<'_>, problems: &mut Problems) -> RedisTls {
    let ca = fields.parsed("redis_ca", certificates, problems);
    need_both(fields, ["redis_cert", "redis_key"], problems);
    RedisTls {
        ca,
        cert: fields.parsed("redis_cert", certificates, problems),
        key: fields.parsed("redis_key", private_key, problems),
    }
}

fn file(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read `{path}`: {error}"))
}

pub(super) fn certificates(path: &str) -> Result<Vec<u8>, String> {
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
