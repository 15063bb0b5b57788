//! The overlay of the rules: a file that is read at the start, and again when it changes.

use std::path::Path;

use tidegate::Gate;
use tidegate::document::Source;
use tidegate::rules::Overlay;

use super::file::{LoadError, brief, read};
use super::{Origin, RuleBook, change, row};

/// Reads the overlay of a file.
pub(crate) fn load(path: &Path) -> Result<Overlay, LoadError> {
    let text = read(path).map_err(|source| LoadError::UnreadableOverlay {
        path: path.to_path_buf(),
        source,
    })?;
    let source = Source::new(path.display().to_string(), text);
    Overlay::read(&source).map_err(|problems| {
        let brief = brief(path, &problems);
        LoadError::Wrong {
            rendered: problems.render(&source),
            logged: brief.clone(),
            brief,
        }
    })
}

impl RuleBook {
    /// Notes that the overlay cannot be used.
    pub(crate) fn note_overlay_problem(&self, problem: String) {
        *self.overlay_problem.write() = Some(problem);
    }

    /// Reads the overlay again and puts it in force, if it is valid. Returns what changed of the rules. Blocks.
    pub(crate) fn reload_overlay(
        &self,
        gate: &Gate,
        path: &Path,
    ) -> Result<Vec<String>, LoadError> {
        let overlay = load(path).inspect_err(|error| {
            self.note_overlay_problem(error.brief());
        })?;
        *self.overlay_problem.write() = None;
        let _reloading = self.rule_file().map(|file| file.reloading.lock());
        let _putting = self.xds().map(|_| self.putting.lock());
        self.settings.overlay.replace(overlay);
        let rules = gate.rules().overlaid();
        let changes = change::between(&gate.rules(), &rules);
        if changes.is_empty() {
            return Ok(changes);
        }
        let versions = match &self.origin {
            Origin::File(file) => &file.versions,
            Origin::Xds(xds) => &xds.versions,
            Origin::DataDir(_) | Origin::Shared(_) => return Ok(changes),
        };
        let row = row(self.next_version(), "overlay".to_owned(), changes.clone());
        versions.lock().push(row, &rules.written());
        gate.replace_rules(rules);
        Ok(changes)
    }
}
