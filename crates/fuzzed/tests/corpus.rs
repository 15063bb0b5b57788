//! Replays the corpus of the fuzzers: what was found once holds from then on.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use tidegate_fuzzed::TARGETS;

/// The most bytes of the corpus, so that it stays quick to replay and to clone.
const MOST_BYTES: u64 = 1 << 20;

fn fuzz() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

#[test]
fn every_input_of_the_corpus_holds() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let inputs = files(&fuzz().join("corpus").join(target.name));
        assert!(inputs.len() >= 5, "{} has inputs", target.name);
        for path in inputs {
            let input = fs::read(&path).expect("an input");
            if catch_unwind(|| (target.check)(&input)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_corpus_is_small() {
    let folders = TARGETS.map(|target| files(&fuzz().join("corpus").join(target.name)));
    let bytes = folders.iter().flatten().map(|path| {
        let metadata = fs::metadata(path);
        metadata.expect("an input").len()
    });
    let bytes: u64 = bytes.sum();
    assert!(
        bytes <= MOST_BYTES,
        "the corpus has {bytes} bytes; minimise it"
    );
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus() {
    let names = |paths: Vec<PathBuf>| -> BTreeSet<String> {
        let stems = paths.iter().filter_map(|path| path.file_stem());
        stems
            .map(|stem| stem.to_string_lossy().into_owned())
            .collect()
    };
    let targets: BTreeSet<String> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    assert_eq!(names(files(&fuzz().join("fuzz_targets"))), targets);
    assert_eq!(names(files(&fuzz().join("corpus"))), targets);
}

/// Changes an input a little, by numbers that are the same in each run.
struct Mutations(u64);

impl Mutations {
    fn number(&mut self, below: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below.max(1) as u64).expect("it is below")
    }

    fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut changed = input.to_vec();
        for _ in 0..=self.number(3) {
            let at = self.number(changed.len());
            let end = at + self.number((changed.len() - at).min(16) + 1);
            match self.number(5) {
                0 if at < changed.len() => changed[at] ^= 1 << self.number(8),
                1 => drop(changed.drain(at..end)),
                2 => {
                    let piece = changed[at..end].to_vec();
                    changed.splice(at..at, piece);
                }
                3 => {
                    let from = self.number(other.len());
                    let to = from + self.number((other.len() - from).min(32) + 1);
                    changed.splice(at..end, other[from..to].iter().copied());
                }
                _ => {
                    const TOKENS: [&[u8]; 12] = [
                        b"\r\n", b"\n", b"\r", b"\0", b"0", b"-1", b"%2f", b";", b",", b"\"", b" ",
                        b"\xff",
                    ];
                    let token = TOKENS[self.number(TOKENS.len())];
                    changed.splice(at..at, token.iter().copied());
                }
            }
        }
        changed
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how many changes to try is chosen for a run of the tests"
)]
fn the_neighbours_of_the_corpus_hold() {
    let each = std::env::var("FUZZED_MUTATIONS");
    let each: usize = each.map_or(10, |each| each.parse().expect("a number"));
    let only = std::env::var("FUZZED_TARGET").ok();
    let mut failed = Vec::new();
    for target in TARGETS {
        if only.as_ref().is_some_and(|only| only != target.name) {
            continue;
        }
        let inputs = files(&fuzz().join("corpus").join(target.name));
        let inputs: Vec<Vec<u8>> = inputs
            .iter()
            .map(|path| fs::read(path).expect("an input"))
            .collect();
        let mut mutations = Mutations(1);
        for input in &inputs {
            for _ in 0..each {
                let other = mutations.number(inputs.len());
                let changed = mutations.change(input, &inputs[other]);
                if catch_unwind(|| (target.check)(&changed)).is_err() {
                    failed.push(format!("{}: {}", target.name, changed.escape_ascii()));
                }
            }
        }
    }
    failed.sort_by_key(String::len);
    failed.truncate(20);
    assert!(failed.is_empty(), "{failed:#?}");
}
