//! The history of activity in the data directory, so that it outlasts a restart: counts by second and minute, and when
//! they were counted. It has nothing about clients.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_activity::{ActivityPart, LiveActivity};
use tidegate_redis::is_instance;

use crate::data_dir::{LockedDir, checksum};

/// The file in the data directory.
const FILE: &str = "activity";
/// What happens if it cannot be used.
const LOST: &str = "the history of activity begins again";
/// The beginning of its first line, before the id of the instance and a checksum of the rest.
const VERSION: &str = "tidegate activity 1";
/// The most bytes of it. Beyond it, the older counts of rules are left out.
const MOST_BYTES: usize = 8 << 20;

/// The file, if it can be written.
pub(super) struct HistoryFile {
    data: Arc<LockedDir>,
    /// Whether the last write failed. Held while it is written.
    has_failed: Mutex<bool>,
}

impl HistoryFile {
    /// None if the directory cannot be written to.
    pub(super) fn new(data: &Arc<LockedDir>) -> Option<Self> {
        data.is_writable().then(|| Self {
            data: Arc::clone(data),
            has_failed: Mutex::new(false),
        })
    }

    /// Writes the counts up to now.
    pub(super) fn write(&self, live: &LiveActivity, instance: &str) {
        let mut has_failed = self.has_failed.lock();
        let text = encode(instance, &live.history());
        let written = self.data.write(FILE, &text);
        match &written {
            Err(error) if !*has_failed => {
                tracing::warn!("the history of activity cannot be written: {error}");
            }
            Ok(()) if *has_failed => tracing::info!("the history of activity is written again"),
            _ => {}
        }
        *has_failed = written.is_err();
    }
}

/// Continues the history that is kept. Returns the id of the instance that wrote it.
pub(super) fn restore(data: &LockedDir, live: &LiveActivity, now: u64) -> Option<String> {
    let (instance, history) = data.load(FILE, LOST, decode)?;
    live.restore(&history, now);
    Some(instance)
}

fn encode(instance: &str, history: &ActivityPart) -> Vec<u8> {
    // The first line is short.
    let bytes = history.to_bytes(MOST_BYTES - 100);
    let checksum = checksum(&bytes);
    let mut text = format!("{VERSION} {instance} {checksum}\n").into_bytes();
    text.extend(bytes);
    text
}

fn decode(text: &[u8]) -> Option<(String, ActivityPart)> {
    if text.len() > MOST_BYTES {
        return None;
    }
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (line, bytes) = (std::str::from_utf8(&text[..end]).ok()?, &text[end + 1..]);
    let (instance, written) = line.strip_prefix(VERSION)?.trim_start().split_once(' ')?;
    if !is_instance(instance) || written != checksum(bytes) {
        return None;
    }
    Some((instance.to_owned(), ActivityPart::from_bytes(bytes)?))
}

#[cfg(test)]
mod tests {
    use tidegate_activity::{ActivitySettings, OutcomeCounts};

    use super::*;

    #[test]
    fn a_history_reads_as_it_was_written_and_no_damage_goes_unseen() {
        let settings = ActivitySettings {
            memory: 1 << 20,
            threads: 1,
        };
        let live = LiveActivity::new(&settings, 1_800_000_000);
        let counts = OutcomeCounts {
            allowed: 5,
            ..OutcomeCounts::default()
        };
        live.sample(1_800_000_010, [("r", counts)].into_iter());
        let history = live.history();
        let text = encode("0123abcd", &history);
        assert_eq!(decode(&text), Some(("0123abcd".to_owned(), history)));
        for index in 0..text.len() {
            assert_eq!(decode(&text[..index]), None, "cut at {index}");
        }
        for index in text.iter().position(|byte| *byte == b'\n').unwrap()..text.len() {
            let mut damaged = text.clone();
            damaged[index] ^= 1;
            assert_eq!(decode(&damaged), None, "{index}");
        }
        for (written, changed) in [("activity 1", "activity 2"), ("0123abcd", "../../ab")] {
            let mut changed = changed.as_bytes().to_vec();
            let at = text
                .windows(written.len())
                .position(|part| part == written.as_bytes());
            let at = at.unwrap();
            changed.extend(&text[at + written.len()..]);
            assert_eq!(decode(&[&text[..at], &changed].concat()), None, "{written}");
        }
    }
}
