//! What a data directory promises, on a real file system.

mod damage;
mod killed;
mod locked;
mod owner;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::Timestamp;

use super::{DataDir, DataDirError, NewVersion, Row};

fn new_version(id: &str) -> NewVersion {
    NewVersion {
        at: Timestamp::from_micros(1_794_770_000_250_001),
        by: "ops".into(),
        changes: vec![format!("added {id}")],
        rules: Arc::new(json!([{"id": id, "per": [], "limit": "5/second"}])),
        shared: None,
    }
}

/// A temporary directory in which these versions were written, one after the other.
fn directory_with(ids: &[&str]) -> TempDir {
    let temporary = tempfile::tempdir().unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    for id in ids {
        data.write(&new_version(id)).unwrap();
    }
    temporary
}

fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join("rules").join(name)
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory.join("rules")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn numbers(data: &DataDir) -> Vec<u64> {
    data.history().iter().map(|row| row.version).collect()
}

fn current_number(data: &DataDir) -> Option<u64> {
    data.current().map(|version| version.version)
}

#[test]
fn a_new_directory_holds_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("a/b/tidegate-data");
    let data = DataDir::open(&path).unwrap();
    assert!(data.current().is_none());
    assert!(data.history().is_empty());
    assert!(data.warnings().is_empty());
    assert!(data.read(1).unwrap().is_none());
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o027, 0, "others may not look into it");
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let temporary = tempfile::tempdir().unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let first = data.write(&new_version("one")).unwrap();
    let second = data.write(&new_version("two")).unwrap();
    let history = data.history();
    assert_eq!((first.version, second.version), (1, 2));
    assert_eq!(second.rules, new_version("two").rules);
    drop(data);

    let data = DataDir::open(temporary.path()).unwrap();
    assert_eq!(data.current(), Some(Arc::clone(&second)));
    assert_eq!(data.history(), history);
    assert_eq!(history, [Row::from(&*second), Row::from(&*first)]);
    assert_eq!(data.read(1).unwrap().as_ref(), Some(&*first));
    assert!(data.read(3).unwrap().is_none());
    assert_eq!(data.write(&new_version("three")).unwrap().version, 3);
}

#[test]
fn a_second_server_learns_which_process_has_the_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let error = DataDir::open(temporary.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "`{}` is in use by another Tidegate server (process {}); stop it or give this one \
             another --data-dir",
            temporary.path().display(),
            std::process::id()
        )
    );
    drop(data);
    assert!(DataDir::open(temporary.path()).is_ok());
}

#[test]
fn an_unsigned_lock_holds_all_the_same() {
    let temporary = tempfile::tempdir().unwrap();
    let _data = DataDir::open(temporary.path()).unwrap();
    fs::write(temporary.path().join("lock"), [0xff; 100]).unwrap();
    let error = DataDir::open(temporary.path()).unwrap_err();
    assert!(matches!(error, DataDirError::InUse { process: None, .. }));
}

#[test]
fn a_file_in_the_way_is_not_a_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("file");
    fs::write(&path, "").unwrap();
    for inside in [path.clone(), path.join("data")] {
        let error = DataDir::open(&inside).unwrap_err();
        let expected = format!(
            "`{}` is not a directory; move it away or give another --data-dir",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
    }
    assert!(DataDir::open(Path::new("")).is_err());
}

#[test]
fn a_directory_that_may_not_be_used_is_named() {
    let temporary = directory_with(&["one"]);
    let directory = temporary.path().to_path_buf();
    let version = file(&directory, "000000000001.json");
    for closed in [directory.join("rules"), version, directory] {
        let mode = fs::metadata(&closed).unwrap().permissions();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        // Nothing is denied to root.
        let is_denied = fs::File::open(&closed).is_err();
        let opened = DataDir::open(temporary.path());
        fs::set_permissions(&closed, mode).unwrap();
        if is_denied {
            let error = opened.unwrap_err();
            assert!(matches!(error, DataDirError::Denied { .. }), "{error:?}");
            let place = closed.display().to_string();
            assert!(error.to_string().contains(&place), "{error}");
        }
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let temporary = directory_with(&["one"]);
    let data = DataDir::open(temporary.path()).unwrap();
    let half = |file: &mut fs::File, text: &[u8]| {
        file.write_all(&text[..text.len() / 2])?;
        Err(std::io::ErrorKind::StorageFull.into())
    };
    let error = data.write_with(&new_version("two"), half).unwrap_err();
    assert!(matches!(error, DataDirError::Full { .. }), "{error:?}");
    assert_eq!(current_number(&data), Some(1));
    assert_eq!(numbers(&data), [1]);
    assert_eq!(file_names(temporary.path()), ["000000000001.json"]);
    assert_eq!(data.write(&new_version("two")).unwrap().version, 2);
}

#[test]
fn a_failed_rename_changes_nothing_and_does_not_block_the_next() {
    let temporary = directory_with(&["one"]);
    let data = DataDir::open(temporary.path()).unwrap();
    fs::create_dir(file(temporary.path(), "000000000002.json")).unwrap();
    let error = data.write(&new_version("two")).unwrap_err();
    assert!(matches!(error, DataDirError::Io { .. }), "{error:?}");
    assert_eq!(current_number(&data), Some(1));
    let expected = ["000000000001.json", "000000000002.json"];
    assert_eq!(file_names(temporary.path()), expected);
    assert_eq!(data.write(&new_version("two")).unwrap().version, 3);
}

#[test]
fn rules_that_could_not_be_read_again_are_not_written() {
    let temporary = directory_with(&["one"]);
    let data = DataDir::open(temporary.path()).unwrap();
    let deep = (0..200).fold(json!([]), |inner, _| json!([inner]));
    for rules in [json!({"id": "x"}), Value::Null, deep] {
        let new = NewVersion {
            rules: Arc::new(rules),
            ..new_version("two")
        };
        let error = data.write(&new).unwrap_err();
        assert!(matches!(error, DataDirError::Unwritable(_)), "{error:?}");
    }
    assert_eq!(current_number(&data), Some(1));
    assert_eq!(file_names(temporary.path()), ["000000000001.json"]);
}

#[test]
fn only_the_newest_versions_are_kept() {
    let temporary = directory_with(&["one", "two", "three", "four"]);
    let data = DataDir::open(temporary.path()).unwrap().keep(3);
    assert_eq!(numbers(&data), [4, 3, 2, 1]);
    data.write(&new_version("five")).unwrap();
    assert_eq!(numbers(&data), [5, 4, 3]);
    assert!(data.read(2).unwrap().is_none());
    let expected = [
        "000000000003.json",
        "000000000004.json",
        "000000000005.json",
    ];
    assert_eq!(file_names(temporary.path()), expected);

    let data = data.keep(0);
    data.write(&new_version("six")).unwrap();
    assert_eq!(numbers(&data), [6]);
}

#[test]
fn an_old_version_that_cannot_be_removed_fails_no_write() {
    let temporary = directory_with(&["one", "two"]);
    let data = DataDir::open(temporary.path()).unwrap().keep(1);
    let old = file(temporary.path(), "000000000001.json");
    fs::remove_file(&old).unwrap();
    fs::create_dir(&old).unwrap();
    data.write(&new_version("three")).unwrap();
    assert_eq!(numbers(&data), [3, 1]);
}

#[test]
fn writers_take_turns() {
    let temporary = tempfile::tempdir().unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    data.write(&new_version("x")).unwrap();
                }
            });
        }
    });
    let expected: Vec<u64> = (1..=20).rev().collect();
    assert_eq!(numbers(&data), expected);
    assert_eq!(current_number(&data), Some(20));
}
