//! The stats as text of Prometheus, by a mapping.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::book::{CountedMethod, OutsideStats, RateLimitStats, StatKind};
use super::mapping::{MappedSeries, MappedStat, StatMapping, label_name};
use super::times::{Observation, ObservationShape, ObserverForm};

/// What a metric says of itself if its mapping does not.
const HELP: &str = "A stat of the rate limit service, as mapped.";

/// Writes stats as text of Prometheus.
pub struct StatPage {
    mapping: StatMapping,
    /// The labels of all series, by name.
    tags: Vec<(String, String)>,
    /// The series of each stat: patterns are slow, and names stay.
    known: Mutex<KnownSeries>,
}

type KnownSeries = HashMap<Box<str>, Option<PageSeries>, RandomState>;

/// A series of the page.
#[derive(Debug, Clone)]
struct PageSeries {
    name: String,
    /// As they are written, without braces.
    labels: String,
    scale: f64,
    help: Option<String>,
    is_named: bool,
}

/// A metric of the page, with its series by their labels.
struct PageMetric {
    kind: &'static str,
    help: Option<String>,
    series: BTreeMap<String, PageValue>,
}

enum PageValue {
    Number(f64),
    Times {
        observation: Observation,
        scale: f64,
    },
}

impl StatPage {
    /// A page by this mapping, on which each series has these labels.
    pub fn new(mapping: StatMapping, tags: &[(String, String)]) -> Self {
        let tags = tags.iter();
        let tags = tags.map(|(name, value)| (label_name(name), value.clone()));
        Self {
            mapping,
            tags: tags.collect(),
            known: Mutex::default(),
        }
    }

    /// How the times of each method are observed: by the name of its stat, with the microseconds of one unit.
    pub fn observers(&self) -> Vec<(String, ObserverForm, f64)> {
        let timers = CountedMethod::ALL.into_iter().map(CountedMethod::timer);
        let observers = timers.filter_map(|timer| {
            match self.mapping.map(&timer, StatKind::Timer) {
                MappedStat::Series(series) => {
                    // A scale of nothing makes all times zero.
                    let scale = series.scale.filter(|scale| *scale > 0.0).unwrap_or(1.0);
                    Some((timer, series.observer, 1_000.0 / scale))
                }
                MappedStat::Dropped => None,
            }
        });
        observers.collect()
    }

    /// The page, `seconds` after the start of the server.
    pub fn text(&self, stats: &RateLimitStats, outside: &OutsideStats, seconds: u64) -> String {
        let mut metrics = BTreeMap::new();
        let mut known = self.known.lock();
        let mut visited = 0;
        stats.visit_used(outside, &mut |stat, kind, value| {
            visited += 1;
            if !known.contains_key(stat) {
                known.insert(stat.into(), self.series(stat, kind));
            }
            if let Some(Some(series)) = known.get(stat) {
                add_number(&mut metrics, series, kind, value);
            }
        });
        // Names of limits that are gone.
        if known.len() > 2 * visited {
            known.clear();
        }
        drop(known);
        for (stat, observation) in stats.observations(seconds) {
            if let Some(series) = self.series(&stat, StatKind::Timer) {
                add_times(&mut metrics, series, observation);
            }
        }
        written(&metrics)
    }

    /// The series of a stat, if it is not dropped.
    fn series(&self, stat: &str, kind: StatKind) -> Option<PageSeries> {
        let MappedStat::Series(mapped) = self.mapping.map(stat, kind) else {
            return None;
        };
        let MappedSeries {
            name,
            labels,
            scale,
            help,
            is_named,
            ..
        } = mapped;
        let mut all: BTreeMap<&str, &str> = BTreeMap::new();
        // A label of the mapping wins.
        for (label, value) in self.tags.iter().chain(&labels) {
            all.insert(label, value);
        }
        let written = all
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        Some(PageSeries {
            name,
            labels: written.collect::<Vec<_>>().join(","),
            scale: scale.unwrap_or(1.0),
            help,
            is_named,
        })
    }
}

