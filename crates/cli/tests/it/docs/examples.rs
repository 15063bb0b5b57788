//! Examples whose commands are run, and what they print compared: those of the algorithms, the first of the README,
//! and two for a shell.

use std::fs;
use std::process::Command;

use tidegate::rules::ValueDigest;

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
pub(super) fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
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

/// Runs a command of a guide for a shell in a folder that has the files of the project.
fn shell(guide: &str, start: &str, folder: &ProgramFolder) -> String {
    let guide = page(guide);
    let command = guide.lines().find_map(|line| {
        let command = line.strip_prefix("$ ")?;
        command.starts_with(start).then_some(command)
    });
    let output = Command::new("sh")
        .args(["-c", command.unwrap()])
        .current_dir(folder.path("."))
        .env("TIDEGATE_KEY_SECRET", "a secret")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_digest_of_a_client_can_be_computed_in_a_shell() {
    let folder = ProgramFolder::new();
    let printed = shell("docs/guides/logs.md", "printf %s user_abc", &folder);
    let digest = ValueDigest::new(b"a secret").of("user_abc");
    assert_eq!(printed.trim_end(), digest, "is openssl installed?");
}

#[test]
fn the_runbooks_of_the_alerts_can_be_moved_to_a_site() {
    let folder = ProgramFolder::new();
    let file = "packaging/prometheus/alerts.yaml";
    fs::create_dir_all(folder.path("packaging/prometheus")).unwrap();
    fs::copy(root().join(file), folder.path(file)).unwrap();
    shell("docs/guides/alerts.md", "sed 's|docs/guides", &folder);
    let moved = fs::read_to_string(folder.path("alerts.yaml")).unwrap();
    let links = |text: &str, base: &str| text.matches(&format!("runbook_url: {base}docs/")).count();
    let all = links(&page(file), "");
    assert!(all > 5, "only {all} were found");
    assert_eq!(links(&moved, "https://git.example.com/tidegate/"), all);
}
