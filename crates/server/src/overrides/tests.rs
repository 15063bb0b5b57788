//! Changes without Redis: what is kept, what is in force, and what the history says.

use std::fs;

use tidegate::rules::{OverrideKey, RuleSet, TemporaryOverride};
use tidegate::{Attributes, MemoryStore, Micros};

use super::change::MOST_PER_RULE;
use super::kept::ChangeOfOverride;
use super::*;

const START: Timestamp = Timestamp::from_seconds(1_794_770_000);

fn gate() -> Gate {
    let rules = "rules: [{id: per-user, per: [user_id], limit: blocked}]";
    Gate::new(MemoryStore::new(), RuleSet::from_yaml(rules).unwrap())
}

fn at(seconds: u64) -> ChangedBy {
    ChangedBy {
        by: "ops".to_owned(),
        at: START + Micros::from_seconds(seconds),
        version: 3,
    }
}

fn one(key: &str, seconds: u64) -> KeptOverride {
    KeptOverride {
        rule: "per-user".to_owned(),
        grant: TemporaryOverride {
            key: OverrideKey::Value(key.to_owned()),
            limit: "unlimited".to_owned(),
            expires_at: START + Micros::from_seconds(seconds),
        },
        reason: Some("a launch".to_owned()),
        by: "ops".to_owned(),
        at: START,
    }
}

fn put(one: KeptOverride) -> OverrideChange {
    let key = one.grant.key.clone();
    let named = MeantKey {
        written: key.text(),
        read: Some(key),
    };
    let new = Box::new(one);
    OverrideChange::Put { new, named }
}

fn remove(key: &str) -> OverrideChange {
    OverrideChange::Remove {
        rule: "per-user".to_owned(),
        named: MeantKey {
            written: key.to_owned(),
            read: None,
        },
    }
}

async fn is_allowed(gate: &Gate, key: &str, seconds: u64) -> bool {
    let mut attributes = Attributes::new().at(START + Micros::from_seconds(seconds));
    attributes.insert("user_id", key.to_owned()).unwrap();
    gate.decide(&attributes).await.is_allowed()
}

fn keys(book: &OverrideBook, seconds: u64) -> Vec<String> {
    let live = book.list(None, START + Micros::from_seconds(seconds));
    live.iter().map(|one| one.grant.key.text()).collect()
}

#[tokio::test]
async fn a_restart_finds_what_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Arc::new(LockedDir::open(folder.path()).unwrap());
    let (book, gate) = (OverrideBook::open(Some(&directory), None, 10), gate());
    book.change(&gate, &put(one("u1", 60)), &at(0))
        .await
        .unwrap();
    book.change(&gate, &put(one("u2", 60)), &at(0))
        .await
        .unwrap();
    book.change(&gate, &remove("u2"), &at(1)).await.unwrap();
    let missing = book.change(&gate, &remove("u2"), &at(1)).await;
    assert!(matches!(missing, Err(OverrideError::NoSuchOverride(_))));
    assert!(is_allowed(&gate, "u1", 59).await);
    assert!(!is_allowed(&gate, "u1", 60).await);
    assert!(!is_allowed(&gate, "u2", 1).await);

    let again = OverrideBook::open(Some(&directory), None, 10);
    assert_eq!(again.kept(), book.kept());
    let gate = self::gate();
    again.begin(&gate);
    assert!(is_allowed(&gate, "u1", 59).await);
    let changes: Vec<String> = again
        .with_rows(Vec::new())
        .into_iter()
        .map(|row| row.row.changes.join(", "))
        .collect();
    assert_eq!(
        changes,
        [
            "removed override of per-user for u2",
            "added override of per-user for u2: unlimited until 2026-11-15T19:14:20Z (a launch)",
            "added override of per-user for u1: unlimited until 2026-11-15T19:14:20Z (a launch)",
        ]
    );
}

#[tokio::test]
async fn a_damaged_file_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Arc::new(LockedDir::open(folder.path()).unwrap());
    let (book, gate) = (OverrideBook::open(Some(&directory), None, 10), gate());
    book.change(&gate, &put(one("u1", 60)), &at(0))
        .await
        .unwrap();
    let path = folder.path().join(FILE);
    let mut text = fs::read(&path).unwrap();
    text.truncate(text.len() / 2);
    fs::write(&path, text).unwrap();
    let again = OverrideBook::open(Some(&directory), None, 10);
    assert_eq!(*again.kept(), KeptOverrides::default());
    assert!(!path.exists() && folder.path().join("overrides.corrupt").exists());
}

