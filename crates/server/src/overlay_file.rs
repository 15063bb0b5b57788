//! Follows the file with the overlay of the rules. An invalid overlay changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::admin::Admin;
use crate::watch::FileWatch;

/// Reads the overlay again when its file changes.
pub(crate) async fn follow(admin: Arc<Admin>, path: PathBuf, mut watch: FileWatch) {
    loop {
        watch.changed().await;
        let (admin, path) = (Arc::clone(&admin), path.clone());
        let _ = tokio::task::spawn_blocking(move || reload(&admin, &path)).await;
    }
}

/// Reads the overlay again. Blocks.
fn reload(admin: &Admin, path: &Path) {
    match admin.book.reload_overlay(&admin.gate, path) {
        Ok(changes) if changes.is_empty() => tracing::debug!("the overlay changes no limit"),
        Ok(changes) => {
            tracing::info!(changes = changes.join(", "), "the overlay was read again");
            admin.book.log_warnings(admin.gate.rules().warnings());
        }
        Err(error) => tracing::error!("the overlay stays as it was: {error}"),
    }
}
