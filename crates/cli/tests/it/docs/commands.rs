//! Every command that the README and the guides show is run by a test, or listed here with the reason why not.
//!
//! Commands of the program itself are also tried as they are shown, with `--help` at their end, which the program answers
//! only if it accepts every word before it. Those of [`super::examples`] and [`super::played`] are run as they are shown,
//! and what they print is compared.

use super::{page, pages};
use crate::server::ProgramFolder;

/// Where a command runs, or why none does.
enum Run {
    /// A file of tests or a script, which has to exist.
    By(&'static str),
    Not(&'static str),
}

const CONTAINERS: &str = "needs a registry and a container engine";
const CLUSTER: &str = "needs a Kubernetes cluster";
const EXAMPLES: Run = Run::By("crates/cli/tests/it/docs/examples.rs");
const TRUSTED: Run = Run::By("crates/cli/tests/it/proxies/untrusted.rs");
const COMMANDS: Run = Run::By("crates/cli/tests/it/program/commands.rs");
const PROMOTING: Run = Run::By("crates/cli/tests/it/process/promoting.rs");
const MIGRATING: Run = Run::By("crates/cli/tests/it/docs/migrating.rs");
const SIMULATE: Run = Run::By("crates/cli/tests/it/program/simulate.rs");
const SYSTEM: &str = "changes the system; `scripts/stopwatch` installs the package into another";

/// The commands, by how they begin.
const SHOWN: [(&str, Run); 70] = [
    ("tidegate --version", COMMANDS),
    ("env $(cat ratelimit.env)", MIGRATING),
    ("env $(cat gateway.env)", MIGRATING),
    ("curl -s http://127.0.0.1:8080/healthcheck", MIGRATING),
    ("curl -s http://127.0.0.1:8080/json", MIGRATING),
    ("curl -s http://127.0.0.1:6070/", MIGRATING),
    ("tidegate check", COMMANDS),
    (
        "tidegate console",
        Run::By("crates/cli/tests/it/process/console.rs"),
    ),
    ("tidegate denied", COMMANDS),
    ("tidegate explain", COMMANDS),
    (
        "tidegate import",
        Run::By("crates/cli/tests/it/program/import.rs"),
    ),
    ("tidegate override", COMMANDS),
    ("tidegate rules apply", COMMANDS),
    ("tidegate rules diff", COMMANDS),
    ("tidegate rules history", COMMANDS),
    ("tidegate rules list", COMMANDS),
    ("tidegate rules promote", PROMOTING),
    ("tidegate rules rollback", COMMANDS),
    ("tidegate rules rollout", PROMOTING),
    ("tidegate rules suggest", SIMULATE),
    (
        "tidegate rules test",
        Run::By("crates/cli/tests/it/program/rules_test.rs"),
    ),
    (
        "tidegate rules validate",
        Run::By("crates/cli/tests/it/program/validate.rs"),
    ),
    (
        "tidegate schema",
        Run::By("crates/cli/tests/it/docs/schema.rs"),
    ),
    ("tidegate simulate", SIMULATE),
    ("tidegate serve", Run::By("crates/cli/tests/it/server.rs")),
    (
        "tidegate top",
        Run::By("crates/cli/tests/it/process/top.rs"),
    ),
    (
        "cargo run --release -- serve",
        Run::Not("builds the program for minutes; its own words are tried"),
    ),
    (
        "cargo add tidegate",
        Run::Not(
            "changes another program; `crates/testkit/tests/it/published.rs` checks the crates",
        ),
    ),
    ("cargo add tokio", Run::Not("changes another program")),
    ("cargo build --profile dist", Run::By("scripts/bench")),
    (
        "curl -i http://127.0.0.1:8080/v1/check",
        Run::By("crates/server/tests/it/http"),
    ),
    ("curl -s http://127.0.0.1/v1/orders", TRUSTED),
    (
        "curl -s -o /dev/null",
        Run::By("crates/cli/tests/it/proxies/nginx.rs"),
    ),
    ("curl -s http://127.0.0.1:8080/readyz", TRUSTED),
    (
        "curl -s http://127.0.0.1:8080/v1/reserv",
        Run::By("crates/server/tests/it/http/reservations.rs"),
    ),
    (
        "curl -s http://127.0.0.1:8080/v1/rules",
        Run::By("crates/server/tests/it/http"),
    ),
    (
        "curl -s -H 'Authorization: Bearer wrong'",
        Run::By("crates/server/tests/it/http"),
    ),
    ("bash examples/clients", Run::By("scripts/clients")),
    ("python3 examples/clients", Run::By("scripts/clients")),
    ("python3 examples/language-models", Run::By("scripts/sdks")),
    ("export MODEL_AUTHORIZATION", Run::By("scripts/sdks")),
    ("node examples/clients", Run::By("scripts/clients")),
    ("go run examples/clients", Run::By("scripts/clients")),
    ("java examples/clients", Run::By("scripts/clients")),
    ("./scripts/tarball", Run::By("scripts/packages")),
    ("tar xf", Run::By("scripts/stopwatch")),
    (
        "apt install ./target/packages",
        Run::By("scripts/stopwatch"),
    ),
    ("install -m 0755 target/dist/tidegate", Run::Not(SYSTEM)),
    ("install -m 0644 packaging", Run::Not(SYSTEM)),
    ("systemctl daemon-reload", Run::Not(SYSTEM)),
    (
        "cargo install --path crates/cli",
        Run::Not("builds the program for minutes, as the first answer does"),
    ),
    (
        "cargo run -p tidegate --example",
        Run::Not("compiled by the lints; its calls are those of the doctests"),
    ),
    (
        "cargo run -p tidegate-redis --example",
        Run::Not("compiled by the lints; goes on until it is ended"),
    ),
    (
        "cargo run -p tidegate-tower --example",
        Run::Not("compiled by the lints; goes on until it is ended"),
    ),
    ("./scripts/image", Run::By("scripts/packages")),
    ("./scripts/deb", Run::By("scripts/packages")),
    ("podman load", Run::By("scripts/stopwatch")),
    ("podman run", Run::By("scripts/stopwatch")),
    ("docker build", Run::Not(CONTAINERS)),
    ("docker push", Run::Not(CONTAINERS)),
    ("docker run", Run::Not(CONTAINERS)),
    ("helm install", Run::Not(CLUSTER)),
    ("helm upgrade", Run::Not(CLUSTER)),
    ("helm test", Run::Not(CLUSTER)),
    (
        "helm package",
        Run::Not("writes the chart into an archive; `scripts/chart` checks what is in it"),
    ),
    ("helm template", Run::By("scripts/chart")),
    ("kubectl", Run::Not(CLUSTER)),
    (
        "openssl req",
        Run::Not("makes a certificate to try TLS with; the tests have their own"),
    ),
    ("sed 's|docs/guides/alerts.md#", EXAMPLES),
    ("printf %s user_abc", EXAMPLES),
];

/// The commands on a page, with its continued lines, each with the page and the line that it stands on. Those of root
/// begin with `#`. A cell of a table that is nothing but a command in backticks counts, too.
fn commands(name: &str, text: &str) -> Vec<(String, String)> {
    let mut commands = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut language = None;
    while let Some((number, line)) = lines.next() {
        if let Some(word) = line.strip_prefix("```") {
            language = language.is_none().then_some(word);
        }
        if language.is_none() && line.starts_with('|') {
            let cells = line.split(" | ").map(|cell| cell.trim_matches([' ', '|']));
            let code = cells.filter_map(|cell| cell.strip_prefix('`')?.strip_suffix('`'));
            let is_command = |code: &&str| !code.contains('`') && is_of_a_shell(code);
            let found = code.filter(is_command);
            commands.extend(found.map(|code| (format!("{name}:{}", number + 1), code.to_owned())));
        }
        let prompt = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        let Some(mut command) = prompt.map(str::to_owned) else {
            continue;
        };
        if language == Some("console") {
            while command.ends_with('\\') {
                command.pop();
                command += lines.next().unwrap().1;
            }
            commands.push((format!("{name}:{}", number + 1), command));
        }
    }
    commands
}

/// Whether the text of a cell is a command that a reader types: it begins with a program, and has an argument or a path.
fn is_of_a_shell(code: &str) -> bool {
    let programs = [
        "cargo ",
        "tar ",
        "podman ",
        "apt ",
        "./scripts/",
        "tidegate --version",
    ];
    programs.iter().any(|program| code.starts_with(program))
}

/// The words of a command for a shell, up to a comment, a pipe or a redirection, without variables in front.
pub(super) fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut depth) = (None, 0);
    for c in command.chars() {
        let word = words.last_mut().unwrap();
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) if depth == 0 => quote = Some(c),
            ('#' | '|' | '>', None) if word.is_empty() => break,
            (' ', None) if depth == 0 => words.push(String::new()),
            _ => {
                depth += i32::from(c == '(') - i32::from(c == ')' && depth > 0);
                word.push(c);
            }
        }
    }
    let is_variable = |word: &String| word.starts_with("TIDEGATE_") && word.contains('=');
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.skip_while(is_variable).collect()
}

