//! The metrics page as OTLP: the same names, labels and values that Prometheus scrapes.

use std::collections::BTreeMap;

use super::proto::{
    GaugePoints, HistogramPoint, HistogramPoints, KeyValue, MetricData, NumberPoint, OtlpMetric,
    SumPoints,
};

/// Sums since the start of the process.
const CUMULATIVE: i32 = 2;

/// When the process started, and now, in nanoseconds of Unix time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) started: u64,
    pub(super) now: u64,
}

/// One line of the page.
struct PageSample<'p> {
    name: &'p str,
    labels: Vec<(&'p str, String)>,
    value: f64,
}

/// All metrics of a page in the `OpenMetrics` format.
pub(super) fn metrics_of(page: &str, times: Times) -> Vec<OtlpMetric> {
    let mut metrics = Vec::new();
    let mut help = "";
    let mut family: Option<(&str, &str, &str, Vec<PageSample<'_>>)> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            metrics.extend(family.take().and_then(|family| metric(family, times)));
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            family = Some((name, kind, help, Vec::new()));
        } else if let (Some((_, _, _, samples)), false) = (&mut family, line.starts_with('#')) {
            samples.extend(sample(line));
        }
    }
    metrics.extend(family.and_then(|family| metric(family, times)));
    metrics
}

fn metric(
    (name, kind, help, samples): (&str, &str, &str, Vec<PageSample<'_>>),
    times: Times,
) -> Option<OtlpMetric> {
    if samples.is_empty() {
        return None;
    }
    let (suffix, data) = match kind {
        "counter" => (
            "_total",
            MetricData::Sum(SumPoints {
                data_points: points(samples, times),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
        ),
        "histogram" => (
            "",
            MetricData::Histogram(HistogramPoints {
                data_points: histograms(name, samples, times),
                aggregation_temporality: CUMULATIVE,
            }),
        ),
        _ => (
            "",
            MetricData::Gauge(GaugePoints {
                data_points: points(samples, times),
            }),
        ),
    };
    Some(OtlpMetric {
        name: format!("{name}{suffix}"),
        description: help.to_owned(),
        data: Some(data),
    })
}

fn points(samples: Vec<PageSample<'_>>, times: Times) -> Vec<NumberPoint> {
    let point = |sample: PageSample<'_>| NumberPoint {
        start_time_unix_nano: times.started,
        time_unix_nano: times.now,
        as_double: sample.value,
        attributes: attributes(&sample.labels),
    };
    samples.into_iter().map(point).collect()
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&str, String)| KeyValue::text(name, value.as_str());
    labels.iter().map(attribute).collect()
}

/// Buckets on the page count all values up to their bound; here only those above the bound before.
fn histograms(name: &str, samples: Vec<PageSample<'_>>, times: Times) -> Vec<HistogramPoint> {
    let mut points: BTreeMap<Vec<(&str, String)>, HistogramPoint> = BTreeMap::new();
    for mut sample in samples {
        let bound = sample.labels.iter().position(|(label, _)| *label == "le");
        let bound = bound.map(|index| sample.labels.remove(index).1);
        let point = points
            .entry(sample.labels)
            .or_insert_with_key(|labels| HistogramPoint {
                start_time_unix_nano: times.started,
                time_unix_nano: times.now,
                attributes: attributes(labels),
                ..HistogramPoint::default()
            });
        match sample.name.strip_prefix(name) {
            Some("_sum") => point.sum = Some(sample.value),
            Some("_count") => point.count = whole(sample.value),
            Some("_bucket") => {
                let before: u64 = point.bucket_counts.iter().sum();
                let count = whole(sample.value).saturating_sub(before);
                point.bucket_counts.push(count);
                let bound = bound.and_then(|bound| bound.parse::<f64>().ok());
                point
                    .explicit_bounds
                    .extend(bound.filter(|bound| bound.is_finite()));
            }
            _ => {}
        }
    }
    points.into_values().collect()
}

/// A line such as `name{label="value"} 1`.
fn sample(line: &str) -> Option<PageSample<'_>> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, read_labels(labels.strip_suffix('}')?)?),
        None => (series, Vec::new()),
    };
    let value = value.parse().ok()?;
    Some(PageSample {
        name,
        labels,
        value,
    })
}

fn read_labels(mut text: &str) -> Option<Vec<(&str, String)>> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, character) => value.push(character),
            }
        };
        labels.push((name, value));
        text = &rest[end + 1..];
        text = text.strip_prefix(',').unwrap_or(text);
    }
    Some(labels)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of a page, which are whole"
)]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_by_hand() {
        let page = "\
# HELP a_seconds Time.
# TYPE a_seconds histogram
# UNIT a_seconds seconds
a_seconds_sum{u=\"x\"} 0.5
a_seconds_count{u=\"x\"} 6
a_seconds_bucket{le=\"0.1\",u=\"x\"} 2
a_seconds_bucket{le=\"1.0\",u=\"x\"} 5
a_seconds_bucket{le=\"+Inf\",u=\"x\"} 6
# HELP b What is counted.
# TYPE b counter
b_total{c=\"d\\\"e\\\\,f\",g=\"\"} 1
b_total 2
# HELP c A gauge.
# TYPE c gauge
c 3.5
# TYPE none counter
# EOF
";
        let times = Times { started: 1, now: 9 };
        let found = metrics_of(page, times);
        let names: Vec<&str> = found.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["a_seconds", "b_total", "c"]);
        let Some(MetricData::Histogram(histogram)) = &found[0].data else {
            panic!("{found:?}")
        };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (6, Some(0.5)));
        assert_eq!(point.bucket_counts, [2, 3, 1]);
        assert_eq!(point.explicit_bounds, [0.1, 1.0]);
        assert_eq!(point.attributes, [KeyValue::text("u", "x")]);
        let Some(MetricData::Sum(sum)) = &found[1].data else {
            panic!("{found:?}")
        };
        assert!(sum.is_monotonic && sum.data_points.len() == 2);
        let labels = [KeyValue::text("c", "d\"e\\,f"), KeyValue::text("g", "")];
        assert_eq!(sum.data_points[0].attributes, labels);
        let Some(MetricData::Gauge(gauge)) = &found[2].data else {
            panic!("{found:?}")
        };
        assert!((gauge.data_points[0].as_double - 3.5).abs() < f64::EPSILON);
        assert_eq!(found[2].description, "A gauge.");
    }
}
