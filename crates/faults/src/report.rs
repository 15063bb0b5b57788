//! Writes `docs/reliability.md` from the results. Nothing in it is written by hand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::headline;
use crate::page::{
    COLUMNS, PROMISES, REDIS_NOTES, RESERVATION_NOTES, RESOURCE_NOTES, SERVER_NOTES, TITLE,
};
use crate::results::{RowEnd, RowResult};
use crate::row::{FaultGroup, FaultRow, RowFact, RowFigures, shown};
use crate::rows;
use crate::rules::{CountedRule, CountedShape, RuleSync};

fn documentation() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Writes the page and its chart; with `is_check`, fails if one is not what the results say.
pub(crate) fn write(is_check: bool) -> anyhow::Result<()> {
    for (name, text) in build()? {
        let path = documentation().join(name);
        let is_current = fs::read_to_string(&path).is_ok_and(|current| current == text);
        if is_check && !is_current {
            bail!(
                "docs/{name} does not follow from crates/faults/results; run `./scripts/faults report`"
            );
        }
        if !is_current {
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(path, text)?;
        }
    }
    Ok(())
}

const CHART: &str = "images/reliability/latency.svg";

type StoredRow = (FaultRow, Option<RowResult>);

fn stored(group: FaultGroup) -> anyhow::Result<Vec<StoredRow>> {
    let rows = rows::of(group).into_iter();
    let results = rows.map(|row| Ok((row, RowResult::load(row.name)?)));
    results.collect()
}

