use std::path::Path;

use tempfile::TempDir;
use tidegate::rules::KeyShare;

use super::*;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, size: u64, keep: u32) -> RecordFile {
        file(&self.path("r"), size, keep)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The lines of a file, the header as `#` and its version of the rules.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        assert!(text.ends_with('\n'), "{text}");
        let shown = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
            Ok(header) if header["tidegate_record"] == 1 => format!("#{}", header["rules_version"]),
            _ => line.to_owned(),
        };
        text.lines().map(shown).collect()
    }
}

fn file(path: &Path, size: u64, keep: u32) -> RecordFile {
    RecordFile::new(&RecordSettings {
        file: path.to_owned(),
        sample: KeyShare::ALL,
        sample_by: Vec::new(),
        size,
        keep,
    })
}

fn header(rules_version: u64) -> Arc<RecordHeader> {
    Arc::new(RecordHeader {
        version: "1.2.3".to_owned(),
        rules_version,
        attributes: Vec::new(),
        secret: vec!["api_key".to_owned()],
        sample: KeyShare::ALL,
        sample_by: Vec::new(),
    })
}

fn append(file: &mut RecordFile, lines: &str) {
    let (written, result) = file.append(lines.as_bytes());
    result.unwrap();
    assert_eq!(written, lines.len());
}

#[test]
fn a_file_begins_with_its_header_and_only_its_owner_reads_it() {
    let folder = Folder::new();
    let mut file = folder.file(1 << 20, 3);
    file.put_under(header(1)).unwrap();
    assert_eq!(folder.lines("r"), ["#1"]);
    // Nothing was recorded under it.
    file.put_under(header(2)).unwrap();
    assert_eq!(folder.lines("r"), ["#2"]);
    append(&mut file, "a\nb\n");
    file.put_under(header(2)).unwrap();
    file.put_under(header(3)).unwrap();
    append(&mut file, "c\n");
    file.lose(12);
    append(&mut file, "d\n");
    file.mark_gap().unwrap();
    let expected = [
        "#2",
        "a",
        "b",
        "{\"rules_version\":3}",
        "c",
        "{\"lost\":12}",
        "d",
    ];
    assert_eq!(folder.lines("r"), expected);
    let mode = fs::metadata(folder.path("r")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_file_is_rotated_and_the_oldest_goes() {
    let folder = Folder::new();
    let header_length = {
        let mut file = folder.file(1 << 20, 2);
        file.put_under(header(1)).unwrap();
        folder.text("r").len() as u64
    };
    fs::remove_file(folder.path("r")).unwrap();
    fs::write(folder.path("r.3"), "of an earlier setting").unwrap();
    let mut file = folder.file(header_length + 6, 2);
    file.put_under(header(1)).unwrap();
    append(&mut file, "a1\nb1\na2\nb2\na3\nb3\na4\n");
    assert_eq!(folder.lines("r"), ["#1", "a4"]);
    assert_eq!(folder.lines("r.1"), ["#1", "a3", "b3"]);
    assert_eq!(folder.lines("r.2"), ["#1", "a2", "b2"]);
    assert!(!folder.path("r.3").exists());
    // A line that is longer than a file.
    append(&mut file, "long-line\nx\n");
    assert_eq!(folder.lines("r"), ["#1", "x"]);
    assert_eq!(folder.lines("r.1"), ["#1", "long-line"]);
    // The new file is under the rules of its first line.
    file.put_under(header(2)).unwrap();
    append(&mut file, "y\n");
    assert_eq!(folder.lines("r.1"), ["#1", "x", "{\"rules_version\":2}"]);
    assert_eq!(folder.lines("r"), ["#2", "y"]);
}

#[test]
fn a_restart_continues_the_file_without_a_line_that_is_cut() {
    let folder = Folder::new();
    let mut first = folder.file(1 << 20, 3);
    first.put_under(header(4)).unwrap();
    append(&mut first, "a\n");
    drop(first);
    let text = folder.text("r");
    fs::write(folder.path("r"), text + "{\"t\":17").unwrap();
    fs::set_permissions(folder.path("r"), Permissions::from_mode(0o644)).unwrap();
    let mut second = folder.file(1 << 20, 3);
    second.put_under(header(5)).unwrap();
    append(&mut second, "b\n");
    assert_eq!(folder.lines("r"), ["#4", "a", "{\"rules_version\":5}", "b"]);
    let mode = fs::metadata(folder.path("r")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(second);
    // Lines of another kind get a file of their own.
    let mut third = folder.file(1 << 20, 3);
    let sampled = header(5).as_ref().clone();
    let sampled = sampled.sampled("10%".parse().unwrap(), &["ip".to_owned()]);
    third.put_under(Arc::new(sampled)).unwrap();
    append(&mut third, "c\n");
    assert_eq!(folder.lines("r"), ["#5", "c"]);
    assert_eq!(folder.lines("r.1").len(), 4);
}

#[test]
fn a_file_that_is_no_recording_is_left_alone() {
    let folder = Folder::new();
    for other in ["rules: []\n", "{}\n", "x"] {
        fs::write(folder.path("r"), other).unwrap();
        let mut file = folder.file(1 << 20, 3);
        let refused = file.put_under(header(1)).unwrap_err().to_string();
        assert!(refused.contains("not a recording"), "{refused}");
        assert_eq!(file.append(b"a\nb\n").0, 0);
        assert_eq!(folder.text("r"), other);
    }
    // A header that is cut is no reason to stop.
    fs::write(folder.path("r"), "{\"tidegate_record\":1,\"ver").unwrap();
    let mut file = folder.file(1 << 20, 3);
    file.put_under(header(1)).unwrap();
    assert_eq!(folder.lines("r"), ["#1"]);
    // Two processes would rotate each other's lines away.
    let mut second = folder.file(1 << 20, 3);
    let refused = second.put_under(header(1)).unwrap_err().to_string();
    assert!(refused.contains("another process"), "{refused}");
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew() {
    let folder = Folder::new();
    let mut file = folder.file(1 << 20, 3);
    file.put_under(header(1)).unwrap();
    append(&mut file, "a\n");
    fs::rename(folder.path("r"), folder.path("moved")).unwrap();
    append(&mut file, "b\n");
    file.reopen().unwrap();
    append(&mut file, "c\n");
    assert_eq!(folder.lines("moved"), ["#1", "a", "b"]);
    assert_eq!(folder.lines("r"), ["#1", "c"]);
}

#[test]
fn what_cannot_be_written_is_lost_and_the_gap_is_marked_later() {
    let mut full = file(Path::new("/dev/full"), 1 << 20, 3);
    assert!(full.put_under(header(1)).is_err());
    let (written, result) = full.append(b"a\n");
    assert_eq!(
        (written, result.unwrap_err().kind()),
        (0, io::ErrorKind::StorageFull)
    );

    let folder = Folder::new();
    let mut file = file(&folder.path("later/r"), 1 << 20, 3);
    assert!(file.put_under(header(1)).is_err());
    assert_eq!(file.append(b"a\nb\n").0, 0);
    file.lose(2);
    fs::create_dir(folder.path("later")).unwrap();
    append(&mut file, "c\n");
    assert_eq!(folder.lines("later/r"), ["#1", "{\"lost\":2}", "c"]);
}
