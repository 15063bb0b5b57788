//! The token with which an operator on this machine administers a server without configured tokens: read or
//! generated at the start and on reload.

use crate::admin::Admin;
use crate::data_dir::MadeTokenError;
use crate::data_dir::made_token::{FILE, read_or_make};

/// The behaviour of a server without any token, for logs.
const CLOSED: &str = "calls that read or change rules answer 403; configure a token (TIDEGATE_TOKEN, or `tokens` in the configuration)";

/// Reads or generates the token, if none is configured. Without one, the calls that need it are refused. A
/// token file that other users can read is an error.
pub(crate) fn open(admin: &Admin) -> Result<(), MadeTokenError> {
    if admin.decider.access.wants_tokens() {
        warn_if_ignored(admin);
        return Ok(());
    }
    // Without a token, no call is served there that would need one.
    if admin.decider.envoy_ratelimit.is_some() {
        return Ok(());
    }
    let Some(directory) = &admin.data else {
        tracing::warn!("no token is configured, and a generated one cannot be stored: {CLOSED}");
        return Ok(());
    };
    match read_or_make(directory) {
        Ok(secret) => {
            admin.decider.access.set_made(secret);
            let file = directory.path.join(FILE);
            tracing::info!(
                file = %file.display(),
                "no token is configured; calls that read or change rules need the token in this file"
            );
        }
        Err(wide @ MadeTokenError::Wide { .. }) => return Err(wide),
        Err(error) => tracing::error!("{error}; until then, {CLOSED}"),
    }
    if admin.store.redis().is_some() {
        tracing::warn!(
            "each server has its own `{FILE}`; configure a token that all servers of this Redis accept"
        );
    }
    Ok(())
}

/// Reads the token again, or generates a new one if its file is gone. On failure the current token stays.
pub(crate) fn reload(admin: &Admin) {
    let Some(directory) = &admin.data else {
        return;
    };
    if admin.decider.access.wants_tokens() {
        return;
    }
    match read_or_make(directory) {
        Ok(secret) => admin.decider.access.set_made(secret),
        Err(error) => tracing::error!("the token stays as it was: {error}"),
    }
}

fn warn_if_ignored(admin: &Admin) {
    let file = admin.data.as_ref().map(|data| data.path.join(FILE));
    if let Some(file) = file.filter(|file| file.exists()) {
        tracing::warn!(
            "`{}` is not used, because a token is configured; delete it",
            file.display()
        );
    }
}