/// All commands of the pages that a reader follows.
fn shown() -> Vec<(String, String)> {
    let is_followed = |name: &str| {
        name == "README.md"
            || name.starts_with("docs/guides/")
            || name.starts_with("docs/reference/")
    };
    let pages = pages().into_iter().filter(|(name, _)| is_followed(name));
    pages
        .flat_map(|(name, text)| commands(&name, &text))
        .collect()
}

#[test]
fn the_words_of_a_command_are_those_that_a_shell_passes() {
    let of = |command| words(command).join("·");
    assert_eq!(
        of("tidegate check -a 'a b' --cost 8   # now"),
        "tidegate·check·-a·a b·--cost·8"
    );
    assert_eq!(
        of("TIDEGATE_TOKEN=$(openssl rand -hex 24) tidegate serve"),
        "tidegate·serve"
    );
    assert_eq!(of("tidegate schema rules > file"), "tidegate·schema·rules");
    let page = "```console\n$ one \\\n  two\nprinted\n```\n$ three\n";
    assert_eq!(
        commands("page", page),
        [("page:2".to_owned(), "one   two".to_owned())]
    );
}

#[test]
fn the_program_accepts_every_command_that_is_shown() {
    let folder = ProgramFolder::new();
    let mut tried = 0;
    for (position, command) in shown() {
        let words = words(&command.replace("cargo run --release -- ", "tidegate "));
        if words.first().is_none_or(|word| word != "tidegate") {
            continue;
        }
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let run = folder.run(&[&arguments[..], &["--help"]].concat());
        assert_eq!(run.code, Some(0), "{position}: {command}\n{}", run.stderr);
        tried += 1;
    }
    assert!(tried > 60, "only {tried} were found");
}

