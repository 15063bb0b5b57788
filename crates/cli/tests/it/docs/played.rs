//! Sections of the guides on rules: their commands are run on a real server, one after the other, and what they print is
//! compared but for times and what follows from them.

use std::fs;

use super::commands::words;
use super::examples::blocks;
use super::{page, root};
use crate::server::{ProgramFolder, Server};

const RULES: &str = "docs/guides/rules.md";
const CHANGING: &str = "docs/guides/changing-rules.md";
const REHEARSE: &str = "docs/guides/rehearse.md";
/// Commands that call no server.
const LOCAL: [&str; 3] = ["rules test", "rules suggest", "simulate --rules"];
/// The time of the first check.
const START: u64 = 1_794_792_000;

/// The text of a section, without its heading.
fn section(page: &str, title: &str) -> String {
    let (_, rest) = page.split_once(&format!("\n## {title}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// The first block of a language.
fn first(section: &str, language: &str) -> String {
    let found = blocks(section).into_iter();
    let mut found = found.filter(|(known, _)| *known == language);
    found.next().unwrap().1.join("\n")
}

/// What was printed, without what differs from run to run.
fn lasting(printed: &str) -> Vec<Vec<String>> {
    let lines = printed.trim_end().lines();
    lines
        .map(|line| {
            let mut kept: Vec<String> = line.split_whitespace().map(kind).collect();
            kept.dedup_by(|a, b| a == b && *a == "DURATION");
            kept
        })
        .collect()
}

fn kind(word: &str) -> String {
    let plain = word.trim_matches(['(', ')', ',']);
    let begins = plain.starts_with(|c: char| c.is_ascii_digit());
    let kind = match plain {
        _ if begins && plain.contains('T') && plain.ends_with('Z') => "TIME",
        _ if begins && plain.ends_with(['s', 'm']) => "DURATION",
        // So large a number follows from the time: it is refilled by the microsecond.
        _ if plain.parse::<u64>().is_ok_and(|number| number > 1_000_000) => "NUMBER",
        _ if plain.starts_with("http://127.0.0.1") => "ADDRESS",
        _ => word,
    };
    kind.to_owned()
}

/// A server in a folder, and the guide that is followed.
struct Reader {
    folder: ProgramFolder,
    server: Server,
    now: u64,
}

impl Reader {
    /// A server with these rules in a file, or without any.
    fn new(rules: Option<&str>) -> Self {
        let folder = ProgramFolder::new();
        let mut arguments = vec!["--trust-timestamps"];
        if let Some(rules) = rules {
            folder.write("rules.yaml", rules);
            arguments.extend(["--rules", "rules.yaml"]);
        }
        let server = folder.serve(&arguments);
        Self {
            folder,
            server,
            now: START,
        }
    }

    /// What a command prints. Checks are a second apart.
    fn run(&mut self, command: &str) -> String {
        let words = words(command);
        let mut arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let (url, now) = (self.server.url(), self.now.to_string());
        if !LOCAL.contains(&arguments[..2].join(" ").as_str()) {
            arguments.extend(["--server", &url]);
        }
        if arguments[0] == "check" {
            arguments.extend(["--timestamp", &now]);
            self.now += 1;
        }
        self.folder.run(&arguments).stdout
    }

    /// Runs the commands of a block and compares what each prints, up to a line with `…`; `between` is called after each.
    fn follow(&mut self, block: &str, mut between: impl FnMut(&mut Self, usize)) {
        let mut followed = 0;
        for part in block.split("$ ").skip(1) {
            let (command, printed) = part.split_once('\n').unwrap_or((part, ""));
            let shown = printed.split("\n…").next().unwrap();
            let (shown, mut came) = (lasting(shown), lasting(&self.run(command)));
            if printed.contains("\n…") {
                came.truncate(shown.len());
            }
            assert_eq!(came, shown, "{command}");
            followed += 1;
            between(self, followed);
        }
        assert!(followed > 0, "{block}");
    }

    fn follow_all(&mut self, section: &str) {
        for (language, lines) in blocks(section) {
            if language == "console" {
                self.follow(&lines.join("\n"), |_, _| ());
            }
        }
    }
}

#[test]
fn rules_decide_as_their_guide_shows() {
    let guide = page(RULES);
    for title in ["One rule", "Cost", "Overrides"] {
        let section = section(&guide, title);
        Reader::new(Some(&first(&section, "yaml"))).follow_all(&section);
    }
    let section = section(&guide, "Several rules on one request");
    let mut reader = Reader::new(Some(&first(&section, "yaml")));
    for _ in 0..5 {
        reader.run("tidegate check -a path=/v1/orders -a user_id=u1");
        reader.now = START;
    }
    // The other rule has refilled by then.
    reader.now += 1;
    reader.follow_all(&section);
}

fn quickstart(login: &str) -> String {
    let text = fs::read_to_string(root().join("examples/quickstart.yaml")).unwrap();
    text.replace("limit: 3/minute", &format!("limit: {login}"))
}

#[test]
fn rules_are_applied_and_rolled_back_as_their_guide_shows() {
    let section = section(&page(CHANGING), "Apply, diff, roll back");
    let mut reader = Reader::new(None);
    reader.folder.write("rules.yaml", &quickstart("3/minute"));
    let parts = blocks(&section).into_iter();
    for (number, (_, lines)) in parts.enumerate() {
        if number == 1 {
            reader.folder.write("rules.yaml", &quickstart("5/minute"));
        }
        reader.follow(&lines.join("\n"), |_, _| ());
    }
}

#[test]
fn a_change_is_undone_as_its_guide_shows() {
    let mut reader = Reader::new(None);
    for login in ["5/minute", "3/minute"] {
        reader.folder.write("rules.yaml", &quickstart(login));
        reader.run("tidegate rules apply -f rules.yaml");
    }
    reader.follow_all(&section(&page(CHANGING), "Undo a change"));
}

#[test]
fn what_was_used_stays_used_as_its_guide_shows() {
    let mut reader = Reader::new(None);
    let apply = |reader: &mut Reader, limit: &str| {
        let rules = format!("rules: [{{id: per-user, per: [user_id], limit: {limit}}}]");
        reader.folder.write("rules.yaml", &rules);
        reader.run("tidegate rules apply -f rules.yaml");
    };
    apply(&mut reader, "10/minute");
    let section = section(&page(CHANGING), "Changing rules under traffic");
    reader.follow(&first(&section, "console"), |reader, followed| {
        let limit = if followed == 1 {
            "20/minute"
        } else {
            "5/minute"
        };
        apply(reader, limit);
    });
}

#[test]
fn rules_are_tested_as_their_guide_shows() {
    let section = section(&page(CHANGING), "Test rules in CI");
    let mut reader = Reader::new(Some(&quickstart("3/minute")));
    reader.folder.write("cases.yaml", &first(&section, "yaml"));
    reader.follow_all(&section);
}

/// In each step a simulation, a suggestion or a server says what the guide shows.
#[test]
fn a_limit_comes_from_a_log_into_production_as_its_guide_shows() {
    let guide = page(REHEARSE);
    let mut reader = Reader::new(None);
    for name in ["rules.yaml", "access.log"] {
        let text = fs::read_to_string(root().join("examples/rehearse").join(name)).unwrap();
        reader.folder.write(name, &text);
    }
    let show = section(&guide, "1. See how lines are read");
    let rules = fs::read_to_string(root().join("examples/rehearse/rules.yaml")).unwrap();
    assert_eq!(first(&show, "yaml").trim(), rules.trim());
    reader.follow_all(&show);
    for title in ["2. Simulate", "3. Suggest"] {
        reader.follow_all(&section(&guide, title));
    }
    let candidate = section(&guide, "4. Try it as a candidate");
    reader
        .folder
        .write("rules.yaml", &first(&candidate, "yaml"));
    let all = blocks(&candidate).into_iter();
    let commands = all.filter(|(language, _)| *language == "console");
    for (number, (_, lines)) in commands.enumerate() {
        if number == 1 {
            for cost in [1, 1, 1, 5] {
                let check = "tidegate check -a ip=203.0.113.20 -a path=/v1/items --cost";
                reader.run(&format!("{check} {cost}"));
            }
        }
        reader.follow(&lines.join("\n"), |_, _| ());
    }
    reader.follow_all(&section(&guide, "5. Promote"));
}
