//! A process that is killed while it writes leaves what it acknowledged, or something newer, whole.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::Timestamp;

use super::super::{DataDir, NewVersion};
use super::file_names;

/// The variable with which the child gets its directory.
const DIRECTORY: &str = "TIDEGATE_TEST_DATA_DIR";

/// What the child writes before the number of a version that was acknowledged.
const ACKNOWLEDGED: &str = "acknowledged ";

/// Rules of which every part names the version, so that no mix of two would pass; large, so that a
/// good part of the time goes into writing them.
fn rules(number: u64) -> Value {
    let description = format!("{number} ").repeat(20_000);
    (0..20)
        .map(|index| json!({"id": format!("rule-{index}"), "description": description}))
        .collect()
}

#[test]
#[ignore = "the child of the test below, which kills it"]
#[expect(
    clippy::disallowed_methods,
    reason = "a test binary takes no arguments of ours"
)]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let data = DataDir::open(Path::new(&directory)).unwrap().keep(5);
    let mut number = data.current().map_or(0, |version| version.version);
    loop {
        number += 1;
        let version = data
            .write(&NewVersion {
                at: Timestamp::from_seconds(number),
                by: "child".into(),
                changes: vec![],
                rules: Arc::new(rules(number)),
                shared: None,
            })
            .unwrap();
        let line = format!("{ACKNOWLEDGED}{}\n", version.version);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

fn start_child(directory: &Path) -> Child {
    let (_, module) = module_path!().split_once("::").unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "--exact"])
        .arg(format!("{module}::writes_until_it_is_killed"))
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn random_below(limit: u64) -> u64 {
    RandomState::new().hash_one(()) % limit
}

#[test]
fn a_killed_writer_leaves_a_whole_version_not_older_than_the_last_acknowledged() {
    let temporary = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..20 {
        let mut child = start_child(temporary.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut numbers = lines.filter_map(|line| {
            let line = line.unwrap();
            let (_, number) = line.split_once(ACKNOWLEDGED)?;
            Some(number.parse::<u64>().unwrap())
        });
        // A quarter is killed while it starts, a quarter while it does anything, and half of them
        // just when a file appears or goes.
        if round % 4 != 0 {
            acknowledged = numbers.next().expect("the child should write");
        }
        if round % 2 == 0 {
            thread::sleep(Duration::from_micros(random_below(20_000)));
        } else {
            let before = file_names(temporary.path());
            while file_names(temporary.path()) == before {
                assert_eq!(child.try_wait().unwrap(), None, "the child should go on");
            }
        }
        child.kill().unwrap();
        acknowledged = numbers.last().unwrap_or(acknowledged);
        child.wait().unwrap();

        let data = DataDir::open(temporary.path()).unwrap();
        assert!(data.warnings().is_empty(), "{:?}", data.warnings());
        let Some(current) = data.current() else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        let number = current.version;
        assert!(
            (acknowledged..=acknowledged + 1).contains(&number),
            "{number} after {acknowledged} was acknowledged"
        );
        assert_eq!(*current.rules, rules(number));
        acknowledged = number;
    }
    assert!(
        acknowledged >= 15,
        "each of fifteen rounds wrote at least one"
    );
}
