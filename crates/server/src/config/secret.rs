//! Secrets: from a file that a setting names, or from the environment; never from the YAML file.

use tidegate::document::{Fields, Problems};
use tidegate_identity::Secret;

use super::Overrides;

/// The secret in the file that a setting such as `key_secret_file` names, or in the variable
/// `TIDEGATE_KEY_SECRET`. The variable takes precedence.
pub(super) fn read(
    fields: &Fields<'_>,
    key: &str,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<Secret> {
    let of_file = fields.parsed(key, in_file, problems);
    let variable = format!("TIDEGATE_{}", key.trim_end_matches("_file").to_uppercase());
    let value = (overrides.environment)(&variable).unwrap_or_default();
    let value = value.trim();
    let of_variable = (!value.is_empty()).then(|| Secret::from(value));
    of_variable.or(of_file)
}

fn in_file(path: &str) -> Result<Secret, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the secret in `{path}`: {error}"))?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(format!("there is no secret in `{path}`"));
    }
    Ok(Secret::from(secret))
}
