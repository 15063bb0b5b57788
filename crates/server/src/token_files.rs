//! Tokens that are read from files: reloaded when a file changes and on reload, so that they can be rotated
//! without a restart. An unusable file keeps the last value. Values are never logged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::access::Access;
use crate::config::{token_in_file, weakness};
use crate::decider::Decider;
use crate::watch::FileWatch;

/// Watches for the files of tokens. Create them before the last read of the files before requests arrive.
pub(crate) fn watch(access: &Access) -> Vec<(PathBuf, FileWatch)> {
    let mut files: Vec<PathBuf> = access
        .token_files()
        .into_iter()
        .map(|(_, file)| file)
        .collect();
    files.sort();
    files.dedup();
    files
        .into_iter()
        .map(|file| (file.clone(), FileWatch::new(file)))
        .collect()
}

/// Reloads the tokens of a file when it changes.
pub(crate) async fn follow(decider: Arc<Decider>, watches: Vec<(PathBuf, FileWatch)>) {
    let following = watches.into_iter().map(|(file, mut watch)| {
        let decider = Arc::clone(&decider);
        async move {
            loop {
                watch.changed().await;
                let (decider, file) = (Arc::clone(&decider), file.clone());
                let reading = move || reload(&decider.access, |other| other == file);
                let _ = tokio::task::spawn_blocking(reading).await;
            }
        }
    });
    futures_util::future::join_all(following).await;
}

/// Reloads the tokens whose file `is_meant`. Waits for the disk.
pub(crate) fn reload(access: &Access, is_meant: impl Fn(&Path) -> bool) {
    for (name, file) in access.token_files() {
        if !is_meant(&file) {
            continue;
        }
        match token_in_file(&file.to_string_lossy()) {
            Ok(secret) => {
                if access.set_secret(&name, &secret) {
                    if let Some(warning) = weakness(&name, &secret) {
                        tracing::warn!("{warning}");
                    }
                    tracing::info!(token = name, file = %file.display(), "the token was read again");
                }
            }
            Err(problem) => {
                tracing::error!(token = name, "the token stays as it was: {problem}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate::rules::FrontEnd;

    use crate::access::PresentedToken;
    use crate::config::{Token, TokenScope};

    use super::*;

    fn opens(access: &Access, secret: &str) -> bool {
        let asked = PresentedToken {
            front_end: FrontEnd::Http,
            peer: None,
            secret: Some(secret.as_bytes()),
        };
        access.check_token(&asked).is_ok()
    }

    #[test]
    fn a_token_file_that_is_empty_or_gone_keeps_the_last_value() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let access = Access::new(vec![Token {
            name: "ops".to_owned(),
            secret: "first".to_owned(),
            file: Some(file.clone()),
            scopes: vec![TokenScope::Check],
        }]);
        let reload = || super::reload(&access, |_| true);

        std::fs::write(&file, "second\n").unwrap();
        reload();
        assert!(opens(&access, "second") && !opens(&access, "first"));
        for damage in ["", " \n\n"] {
            std::fs::write(&file, damage).unwrap();
            reload();
            assert!(opens(&access, "second") && !opens(&access, ""));
        }
        std::fs::remove_file(&file).unwrap();
        reload();
        assert!(opens(&access, "second"));
        std::fs::write(&file, "third").unwrap();
        super::reload(&access, |other| other != file);
        assert!(opens(&access, "second"), "it is not meant");
        reload();
        assert!(opens(&access, "third") && !opens(&access, "second"));
    }
}
