//! Snapshots of the in-memory store in the data directory: read at the start, written at an interval and at the
//! end.

mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::memory::{MemoryStoreBuilder, Restored, SnapshotError};
use tidegate::{Clock as _, MemoryStore, Micros, SystemClock, Timestamp};
use tidegate_listen::clock::Stopwatch;

use crate::config::Config;
use crate::data_dir::{DataDirError, LockedDir};

/// The file in the data directory.
const FILE: &str = "counters";
/// Writing takes at most one part in this many of the time.
const PARTS: u32 = 20;

/// Where snapshots are written, and how the last write went.
pub(crate) struct KeptCounters {
    data: Arc<LockedDir>,
    interval: Duration,
    /// The store's change count at the last write. Held while a snapshot is written.
    written: Mutex<u64>,
    /// Why the last write failed, if it did.
    problem: Mutex<Option<String>>,
    writes: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    /// How long the last write took, in microseconds.
    took: AtomicU64,
    /// The time that the last snapshot covers, in microseconds.
    current_at: AtomicU64,
    /// When the snapshot on the disk was written, in microseconds; zero if there is none.
    written_at: AtomicU64,
}

/// How keeping the counters goes.
pub(crate) struct SnapshotState {
    /// When the snapshot on the disk was written.
    pub(crate) written_at: Option<Timestamp>,
    /// The time since the snapshot on the disk last had every change.
    pub(crate) age: Micros,
    /// Why the last write failed, if it did.
    pub(crate) problem: Option<String>,
}

/// The store with the counters of the last snapshot, and where to write further ones. An unusable snapshot is
/// set aside, and the store starts empty.
pub(crate) fn open(
    config: &Config,
    data: Option<&Arc<LockedDir>>,
) -> (MemoryStore, Option<KeptCounters>) {
    let (Some(interval), Some(data)) = (config.snapshot, data) else {
        return (builder(config).build(), None);
    };
    let (store, written_at) = match load(config, data) {
        Some((store, restored)) => (store, restored.written_at.as_micros()),
        None => (builder(config).build(), 0),
    };
    if !data.is_writable() {
        tracing::warn!(
            "counters are not kept across restarts: {}",
            DataDirError::read_only(&data.path)
        );
        return (store, None);
    }
    let kept = KeptCounters {
        data: Arc::clone(data),
        interval: interval.into(),
        // The file has the initial state of the store, which may be empty.
        written: Mutex::new(store.changes()),
        problem: Mutex::new(None),
        writes: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        took: AtomicU64::new(0),
        current_at: AtomicU64::new(SystemClock.now().as_micros()),
        written_at: AtomicU64::new(written_at),
    };
    (store, Some(kept))
}

/// A store in memory with the bounds of the settings.
pub(crate) fn builder(config: &Config) -> MemoryStoreBuilder {
    MemoryStore::builder()
        .max_keys(config.max_keys)
        .max_reservations(config.max_reservations)
        .max_memory(config.max_memory)
}

/// The store of the last snapshot, if there is a usable one.
fn load(config: &Config, data: &LockedDir) -> Option<(MemoryStore, Restored)> {
    match read(config, data) {
        Ok(found) => {
            if let Some((_, restored)) = &found {
                log_restored(restored);
            }
            found
        }
        Err(problem) => {
            data.set_aside(FILE, "all limits start fresh", problem);
            None
        }
    }
}

fn read(
    config: &Config,
    data: &LockedDir,
) -> Result<Option<(MemoryStore, Restored)>, UnusableCounters> {
    match data.open_file(FILE)? {
        Some(file) => Ok(Some(builder(config).restore(file)?)),
        None => Ok(None),
    }
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
enum UnusableCounters {
    #[error(transparent)]
    File(#[from] DataDirError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

fn log_restored(restored: &Restored) {
    let age = SystemClock.now().since(restored.written_at);
    tracing::info!(
        keys = restored.keys,
        expired = restored.expired,
        age_seconds = age.get() / 1_000_000,
        "counters were restored from the last snapshot"
    );
    if restored.evicted > 0 {
        tracing::warn!(
            keys = restored.evicted,
            "the last snapshot has more keys than `max_keys` and `max_memory` allow; the limits of the surplus keys start fresh"
        );
    }
}

/// The pause after a write of this duration. The next write starts early enough to end within the interval,
/// so that a crash loses no more than one interval; unless writing would take too much of the time.
fn pause_after(took: Duration, interval: Duration) -> Duration {
    let early = interval / PARTS + took * 2;
    interval.saturating_sub(early).max(took * (PARTS - 1))
}

impl KeptCounters {
    /// The pause after a write of this duration.
    pub(crate) fn pause_after(&self, took: Duration) -> Duration {
        pause_after(took, self.interval)
    }

    /// Writes the counters if they have changed. Returns how long that took.
    pub(crate) fn write(&self, store: &MemoryStore) -> Duration {
        let mut written = self.written.lock();
        let (now, changes) = (SystemClock.now(), store.changes());
        if *written == changes {
            self.current_at.store(now.as_micros(), Ordering::Relaxed);
            return Duration::ZERO;
        }
        let start = Stopwatch::start();
        let snapshot = self.data.write_with(FILE, |file| store.snapshot(file));
        let took = start.elapsed();
        match snapshot {
            Ok(snapshot) => {
                *written = changes;
                self.writes.fetch_add(1, Ordering::Relaxed);
                self.bytes.store(snapshot.bytes, Ordering::Relaxed);
                self.took.store(Micros::from(took).get(), Ordering::Relaxed);
                self.current_at.store(now.as_micros(), Ordering::Relaxed);
                self.written_at.store(now.as_micros(), Ordering::Relaxed);
                if self.problem.lock().take().is_some() {
                    tracing::info!("counters are written again");
                }
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                let problem = error.to_string();
                if self.problem.lock().replace(problem).is_none() {
                    tracing::error!(
                        "counters cannot be written, so a restart would resume from the last snapshot: {error}"
                    );
                }
            }
        }
        took
    }

    /// When the counters were written, and how that went.
    pub(crate) fn state(&self) -> SnapshotState {
        let load = |at: &AtomicU64| Timestamp::from_micros(at.load(Ordering::Relaxed));
        let written_at = load(&self.written_at);
        SnapshotState {
            written_at: (written_at.as_micros() > 0).then_some(written_at),
            age: SystemClock.now().since(load(&self.current_at)),
            problem: self.problem.lock().clone(),
        }
    }

    /// The problem, if the last write failed.
    pub(crate) fn warning(&self) -> Option<String> {
        let problem = self.problem.lock();
        let problem = problem.as_ref()?;
        Some(format!(
            "the snapshot of the counters cannot be written: {problem}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_ends_within_the_interval_and_takes_a_twentieth_of_the_time_at_the_most() {
        let millis = Duration::from_millis;
        let ten = Duration::from_secs(10);
        #[rustfmt::skip]
        let table = [
            // interval, took, pause
            (ten, millis(0), millis(9_500)),
            (ten, millis(100), millis(9_300)),
            (ten, millis(400), millis(8_700)),
            (ten, millis(500), millis(9_500)),
            (ten, millis(3_000), millis(57_000)),
            (millis(1_000), millis(10), millis(930)),
            (millis(1_000), millis(60_000), millis(1_140_000)),
        ];
        for (interval, took, pause) in table {
            assert_eq!(pause_after(took, interval), pause, "{took:?}");
            assert!(took * 20 <= took + pause, "{took:?}");
        }
    }
}
