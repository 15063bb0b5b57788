//! The setting `jwt`: how the tokens of clients are verified.

use std::path::PathBuf;

use http::header::AUTHORIZATION;
use jsonwebtoken::Algorithm;
use tidegate::Micros;
use tidegate::document::{Fields, Node, Problems, Spot};
use tidegate_identity::{AttributeSource, JwtKey, JwtSettings, Secret, parse_jwks_url};

use super::Overrides;
use super::identify::{name, source};
use super::read::{setting, span};
use super::redis::certificates_file;
use super::settings::JWT;

/// How much clocks may differ by default.
const MOST_LEEWAY: Micros = Micros::from_seconds(3_600);

pub(super) fn read(
    node: &Node,
    spot: &Spot,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<JwtSettings> {
    let fields = Fields::new(node, spot.clone(), &JWT, problems)?;
    let mut keys: Vec<JwtKey> = Vec::new();
    let mut file = |key, make: fn(PathBuf) -> JwtKey, problems: &mut Problems| {
        let path = fields.parsed(key, name, problems);
        keys.extend(path.map(|path| make(PathBuf::from(path))));
    };
    file("key_file", JwtKey::KeyFile, problems);
    file("jwks_file", JwtKey::JwksFile, problems);
    file("secret_file", JwtKey::SecretFile, problems);
    let ca = fields.parsed("jwks_ca", certificates_file, problems);
    let has_url = fields.take("jwks_url").is_some();
    if !has_url && let Some(entry) = fields.key("jwks_ca") {
        let message = "this is for `jwks_url`; leave it out";
        problems.error(&entry.key_place, &spot.field("jwks_ca"), message);
    }
    let url = fields.parsed("jwks_url", parse_jwks_url, problems);
    keys.extend(url.map(|url| JwtKey::JwksUrl { url, ca }));
    let has_variable = fields.take("secret_env").is_some();
    let in_environment = |name: &str| {
        let value = (overrides.environment)(name).unwrap_or_default();
        match value.trim() {
            "" => Err(format!(
                "the environment variable `{name}` is not set or empty"
            )),
            secret => Ok(JwtKey::Secret(Secret::from(secret))),
        }
    };
    keys.extend(fields.parsed("secret_env", in_environment, problems));
    let algorithms = fields.list("algorithms", algorithm, problems);
    let issuer = fields.list("issuer", name, problems);
    let audience = fields.list("audience", name, problems);
    let leeway = setting(&fields, "leeway", leeway, problems);
    let from = fields.take("from").and_then(|(spot, node)| {
        let source = source(node, &spot, problems)?;
        if matches!(
            source,
            AttributeSource::Header(_) | AttributeSource::Cookie(_)
        ) {
            return Some(source);
        }
        let message = "a token comes from `{header: ...}` or `{cookie: ...}`";
        spot.refused(node, message, problems)
    });
    fields.done(problems);
    if keys.len() != 1 && !(keys.is_empty() && (has_variable || has_url)) {
        let message = "give one of `key_file` (a public key in PEM form), `jwks_file` (a JSON Web Key Set), `jwks_url` (where to fetch one), `secret_file` and `secret_env`";
        problems.error(&node.place, spot, message);
    }
    Some(JwtSettings {
        key: keys.pop()?,
        algorithms,
        issuer,
        audience,
        leeway: leeway?,
        from: from.unwrap_or(AttributeSource::Header(AUTHORIZATION)),
    })
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an algorithm; expected one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384, HS512")
    })
}

fn leeway(text: &str) -> Result<Micros, String> {
    match span(text)? {
        long if long > MOST_LEEWAY => Err(format!("`{text}` is too long; give at most `1h`")),
        leeway => Ok(leeway),
    }
}
