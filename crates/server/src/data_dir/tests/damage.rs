//! Files that are not what was written: the last good version always stands.

use std::fs;
use std::path::Path;

use super::super::{BadVersion, DataDir, DataDirError};
use super::{current_number, directory_with, file, file_names, new_version, numbers};

const NEWEST: &str = "000000000002.json";
const SET_ASIDE: &str = "000000000002.json.corrupt";

/// Opens the directory with this text as its newest version, and puts everything back.
fn open_with_newest(directory: &Path, text: &[u8]) -> DataDir {
    fs::write(file(directory, NEWEST), text).unwrap();
    let data = DataDir::open(directory).unwrap();
    let _ = fs::remove_file(file(directory, SET_ASIDE));
    data
}

#[test]
fn a_file_cut_short_anywhere_leaves_the_version_before() {
    let temporary = directory_with(&["one", "two"]);
    let whole = fs::read(file(temporary.path(), NEWEST)).unwrap();
    for length in 0..whole.len() {
        let data = open_with_newest(temporary.path(), &whole[..length]);
        let current = data.current().unwrap();
        assert_eq!(current.version, 1, "cut at {length}");
        assert_eq!(current.rules, new_version("one").rules);
        assert_eq!(data.warnings().len(), 1);
    }
    let data = open_with_newest(temporary.path(), &whole);
    assert_eq!(current_number(&data), Some(2));
    assert!(data.warnings().is_empty());
}

#[test]
fn a_flipped_byte_anywhere_leaves_the_version_before() {
    let temporary = directory_with(&["one", "two"]);
    let whole = fs::read(file(temporary.path(), NEWEST)).unwrap();
    for index in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[index] ^= 1;
        let data = open_with_newest(temporary.path(), &damaged);
        assert_eq!(current_number(&data), Some(1), "byte {index}");
        assert_eq!(numbers(&data), [1]);
    }
}

#[test]
fn a_damaged_file_is_set_aside_and_reported_once() {
    let temporary = directory_with(&["one", "two"]);
    fs::write(file(temporary.path(), NEWEST), "{").unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let warnings: Vec<String> = data.warnings().iter().map(ToString::to_string).collect();
    let newest = file(temporary.path(), NEWEST);
    let expected = format!(
        "`{0}` is not a version of the rules: it does not match its checksum; it was set aside \
         as `{0}.corrupt`",
        newest.display()
    );
    assert_eq!(warnings, [expected]);
    assert_eq!(fs::read(file(temporary.path(), SET_ASIDE)).unwrap(), b"{");
    drop(data);
    let data = DataDir::open(temporary.path()).unwrap();
    assert!(data.warnings().is_empty());
}

#[test]
fn the_number_of_a_damaged_version_is_not_used_again() {
    let temporary = directory_with(&["one", "two"]);
    fs::write(file(temporary.path(), NEWEST), "").unwrap();
    // Once to set it aside, once to find it there.
    drop(DataDir::open(temporary.path()).unwrap());
    let data = DataDir::open(temporary.path()).unwrap();
    assert_eq!(data.write(&new_version("three")).unwrap().version, 3);
    assert_eq!(numbers(&data), [3, 1]);
}

#[test]
fn nothing_that_was_set_aside_before_is_lost() {
    let temporary = directory_with(&["one", "two"]);
    fs::write(file(temporary.path(), SET_ASIDE), "before").unwrap();
    fs::write(file(temporary.path(), NEWEST), "now").unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    assert_eq!(current_number(&data), Some(1));
    assert!(data.warnings()[0].set_aside.is_none());
    let text = |name| fs::read_to_string(file(temporary.path(), name)).unwrap();
    assert_eq!(
        (text(SET_ASIDE), text(NEWEST)),
        ("before".into(), "now".into())
    );
    assert_eq!(data.write(&new_version("three")).unwrap().version, 3);
}

#[test]
fn a_damaged_version_in_the_middle_is_missing_in_the_history() {
    let temporary = directory_with(&["one", "two", "three"]);
    fs::write(file(temporary.path(), NEWEST), "null").unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    assert_eq!(current_number(&data), Some(3));
    assert_eq!(numbers(&data), [3, 1]);
    assert!(data.read(2).unwrap().is_none());
}

#[test]
fn a_version_that_is_damaged_later_is_an_error_to_read() {
    let temporary = directory_with(&["one", "two"]);
    let data = DataDir::open(temporary.path()).unwrap();
    fs::write(file(temporary.path(), "000000000001.json"), "null").unwrap();
    let error = data.read(1).unwrap_err();
    assert!(matches!(error, DataDirError::Damaged { .. }), "{error:?}");
}

#[test]
fn a_copy_under_another_number_is_not_a_version() {
    let temporary = directory_with(&["one"]);
    let one = file(temporary.path(), "000000000001.json");
    fs::copy(one, file(temporary.path(), "000000000007.json")).unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let problem = &data.warnings()[0].problem;
    assert!(matches!(problem, BadVersion::Number { found: 1 }));
    assert_eq!(current_number(&data), Some(1));
    assert_eq!(data.write(&new_version("two")).unwrap().version, 8);
}

#[test]
fn a_directory_with_the_name_of_a_version_is_not_one() {
    let temporary = directory_with(&["one"]);
    fs::create_dir(file(temporary.path(), NEWEST)).unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let problem = &data.warnings()[0].problem;
    assert!(matches!(problem, BadVersion::NotAFile));
    assert_eq!(current_number(&data), Some(1));
}

#[test]
fn when_all_is_lost_there_is_a_warning_and_no_version() {
    let temporary = directory_with(&["one"]);
    fs::write(file(temporary.path(), "000000000001.json"), "").unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    assert!(data.current().is_none());
    assert_eq!(data.warnings().len(), 1);
    assert_eq!(data.write(&new_version("two")).unwrap().version, 2);
}

#[test]
fn a_number_that_is_the_last_leaves_none_and_breaks_nothing() {
    let temporary = directory_with(&["one"]);
    fs::write(file(temporary.path(), "999999999999.json"), "").unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let error = data.write(&new_version("two")).unwrap_err();
    assert!(matches!(error, DataDirError::NoNumberLeft { .. }));
    assert_eq!(current_number(&data), Some(1));
}

#[test]
fn unfinished_files_are_removed_and_foreign_ones_left() {
    let temporary = directory_with(&["one"]);
    for name in [
        "000000000002.json.tmp",
        "000000000002.json.0123456789abcdef.tmp",
    ] {
        fs::write(file(temporary.path(), name), "{").unwrap();
    }
    fs::write(file(temporary.path(), "notes.txt"), "mine").unwrap();
    let data = DataDir::open(temporary.path()).unwrap();
    let expected = ["000000000001.json", "notes.txt"];
    assert_eq!(file_names(temporary.path()), expected);
    assert!(data.warnings().is_empty());
    assert_eq!(data.write(&new_version("two")).unwrap().version, 2);
}
