//! Files of other users, and links: nothing in a directory that another user may have prepared is used.
//!
//! Only root can give files to others; for an ordinary user these tests end where that begins.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::sync::Arc;

use super::super::made_token::{FILE, read_or_make};
use super::super::{DataDir, DataDirError, LockedDir, MadeTokenError};
use super::{current_number, directory_with, file, new_version};

/// A user and a group that this process is not.
const OTHER: u32 = 4_242;

/// Whether this process may give files to others.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can give files to another user");
    }
    is_root
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_belongs_to_another_user_is_refused_with_its_owner_and_what_to_run() {
    if !is_root() {
        return;
    }
    let temporary = directory_with(&["one"]);
    let directory = temporary.path();
    LockedDir::open(directory)
        .unwrap()
        .write("counters", b"x")
        .unwrap();
    symlink("/etc/passwd", directory.join("instances")).unwrap();
    for path in [
        directory.to_path_buf(),
        directory.join("lock"),
        directory.join("counters"),
        directory.join("instances"),
        directory.join("rules"),
        file(directory, "000000000001.json"),
    ] {
        lchown(&path, Some(OTHER), None).unwrap();
        let expected = format!(
            "`{}` belongs to the user 4242, and Tidegate runs as the user 0: another user may have prepared it, so nothing in it is used; if you trust what is in it, run `chown -R 0 {}`, or give another --data-dir",
            path.display(),
            directory.display()
        );
        for opened in [
            LockedDir::open(directory),
            LockedDir::open_to_read(directory),
        ] {
            let error = opened.unwrap_err();
            assert!(matches!(error, DataDirError::Foreign { owner: OTHER, .. }));
            assert_eq!(error.to_string(), expected);
        }
        lchown(&path, Some(0), None).unwrap();
    }
    assert_eq!(current_number(&DataDir::open(directory).unwrap()), Some(1));
}

#[test]
fn a_file_that_another_user_puts_there_later_is_not_read() {
    if !is_root() {
        return;
    }
    let temporary = directory_with(&["one"]);
    let directory = Arc::new(LockedDir::open(temporary.path()).unwrap());
    let data = DataDir::within(Arc::clone(&directory)).unwrap();
    directory.write("overrides", b"x").unwrap();
    chown(temporary.path().join("overrides"), Some(OTHER), None).unwrap();
    let error = directory.read("overrides").unwrap_err().to_string();
    assert!(error.contains("it belongs to the user 4242"), "{error}");
    assert!(directory.open_file("overrides").is_err());
    let version = file(temporary.path(), "000000000001.json");
    chown(version, Some(OTHER), None).unwrap();
    assert!(data.read(1).is_err());

    read_or_make(&directory).unwrap();
    chown(temporary.path().join(FILE), Some(OTHER), None).unwrap();
    let error = read_or_make(&directory).unwrap_err();
    assert!(matches!(
        error,
        MadeTokenError::Foreign { owner: OTHER, .. }
    ));
}

#[test]
fn a_directory_of_root_that_others_may_write_must_be_sticky_or_of_an_own_group() {
    if !is_root() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    #[rustfmt::skip]
    let table = [
        // group, mode, whether it is used
        (OTHER, 0o755,   true),
        (OTHER, 0o2755,  true),
        (OTHER, 0o775,   false),
        (OTHER, 0o757,   false),
        (OTHER, 0o2777,  false),
        (OTHER, 0o1777,  true),
        // As Kubernetes makes a volume with `fsGroup`, and one without for a process of the group root.
        (0,     0o2775,  true),
        (0,     0o777,   true),
    ];
    for (group, mode, is_used) in table {
        chown(directory, Some(0), Some(group)).unwrap();
        set_mode(directory, mode);
        let opened = LockedDir::open(directory);
        assert_eq!(opened.is_ok(), is_used, "{group} {mode:o} {opened:?}");
        if let Err(error) = opened {
            let error = error.to_string();
            let said = format!("belongs to root and has the mode {mode:04o}");
            assert!(
                error.contains(&said) && error.contains("`chown -R 0 "),
                "{error}"
            );
        }
    }
}

#[test]
fn a_volume_may_have_a_folder_that_cannot_be_read() {
    let temporary = tempfile::tempdir().unwrap();
    let lost = temporary.path().join("lost+found");
    fs::create_dir(&lost).unwrap();
    set_mode(&lost, 0o000);
    LockedDir::open(temporary.path()).unwrap();
    set_mode(&lost, 0o700);
}

#[test]
fn a_token_to_which_kubernetes_gave_the_group_of_the_volume_is_made_private_again() {
    if !is_root() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    set_mode(temporary.path(), 0o2775);
    let directory = LockedDir::open(temporary.path()).unwrap();
    let token = read_or_make(&directory).unwrap();
    let path = temporary.path().join(FILE);
    set_mode(&path, 0o660);
    assert_eq!(read_or_make(&directory).unwrap(), token);
    assert_eq!(mode(&path), 0o600);
    for wide in [0o604, 0o664] {
        set_mode(&path, wide);
        assert!(read_or_make(&directory).is_err(), "{wide:o}");
    }
    // Of a group that this process is not in, or in a directory that is no volume.
    chown(&path, None, Some(OTHER)).unwrap();
    set_mode(&path, 0o660);
    assert!(read_or_make(&directory).is_err());
    chown(&path, None, Some(0)).unwrap();
    set_mode(temporary.path(), 0o775);
    assert!(read_or_make(&directory).is_err());
}

#[test]
fn no_link_is_followed_and_no_name_can_be_foreseen() {
    let temporary = tempfile::tempdir().unwrap();
    let (directory, victim) = (
        temporary.path().join("data"),
        temporary.path().join("victim"),
    );
    fs::create_dir(&directory).unwrap();
    fs::create_dir(directory.join("rules")).unwrap();
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, directory.join("lock")).unwrap();
    assert!(DataDir::open(&directory).is_err());
    fs::remove_file(directory.join("lock")).unwrap();
    // A second name of the file is not written either.
    fs::hard_link(&victim, directory.join("lock")).unwrap();
    drop(DataDir::open(&directory).unwrap());
    fs::remove_file(directory.join("lock")).unwrap();

    let data = DataDir::open(&directory).unwrap();
    for name in ["counters", "counters.tmp", "rules/000000000001.json.tmp"] {
        symlink(&victim, directory.join(name)).unwrap();
    }
    data.write(&new_version("one")).unwrap();
    drop(data);
    let locked = LockedDir::open(&directory).unwrap();
    assert!(locked.read("counters").is_err());
    assert!(locked.open_file("counters").is_err());
    locked.write("counters", b"mine").unwrap();
    assert_eq!(locked.read("counters").unwrap().unwrap(), b"mine");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    for name in ["lock", "counters", "rules/000000000001.json"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
    drop(locked);

    // A version that is a link is no version, and a folder that is one is not used.
    symlink(&victim, file(&directory, "000000000002.json")).unwrap();
    let data = DataDir::open(&directory).unwrap();
    assert_eq!((current_number(&data), data.warnings().len()), (Some(1), 1));
    drop(data);
    fs::rename(directory.join("rules"), temporary.path().join("moved")).unwrap();
    symlink(temporary.path().join("moved"), directory.join("rules")).unwrap();
    let error = DataDir::open(&directory).unwrap_err();
    assert!(
        matches!(error, DataDirError::NotADirectory { .. }),
        "{error}"
    );
}
