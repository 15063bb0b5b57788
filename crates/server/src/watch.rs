//! Watches a file, or the files of a folder, for changes.
//!
//! It polls the file's metadata every quarter of a second, through symbolic links: notifications of the system
//! miss Kubernetes' changes to mounted files, and network file systems. The contents are left to the reader.

use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

use crate::config::RulePath;
use crate::rule_folder::files_of;

/// The time between polls.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// How many polls in a row may differ before a change is reported anyway: the first, and one second more.
const MAX_LOOKS: u32 = 5;

/// How many polls in a row must agree before a file [has rested](FileWatch::has_rested): one and a half
/// seconds.
const REST_LOOKS: u32 = 6;

/// Watches one path.
///
/// Create it before the first read of the file, so that no change falls in between. A change is reported when
/// two polls agree, so that a file is rarely read while it is being written, but at most one second after
/// it was noticed. Removal and return of the file are changes.
///
/// A file that is rewritten in place with the same length is recognised by its times. Where those have a
/// resolution of one second, the second of two such changes within one second can be missed.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    /// Whether names that begin with `.` are left out, if it is a folder.
    ignores_dot_files: bool,
    /// The stamp at the last report.
    reported: Option<FileStamp>,
    /// The stamp at the last poll.
    seen: Option<FileStamp>,
    /// How many polls in a row have seen a stamp that is not reported.
    looks: u32,
    /// How many polls in a row have seen the same stamp.
    rest: u32,
    /// Whether to report again, because the reader did not use the file.
    is_unread: bool,
    /// Started by the first wait, because it needs the runtime.
    interval: Option<Interval>,
}

/// Identifies a file and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileWatch {
    /// Watches `path` for changes from now on. It need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with(path.into(), false)
    }

    /// Watches the file, or all files of the folder, that rules are in.
    pub fn of_rules(rules: &RulePath) -> Self {
        Self::with(rules.path.clone(), rules.ignore_dot_files)
    }

    fn with(path: PathBuf, ignores_dot_files: bool) -> Self {
        let there = look(&path, ignores_dot_files);
        Self {
            path,
            ignores_dot_files,
            reported: there,
            seen: there,
            looks: 0,
            rest: 0,
            is_unread: false,
            interval: None,
        }
    }

    /// Waits until the file should be read again.
    ///
    /// Needs a Tokio runtime with its timer. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        loop {
            if let Some(seen) = self.look_in_turn().await
                && self.step(seen)
            {
                return;
            }
        }
    }

    /// Waits until the reported file has not changed for 1.5 seconds. Returns false as soon as it changes before
    /// that; the change is then reported.
    ///
    /// Can be dropped like [`changed`](Self::changed).
    pub async fn rested(&mut self) -> bool {
        loop {
            if self.has_rested() {
                return true;
            }
            let Some(seen) = self.look_in_turn().await else {
                continue;
            };
            if !self.note(seen) {
                self.is_unread = true;
                self.looks = 1;
                return false;
            }
        }
    }

    /// Whether the file has not changed for 1.5 seconds.
    pub fn has_rested(&self) -> bool {
        self.rest >= REST_LOOKS
    }

    /// Polls now, so that [`has_rested`](Self::has_rested) counts from a change seen now.
    pub async fn look_now(&mut self) {
        let (path, ignores) = (self.path.clone(), self.ignores_dot_files);
        if let Ok(seen) = tokio::task::spawn_blocking(move || look(&path, ignores)).await
            && seen != self.seen
        {
            self.note(seen);
        }
    }

    /// The stamp at the next poll; `None` if the poll failed.
    async fn look_in_turn(&mut self) -> Option<Option<FileStamp>> {
        self.interval.get_or_insert_with(begin).tick().await;
        let (path, ignores) = (self.path.clone(), self.ignores_dot_files);
        // A network file system may block for long, and the thread with it.
        let looking = tokio::task::spawn_blocking(move || look(&path, ignores));
        looking.await.ok()
    }

    /// Records a poll. Returns whether the stamp is the same as before.
    fn note(&mut self, now: Option<FileStamp>) -> bool {
        let is_same = now == self.seen;
        self.rest = if is_same {
            self.rest.saturating_add(1)
        } else {
            0
        };
        self.seen = now;
        is_same
    }

    /// Polls once, and returns whether the file should be read again. For callers with their own timer;
    /// [`changed`](Self::changed) does this every 250 ms.
    pub fn poll(&mut self) -> bool {
        let seen = look(&self.path, self.ignores_dot_files);
        self.step(seen)
    }

    fn step(&mut self, now: Option<FileStamp>) -> bool {
        let is_settled = self.note(now);
        if now == self.reported && !self.is_unread {
            self.looks = 0;
            return false;
        }
        self.looks += 1;
        if !is_settled && self.looks < MAX_LOOKS {
            return false;
        }
        self.reported = now;
        self.is_unread = false;
        self.looks = 0;
        true
    }
}

