//! Caches for answers about activity, for a few seconds: events of streams, and the history of rules.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::answer::ActivityQuestion;
use super::now;
use crate::data_dir::Row;

/// The most events that are kept.
const MOST: usize = 8;

/// The events of the current second, by question.
#[derive(Default)]
pub(crate) struct KeptEvents(Mutex<Vec<(u64, ActivityQuestion, Bytes)>>);

impl KeptEvents {
    pub(crate) fn find(&self, question: &ActivityQuestion) -> Option<Bytes> {
        let now = now();
        let kept = self.0.lock();
        let mut same = kept
            .iter()
            .filter(|(at, asked, _)| *at == now && asked == question);
        same.next().map(|(_, _, event)| event.clone())
    }

    pub(crate) fn keep(&self, question: ActivityQuestion, event: Bytes) {
        let now = now();
        let mut kept = self.0.lock();
        kept.retain(|(at, asked, _)| *at == now && *asked != question);
        if kept.len() < MOST {
            kept.push((now, question, event));
        }
    }
}

/// How long the history is kept while the version stays the same, in seconds.
const HISTORY_LASTS: u64 = 5;

/// The history of rules. Over Redis, each reading is a call.
#[derive(Default)]
pub(crate) struct KeptHistory(Mutex<Option<ReadHistory>>);

#[derive(Clone)]
struct ReadHistory {
    version: u64,
    /// When it was read, in Unix seconds.
    at: u64,
    rows: Arc<[Row]>,
}

impl KeptHistory {
    /// The rows of the history with this version, from `reading`; the last ones if it fails.
    pub(crate) async fn of<E>(
        &self,
        version: u64,
        reading: impl Future<Output = Result<Vec<Row>, E>>,
    ) -> Arc<[Row]> {
        let now = now();
        let kept = self.0.lock().clone();
        if let Some(kept) = &kept
            && kept.version == version
            && now.abs_diff(kept.at) < HISTORY_LASTS
        {
            return Arc::clone(&kept.rows);
        }
        let rows: Arc<[Row]> = match reading.await {
            Ok(rows) => rows.into(),
            Err(_) => kept.map_or_else(Arc::default, |kept| kept.rows),
        };
        *self.0.lock() = Some(ReadHistory {
            version,
            at: now,
            rows: Arc::clone(&rows),
        });
        rows
    }
}
