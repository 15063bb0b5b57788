//! The keys that verify tokens. The type of a key decides which algorithms it may be used with, whatever a token
//! claims.

use std::path::Path;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Validation};
use serde::Deserialize as _;
use serde_json::Value;

use crate::IdentityError;
use crate::{JwtKey, JwtSettings};

/// The least recommended length of an HMAC key, in bytes.
const GOOD_SECRET: usize = 32;

/// The error if no key is usable.
const NONE_FITS: &str = "no key in it can be used with any of `jwt.algorithms`";

/// The keys of a server.
#[derive(Default)]
pub(crate) struct Keys(Vec<VerifyingKey>);

/// A key, and how tokens are verified with it.
pub(crate) struct VerifyingKey {
    id: Option<String>,
    pub(crate) verifies: DecodingKey,
    pub(crate) validation: Validation,
}

impl Keys {
    /// Reads the key of a setting, or the keys in its file.
    pub(crate) fn read(settings: &JwtSettings) -> Result<Self, IdentityError> {
        let found = match &settings.key {
            JwtKey::Secret(secret) => vec![of_secret(secret.bytes())],
            JwtKey::SecretFile(file) => {
                let text = read(file)?;
                let secret = text.trim_ascii();
                if secret.is_empty() {
                    return Err(IdentityError::key(file, "it is empty"));
                }
                vec![of_secret(secret)]
            }
            JwtKey::KeyFile(file) => {
                vec![of_pem(&read(file)?).map_err(|problem| IdentityError::key(file, problem))?]
            }
            JwtKey::JwksFile(file) => {
                of_set(&read(file)?).map_err(|problem| IdentityError::key(file, problem))?
            }
            // They are fetched later.
            JwtKey::JwksUrl { .. } => Vec::new(),
        };
        let keys = Self::fitting(settings, found);
        match (keys.0.is_empty(), settings.key.file()) {
            (true, Some(file)) => Err(IdentityError::key(file, NONE_FITS)),
            _ => Ok(keys),
        }
    }

    /// The keys of a fetched set, at least one. Only public keys count: a fetched secret is not secret.
    pub(crate) fn of_fetched(settings: &JwtSettings, set: &[u8]) -> Result<Self, String> {
        let mut found = of_set(set)?;
        found.retain(|(_, key, _)| key.family() != AlgorithmFamily::Hmac);
        let keys = Self::fitting(settings, found);
        if keys.0.is_empty() {
            return Err(NONE_FITS.to_owned());
        }
        Ok(keys)
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys that the settings allow.
    fn fitting(settings: &JwtSettings, found: Vec<ParsedKey>) -> Self {
        let fits = |algorithm: &Algorithm| {
            settings.algorithms.is_empty() || settings.algorithms.contains(algorithm)
        };
        let mut keys = Vec::with_capacity(found.len());
        for (id, key, algorithms) in found {
            let algorithms: Vec<_> = algorithms.into_iter().filter(fits).collect();
            if !algorithms.is_empty() {
                let validation = validation(settings, algorithms);
                keys.push(VerifyingKey {
                    id,
                    verifies: key,
                    validation,
                });
            }
        }
        Self(keys)
    }

    /// The keys that may have signed a token that names this key, or none. A key without a name matches any
    /// token.
    pub(crate) fn named<'k>(
        &'k self,
        id: Option<&'k str>,
    ) -> impl Iterator<Item = &'k VerifyingKey> {
        self.0.iter().filter(move |key| match (&key.id, id) {
            (Some(known), Some(id)) => known == id,
            _ => true,
        })
    }
}

/// Reads one kind of key.
type KeyReader = fn(&[u8]) -> jsonwebtoken::errors::Result<DecodingKey>;

type ParsedKey = (Option<String>, DecodingKey, Vec<Algorithm>);

fn read(file: &Path) -> Result<Vec<u8>, IdentityError> {
    std::fs::read(file).map_err(|source| IdentityError::Unreadable {
        file: file.to_owned(),
        source,
    })
}

fn of_secret(secret: &[u8]) -> ParsedKey {
    if secret.len() < GOOD_SECRET {
        tracing::warn!(
            "the secret of tokens has less than {GOOD_SECRET} bytes: anyone with a token could guess it by trying; use a longer one"
        );
    }
    let algorithms = AlgorithmFamily::Hmac.algorithms().to_vec();
    (None, DecodingKey::from_secret(secret), algorithms)
}

fn of_pem(pem: &[u8]) -> Result<ParsedKey, String> {
    let text = String::from_utf8_lossy(pem);
    if text.contains("PRIVATE KEY") {
        return Err("it is a private key, which only the issuer of tokens should have; give its public key, for example as `openssl pkey -pubout` writes it".to_owned());
    }
    if text.contains("BEGIN CERTIFICATE") {
        return Err(
            "it is a certificate; give its public key, as `openssl x509 -pubkey -noout` writes it"
                .to_owned(),
        );
    }
    let readers: [KeyReader; 3] = [
        DecodingKey::from_rsa_pem,
        DecodingKey::from_ec_pem,
        DecodingKey::from_ed_pem,
    ];
    let key = readers.iter().find_map(|read| read(pem).ok());
    let key = key.ok_or("it is not the PEM form of a public RSA, ECDSA (P-256, P-384) or Ed25519 key, which begins with `-----BEGIN PUBLIC KEY-----`")?;
    let algorithms = key.family().algorithms().to_vec();
    Ok((None, key, algorithms))
}

/// The usable keys of a JSON Web Key Set. Others are ignored.
fn of_set(text: &[u8]) -> Result<Vec<ParsedKey>, String> {
    let form = "it is not a JSON Web Key Set, `{\"keys\": [...]}`";
    let set: Value = serde_json::from_slice(text).map_err(|error| format!("{form}: {error}"))?;
    let keys = set.get("keys").and_then(Value::as_array).ok_or(form)?;
    let usable: Vec<ParsedKey> = keys.iter().filter_map(of_member).collect();
    if usable.is_empty() {
        return Err(
            "it has no key for signatures of RS256 to PS512, ES256, ES384, EdDSA or HS256 to HS512"
                .to_owned(),
        );
    }
    Ok(usable)
}

fn of_member(member: &Value) -> Option<ParsedKey> {
    let jwk = Jwk::deserialize(member).ok()?;
    let is_for_signatures = matches!(
        jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    if !is_for_signatures {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
        AlgorithmParameters::OctetKey(_) => AlgorithmFamily::Hmac.algorithms().to_vec(),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        _ => return None,
    };
    if let Some(named) = jwk.common.key_algorithm {
        let named = Algorithm::try_from(named).ok()?;
        algorithms.retain(|algorithm| *algorithm == named);
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then_some((jwk.common.key_id, key, algorithms))
}

fn validation(settings: &JwtSettings, algorithms: Vec<Algorithm>) -> Validation {
    let mut validation = Validation {
        algorithms,
        leeway: settings.leeway.ceil_seconds(),
        validate_nbf: true,
        validate_aud: !settings.audience.is_empty(),
        ..Validation::default()
    };
    if !settings.audience.is_empty() {
        validation.set_audience(&settings.audience);
        validation.required_spec_claims.insert("aud".to_owned());
    }
    if !settings.issuer.is_empty() {
        validation.set_issuer(&settings.issuer);
        validation.required_spec_claims.insert("iss".to_owned());
    }
    validation
}
