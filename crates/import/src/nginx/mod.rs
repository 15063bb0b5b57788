//! Reads a configuration of nginx: files, included files, and the `http` block.

mod levels;
mod lookups;
pub(crate) use lookups::network;
mod syntax;
mod zones;

use crate::model::LimitModel;
use crate::report::ImportReport;
use crate::{ImportFile, IncludedFiles};
use syntax::Directive;

/// How many files a configuration may have.
const MAX_FILES: usize = 1_000;
/// How deep files may include each other.
const MAX_INCLUDES: usize = 16;
/// How many bytes all files may have.
const MAX_BYTES: usize = 16 << 20;

/// Files of the distribution that hold no limits. They are often missing where a configuration is looked at.
const WITHOUT_LIMITS: [&str; 8] = [
    "mime.types",
    "fastcgi_params",
    "fastcgi.conf",
    "fastcgi-php.conf",
    "uwsgi_params",
    "scgi_params",
    "proxy_params",
    "koi-win",
];

/// The directives of the `http` block, with included files in their places.
pub(crate) struct Configuration {
    http: Vec<Directive>,
}

impl Configuration {
    /// Reads all files. The error has file and line.
    pub(crate) fn read(
        files: &[ImportFile],
        included: &dyn IncludedFiles,
        report: &mut ImportReport,
    ) -> Result<Self, String> {
        let mut http = Vec::new();
        for file in files {
            let mut reader = FileReader {
                root: &file.name,
                included,
                report,
                files: 0,
                bytes: 0,
            };
            for directive in reader.file(file, 0)? {
                match directive.name.as_str() {
                    "http" => http.extend(directive.block.unwrap_or_default()),
                    "stream" => left_out_stream(&directive, report),
                    // A part of a configuration, as in `conf.d`.
                    _ => http.push(directive),
                }
            }
        }
        Ok(Self { http })
    }

    /// The limits of the configuration, with inheritance resolved.
    pub(crate) fn model(&self, report: &mut ImportReport) -> LimitModel {
        let mut model = LimitModel {
            lookups: lookups::read(&self.http),
            ..LimitModel::default()
        };
        zones::read(&self.http, &mut model, report);
        levels::read(&self.http, &mut model, report);
        model
    }
}

fn left_out_stream(stream: &Directive, report: &mut ImportReport) {
    let mut open: Vec<&Directive> = stream.children().iter().collect();
    while let Some(directive) = open.pop() {
        if directive.name == "limit_conn" {
            report.left_out(
                directive.at,
                "`limit_conn` in `stream`: rules are about HTTP requests",
            );
        }
        open.extend(directive.children());
    }
}

/// Reads the files of one configuration.
struct FileReader<'r> {
    root: &'r str,
    included: &'r dyn IncludedFiles,
    report: &'r mut ImportReport,
    files: usize,
    bytes: usize,
}

impl FileReader<'_> {
    fn file(&mut self, file: &ImportFile, depth: usize) -> Result<Vec<Directive>, String> {
        self.files += 1;
        self.bytes += file.text.len();
        if self.files > MAX_FILES || self.bytes > MAX_BYTES {
            let mib = MAX_BYTES >> 20;
            return Err(format!(
                "{}: the configuration has more than {MAX_FILES} files or {mib} MiB",
                file.name
            ));
        }
        let number = self.report.add_file(&file.name);
        let directives = syntax::parse(&file.text, number)
            .map_err(|mistake| format!("{}:{}: {}", file.name, mistake.line, mistake.message))?;
        self.with_included(directives, depth)
    }

    /// Directives, with what they include in its place.
    fn with_included(
        &mut self,
        directives: Vec<Directive>,
        depth: usize,
    ) -> Result<Vec<Directive>, String> {
        let mut whole = Vec::with_capacity(directives.len());
        for mut directive in directives {
            // In `types`, `map` and `geo` a line may begin with any word.
            if directive.name == "include" && directive.block.is_none() {
                whole.extend(self.included(&directive, depth)?);
                continue;
            }
            if let Some(block) = directive.block.take() {
                directive.block = Some(self.with_included(block, depth)?);
            }
            whole.push(directive);
        }
        Ok(whole)
    }

    fn included(&mut self, include: &Directive, depth: usize) -> Result<Vec<Directive>, String> {
        let pattern = include.word(0);
        if depth >= MAX_INCLUDES {
            let place = self.report.place(include.at);
            return Err(format!(
                "{place}: files include each other more than {MAX_INCLUDES} deep"
            ));
        }
        let files = match self.included.find(self.root, pattern) {
            Ok(files) => files,
            Err(reason) => {
                let name = pattern.rsplit('/').next().unwrap_or(pattern);
                if !WITHOUT_LIMITS.contains(&name) {
                    let message = format!("`include {pattern}`: {reason}");
                    self.report.left_out(include.at, message);
                }
                return Ok(Vec::new());
            }
        };
        let mut directives = Vec::new();
        for file in &files {
            directives.extend(self.file(file, depth + 1)?);
        }
        Ok(directives)
    }
}

/// The directives of a snippet, also of those in its blocks: names and words. None of one that cannot be read.
pub(crate) fn directives(text: &str) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    let mut open = syntax::parse(text, 0).unwrap_or_default();
    while let Some(directive) = open.pop() {
        open.extend(directive.block.unwrap_or_default());
        all.push((directive.name, directive.words));
    }
    all
}