#[test]
fn every_command_is_run_or_listed_with_the_reason() {
    let guides = shown().into_iter();
    let guides = guides.filter(|(position, _)| !position.starts_with("docs/reference/"));
    let commands: Vec<(String, String)> = guides
        .map(|(position, command)| match words(&command).first() {
            Some(program) if program == "tidegate" => (position, words(&command).join(" ")),
            _ => (position, command),
        })
        .collect();
    assert!(commands.len() > 100, "only {} were found", commands.len());
    for (position, command) in &commands {
        let is_listed = SHOWN.iter().any(|(start, _)| command.starts_with(start));
        assert!(is_listed, "{position}: {command}");
    }
    for (start, run) in &SHOWN {
        let is_shown = commands
            .iter()
            .any(|(_, command)| command.starts_with(start));
        assert!(is_shown, "no page shows `{start}`");
        match run {
            Run::By(path) => assert!(super::root().join(path).exists(), "{start}: {path}"),
            Run::Not(reason) => assert!(reason.len() > 10, "{start}"),
        }
        if let (Run::By(path), Some(command)) = (run, start.strip_prefix("tidegate ")) {
            let last = command.split(' ').next_back().unwrap();
            assert!(page(path).contains(last), "{path} does not run `{start}`");
        }
    }
}

/// The programs of the guide are files, which `scripts/clients` runs.
#[test]
fn the_programs_of_the_guide_are_those_that_are_run() {
    let guide = page("docs/guides/from-your-language.md");
    let mut files = 0;
    for entry in std::fs::read_dir(super::root().join("examples/clients")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            guide.contains(&format!("\n{text}```\n")),
            "{}",
            path.display()
        );
        files += 1;
    }
    assert_eq!(files, 5);
}
