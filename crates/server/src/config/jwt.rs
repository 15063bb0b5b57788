//! The setting `jwt`: how the tokens of clients are verified.

use std::path::PathBuf;

use http::header::AUTHORIZATION;
use jsonwebtoken::Algorithm;
use tidegate::Micros;
use tidegate::document::{Fields, Node, Problems, Spot};
use tidegate_identity::{AttributeSource, JwtKey, JwtSettings, Secret, parse_jwks_url};

use super::Overrides;
use super::identify::{name, source};
use super::read::{TakenField, parsed, setting, span};
use super::redis::certificates;
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
        let path = parsed(fields.take(key), name, problems);
        keys.extend(path.map(|path| make(PathBuf::from(path))));
    };
    file("key_file", JwtKey::KeyFile, problems);
    file("jwks_file", JwtKey::JwksFile, problems);
    file("secret_file", JwtKey::SecretFile, problems);
    let ca = parsed(fields.take("jwks_ca"), certificates, problems);
    let url = fields.take("jwks_url");
    let has_url = url.is_some();
    if !has_url && let Some(entry) = fields.key("jwks_ca") {
        let message = "this is for `jwks_url`; leave it out";
        problems.error(&entry.key_place, &spot.field("jwks_ca"), message);
    }
    let url = parsed(url, parse_jwks_url, problems);
    keys.extend(url.map(|url| JwtKey::JwksUrl { url, ca }));
    let variable = fields.take("secret_env");
    let has_variable = variable.is_some();
    let in_environment = |name: &str| {
        let value = (overrides.environment)(name).unwrap_or_default();
        match value.trim() {
            "" => Err(format!(
                "the environment variable `{name}` is not set or empty"
            )),
            secret => Ok(JwtKey::Secret(Secret::from(secret))),
        }
    };
    keys.extend(parsed(variable, in_environment, problems));
    let algorithms = list(fields.take("algorithms"), algorithm, problems);
    let issuer = list(fields.take("issuer"), name, problems);
    let audience = list(fields.take("audience"), name, problems);
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
        problems.error(&node.place, &spot, message);
        None
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

fn list<T>(
    taken: TakenField<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
    problems: &mut Problems,
) -> Vec<T> {
    let Some((spot, node)) = taken else {
        return Vec::new();
    };
    let items = spot.items(node, problems);
    let item = |(spot, node): (Spot, &Node)| spot.parsed(node, &parse, problems);
    items.into_iter().filter_map(item).collect()
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
