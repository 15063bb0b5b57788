//! The id of this server and the known servers of its Redis, stored in the data directory: after a restart the
//! server keeps its id, and knows how many servers there are while Redis is unreachable.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Clock, Micros, PermitId, SystemClock, Timestamp};
use tidegate_redis::{KnownInstance, KnownInstances};

use crate::data_dir::LockedDir;
use crate::store::ServerStore;

/// The file in the data directory.
const FILE: &str = "instances";
/// Its first line.
const VERSION: &str = "tidegate instances 1";
/// An older file says nothing about the servers that run now.
const KEPT_FOR: Micros = Micros::DAY;
/// How often to check for a change.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often to rewrite an unchanged file, so that it stays valid for a day from then.
const WRITE_EVERY: Duration = Duration::from_mins(1);

/// The stored servers, as valid at `now`.
pub(crate) fn load(data: &LockedDir, now: Timestamp) -> KnownInstances {
    let lost = "the number of servers is not known until Redis provides it";
    let known = data.load(FILE, lost, |text| decode(text, now));
    let mut known = known.unwrap_or_default();
    if !data.is_writable() {
        // Another server could read the file too, and ids must be unique.
        known.id = None;
    }
    known
}

/// Writes the known servers when they change, and from time to time while Redis answers.
pub(crate) async fn keep(data: Option<Arc<LockedDir>>, store: ServerStore) {
    let (Some(data), Some(store)) = (data, store.redis()) else {
        return;
    };
    if !data.is_writable() {
        return;
    }
    let mut written = LastWrite::default();
    loop {
        let (known, answers) = store.known_instances();
        if written.is_due(&known, answers) {
            let text = encode(&known, SystemClock.now());
            let data = Arc::clone(&data);
            let writing = tokio::task::spawn_blocking(move || data.write(FILE, text.as_bytes()));
            if let Ok(Err(error)) = writing.await {
                tracing::debug!("the number of servers cannot be stored: {error}");
            }
            written = LastWrite {
                known,
                answers,
                age: Duration::ZERO,
            };
        }
        tokio::time::sleep(LOOK_EVERY).await;
        written.age += LOOK_EVERY;
    }
}

/// What was last written, how many answers Redis had given by then, and how long ago.
#[derive(Default)]
struct LastWrite {
    known: KnownInstances,
    answers: u64,
    age: Duration,
}

impl LastWrite {
    fn is_due(&self, known: &KnownInstances, answers: u64) -> bool {
        let names = |known: &KnownInstances| -> Vec<(String, bool)> {
            let of = |one: &KnownInstance| (one.name.clone(), one.missing.is_some());
            known.instances.iter().map(of).collect()
        };
        // Without a new answer from Redis the file is current.
        let has_changed = || names(known) != names(&self.known);
        answers > self.answers && (self.age >= WRITE_EVERY || has_changed())
    }
}

fn encode(known: &KnownInstances, seen_at: Timestamp) -> String {
    let mut text = format!("{VERSION}\n");
    if let Some(id) = known.id {
        let _ = writeln!(text, "id {id}");
    }
    let _ = writeln!(text, "seen_at {}", seen_at.as_micros());
    for KnownInstance { name, missing } in &known.instances {
        let missing = missing.map_or_else(|| "-".to_owned(), |time| time.as_millis().to_string());
        let _ = writeln!(text, "instance {name} {missing}");
    }
    // A truncated file must not read as one with fewer servers.
    text + "end\n"
}

/// `None` if the text is malformed.
fn decode(text: &[u8], now: Timestamp) -> Option<KnownInstances> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.strip_suffix("end\n")?.lines();
    if lines.next() != Some(VERSION) {
        return None;
    }
    let (mut known, mut seen_at) = (KnownInstances::default(), None);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["id", id] => known.id = Some(id.parse::<PermitId>().ok()?),
            ["seen_at", at] => seen_at = Some(Timestamp::from_micros(at.parse().ok()?)),
            ["instance", name, missing] => known.instances.push(KnownInstance {
                name: name.to_owned(),
                missing: match missing {
                    "-" => None,
                    millis => Some(Duration::from_millis(millis.parse().ok()?)),
                },
            }),
            _ => return None,
        }
    }
    if now.since(seen_at?) > KEPT_FOR {
        known.instances.clear();
    }
    Some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> KnownInstances {
        let instance = |name: &str, missing: Option<u64>| KnownInstance {
            name: name.to_owned(),
            missing: missing.map(Duration::from_millis),
        };
        KnownInstances {
            id: Some(PermitId::from_u128(0xa1)),
            instances: vec![
                instance("a-1", None),
                instance("b-1", Some(1_500)),
                instance("0123", None),
            ],
        }
    }

    #[test]
    fn the_number_of_servers_is_kept_for_a_day_and_the_own_id_for_good() {
        let seen_at = Timestamp::from_seconds(1_794_770_000);
        let text = encode(&three(), seen_at);
        let at = |later: Micros| decode(text.as_bytes(), seen_at + later).unwrap();
        assert_eq!(at(Micros::ZERO), three());
        assert_eq!(at(Micros::DAY), three());
        let later = at(Micros::DAY + Micros::SECOND);
        assert_eq!(later.id, three().id);
        assert_eq!(later.instances, []);
        let clock_set_back = decode(text.as_bytes(), seen_at - Micros::DAY);
        assert_eq!(clock_set_back, Some(three()));
    }

    #[test]
    fn a_file_that_was_cut_or_is_of_another_version_is_not_used() {
        let seen_at = Timestamp::from_seconds(1_794_770_000);
        let text = encode(&three(), seen_at);
        for end in 0..text.len() {
            assert_eq!(decode(&text.as_bytes()[..end], seen_at), None, "{end}");
        }
        for (written, changed) in [
            ("instances 1", "instances 2"),
            ("id 0", "id x"),
            ("instance a-1 -", "instance a-1"),
            ("1500", "-1"),
            ("seen_at", "seen_by"),
        ] {
            assert!(text.contains(written), "{written}");
            let text = text.replace(written, changed);
            assert_eq!(decode(text.as_bytes(), seen_at), None, "{changed}");
        }
        assert_eq!(decode(b"\xff", seen_at), None);
    }

    #[test]
    fn it_is_written_when_it_changes_and_once_a_minute_while_redis_answers() {
        let mut written = LastWrite::default();
        assert!(!written.is_due(&three(), 0), "nothing was heard");
        assert!(written.is_due(&three(), 1));
        written = LastWrite {
            known: three(),
            answers: 1,
            age: Duration::from_secs(59),
        };
        assert!(!written.is_due(&three(), 100), "as it was");
        let mut changed = three();
        changed.instances[0].missing = Some(Duration::ZERO);
        assert!(written.is_due(&changed, 100));
        changed = three();
        changed.instances[1].missing = Some(Duration::from_secs(9));
        assert!(!written.is_due(&changed, 100), "missing as before");
        written.age = WRITE_EVERY;
        assert!(written.is_due(&three(), 100));
        assert!(!written.is_due(&three(), 1), "Redis does not answer");
    }
}