#[tokio::test]
async fn one_that_cannot_be_kept_is_not_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Arc::new(LockedDir::open(folder.path()).unwrap());
    let (book, gate) = (OverrideBook::open(Some(&directory), None, 10), gate());
    // A directory with the name of the file cannot be replaced.
    fs::create_dir(folder.path().join(FILE)).unwrap();
    let failed = book.change(&gate, &put(one("u1", 60)), &at(0)).await;
    assert!(matches!(failed, Err(OverrideError::NotKept(_))));
    assert!(!is_allowed(&gate, "u1", 0).await);
    assert_eq!(keys(&book, 0), Vec::<String>::new());
}

#[tokio::test]
async fn those_that_ended_are_not_listed_and_removed_a_minute_later() {
    let (book, gate) = (OverrideBook::open(None, None, 10), gate());
    for (key, seconds) in [("u1", 10), ("u2", 20), ("u1", 15)] {
        book.change(&gate, &put(one(key, seconds)), &at(0))
            .await
            .unwrap();
    }
    assert_eq!(keys(&book, 14), ["u2", "u1"], "the same client has one");
    assert_eq!(keys(&book, 15), ["u2"]);
    book.remove_ended(&gate, &at(74)).await.unwrap();
    assert_eq!(book.kept().overrides.len(), 2);
    // A request that arrives a little late is still decided as it would have been.
    assert!(is_allowed(&gate, "u1", 14).await);
    book.remove_ended(&gate, &at(75)).await.unwrap();
    assert_eq!(book.kept().overrides.len(), 1);
    assert!(!is_allowed(&gate, "u1", 14).await);
    assert_eq!(book.kept().rows.len(), 3, "an end is no change");
}

#[tokio::test]
async fn a_rule_may_have_a_thousand_and_the_history_is_bounded() {
    let (book, gate) = (OverrideBook::open(None, None, 5), gate());
    let kept = KeptOverrides {
        overrides: (0..MOST_PER_RULE)
            .map(|number| one(&format!("u{number}"), 60))
            .collect(),
        rows: Vec::new(),
    };
    book.put_in_force(&gate, kept, 0);
    let more = book.change(&gate, &put(one("more", 60)), &at(0)).await;
    assert!(matches!(more, Err(OverrideError::TooMany(_))));
    for _ in 0..6 {
        // One of the thousand can be changed.
        book.change(&gate, &put(one("u7", 60)), &at(0))
            .await
            .unwrap();
    }
    assert_eq!(book.kept().rows.len(), 5);
    assert_eq!(book.kept().rows[0].mark.what, ChangeOfOverride::Changed);
    book.change(&gate, &put(one("more", 90)), &at(60))
        .await
        .unwrap();
    let mut long = one("other", 60);
    long.rule = "other".to_owned();
    long.reason = Some("x".repeat(17 << 20));
    let large = book.change(&gate, &put(long), &at(0)).await;
    assert!(matches!(large, Err(OverrideError::TooLarge)));
}

#[test]
fn rows_of_rules_and_overrides_are_one_history() {
    let row = |version, seconds| Row {
        version,
        at: START + Micros::from_seconds(seconds),
        by: "ops".to_owned(),
        changes: Vec::new(),
    };
    let book = OverrideBook::open(None, None, 10);
    let mark = OverrideMark {
        rule: "a".to_owned(),
        key: "u1".to_owned(),
        what: ChangeOfOverride::Added,
        text: String::new(),
    };
    let changed = |version, seconds| OverrideRow {
        row: row(version, seconds),
        mark: mark.clone(),
    };
    let rows = vec![changed(9, 50), changed(2, 20), changed(1, 5)];
    let kept = KeptOverrides {
        overrides: Vec::new(),
        rows,
    };
    book.put_in_force(&gate(), kept, 0);
    let merged = book.with_rows(vec![row(3, 30), row(2, 20), row(1, 10)]);
    let merged: Vec<(u64, u64, bool)> = merged
        .iter()
        .map(|HistoryRow { row, mark }| {
            let seconds = row.at.since(START).get() / 1_000_000;
            (row.version, seconds, mark.is_some())
        })
        .collect();
    assert_eq!(
        merged,
        [
            (9, 50, true),
            (3, 30, false),
            (2, 20, true),
            (2, 20, false),
            (1, 10, false),
            (1, 5, true)
        ]
    );
}
