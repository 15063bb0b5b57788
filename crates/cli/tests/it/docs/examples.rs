//! Examples whose commands are run, and what they print compared: those of the algorithms, and the first of the README.

use std::fs;

use super::{page, root};
use crate::server::ProgramFolder;

const FIRST: &str = "tidegate check -a user_id=u1 --timestamp 1794792000";
/// By rule, what its text says to have been sent before the commands that are shown.
const BEFORE: [(&str, &[&str]); 3] = [
    ("patient", &[FIRST, FIRST]),
    ("printer", &[FIRST, FIRST, FIRST]),
    (
        "sms",
        &[
            "tidegate check -a user_id=u1 --timestamp 1794792010",
            "tidegate check -a user_id=u1 --timestamp 1794792040",
        ],
    ),
];

/// The blocks of a page: their language and their lines.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut lines = text.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body = lines.by_ref().take_while(|line| *line != "```");
            blocks.push((language, body.collect()));
        }
    }
    blocks
}

/// What differs from run to run.
fn without_lease(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("lease  ") {
        Some((start, _)) => start.to_owned() + "lease",
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Plays the commands of a block, and compares what each prints.
fn play(folder: &ProgramFolder, server: &str, lines: &[&str]) -> usize {
    let mut commands = 0;
    for part in lines.join("\n").split("$ ").skip(1) {
        let (command, printed) = part.split_once('\n').unwrap_or((part, ""));
        let stdout = run(folder, server, command);
        assert_eq!(
            without_lease(stdout.trim_end()),
            without_lease(printed.trim_end()),
            "{command}"
        );
        commands += 1;
    }
    commands
}

fn run(folder: &ProgramFolder, server: &str, command: &str) -> String {
    let command = command.split('#').next().unwrap();
    let arguments = command.split_whitespace().skip(1);
    folder
        .run(&[&arguments.collect::<Vec<_>>()[..], &["--server", server]].concat())
        .stdout
}

#[test]
fn the_algorithms_decide_as_their_guide_shows() {
    let text = page("docs/guides/algorithms.md");
    let (_, text) = text.split_once("## token_bucket\n").unwrap();
    let blocks = blocks(text);
    let mut commands = 0;
    for pair in blocks.windows(2) {
        let [("yaml", rules), ("console", lines)] = pair else {
            continue;
        };
        let folder = ProgramFolder::new();
        folder.write("rules.yaml", &rules.join("\n"));
        let server = folder.serve(&["--rules", "rules.yaml", "--trust-timestamps"]);
        let id = rules[1].trim_start_matches("  - id: ");
        for (_, before) in BEFORE.iter().filter(|(rule, _)| *rule == id) {
            for command in *before {
                run(&folder, &server.url(), command);
            }
        }
        commands += play(&folder, &server.url(), lines);
    }
    assert!(commands >= 12, "only {commands} were found");
}

#[test]
fn the_readme_shows_what_the_quickstart_grants() {
    let folder = ProgramFolder::new();
    fs::create_dir(folder.path("examples")).unwrap();
    fs::copy(
        root().join("examples/quickstart.yaml"),
        folder.path("examples/quickstart.yaml"),
    )
    .unwrap();
    let run = folder.run(&["rules", "validate", "examples/quickstart.yaml"]);
    assert!(
        page("README.md").contains(&format!("quickstart.yaml\n{}```\n", run.stdout)),
        "{}",
        run.stdout
    );
}
