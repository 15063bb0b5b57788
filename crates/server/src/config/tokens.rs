//! The setting `tokens`: names, scopes, and where each token is read from.

use std::path::PathBuf;

use tidegate::document::{Fields, Node, Place, Problems, Spot, Value};

use super::read::TakenField;
use super::settings::TOKEN;
use super::{Overrides, Token, TokenScope};

/// The variable with a token that has all scopes.
const VARIABLE: &str = "TIDEGATE_TOKEN";

/// A shorter token can be guessed.
const SHORTEST: usize = 16;

pub(super) fn read(
    taken: TakenField<'_>,
    overrides: &Overrides<'_>,
    notes: &mut Vec<String>,
    problems: &mut Problems,
) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    if let Some((spot, node)) = taken {
        let Value::List(items) = &node.value else {
            problems.error(&node.place, &spot, "this must be a list of tokens, each `{name: ..., token_file: ..., scopes: [read, write, check]}`");
            return tokens;
        };
        for (index, item) in items.iter().enumerate() {
            let Some(read) = read_token(item, &spot.item(index), overrides, problems) else {
                continue;
            };
            if tokens.iter().any(|other| other.name == read.name) {
                problems.error(
                    &item.place,
                    &spot.item(index),
                    format!(
                        "two tokens have the name `{}`; give each its own",
                        read.name
                    ),
                );
            }
            tokens.push(read);
        }
    }
    if let Some(secret) = (overrides.environment)(VARIABLE) {
        let secret = secret.trim().to_owned();
        if secret.is_empty() {
            problems.error(
                &Place::Setting(VARIABLE.to_owned()),
                &Spot::document(),
                "the token is blank, and the server would run without it; unset the variable or give it a token",
            );
        }
        tokens.push(Token {
            name: VARIABLE.to_owned(),
            secret,
            file: None,
            scopes: vec![TokenScope::Read, TokenScope::Write, TokenScope::Check],
        });
    }
    notes.extend(
        tokens
            .iter()
            .filter_map(|token| weakness(&token.name, &token.secret)),
    );
    tokens
}

fn read_token(
    node: &Node,
    spot: &Spot,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<Token> {
    let fields = Fields::new(node, spot.clone(), &TOKEN, problems)?;
    let name = fields.take("name");
    let file = fields.take("token_file");
    let variable = fields.take("token_env");
    let scopes = fields.take("scopes");
    fields.done(problems);
    let (Some((name_spot, name)), Some((scopes_spot, scopes))) = (name, scopes) else {
        let message = "a token needs a `name`, its `scopes`, and a `token_file` or a `token_env`";
        return spot.refused(node, message, problems);
    };
    let name = name_spot.text(name, problems)?;
    let words = [
        ("read", TokenScope::Read),
        ("write", TokenScope::Write),
        ("check", TokenScope::Check),
    ];
    let items = scopes_spot.items(scopes, problems);
    if items.is_empty() {
        let message =
            "a token without scopes allows nothing; give one or more of `read`, `write`, `check`";
        problems.error(&scopes.place, &scopes_spot, message);
    }
    let scopes: Vec<TokenScope> = items
        .into_iter()
        .filter_map(|(spot, node)| spot.one_of(node, &words, problems))
        .collect();
    let mut token_file = None;
    let secret = match (file, variable) {
        (Some((spot, node)), None) => {
            token_file = spot.text(node, problems).map(PathBuf::from);
            spot.parsed(node, token_in_file, problems)?
        }
        (None, Some((spot, node))) => {
            let read = |name: &str| {
                let value = (overrides.environment)(name).unwrap_or_default();
                let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
                value.ok_or_else(|| {
                    format!("the environment variable `{name}` is not set or blank; give it a token, or unset it and remove this token from the settings")
                })
            };
            spot.parsed(node, read, problems)?
        }
        _ => {
            return spot.refused(
                node,
                "give either a `token_file` or a `token_env`",
                problems,
            );
        }
    };
    Some(Token {
        name: name.to_owned(),
        secret,
        file: token_file,
        scopes,
    })
}

/// A warning if a token is easily guessed.
pub(crate) fn weakness(name: &str, secret: &str) -> Option<String> {
    let length = secret.chars().count();
    let is_weak = (1..SHORTEST).contains(&length);
    is_weak.then(|| {
        format!(
            "the token `{name}` has {length} characters and can be guessed; use at least {SHORTEST}, such as those of `openssl rand -hex 24`"
        )
    })
}

/// The token in a file, trimmed.
pub(crate) fn token_in_file(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the token in `{path}`: {error}"))?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(format!(
            "there is no token in `{path}`; write one into it, or remove this token from the settings"
        ));
    }
    Ok(secret.to_owned())
}