fn begin() -> Interval {
    let mut interval = tokio::time::interval(PERIOD);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The stamp of `path` now. A file that cannot be inspected counts as gone; its reader will report why.
fn look(path: &Path, ignores_dot_files: bool) -> Option<FileStamp> {
    let found = fs::metadata(path).ok()?;
    if found.is_dir() {
        return Some(look_into(path, ignores_dot_files));
    }
    if !found.is_file() {
        return Some(FileStamp::from(&found));
    }
    // NFS caches metadata for up to a minute, but asks its server when a file is opened.
    let fresh = File::open(path).and_then(|file| file.metadata());
    Some(FileStamp::from(&fresh.unwrap_or(found)))
}

/// The stamp of all files in a folder. That of the folder itself does not matter: it may be another with the same files.
fn look_into(folder: &Path, ignores_dot_files: bool) -> FileStamp {
    let files = files_of(folder, ignores_dot_files).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        (file, look(file, ignores_dot_files)).hash(&mut hasher);
    }
    FileStamp {
        device: 0,
        inode: hasher.finish(),
        size: files.len() as u64,
        modified: (0, 0),
        changed: (0, 0),
    }
}

impl From<&Metadata> for FileStamp {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    fn folder_with_rules() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.yaml");
        fs::write(&path, "one").unwrap();
        (folder, path)
    }

    /// Writes until the clock of the file system has moved on.
    fn rewrite(path: &Path, text: &str) {
        let before = look(path, false);
        while look(path, false) == before {
            fs::write(path, text).unwrap();
        }
    }

    /// Asserts that one change is reported, at the second look, and once.
    fn assert_reported_once(watch: &mut FileWatch, what: &str) {
        let answers: Vec<bool> = (0..6).map(|_| watch.poll()).collect();
        assert_eq!(answers, [false, true, false, false, false, false], "{what}");
    }

    #[test]
    fn nothing_is_reported_when_nothing_changed() {
        let (folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        let mut missing = FileWatch::new(folder.path().join("missing"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        for _ in 0..10 {
            assert!(!watch.poll());
            assert!(!missing.poll());
        }
    }

    #[test]
    fn a_rewrite_of_the_same_length_is_a_change() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        rewrite(&path, "two");
        assert_reported_once(&mut watch, "rewritten");
    }

    #[test]
    fn a_file_that_is_renamed_over_it_is_a_change() {
        let (folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        let other = folder.path().join("rules.yaml.swp");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_reported_once(&mut watch, "renamed over");
    }

    #[test]
    fn a_swapped_config_map_is_a_change() {
        let mount = tempfile::tempdir().unwrap();
        let at = |name: &str| mount.path().join(name);
        for (name, text) in [("..2026_1", "one"), ("..2026_2", "two")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("rules.yaml"), text).unwrap();
        }
        symlink("..2026_1", at("..data")).unwrap();
        symlink("..data/rules.yaml", at("rules.yaml")).unwrap();
        let mut watch = FileWatch::new(at("rules.yaml"));
        assert!(!watch.poll());

        symlink("..2026_2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        fs::remove_dir_all(at("..2026_1")).unwrap();
        assert_reported_once(&mut watch, "swapped");
        assert_eq!(fs::read_to_string(at("rules.yaml")).unwrap(), "two");
    }

    #[test]
    fn a_file_that_vanishes_and_comes_back_is_two_changes() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        fs::remove_file(&path).unwrap();
        assert_reported_once(&mut watch, "gone");
        fs::write(&path, "one").unwrap();
        assert_reported_once(&mut watch, "back");
    }

    #[test]
    fn a_file_that_is_away_for_one_look_is_no_change() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        let there = watch.reported;
        for seen in [None, there, None, there, there, there] {
            assert!(!watch.step(seen));
        }
    }

    #[test]
    fn a_file_that_never_rests_is_reported_after_a_second() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        let answers: Vec<bool> = (1..=6)
            .map(|size| {
                let grown = watch.reported.map(|there| FileStamp {
                    size: 100 + size,
                    ..there
                });
                watch.step(grown)
            })
            .collect();
        assert_eq!(answers, [false, false, false, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_within_a_second_of_the_change() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        let long = Duration::from_mins(1);
        assert!(timeout(long, watch.changed()).await.is_err());
        rewrite(&path, "two");
        let second = Duration::from_secs(1);
        assert!(timeout(second, watch.changed()).await.is_ok());
        assert!(timeout(long, watch.changed()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_has_rested_after_one_and_a_half_seconds_without_a_change() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        rewrite(&path, "two");
        let start = tokio::time::sleep(Duration::ZERO).deadline();
        watch.changed().await;
        assert!(!watch.has_rested());
        assert!(watch.rested().await);
        let took = tokio::time::sleep(Duration::ZERO).deadline() - start;
        let expected = Duration::from_millis(1_400)..Duration::from_millis(1_900);
        assert!(expected.contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changes_before_it_has_rested_is_reported_again() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        rewrite(&path, "two");
        watch.changed().await;
        rewrite(&path, "three");
        assert!(!watch.rested().await);
        watch.changed().await;
        assert!(watch.rested().await);

        // Also if it is then as it was reported: what was reported has not been used.
        rewrite(&path, "four");
        watch.changed().await;
        let there = watch.reported;
        assert!(!watch.note(None));
        watch.is_unread = true;
        assert!(!watch.step(there) && watch.step(there));
        assert!(!watch.step(there));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_again_and_again_still_notices() {
        let (_folder, path) = folder_with_rules();
        let mut watch = FileWatch::new(&path);
        rewrite(&path, "two");
        let short = Duration::from_millis(100);
        let mut waits = 0;
        while timeout(short, watch.changed()).await.is_err() {
            waits += 1;
            assert!(waits < 20, "two seconds, and nothing was noticed");
        }
    }
}