/// The files of the page, by their path below `docs`.
fn build() -> anyhow::Result<[(&'static str, String); 2]> {
    let redis = stored(FaultGroup::Redis)?;
    let servers = stored(FaultGroup::Servers)?;
    let reservations = stored(FaultGroup::Reservations)?;
    let resources = stored(FaultGroup::Resources)?;
    let faults = redis.iter().chain(&servers).chain(&reservations);
    let all: Vec<&StoredRow> = faults.chain(&resources).collect();
    let rows: Vec<_> = all
        .iter()
        .map(|(row, result)| (row, result.as_ref()))
        .collect();
    let mut text = TITLE.to_owned();
    text += &headline::sentences(&rows);
    let _ = writeln!(text, "![{}]({CHART})\n", headline::CHART_TITLE);
    text += &not_passed(&all);
    text += PROMISES;
    text += &machine(&all);
    text += COLUMNS;
    text += REDIS_NOTES;
    text += &commits(&redis);
    text += &figures_table(&redis);
    text += &facts_list(&redis);
    text += SERVER_NOTES;
    text += &commits(&servers);
    text += &figures_table(&servers);
    text += &facts_list(&servers);
    text += RESERVATION_NOTES;
    text += &commits(&reservations);
    text += &facts_table(&reservations);
    text.push('\n');
    text += RESOURCE_NOTES;
    text += &commits(&resources);
    text += &facts_table(&resources);
    Ok([("reliability.md", text), (CHART, headline::chart(&rows))])
}

fn machine(all: &[&StoredRow]) -> String {
    let results: Vec<&RowResult> = all
        .iter()
        .filter_map(|(_, result)| result.as_ref())
        .collect();
    let Some(newest) = results.iter().max_by_key(|result| &result.date) else {
        return "No results yet: `./scripts/faults`.\n\n".to_owned();
    };
    let oldest = results.iter().map(|result| &result.date).min();
    let mut dates = oldest.unwrap_or(&newest.date).clone();
    if dates != newest.date {
        dates = format!("{dates} to {}", newest.date);
    }
    let facts = &newest.machine;
    format!(
        "| | |\n| --- | --- |\n| machine | {}, {} cores, {} GiB of memory |\n| kernel | Linux {} |\n| date | {dates} |\n\
         | versions | Tidegate {} (profile `dist`), Redis {} |\n\
         | command | `./scripts/faults`, or some rows: `./scripts/faults NAME`; the page: `./scripts/faults report` |\n\n",
        facts.cpu, facts.cores, facts.memory_gib, facts.kernel, facts.tidegate, facts.redis
    )
}

/// Which code the rows of a group are of; if of several commits, with the rows of each.
fn commits(rows: &[StoredRow]) -> String {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (row, result) in rows {
        if let Some(result) = result {
            let names = found.entry(&result.commit).or_default();
            names.push(format!("`{}`", row.name));
        }
    }
    let is_one = found.len() == 1;
    let lines = found.iter().map(|(commit, names)| {
        if is_one {
            format!("Measured at commit {commit}.\n")
        } else {
            format!("- Measured at commit {commit}: {}.\n", names.join(", "))
        }
    });
    lines.chain(["\n".to_owned()]).collect()
}

/// The rows that were beyond a bound or skipped, and why.
fn not_passed(all: &[&StoredRow]) -> String {
    let mut text = String::new();
    for (row, result) in all {
        let Some(result) = result
            .as_ref()
            .filter(|result| result.end != RowEnd::Passed)
        else {
            continue;
        };
        let verb = if result.end == RowEnd::Skipped {
            "Skipped"
        } else {
            "**Beyond its bound**"
        };
        let _ = writeln!(text, "- {verb}: `{}`. {}", row.name, problems(result));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Why a row is not as it should be.
pub(crate) fn problems(result: &RowResult) -> String {
    let broken = result.outcome.facts.iter().filter(|fact| !fact.holds);
    let broken = broken.map(|fact| format!("{}: {}, {}", fact.name, fact.value, fact.bound));
    let mut reasons: Vec<String> = result.reason.iter().cloned().chain(broken).collect();
    let figures = result
        .outcome
        .figures
        .iter()
        .flat_map(|figures| &figures.rules);
    for rule in figures.filter(|rule| rule.over > rule.bound) {
        reasons.push(format!(
            "{}: {} over, bound {}",
            rule.rule, rule.over, rule.bound
        ));
    }
    reasons.join("; ")
}

fn figures_table(rows: &[StoredRow]) -> String {
    let mut text = "| fault | window, exact | window, leased | bucket, exact | bucket, leased | degraded | p99.9 | slowest | over 50 ms | recovery | |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (row, result) in rows {
        let _ = write!(text, "| {}<br>`{}` ", row.title, row.name);
        let figures = result
            .as_ref()
            .and_then(|result| result.outcome.figures.as_ref());
        match figures {
            Some(figures) => text += &figure_cells(figures),
            None => text += "| | | | | | | | | ",
        }
        let _ = writeln!(text, "| {} |", verdict(result.as_ref()));
    }
    let figures = rows
        .iter()
        .filter_map(|(_, result)| result.as_ref()?.outcome.figures.as_ref());
    let stall = figures.map(|figures| figures.stall_ms).fold(0.0, f64::max);
    let stall = shown(stall, "ms");
    let _ = writeln!(
        text,
        "\nThe clients themselves did not run for at most {stall} at a time.\n"
    );
    text
}

fn figure_cells(figures: &RowFigures) -> String {
    let mut text = String::new();
    for shape in CountedShape::ALL {
        for sync in RuleSync::ALL {
            let _ = write!(text, "| {} ", over_cell(figures, shape, sync));
        }
    }
    let recovery = figures.recovery_ms.map_or("none".to_owned(), seconds);
    let _ = write!(
        text,
        "| {} / {} | {} | {} | {} | {recovery} ",
        percent(figures.degraded_exact),
        percent(figures.degraded_leased),
        shown(figures.p999_ms, "ms"),
        shown(figures.slowest_ms, "ms"),
        shown(figures.over_50_ms, ""),
    );
    text
}

/// `0 / 0 / 12 of 100`: what was admitted beyond the limit by `allow`, `deny` and `local`, and each bound above zero.
fn over_cell(figures: &RowFigures, shape: CountedShape, sync: RuleSync) -> String {
    let rules = CountedRule::all().into_iter();
    let own = rules.filter(|rule| rule.shape == shape && rule.sync == sync);
    let cells = own.filter_map(|rule| {
        let found = figures.rules.iter().find(|one| one.rule == rule.id())?;
        let over = shown(f64::from(found.over), "");
        let bound = shown(f64::from(found.bound), "");
        Some(match (found.over > found.bound, found.bound) {
            (true, _) => format!("**{over} of {bound}**"),
            (false, 0) => over,
            (false, _) => format!("{over} of {bound}"),
        })
    });
    cells.collect::<Vec<_>>().join(" / ")
}

fn percent(value: f64) -> String {
    if value > 0.0 && value < 10.0 {
        format!("{value:.1} %")
    } else {
        format!("{value:.0} %")
    }
}

fn seconds(millis: f64) -> String {
    format!("{:.2} s", millis / 1_000.0)
}

fn verdict(result: Option<&RowResult>) -> &'static str {
    match result.map(|result| result.end) {
        Some(RowEnd::Passed) => "ok",
        Some(RowEnd::Failed) => "**failed**",
        Some(RowEnd::Skipped) => "skipped",
        None => "not run",
    }
}

/// Facts that the columns do not show, for the rows that have some.
fn facts_list(rows: &[StoredRow]) -> String {
    let mut text = String::new();
    for (row, result) in rows {
        let facts = result.iter().flat_map(|result| &result.outcome.facts);
        let own: Vec<String> = facts
            .filter(|fact| !is_standard(fact))
            .map(fact_text)
            .collect();
        if !own.is_empty() {
            let _ = writeln!(text, "- `{}`: {}.", row.name, own.join("; "));
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("What else was checked:\n\n{text}\n")
    }
}

/// Whether a fact is the same for all rows, and in a column or in the verdict.
fn is_standard(fact: &RowFact) -> bool {
    let standard = [
        "servers that ended",
        "panics",
        "rules that admitted more than their bound",
        "99.9 % of answers",
        "recovery",
    ];
    standard.contains(&fact.name.as_str()) || (fact.name == "failed requests" && fact.holds)
}

fn fact_text(fact: &RowFact) -> String {
    let mark = if fact.holds { "" } else { "**" };
    if fact.bound.is_empty() || fact.value == fact.bound {
        format!("{}: {mark}{}{mark}", fact.name, fact.value)
    } else {
        format!("{}: {mark}{}{mark} ({})", fact.name, fact.value, fact.bound)
    }
}

fn facts_table(rows: &[StoredRow]) -> String {
    let mut text = "| load | what was seen (and its bound) | |\n| --- | --- | --- |\n".to_owned();
    for (row, result) in rows {
        let facts = result.iter().flat_map(|result| &result.outcome.facts);
        let own =
            facts.filter(|fact| !["servers that ended", "panics"].contains(&fact.name.as_str()));
        let own: Vec<String> = own.map(fact_text).collect();
        let verdict = verdict(result.as_ref());
        let _ = writeln!(
            text,
            "| {}<br>`{}` | {} | {verdict} |",
            row.title,
            row.name,
            own.join("<br>")
        );
    }
    text
}
