//! Pictures of the guides, drawn from reports of `tidegate simulate` on logs of the repository. They are committed, and
//! compared here: `TIDEGATE_DRAW=1 cargo test -p tidegate-cli --test it pictures` draws them anew.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::root;

/// Measures of a picture.
const LEFT: u64 = 196;
const WIDTH: u64 = 920;
const RIGHT: u64 = 24;
const ROW: u64 = 46;
const TOP: u64 = 26;

/// One line of a picture: what was allowed and denied over time.
struct PictureRow {
    name: String,
    allowed: Vec<u64>,
    denied: Vec<u64>,
}

/// The report of a simulation.
fn report(folder: &str, options: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(root().join(folder));
    command.args(["simulate", "--json", "--quiet", "--scale", "off"]);
    let output = command.args(options).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{options:?}: {error}"))
}

fn numbers(value: &Value) -> Vec<u64> {
    let list = value.as_array().unwrap().iter();
    list.map(|number| number.as_u64().unwrap()).collect()
}

/// The rows of all rules, by the names that a picture gives them.
fn rows(report: &Value, name: impl Fn(&str) -> String) -> Vec<PictureRow> {
    let rules = report["series"]["rules"].as_array().unwrap().iter();
    let row = |rule: &Value| PictureRow {
        name: name(rule["rule"].as_str().unwrap()),
        allowed: numbers(&rule["allowed"]),
        denied: numbers(&rule["denied"]),
    };
    rules.map(row).collect()
}

const STYLE: &str = ".page{fill:#fff}.text{fill:#1c2430}.soft{fill:#5b6675}.line{stroke:#d9dee5}.allowed{fill:#2f7d6b}.denied{fill:#c2452d}\
    text{font:13px system-ui,sans-serif}.small{font-size:11px}\
    @media (prefers-color-scheme:dark){.page{fill:#14181e}.text{fill:#e6eaf0}.soft{fill:#9aa6b5}.line{stroke:#313a46}.allowed{fill:#4fb39b}.denied{fill:#ef7a60}}";

impl PictureRow {
    /// The same in steps that are so many times as long.
    fn folded(&self, steps: usize) -> Self {
        let fold = |counts: &[u64]| counts.chunks(steps).map(|part| part.iter().sum()).collect();
        Self {
            name: self.name.clone(),
            allowed: fold(&self.allowed),
            denied: fold(&self.denied),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::format_push_string,
    reason = "a picture is small, and drawn once"
)]
/// A picture of rows over the same time, whose steps are so many seconds long.
fn drawn(title: &str, rows: &[PictureRow], step: u64) -> String {
    let steps = rows[0].allowed.len() as u64;
    let height = TOP + ROW * rows.len() as u64 + 22;
    let sums = rows
        .iter()
        .flat_map(|row| row.allowed.iter().zip(&row.denied));
    let most = sums
        .map(|(allowed, denied)| allowed + denied)
        .max()
        .unwrap();
    let span = WIDTH - LEFT - RIGHT;
    let x = |index: u64| LEFT as f64 + (index * span) as f64 / steps as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <rect class=\"allowed\" x=\"{LEFT}\" y=\"6\" width=\"10\" height=\"10\"/><text class=\"small soft\" x=\"{}\" y=\"15\">allowed</text>\n\
         <rect class=\"denied\" x=\"{}\" y=\"6\" width=\"10\" height=\"10\"/><text class=\"small soft\" x=\"{}\" y=\"15\">denied</text>\n",
        LEFT + 15,
        LEFT + 70,
        LEFT + 85
    );
    let minutes = steps * step / 60;
    for minute in 0..=minutes {
        let at = x(minute * 60 / step);
        let bottom = height - 20;
        svg += &format!(
            "<line class=\"line\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"small soft\" x=\"{:.1}\" y=\"{}\">{minute}:00</text>\n",
            at - 10.0,
            height - 6
        );
    }
    for (number, row) in (0_u64..).zip(rows) {
        let bottom = TOP + ROW * (number + 1) - 6;
        let (allowed, denied): (u64, u64) = (row.allowed.iter().sum(), row.denied.iter().sum());
        svg += &format!(
            "<text class=\"text\" x=\"8\" y=\"{}\">{}</text><text class=\"small soft\" x=\"8\" y=\"{}\">{allowed} allowed, {denied} denied</text>\n\
             <line class=\"line\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\n",
            bottom - 18,
            row.name,
            bottom - 3,
            WIDTH - RIGHT
        );
        for (index, (allowed, denied)) in (0..).zip(row.allowed.iter().zip(&row.denied)) {
            let (left, width) = (x(index), x(index + 1) - x(index) - 0.6);
            let unit = (ROW - 12) as f64 / most as f64;
            let mut below = bottom as f64;
            for (class, count) in [("allowed", *allowed), ("denied", *denied)] {
                if count > 0 {
                    let tall = unit * count as f64;
                    below -= tall;
                    svg += &format!(
                        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{below:.1}\" width=\"{width:.1}\" height=\"{tall:.1}\"/>\n"
                    );
                }
            }
        }
    }
    svg + "</svg>\n"
}

/// Compares a picture with the committed one, or writes it.
#[expect(
    clippy::disallowed_methods,
    reason = "whether pictures are drawn anew is chosen for a run of the tests"
)]
fn compare(name: &str, picture: &str) {
    let file = root().join("docs/images").join(name);
    if std::env::var_os("TIDEGATE_DRAW").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, picture).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == picture,
        "{name} is out of date; draw it anew with TIDEGATE_DRAW=1"
    );
}

#[test]
fn the_picture_of_the_algorithms_is_current() {
    let report = report(
        "examples/algorithms",
        &[
            "--rules",
            "rules.yaml",
            "--map",
            "duration=took",
            "requests.log",
        ],
    );
    let name = |id: &str| match id {
        "burst" => "token_bucket, burst 5".to_owned(),
        "first_request" => "… anchor: first_request".to_owned(),
        id => id.to_owned(),
    };
    let rows = rows(&report, name);
    assert!(rows.iter().all(|row| row.denied.iter().sum::<u64>() > 0));
    let title = "The same 90 requests, decided by each algorithm";
    let step = report["series"]["step"].as_u64().unwrap();
    compare("rehearse/algorithms.svg", &drawn(title, &rows, step));
}

#[test]
fn the_pictures_of_the_guide_are_current() {
    let mut all = Vec::new();
    for limit in ["10/minute", "18/minute burst 4"] {
        let rules = fs::read_to_string(root().join("examples/rehearse/rules.yaml")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.yaml");
        fs::write(
            &file,
            rules.replace("limit: 10/minute", &format!("limit: {limit}")),
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let report = report("examples/rehearse", &["--rules", file, "access.log"]);
        assert_eq!(report["series"]["step"], 1);
        let rows = rows(&report, |_| format!("limit: {limit}"));
        all.extend(rows.iter().map(|row| row.folded(10)));
    }
    let title = "What the first limit and the suggested one deny of the same log";
    compare("rehearse/limits.svg", &drawn(title, &all, 10));
}
