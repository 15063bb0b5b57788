//! Reads the rules of all files in a folder, which have the form of envoyproxy/ratelimit. One wrong file refuses all.

use std::path::Path;
use std::sync::Arc;

use tidegate::document::{Problems, Source};
use tidegate::rules::{DescriptorSource, RuleSet, RuleSettings};

use super::file::{self, LoadError};
use crate::config::RulePath;
use crate::rule_folder::files_of;

/// The texts of the files in a folder.
#[derive(Debug)]
pub struct RuleFolder(pub(super) Vec<Source>);

impl RuleFolder {
    /// Reads the files. A folder that is absent has none.
    pub fn read(rules: &RulePath) -> Result<Self, LoadError> {
        let unreadable = |path: &Path, source| LoadError::Unreadable {
            path: path.to_path_buf(),
            source,
        };
        let folder = &rules.path;
        if !folder.exists() {
            return Ok(Self(Vec::new()));
        }
        let files = files_of(folder, rules.ignore_dot_files);
        let mut texts = Vec::new();
        for path in files.map_err(|error| unreadable(folder, error))? {
            let text = file::read(&path).map_err(|error| unreadable(&path, error))?;
            texts.push(Source::new(path.display().to_string(), text));
        }
        Ok(Self(texts))
    }

    /// The rules, or everything that is wrong with the files.
    pub fn rules(&self, settings: &RuleSettings) -> Result<RuleSet, Problems> {
        let mut problems = Problems::new();
        let mut sources = Vec::new();
        for text in &self.0 {
            let name = Arc::from(text.name.as_str());
            problems.begin(&name);
            if let Some(documents) = text.read_all(&mut problems) {
                sources.push(DescriptorSource { name, documents });
            }
        }
        if problems.has_errors() {
            return Err(problems);
        }
        RuleSet::from_descriptors(&sources, settings)
    }

    /// Problems as text, each with an excerpt of its file.
    pub fn render(&self, problems: &Problems) -> String {
        problems.render_all(&self.0)
    }
}
