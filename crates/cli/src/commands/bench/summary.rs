//! The report of a run as text: the figures, then how latencies are spread.

use std::fmt::Write as _;
use std::time::Duration;

use tidegate_load::LoadReport;

use crate::output::{BAD, CAREFUL, HEADING, grouped, plain, styled};

/// The longest bar of the plot.
const WIDTH: f64 = 40.0;
/// Bars below a share of this are not drawn.
const SMALLEST: f64 = 0.0001;
/// Eighths of a character, for the end of a bar.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// An open loop that reaches less of its rate than this did not keep up.
const KEPT_UP: f64 = 0.99;

pub(super) fn text(report: &LoadReport) -> String {
    let mut text = format!("{}\n", styled(HEADING, &plain(&report.target)));
    let _ = writeln!(text, "{}\n", setting(report));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    let share = |count: u64| {
        let percent = percent(count, report.requests);
        format!("{:>12}  {percent:5.1} %", grouped(count))
    };
    let rate = per_second(report.allowed + report.denied, seconds(report.seconds));
    line(
        "requests",
        format!("{:>12}  {rate} decisions/s", grouped(report.requests)),
    );
    line("allowed", share(report.allowed));
    line("denied", share(report.denied));
    for (kind, count) in &report.errors {
        let kind = plain(kind);
        line(
            "errors",
            format!("{}  {}", share(*count), styled(BAD, &kind)),
        );
    }
    let latency = &report.latency;
    let quantiles = [
        ("p50", latency.p50),
        ("p90", latency.p90),
        ("p99", latency.p99),
        ("p99.9", latency.p999),
        ("max", latency.max),
    ];
    let quantiles = quantiles.map(|(name, value)| format!("{name} {}", length(value)));
    line("latency", format!("  {}", quantiles.join("   ")));
    text.push('\n');
    text.push_str(&plot(report));
    if let Some(rate) = report.rate
        && (report.unsent > 0 || report.per_second < rate * KEPT_UP)
    {
        let note = format!(
            "\nthe target did not keep up: {:.0} of {rate:.0} requests a second were answered, {} were never sent; use a lower --rate or more --connections\n",
            report.per_second,
            grouped(report.unsent)
        );
        text.push_str(&styled(CAREFUL, &note));
    }
    text
}

/// How the load was sent.
fn setting(report: &LoadReport) -> String {
    let kind = report.rate.map_or_else(
        || "closed loop".to_owned(),
        |rate| format!("open loop at {rate}/s"),
    );
    let in_flight = match report.in_flight {
        1 => String::new(),
        several => format!(" × {several} in flight"),
    };
    let keys = match report.zipf {
        Some(exponent) => format!("Zipf {exponent}"),
        None if report.in_order => "in order".to_owned(),
        None => "uniform".to_owned(),
    };
    format!(
        "{} connections{in_flight}, {kind}, {} keys ({keys}), {:.1} s",
        report.connections,
        grouped(report.keys),
        report.seconds
    )
}

/// A bar for each range of latencies.
fn plot(report: &LoadReport) -> String {
    let buckets = &report.latency.buckets;
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    let mut text = String::new();
    for bucket in buckets {
        let share = percent(bucket.count, all);
        let bar = bar(percent(bucket.count, most) / 100.0);
        let range = format!("{} – {}", length(bucket.from), length(bucket.to));
        let _ = writeln!(text, "  {range:>19}  {bar} {share:.2} %");
    }
    text
}

fn bar(share: f64) -> String {
    if share < SMALLEST {
        return "▏".to_owned();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 40 characters"
    )]
    let eighths = (share * WIDTH * 8.0).round().max(1.0) as usize;
    let end = EIGHTHS.get(eighths % 8).copied().unwrap_or_default();
    format!("{}{end}", "█".repeat(eighths / 8))
}

/// A latency with three digits.
fn length(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..1e-3 => (seconds * 1e6, "µs"),
        ..1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A rate without decimals.
pub(super) fn per_second(count: u64, elapsed: Duration) -> String {
    let micros = elapsed.as_micros().max(1);
    let rate = u128::from(count) * 1_000_000 / micros;
    grouped(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
        for (seconds, text) in [
            (0.000_001_234, "1.23 µs"),
            (0.000_45, "450 µs"),
            (0.001, "1.00 ms"),
            (0.023_4, "23.4 ms"),
            (1.5, "1.50 s"),
        ] {
            assert_eq!(length(seconds), text);
        }
        assert_eq!(per_second(1_000, Duration::from_millis(500)), "2,000");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0).chars().count(), 40);
        assert_eq!(bar(0.5), "█".repeat(20));
        assert_eq!(bar(0.0), "▏");
    }
}
