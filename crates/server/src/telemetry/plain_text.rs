//! Metrics in the older Prometheus text format, for scrapers that do not ask for `OpenMetrics`. It has a
//! counter's help under its full name, and neither units nor an end marker.

use std::fmt::Write as _;

/// Converts `OpenMetrics` text to the older format.
pub(crate) fn plain_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // Comes before the type line, which decides the name in this format.
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(line) = line.strip_prefix("# HELP ") {
            help = line.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(line) = line.strip_prefix("# TYPE ") {
            let (name, kind) = line.split_once(' ').unwrap_or((line, "untyped"));
            let suffix = if kind == "counter" { "_total" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with("# ") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_called_by_its_whole_name() {
        let open_metrics = "\
# HELP a_seconds Time.
# TYPE a_seconds histogram
# UNIT a_seconds seconds
a_seconds_sum 0.5
# HELP b What is counted.
# TYPE b counter
b_total{c=\"d\"} 1
# EOF
";
        let expected = "\
# HELP a_seconds Time.
# TYPE a_seconds histogram
a_seconds_sum 0.5
# HELP b_total What is counted.
# TYPE b_total counter
b_total{c=\"d\"} 1
";
        assert_eq!(plain_text(open_metrics), expected);
    }
}
