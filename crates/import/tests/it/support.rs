//! Imports texts, and reads the rules that come out.

use std::fs;
use std::path::Path;

use tidegate::document::Source;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate_import::{
    ImportFile, ImportSettings, ImportedRules, IncludedFiles, NothingImported, import_nginx,
};

/// Files below a folder, with one pattern: `folder/*.conf`.
pub(crate) struct ShapeFiles<'f>(pub(crate) &'f Path);

impl IncludedFiles for ShapeFiles<'_> {
    fn find(&self, _root: &str, pattern: &str) -> Result<Vec<ImportFile>, String> {
        if pattern.starts_with(['/', '.']) {
            return Err("it is not below the folder".to_owned());
        }
        let Some(folder) = pattern.strip_suffix("/*.conf") else {
            return Err("there is no such file".to_owned());
        };
        let entries = fs::read_dir(self.0.join(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let read = |name: &String| ImportFile {
            name: format!("{folder}/{name}"),
            text: fs::read_to_string(self.0.join(folder).join(name)).unwrap(),
        };
        Ok(names.iter().map(read).collect())
    }
}

/// Imports one text.
pub(crate) fn import(text: &str) -> Result<ImportedRules, NothingImported> {
    let file = ImportFile {
        name: "nginx.conf".to_owned(),
        text: text.to_owned(),
    };
    let nowhere = ShapeFiles(Path::new("/nonexistent"));
    import_nginx(&[file], &nowhere, &ImportSettings::default())
}

/// The rules of an import, which are valid.
pub(crate) fn rules(imported: &ImportedRules) -> RuleSet {
    let source = Source::new("rules.yaml", &imported.text);
    match RuleSet::read(&source, &RuleSettings::default()) {
        Ok(rules) => rules,
        Err(problems) => panic!("{}\n{}", problems.render(&source), imported.text),
    }
}
