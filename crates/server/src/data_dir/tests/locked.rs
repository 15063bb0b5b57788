//! Small files in a locked directory, and a directory that can only be read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use super::super::LockedDir;
use super::{DataDir, DataDirError, current_number, directory_with, file_names, new_version};

#[test]
fn a_small_file_is_replaced_whole_and_only_for_its_user() {
    let temporary = tempfile::tempdir().unwrap();
    // What a killed server left is removed.
    for name in ["small.tmp", "small.0123456789abcdef.tmp"] {
        fs::write(temporary.path().join(name), "half of it").unwrap();
    }
    let directory = LockedDir::open(temporary.path()).unwrap();
    assert_eq!(directory.read("small").unwrap(), None);
    for text in ["one", "two and more", ""] {
        directory.write("small", text.as_bytes()).unwrap();
        let found = directory.read("small").unwrap();
        assert_eq!(found.as_deref(), Some(text.as_bytes()));
    }
    let mode = fs::metadata(temporary.path().join("small")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    directory.remove("small").unwrap();
    directory.remove("small").unwrap();
    assert_eq!(directory.read("small").unwrap(), None);
    let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_file_is_created_only_if_nothing_has_its_name() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = LockedDir::open(temporary.path()).unwrap();
    assert!(directory.create("token", b"first").unwrap());
    assert!(!directory.create("token", b"second").unwrap());
    assert_eq!(directory.read("token").unwrap().unwrap(), b"first");
    let elsewhere = temporary.path().join("elsewhere");
    symlink(&elsewhere, temporary.path().join("link")).unwrap();
    assert!(!directory.create("link", b"x").unwrap());
    assert!(!elsewhere.exists());
    let names = fs::read_dir(temporary.path()).unwrap();
    let is_temporary = |name: &str| Path::new(name).extension().is_some_and(|end| end == "tmp");
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| is_temporary(name)).count(), 0);
}

#[test]
fn a_directory_has_one_lock_whatever_is_kept_in_it() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = Arc::new(LockedDir::open(temporary.path()).unwrap());
    let versions = DataDir::within(Arc::clone(&directory)).unwrap();
    versions.write(&new_version("one")).unwrap();
    drop(versions);
    for opened in [
        LockedDir::open(temporary.path()),
        LockedDir::open_to_read(temporary.path()),
    ] {
        assert!(matches!(opened, Err(DataDirError::InUse { .. })));
    }
    drop(directory);
    LockedDir::open(temporary.path()).unwrap();
}

#[test]
fn versions_are_read_where_nothing_can_be_written() {
    let temporary = directory_with(&["one", "two"]);
    let read_only = || LockedDir::open_to_read(temporary.path()).unwrap();
    let before = file_names(temporary.path());
    let versions = DataDir::within(Arc::new(read_only())).unwrap();
    assert!(!versions.is_writable());
    assert_eq!(current_number(&versions), Some(2));
    assert_eq!(
        versions.read(1).unwrap().unwrap().rules,
        new_version("one").rules
    );
    let refused = versions.write(&new_version("three")).unwrap_err();
    assert!(
        matches!(refused, DataDirError::Denied { .. }),
        "{refused:?}"
    );
    drop(versions);
    let directory = read_only();
    assert!(directory.write("small", b"x").is_err());
    assert!(directory.create("small", b"x").is_err());
    assert_eq!(file_names(temporary.path()), before);
    // A server that never wrote there has left no lock.
    fs::remove_file(temporary.path().join("lock")).unwrap();
    read_only();
}
