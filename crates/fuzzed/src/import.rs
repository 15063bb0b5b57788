//! Configurations of nginx and manifests of ingresses: what is written is a rule file without errors, in which each rule
//! has its origin, and every finding is one line.

use tidegate_import::{
    ImportFile, ImportFinding, ImportSettings, ImportedRules, IncludedFiles, NothingImported,
    import_ingress, import_nginx,
};

/// Includes the file itself, as long as that is allowed, or nothing.
struct ItselfOnce<'t>(&'t str);

impl IncludedFiles for ItselfOnce<'_> {
    fn find(&self, root: &str, pattern: &str) -> Result<Vec<ImportFile>, String> {
        if !pattern.starts_with("self") {
            return Err("there is no such file".to_owned());
        }
        let text = self.0.replace("include", "included");
        let name = root.to_owned();
        Ok(vec![ImportFile { name, text }])
    }
}

/// Imports a text as both.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = ImportFile {
        name: "file".to_owned(),
        text: text.clone().into_owned(),
    };
    let files = std::slice::from_ref(&file);
    let settings = ImportSettings::default();
    check_result(import_nginx(files, &ItselfOnce(&text), &settings));
    let settings = ImportSettings {
        replicas: Some(7),
        ..settings
    };
    check_result(import_ingress(files, &settings));
}

fn check_result(result: Result<ImportedRules, NothingImported>) {
    match result {
        Ok(imported) => {
            check_findings(&imported.findings);
            let rules = super::rules::read(&imported.text);
            let rules = rules.unwrap_or_else(|problems| {
                unreachable!("{problems}: written as {}", imported.text)
            });
            let begun = imported
                .text
                .lines()
                .filter(|line| line.starts_with("  - id: "));
            assert_eq!(begun.count(), rules.len(), "{}", imported.text);
            assert!(!rules.is_empty(), "no rule is no rule file");
            super::rules::decide(rules);
        }
        Err(refused) => {
            assert!(!refused.message.is_empty(), "refused without a reason");
            check_findings(&refused.findings);
        }
    }
}

fn check_findings(findings: &[ImportFinding]) {
    for finding in findings {
        assert!(!finding.message.is_empty(), "{finding:?}");
    }
}
