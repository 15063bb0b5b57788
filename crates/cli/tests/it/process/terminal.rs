//! A terminal that the program runs on.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{self, Receiver};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tidegate_testkit::wait_until;
use tidegate_testkit_server::PATIENCE;

/// Both ends of a terminal, and what was written to it.
pub(super) struct TestTerminal {
    master: File,
    pub(super) end: File,
    written: Receiver<Vec<u8>>,
    /// What was written since it was emptied.
    pub(super) text: String,
}

impl TestTerminal {
    pub(super) fn open() -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(name.to_str().unwrap());
        let end = OpenOptions::new().read(true).write(true).open(path);
        let master = File::from(master);
        let mut reading = master.try_clone().unwrap();
        let (sender, written) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count) = reading.read(&mut buffer) {
                if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let terminal = Self {
            master,
            end: end.unwrap(),
            written,
            text: String::new(),
        };
        terminal.resize(80, 24);
        terminal
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).unwrap();
    }

    pub(super) fn press(&mut self, keys: &str) {
        self.text.clear();
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until something is written, after what was awaited last.
    pub(super) fn wait_for(&mut self, expected: &str) {
        self.wait_until(expected, |text| text.contains(expected));
    }

    /// Waits until what was written is as it should be.
    pub(super) fn wait_until(&mut self, what: &str, is_it: impl Fn(&str) -> bool) {
        wait_until(what, PATIENCE, || {
            for bytes in self.written.try_iter() {
                self.text.push_str(&String::from_utf8_lossy(&bytes));
            }
            is_it(&self.text).then_some(())
        });
    }

    /// Whether it works as a shell needs it: keys are shown, and lines are read as a whole.
    pub(super) fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.end).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

/// The exit code of a program, once it has ended.
pub(super) fn end_of(mut child: Child) -> Option<i32> {
    wait_until("the end of the program", PATIENCE, || {
        child.try_wait().unwrap()
    })
    .code()
}
