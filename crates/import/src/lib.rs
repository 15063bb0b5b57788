//! Reads the limits of nginx and of ingress-nginx, and writes them as rules with the same meaning.
//!
//! Nothing is executed, and nothing is read but the text that the caller provides. What differs in meaning, and what is
//! left out, is reported with file and line.
//!
//! | file | does |
//! | --- | --- |
//! | `nginx/` | configuration as text → zones, servers, locations and their limits |
//! | `ingress.rs` | manifests → the same |
//! | `resolve.rs`, `request_test.rs` | the key of a zone, through `map`, `geo`, `set` and `if` → attributes and conditions |
//! | `region.rs`, `hosts.rs`, `merge.rs` | which requests have a limit, by location and server → paths, hosts, exceptions |
//! | `convert.rs`, `rule_key.rs`, `rule_file.rs` | all of it → the text of a rule file, checked by the reader of rules |

#![forbid(unsafe_code)]

mod convert;
mod hosts;
mod ingress;
mod merge;
mod model;
mod nginx;
mod region;
mod report;
mod request_test;
mod resolve;
mod rule_file;
mod rule_key;

use std::fmt;

use nginx::Configuration;
use report::ImportReport;
pub use report::{ImportFinding, ImportFindingKind};

/// A file: its name in messages, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFile {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Finds the files that `include` names.
pub trait IncludedFiles {
    /// The files that a pattern names, in their order, for the configuration that begins in the file `root`. The error
    /// says why there are none.
    fn find(&self, root: &str, pattern: &str) -> Result<Vec<ImportFile>, String>;
}

/// What the importer must know of the server that will use the rules, and of the one that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportSettings {
    /// How many bits of an IPv6 address the server counts by.
    pub ipv6_prefix: u8,
    /// How many pods of the ingress controller there are, if limits shall be multiplied by that.
    pub replicas: Option<u64>,
}

impl Default for ImportSettings {
    fn default() -> Self {
        Self {
            ipv6_prefix: 64,
            replicas: None,
        }
    }
}

/// A rule file, and what is to be known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRules {
    /// The text of the rule file.
    pub text: String,
    /// Notes, differences of meaning and parts that are left out, in the order of the files.
    pub findings: Vec<ImportFinding>,
}

impl ImportedRules {
    /// Whether the rules mean what the configuration means.
    pub fn is_same(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.kind == ImportFindingKind::Note)
    }
}

/// Why no rule file can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NothingImported {
    /// The reason, with file and line where there is one.
    pub message: String,
    /// What was left out.
    pub findings: Vec<ImportFinding>,
}

impl fmt::Display for NothingImported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NothingImported {}

/// The limits of a configuration of nginx, which may be in several files: each as if it stood in the same `http` block.
pub fn import_nginx(
    files: &[ImportFile],
    included: &dyn IncludedFiles,
    settings: &ImportSettings,
) -> Result<ImportedRules, NothingImported> {
    let mut report = ImportReport::default();
    let read = Configuration::read(files, included, &mut report);
    let model = match read {
        Ok(configuration) => configuration.model(&mut report),
        Err(message) => return Err(report.refused(message)),
    };
    convert::rules(model, settings, report)
}

/// The limits in the annotations of ingresses, of which a file may hold several.
pub fn import_ingress(
    files: &[ImportFile],
    settings: &ImportSettings,
) -> Result<ImportedRules, NothingImported> {
    let mut report = ImportReport::default();
    let model = match ingress::read(files, settings, &mut report) {
        Ok(model) => model,
        Err(message) => return Err(report.refused(message)),
    };
    convert::rules(model, settings, report)
}
