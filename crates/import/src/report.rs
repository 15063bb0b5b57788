//! What is said about an import: notes, differences of meaning, parts that are left out.

use std::fmt;

use crate::NothingImported;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportFindingKind {
    /// The meaning is the same; something should be known.
    Note,
    /// The rules decide otherwise in some case.
    Difference,
    /// No rule was written for this part.
    LeftOut,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFinding {
    /// How much it matters.
    pub kind: ImportFindingKind,
    /// The file and the line, as `nginx.conf:3`; empty if it is about no line.
    pub place: String,
    /// What is to be known.
    pub message: String,
}

impl fmt::Display for ImportFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ImportFindingKind::Note => "note: ",
            ImportFindingKind::Difference => "difference: ",
            ImportFindingKind::LeftOut => "left out: ",
        })?;
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

/// A line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct ConfigLine {
    pub(crate) file: usize,
    pub(crate) line: usize,
}

/// How many findings are kept: more than a person reads.
const MOST: usize = 1_000;

/// Collects findings. One that was already made is not repeated.
#[derive(Debug, Default)]
pub(crate) struct ImportReport {
    /// The names of files, by their numbers.
    files: Vec<String>,
    findings: Vec<(ConfigLine, ImportFinding)>,
}

impl ImportReport {
    /// The number of a new file.
    pub(crate) fn add_file(&mut self, name: &str) -> usize {
        self.files.push(name.to_owned());
        self.files.len() - 1
    }

    /// A line as messages name it.
    pub(crate) fn place(&self, at: ConfigLine) -> String {
        let name = self.files.get(at.file).map_or("", String::as_str);
        format!("{name}:{}", at.line)
    }

    pub(crate) fn note(&mut self, at: ConfigLine, message: impl Into<String>) {
        self.add(ImportFindingKind::Note, Some(at), message.into());
    }

    /// A note about no line.
    pub(crate) fn general_note(&mut self, message: impl Into<String>) {
        self.add(ImportFindingKind::Note, None, message.into());
    }

    pub(crate) fn difference(&mut self, at: ConfigLine, message: impl Into<String>) {
        self.add(ImportFindingKind::Difference, Some(at), message.into());
    }

    /// A difference about no line.
    pub(crate) fn general_difference(&mut self, message: impl Into<String>) {
        self.add(ImportFindingKind::Difference, None, message.into());
    }

    pub(crate) fn left_out(&mut self, at: ConfigLine, message: impl Into<String>) {
        self.add(ImportFindingKind::LeftOut, Some(at), message.into());
    }

    fn add(&mut self, kind: ImportFindingKind, at: Option<ConfigLine>, message: String) {
        let finding = ImportFinding {
            kind,
            place: at.map(|at| self.place(at)).unwrap_or_default(),
            message,
        };
        let is_known = self.findings.iter().any(|(_, known)| *known == finding);
        if is_known || self.findings.len() >= MOST {
            return;
        }
        let after_all = ConfigLine {
            file: usize::MAX,
            line: 0,
        };
        self.findings.push((at.unwrap_or(after_all), finding));
    }

    pub(crate) fn has_left_out(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|(_, finding)| finding.kind == ImportFindingKind::LeftOut)
    }

    /// All findings, in the order of the files.
    pub(crate) fn finish(mut self) -> Vec<ImportFinding> {
        self.findings
            .sort_by_key(|(at, finding)| (*at, finding.kind));
        self.findings
            .into_iter()
            .map(|(_, finding)| finding)
            .collect()
    }

    pub(crate) fn refused(self, message: String) -> NothingImported {
        NothingImported {
            message,
            findings: self.finish(),
        }
    }
}
