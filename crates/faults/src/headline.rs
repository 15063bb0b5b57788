//! The first lines of `docs/reliability.md`, with the figures that are asked for most, and their chart.

use std::fmt::Write as _;

use crate::results::{RowEnd, RowResult};
use crate::row::{FaultRow, RowFigures, shown};

/// The bound of 99.9 % of the answers: `redis_deadline` and 2 ms.
const LATENCY_BOUND_MS: f64 = 17.0;
/// How many faults the chart shows: the slowest.
const SHOWN: usize = 10;

pub(crate) const CHART_TITLE: &str =
    "99.9 % of the answers came within this time, under the slowest faults";

/// The three sentences.
pub(crate) fn sentences(all: &[(&FaultRow, Option<&RowResult>)]) -> String {
    let results: Vec<&RowResult> = all.iter().filter_map(|(_, result)| *result).collect();
    let count = |end: RowEnd| results.iter().filter(|result| result.end == end).count();
    let missing = all.len() - results.len();
    let mut text = format!(
        "- **Of {} faults, {} stayed within their bounds**, {} did not, {} could not be run on this machine, and {missing} have not been run.\n",
        all.len(),
        count(RowEnd::Passed),
        count(RowEnd::Failed),
        count(RowEnd::Skipped),
    );
    let figures: Vec<&RowFigures> = results
        .iter()
        .filter_map(|result| result.outcome.figures.as_ref())
        .collect();
    let most =
        |value: fn(&RowFigures) -> f64| figures.iter().copied().map(value).fold(0.0, f64::max);
    let recovery = most(|figures| figures.recovery_ms.unwrap_or(f64::INFINITY)) / 1_000.0;
    let _ = writeln!(
        text,
        "- Whatever the fault, 99.9 % of the answers came within **{}** (bound: {}), and the servers decided as before at most **{recovery:.2} s** after it had ended.",
        shown(most(|figures| figures.p999_ms), "ms"),
        shown(LATENCY_BOUND_MS, "ms"),
    );
    let answers: usize = figures.iter().map(|figures| figures.answers).sum();
    let answers = u32::try_from(answers).unwrap_or(u32::MAX);
    let failed: usize = figures.iter().map(|figures| figures.failed).sum();
    let rules = || figures.iter().flat_map(|figures| &figures.rules);
    let strict = rules().filter(|rule| rule.bound == 0);
    let beyond = strict.map(|rule| rule.over).max().unwrap_or(0);
    let beyond = match beyond {
        0 => "nothing".to_owned(),
        most => format!("up to {most}"),
    };
    let others = rules().filter(|rule| rule.bound > 0);
    let share = others
        .map(|rule| f64::from(rule.over) / f64::from(rule.bound))
        .fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "- Of {} answers {failed} failed; where a limit has to hold whatever happens, **{beyond}** was admitted beyond it, and elsewhere at most {:.0} % of what the promises below allow.\n",
        shown(f64::from(answers), ""),
        share * 100.0,
    );
    text
}

/// How long answers took under the slowest faults, as an SVG that is readable on light and on dark pages.
pub(crate) fn chart(all: &[(&FaultRow, Option<&RowResult>)]) -> String {
    let mut bars: Vec<(&str, f64)> = all
        .iter()
        .filter_map(|(row, result)| {
            Some((row.name, result.as_ref()?.outcome.figures.as_ref()?.p999_ms))
        })
        .collect();
    bars.sort_by(|one, other| other.1.total_cmp(&one.1));
    bars.truncate(SHOWN);
    let (left, width, top) = (220.0, 800.0, 62.0);
    let height = bars.iter().fold(top + 12.0, |height, _| height + 30.0);
    let scale = (width - left - 110.0) / LATENCY_BOUND_MS;
    let title = CHART_TITLE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n{STYLE}\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text x=\"16\" y=\"24\" class=\"title\">{title}</text>\n\
         <text x=\"16\" y=\"44\" class=\"small\">milliseconds; the line is the bound, {LATENCY_BOUND_MS} ms</text>\n"
    );
    let bound = left + LATENCY_BOUND_MS * scale;
    let mut y = top;
    for (name, value) in &bars {
        let length = (value * scale).max(1.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>\n<rect x=\"{left}\" y=\"{y}\" width=\"{length:.1}\" height=\"20\" rx=\"2\" class=\"bar\"/>\n\
             <text x=\"{:.1}\" y=\"{}\" class=\"small\">{value:.1}</text>",
            left - 10.0,
            y + 15.0,
            bound + 10.0,
            y + 15.0,
        );
        y += 30.0;
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{bound:.1}\" x2=\"{bound:.1}\" y1=\"{}\" y2=\"{}\" class=\"bound\"/>\n</svg>",
        top - 8.0,
        height - 8.0
    );
    svg
}

const STYLE: &str = "\
<style>
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#24292f}
.page{fill:#fff}.small{font-size:12px;fill:#57606a}.title{font-size:15px;font-weight:600}
.bar{fill:#0969da}.bound{stroke:#bf5a00;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.small{fill:#9da7b1}.bar{fill:#58a6ff}.bound{stroke:#f0883e}}
</style>";
