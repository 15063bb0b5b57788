//! A page in a private file that leads a browser to the console.
//!
//! The arguments of a program can be read by every user of the machine, so the address with its code is not one:
//! the browser opens this file, which only its user can read. It is removed when the code has expired.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many names are tried.
const ATTEMPTS: usize = 8;

/// Removes the folder `$1` when the code in its page has expired.
const REMOVE_LATER: &str = "sleep 60; rm -f -- \"$1/console.html\"; rmdir -- \"$1\"";

/// The program that opens an address, if there is a desktop.
pub(super) fn opener() -> Option<&'static str> {
    if cfg!(target_os = "macos") {
        return Some("open");
    }
    let is_set = |name| variable(name).is_some();
    (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")).then_some("xdg-open")
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "these are not settings: they say whether there is a desktop, and where its private files are"
    )]
    let value = std::env::var_os(name);
    value.filter(|value| !value.is_empty())
}

/// Opens the address, and does not wait for the browser: some programs run for as long as it does. Returns whether
/// the program was started.
pub(super) fn open(program: &str, url: &str, data_dir: &Path) -> bool {
    let parents = [
        variable("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(data_dir.to_path_buf()),
        Some(std::env::temp_dir()),
    ];
    let mut parents = parents.into_iter().flatten();
    let Some(folder) = parents.find_map(|parent| write(&parent, url).ok()) else {
        return false;
    };
    let mut remover = Command::new("sh");
    remover.args(["-c", REMOVE_LATER, "sh"]).arg(&folder);
    // A group of its own, so that the end of the terminal does not end it.
    let is_opened = start(remover.process_group(0))
        && start(Command::new(program).arg(folder.join("console.html")));
    if !is_opened {
        let _ = fs::remove_dir_all(&folder);
    }
    is_opened
}

fn start(command: &mut Command) -> bool {
    let started = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.is_ok()
}

/// Writes the page into a new folder below `parent`, both for this user alone. Returns the folder.
fn write(parent: &Path, url: &str) -> io::Result<PathBuf> {
    // The browser would resolve a relative path differently.
    let parent = parent.canonicalize()?;
    let found = fs::metadata(&parent)?;
    let user = rustix::process::geteuid().as_raw();
    // In a folder that others may write, only a sticky one keeps them from moving ours away.
    let is_private = found.mode() & 0o022 == 0 || found.mode() & 0o1000 != 0;
    if !is_private || ![0, user].contains(&found.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for _ in 0..ATTEMPTS {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!("tidegate-console-{:016x}", u64::from_ne_bytes(random));
        let folder = parent.join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.join("console.html"))?;
        file.write_all(page(url).as_bytes())?;
        return Ok(folder);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn page(url: &str) -> String {
    let url = url
        .replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;");
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>Tidegate</title>\n<p><a href=\"{url}\">Open the console</a></p>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_page_is_for_its_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:8080/console/#code=abc";
        let folder = write(parent.path(), url).unwrap();
        assert_ne!(write(parent.path(), url).unwrap(), folder);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let file = folder.join("console.html");
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.contains(&format!("content=\"0; url={url}\"")),
            "{text}"
        );
        let text = page("http://h/?a=\"><script>&b");
        assert!(
            text.contains("http://h/?a=&quot;>&lt;script>&amp;b"),
            "{text}"
        );
    }

    #[test]
    fn a_folder_that_others_may_change_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        for (mode, is_used) in [
            (0o777, false),
            (0o770, false),
            (0o1777, true),
            (0o755, true),
        ] {
            fs::set_permissions(parent.path(), fs::Permissions::from_mode(mode)).unwrap();
            let written = write(parent.path(), "http://h/");
            assert_eq!(written.is_ok(), is_used, "{mode:o}");
        }
        assert!(write(&parent.path().join("absent"), "http://h/").is_err());
    }
}