fn metric<'m>(
    metrics: &'m mut BTreeMap<String, PageMetric>,
    series: &PageSeries,
    kind: &'static str,
) -> Option<&'m mut PageMetric> {
    let metric = metrics
        .entry(series.name.clone())
        .or_insert_with(|| PageMetric {
            kind,
            help: series.help.clone(),
            series: BTreeMap::new(),
        });
    // Of two kinds with one name, the first is shown.
    (metric.kind == kind).then_some(metric)
}

fn add_number(
    metrics: &mut BTreeMap<String, PageMetric>,
    series: &PageSeries,
    kind: StatKind,
    value: u64,
) {
    // What no rule names is shown once it has happened.
    if value == 0 && !series.is_named {
        return;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of Prometheus are floating point"
    )]
    let value = value as f64 * series.scale;
    // A counter cannot fall.
    if kind == StatKind::Counter && value < 0.0 {
        return;
    }
    let word = if kind == StatKind::Gauge {
        "gauge"
    } else {
        "counter"
    };
    let Some(metric) = metric(metrics, series, word) else {
        return;
    };
    let known = metric.series.entry(series.labels.clone());
    match known.or_insert(PageValue::Number(0.0)) {
        // Several stats may count in one series; of several gauges the last is shown.
        PageValue::Number(sum) if kind == StatKind::Counter => *sum += value,
        PageValue::Number(number) => *number = value,
        PageValue::Times { .. } => {}
    }
}

fn add_times(
    metrics: &mut BTreeMap<String, PageMetric>,
    series: PageSeries,
    observation: Observation,
) {
    let kind = match observation.shape {
        ObservationShape::Histogram(_) => "histogram",
        ObservationShape::Summary(_) => "summary",
    };
    if let Some(metric) = metric(metrics, &series, kind) {
        let PageSeries { labels, scale, .. } = series;
        let value = PageValue::Times { observation, scale };
        metric.series.entry(labels).or_insert(value);
    }
}

fn written(metrics: &BTreeMap<String, PageMetric>) -> String {
    let mut text = String::new();
    for (name, metric) in metrics {
        let help = metric.help.as_deref().unwrap_or(HELP);
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {}\n",
            metric.kind
        );
        for (labels, value) in &metric.series {
            match value {
                PageValue::Number(number) => line(&mut text, name, labels, "", *number),
                PageValue::Times { observation, scale } => {
                    times(&mut text, name, labels, observation, *scale);
                }
            }
        }
    }
    text
}

fn times(text: &mut String, name: &str, labels: &str, observation: &Observation, scale: f64) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of Prometheus are floating point"
    )]
    let (count, sum) = (
        observation.count as f64,
        observation.micros as f64 / 1_000.0 * scale,
    );
    match &observation.shape {
        ObservationShape::Histogram(buckets) => {
            let bucket_name = format!("{name}_bucket");
            for (bound, count) in buckets {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "numbers of Prometheus are floating point"
                )]
                let count = *count as f64;
                line(
                    text,
                    &bucket_name,
                    labels,
                    &format!("le=\"{bound}\""),
                    count,
                );
            }
            line(text, &bucket_name, labels, "le=\"+Inf\"", count);
        }
        ObservationShape::Summary(quantiles) => {
            for (quantile, micros) in quantiles {
                let label = format!("quantile=\"{quantile}\"");
                line(text, name, labels, &label, micros / 1_000.0 * scale);
            }
        }
    }
    line(text, &format!("{name}_sum"), labels, "", sum);
    line(text, &format!("{name}_count"), labels, "", count);
}

fn line(text: &mut String, name: &str, labels: &str, more: &str, value: f64) {
    text.push_str(name);
    if !labels.is_empty() || !more.is_empty() {
        let comma = if labels.is_empty() || more.is_empty() {
            ""
        } else {
            ","
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{{{labels}{comma}{more}}}");
    }
    let _ = writeln!(text, " {value}");
}

/// A value of a label as it is written between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
