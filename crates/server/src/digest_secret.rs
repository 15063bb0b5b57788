//! The secret of the digests that stand for secret values in tables: the configured one, the one of Redis, or
//! one that this server keeps.

use tidegate::printable::hexadecimal;
use tidegate::rules::ValueDigest;

use crate::config::Config;
use crate::data_dir::LockedDir;

/// The file in the data directory.
const FILE: &str = "digest-secret";

/// The random bytes in a secret.
const RANDOM_BYTES: usize = 32;

/// The digests of this server: under `key_secret`; over Redis under the secret of its keys, so that all servers
/// agree; else under a random secret that is kept in the data directory, or for this run if it cannot be kept.
pub(crate) fn open(config: &Config, data: Option<&LockedDir>) -> ValueDigest {
    if let Some(secret) = &config.key_secret {
        return ValueDigest::new(secret.bytes());
    }
    if let Some(redis) = &config.redis {
        return ValueDigest::new(&redis.hashing_secret());
    }
    ValueDigest::new(read_or_make(data).as_bytes())
}

fn read_or_make(data: Option<&LockedDir>) -> String {
    if let Some(secret) =
        data.and_then(|data| data.load(FILE, "digests of secret values are new", usable))
    {
        return secret;
    }
    let secret = random();
    if let Some(data) = data.filter(|data| data.is_writable())
        && let Err(error) = data.write(FILE, format!("{secret}\n").as_bytes())
    {
        tracing::warn!("digests of secret values are new after each start: {error}");
    }
    secret
}

/// The secret in a file that was written whole.
fn usable(text: &[u8]) -> Option<String> {
    let secret = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    (secret.len() == 2 * RANDOM_BYTES).then(|| secret.to_owned())
}

fn random() -> String {
    let mut bytes = [0; RANDOM_BYTES];
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::warn!("digests of secret values can be guessed: no random numbers: {error}");
    }
    hexadecimal(&bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::Overrides;

    fn config(yaml: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let secret = folder.path().join("secret");
        fs::write(&secret, "s3cret").unwrap();
        let yaml = yaml.replace("SECRET", &secret.display().to_string());
        fs::write(&file, yaml).unwrap();
        let overrides = Overrides {
            environment: &|_| None,
            variables: Vec::new(),
            flags: vec![("config", file.display().to_string())],
        };
        Config::load(&overrides).unwrap()
    }

    #[test]
    fn a_random_secret_is_kept_with_the_data_and_readable_by_its_user_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = LockedDir::open(temporary.path()).unwrap();
        let digest = || open(&config(""), Some(&directory)).of("k1");
        let first = digest();
        assert_eq!(digest(), first);
        let path = temporary.path().join(FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A file that is cut is replaced.
        fs::write(&path, "0123").unwrap();
        let second = digest();
        assert_ne!(second, first);
        assert_eq!(digest(), second);
        // Nothing can be kept.
        let unkept = || open(&config(""), None).of("k1");
        assert_ne!(unkept(), unkept());
    }

    #[test]
    fn servers_with_the_same_settings_agree() {
        let of = |yaml: &str| open(&config(yaml), None).of("k1");
        let configured = of("key_secret_file: SECRET");
        assert_eq!(configured, ValueDigest::new(b"s3cret").of("k1"));
        let redis = "redis: redis://:pass@127.0.0.1:1";
        assert_eq!(of(redis), of(redis));
        assert_ne!(of(redis), of("redis: redis://:other@127.0.0.1:1"));
        assert_ne!(of(redis), ValueDigest::new(b"pass").of("k1"));
        let both = format!("{redis}\nkey_secret_file: SECRET");
        assert_eq!(of(&both), configured);
    }
}
