//! Names of series by the rules of `statsd_exporter`: the first glob that matches a stat, else the first regular
//! expression, gives its series a name and labels, or drops it. A stat without a rule keeps its name.

mod glob;
mod read;

use regex::Regex;

use super::book::StatKind;
use super::times::ObserverForm;
use glob::Glob;

/// The mapping that is in force without a file. Times are in milliseconds, so that a scale makes them seconds.
const BUILT_IN: &str = include_str!("built_in.yaml");

/// In what the built-in mapping shows times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeUnit {
    /// In seconds.
    #[default]
    Seconds,
    /// In milliseconds.
    Milliseconds,
}

/// How stats become series.
#[derive(Debug, Clone)]
pub struct StatMapping {
    globs: Vec<(Glob, MappingRow)>,
    regexes: Vec<(Regex, MappingRow)>,
    /// How times are shown without a rule.
    observer: ObserverForm,
}

/// What a rule makes of a stat.
#[derive(Debug, Clone, PartialEq)]
struct MappingRow {
    kind: Option<StatKind>,
    is_dropped: bool,
    name: String,
    /// By name.
    labels: Vec<(String, String)>,
    observer: ObserverForm,
    scale: Option<f64>,
    help: Option<String>,
}

/// What becomes of a stat.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MappedStat {
    Dropped,
    Series(MappedSeries),
}

/// The series that a stat counts in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MappedSeries {
    pub(super) name: String,
    /// By name.
    pub(super) labels: Vec<(String, String)>,
    pub(super) observer: ObserverForm,
    pub(super) scale: Option<f64>,
    pub(super) help: Option<String>,
    /// Whether a rule names it.
    pub(super) is_named: bool,
}

impl StatMapping {
    /// What becomes of a stat.
    pub(super) fn map(&self, stat: &str, kind: StatKind) -> MappedStat {
        let found = self.by_glob(stat, kind);
        match found.or_else(|| self.by_regex(stat, kind)) {
            Some(mapped) => mapped,
            None => MappedStat::Series(MappedSeries {
                name: series_name(stat),
                labels: Vec::new(),
                observer: self.observer.clone(),
                scale: None,
                help: None,
                is_named: false,
            }),
        }
    }

    fn by_glob(&self, stat: &str, kind: StatKind) -> Option<MappedStat> {
        let parts: Vec<&str> = stat.split('.').collect();
        self.globs.iter().find_map(|(glob, row)| {
            if !row.is_about(kind) {
                return None;
            }
            let captured = glob.captures(&parts)?;
            Some(row.mapped(|template| glob::expanded(template, &captured)))
        })
    }

    fn by_regex(&self, stat: &str, kind: StatKind) -> Option<MappedStat> {
        self.regexes.iter().find_map(|(regex, row)| {
            if !row.is_about(kind) {
                return None;
            }
            let captures = regex.captures(stat)?;
            Some(row.mapped(|template| {
                let mut text = String::new();
                captures.expand(template, &mut text);
                text
            }))
        })
    }
}

impl MappingRow {
    fn is_about(&self, kind: StatKind) -> bool {
        self.kind.is_none_or(|meant| meant == kind)
    }

    fn mapped(&self, expand: impl Fn(&str) -> String) -> MappedStat {
        let name = series_name(&expand(&self.name));
        if self.is_dropped || name.is_empty() {
            return MappedStat::Dropped;
        }
        let labels = self.labels.iter();
        MappedStat::Series(MappedSeries {
            name,
            labels: labels
                .map(|(label, value)| (label.clone(), expand(value)))
                .collect(),
            observer: self.observer.clone(),
            scale: self.scale,
            help: self.help.clone(),
            is_named: true,
        })
    }
}

/// A name in the letters of a metric of Prometheus. Other letters become `_`, and so do two dashes together.
fn series_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len() + 1);
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        name.push('_');
    }
    let mut last = None;
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if (last, c) != (Some('-'), '-') {
            name.push('_');
        }
        last = Some(c);
    }
    name
}

/// A name in the letters of a label.
pub(super) fn label_name(text: &str) -> String {
    series_name(text)
}

#[cfg(test)]
mod tests;
