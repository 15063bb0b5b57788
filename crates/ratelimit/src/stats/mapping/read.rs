//! Reads a mapping as it is written. A mistake makes the file unusable, as in `statsd_exporter`; a key that is not
//! known here is a warning.

use regex::Regex;
use tidegate::document::{Entry, Node, Problem, Problems, Source, Spot, Value};

use super::glob::Glob;
use super::{BUILT_IN, MappingRow, StatMapping, TimeUnit};
use crate::stats::book::StatKind;
use crate::stats::times::ObserverForm;

/// The bounds of histograms without any: the default ones of clients of Prometheus.
const BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

const FILE: [&str; 2] = ["defaults", "mappings"];
const DEFAULTS: [&str; 7] = [
    "buckets",
    "histogram_options",
    "match_type",
    "observer_type",
    "quantiles",
    "summary_options",
    "timer_type",
];
const MAPPING: [&str; 14] = [
    "action",
    "buckets",
    "help",
    "histogram_options",
    "labels",
    "match",
    "match_metric_type",
    "match_type",
    "name",
    "observer_type",
    "quantiles",
    "scale",
    "summary_options",
    "timer_type",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchType {
    Glob,
    Regex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObserverType {
    Histogram,
    Summary,
}

/// What is in force where a mapping says nothing.
struct Defaults {
    match_type: MatchType,
    observer_type: ObserverType,
    bounds: Vec<f64>,
    quantiles: Vec<f64>,
}

impl StatMapping {
    /// Reads a file, with what is to be said about it; only that if it cannot be used.
    pub fn read(source: &Source) -> Result<(Self, Vec<Problem>), Problems> {
        let mut problems = Problems::new();
        let mapping = source
            .read(&mut problems)
            .and_then(|node| mapping(&node, &mut problems));
        problems.sort();
        match mapping {
            Some(mapping) if !problems.has_errors() => {
                Ok((mapping, problems.iter().cloned().collect()))
            }
            _ => Err(problems),
        }
    }

    /// The mapping without a file.
    pub fn built_in(unit: TimeUnit) -> Self {
        let text = match unit {
            TimeUnit::Seconds => BUILT_IN.to_owned(),
            TimeUnit::Milliseconds => BUILT_IN.replace("    scale: 0.001\n", ""),
        };
        let read = Self::read(&Source::new("built-in mapping", text));
        debug_assert!(read.is_ok(), "the built-in mapping is valid");
        read.map_or_else(|_| Self::empty(), |(mapping, _)| mapping)
    }

    fn empty() -> Self {
        Self {
            globs: Vec::new(),
            regexes: Vec::new(),
            observer: ObserverForm::Summary(QUANTILES.to_vec()),
        }
    }
}

fn mapping(node: &Node, problems: &mut Problems) -> Option<StatMapping> {
    let file = MapReader::new(node, Spot::document(), &FILE, problems)?;
    let defaults = file.take("defaults");
    let defaults = defaults.map_or_else(
        || Some(Defaults::none()),
        |(spot, node)| Defaults::read(node, spot, problems),
    );
    let defaults = defaults?;
    let mut mapping = StatMapping {
        observer: defaults.observer(),
        ..StatMapping::empty()
    };
    let Some((spot, rows)) = file.take("mappings") else {
        return Some(mapping);
    };
    let Value::List(rows) = &rows.value else {
        return spot.refused(rows, "this must be a list of mappings", problems);
    };
    for (index, row) in rows.iter().enumerate() {
        add_row(row, spot.item(index), &defaults, &mut mapping, problems);
    }
    Some(mapping)
}

fn add_row(
    node: &Node,
    spot: Spot,
    defaults: &Defaults,
    mapping: &mut StatMapping,
    problems: &mut Problems,
) -> Option<()> {
    let map = MapReader::new(node, spot, &MAPPING, problems)?;
    let is_dropped = map.word("action", &[("map", false), ("drop", true)], problems);
    let is_dropped = is_dropped.unwrap_or(false);
    let name = map.text("name", problems).unwrap_or_default();
    if !is_dropped && name.is_empty() {
        return map.refused("give `name`, the name of the metric", problems);
    }
    if !is_dropped && !is_name(name) {
        let message = format!(
            "`{name}` is not the name of a metric; it has letters, digits, `_` and references such as `$1`"
        );
        return map.refused_at("name", message, problems);
    }
    let kinds = [
        ("counter", StatKind::Counter),
        ("gauge", StatKind::Gauge),
        ("timer", StatKind::Timer),
        ("observer", StatKind::Timer),
    ];
    let row = MappingRow {
        kind: map.word("match_metric_type", &kinds, problems),
        is_dropped,
        name: name.to_owned(),
        labels: labels(&map, problems),
        observer: observer(&map, defaults, problems)?,
        scale: map
            .take("scale")
            .and_then(|(spot, node)| number(node, &spot, problems)),
        help: map.text("help", problems).map(str::to_owned),
    };
    let Some(pattern) = map.text("match", problems) else {
        return map.refused("give `match`, the names of stats that are meant", problems);
    };
    match match_type(&map, problems).unwrap_or(defaults.match_type) {
        MatchType::Glob => match Glob::parse(pattern) {
            Ok(glob) => mapping.globs.push((glob, row)),
            Err(problem) => return map.refused_at("match", problem, problems),
        },
        MatchType::Regex => match Regex::new(pattern) {
            Ok(regex) => mapping.regexes.push((regex, row)),
            Err(error) => {
                let message = format!("`{pattern}` is not a regular expression: {error}");
                return map.refused_at("match", message, problems);
            }
        },
    }
    Some(())
}

fn match_type(map: &MapReader<'_>, problems: &mut Problems) -> Option<MatchType> {
    let words = [("glob", MatchType::Glob), ("regex", MatchType::Regex)];
    map.word("match_type", &words, problems)
}

fn observer_type(map: &MapReader<'_>, problems: &mut Problems) -> Option<ObserverType> {
    let words = [
        ("histogram", ObserverType::Histogram),
        ("summary", ObserverType::Summary),
    ];
    let newer = map.word("observer_type", &words, problems);
    let older = map.word("timer_type", &words, problems);
    newer.or(older)
}

impl Defaults {
    fn none() -> Self {
        Self {
            match_type: MatchType::Glob,
            observer_type: ObserverType::Summary,
            bounds: BOUNDS.to_vec(),
            quantiles: QUANTILES.to_vec(),
        }
    }

    fn read(node: &Node, spot: Spot, problems: &mut Problems) -> Option<Self> {
        let missing = Self::none();
        let map = MapReader::new(node, spot, &DEFAULTS, problems)?;
        Some(Self {
            match_type: match_type(&map, problems).unwrap_or(missing.match_type),
            observer_type: observer_type(&map, problems).unwrap_or(missing.observer_type),
            bounds: bounds(&map, problems)?.unwrap_or(missing.bounds),
            quantiles: quantiles(&map, problems)?.unwrap_or(missing.quantiles),
        })
    }

    fn observer(&self) -> ObserverForm {
        match self.observer_type {
            ObserverType::Histogram => ObserverForm::Histogram(self.bounds.clone()),
            ObserverType::Summary => ObserverForm::Summary(self.quantiles.clone()),
        }
    }
}

fn observer(
    map: &MapReader<'_>,
    defaults: &Defaults,
    problems: &mut Problems,
) -> Option<ObserverForm> {
    let (bounds, quantiles) = (bounds(map, problems)?, quantiles(map, problems)?);
    Some(
        match observer_type(map, problems).unwrap_or(defaults.observer_type) {
            ObserverType::Histogram => {
                ObserverForm::Histogram(bounds.unwrap_or_else(|| defaults.bounds.clone()))
            }
            ObserverType::Summary => {
                ObserverForm::Summary(quantiles.unwrap_or_else(|| defaults.quantiles.clone()))
            }
        },
    )
}

/// The bounds of histograms, if there are any. `None` if they cannot be used.
#[expect(clippy::option_option, reason = "no bounds are no mistake")]
fn bounds(map: &MapReader<'_>, problems: &mut Problems) -> Option<Option<Vec<f64>>> {
    let Some((spot, node)) = map.take_option("buckets", "histogram_options", problems) else {
        return Some(None);
    };
    let mut bounds = Vec::new();
    for (spot, node) in spot.items(node, problems) {
        bounds.push(number(node, &spot, problems)?);
    }
    // It is always added.
    if bounds.last() == Some(&f64::INFINITY) {
        bounds.pop();
    }
    if !bounds.is_sorted_by(|one, next| one < next) {
        let message = "these bounds must be ascending, such as `[0.005, 0.01, 0.1]`";
        return spot.refused(node, message, problems);
    }
    Some((!bounds.is_empty()).then_some(bounds))
}

/// The quantiles of summaries, if there are any. `None` if they cannot be used.
#[expect(clippy::option_option, reason = "no quantiles are no mistake")]
fn quantiles(map: &MapReader<'_>, problems: &mut Problems) -> Option<Option<Vec<f64>>> {
    let Some((spot, node)) = map.take_option("quantiles", "summary_options", problems) else {
        return Some(None);
    };
    let Value::List(items) = &node.value else {
        return spot.refused(node, "this must be a list of quantiles", problems);
    };
    let mut quantiles = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let spot = spot.item(index);
        let Some(node) = item.get("quantile") else {
            let message = "write a quantile as `{quantile: 0.99, error: 0.001}`";
            return spot.refused(item, message, problems);
        };
        let quantile = number(node, &spot, problems)?;
        if !(0.0..=1.0).contains(&quantile) {
            return spot.refused(node, "a quantile is from 0 to 1", problems);
        }
        quantiles.push(quantile);
    }
    Some((!quantiles.is_empty()).then_some(quantiles))
}

fn labels(map: &MapReader<'_>, problems: &mut Problems) -> Vec<(String, String)> {
    let Some((spot, node)) = map.take("labels") else {
        return Vec::new();
    };
    let mut labels = Vec::new();
    for Entry {
        key,
        key_place,
        value,
    } in spot.entries(node, problems)
    {
        let spot = spot.field(key);
        if !is_label(key) {
            let message =
                format!("`{key}` is not the name of a label; it has letters, digits and `_`");
            problems.error(key_place, &spot, message);
        }
        match value.text() {
            Some(text) => labels.push((key.clone(), text.to_owned())),
            None => problems.error(&value.place, &spot, "this must be text, such as `$1`"),
        }
    }
    labels.sort();
    labels
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '{' | '}');
    text.chars().all(is_plain) && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_label(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty()
        && text.chars().all(is_plain)
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn number(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<f64> {
    let number = node.text().and_then(|text| match text.trim() {
        ".inf" | ".Inf" | ".INF" => Some(f64::INFINITY),
        text => text.parse::<f64>().ok(),
    });
    let number = number.filter(|number| !number.is_nan());
    number.or_else(|| spot.refused(node, "this must be a number, such as `0.001`", problems))
}

/// A map of which only some keys are known.
struct MapReader<'n> {
    spot: Spot,
    node: &'n Node,
}

impl<'n> MapReader<'n> {
    fn new(node: &'n Node, spot: Spot, known: &[&str], problems: &mut Problems) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            let message = format!("this must be a map with keys, not {}", node.kind());
            return spot.refused(node, message, problems);
        }
        let entries = spot.entries(node, problems).iter();
        for entry in entries.filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = format!("`{}` has no effect here; leave it out", entry.key);
            problems.warning(&entry.key_place, &spot.field(&entry.key), message);
        }
        Some(Self { spot, node })
    }

    fn take(&self, key: &str) -> Option<(Spot, &'n Node)> {
        let node = self.node.get(key)?;
        let is_there = !matches!(node.value, Value::Null);
        is_there.then(|| (self.spot.field(key), node))
    }

    /// The value of a key, or of the same key in a map of options.
    fn take_option(
        &self,
        key: &str,
        options: &str,
        problems: &mut Problems,
    ) -> Option<(Spot, &'n Node)> {
        let within = self.take(options).and_then(|(spot, node)| {
            let options = MapReader::new(node, spot, &[key], problems)?;
            options.take(key)
        });
        within.or_else(|| self.take(key))
    }

    fn text(&self, key: &str, problems: &mut Problems) -> Option<&'n str> {
        let (spot, node) = self.take(key)?;
        let message = format!("this must be text, not {}", node.kind());
        let text = node.text();
        text.or_else(|| spot.refused(node, message, problems))
    }

    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)], problems: &mut Problems) -> Option<T> {
        let (spot, node) = self.take(key)?;
        spot.one_of(node, words, problems)
    }

    fn refused<T>(&self, message: &str, problems: &mut Problems) -> Option<T> {
        self.spot.refused(self.node, message, problems)
    }

    fn refused_at<T>(&self, key: &str, message: String, problems: &mut Problems) -> Option<T> {
        let (spot, node) = self.take(key)?;
        spot.refused(node, message, problems)
    }
}
