//! The known answers of established rate limiters, on the memory store.
//!
//! What is replayed, what is not and why, is in `tidegate_testkit::vectors`.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_core::{MemoryStore, Request, Store, StoreError};
use tidegate_testkit::block_on;
use tidegate_testkit::vectors::{self, Mismatch, NOT_REPLAYED, NotReplayed, Value, Vector};

#[test]
fn every_known_answer_that_applies_is_given() {
    let replayed = block_on(vectors::replay_all(&store())).unwrap();
    assert!(
        replayed.mismatches.is_empty(),
        "{}",
        in_lines(&replayed.mismatches)
    );
}

#[test]
fn every_line_is_replayed_or_listed_with_a_reason() {
    let replayed = block_on(vectors::replay_all(&store())).unwrap();
    let listed = vectors::all().unwrap().into_iter().map(|vector| vector.id);
    let listed: Vec<_> = listed
        .filter(|id| NotReplayed::reason_for(id).is_some_and(|reason| !reason.is_empty()))
        .collect();

    let ids: BTreeSet<_> = replayed.ids.iter().chain(&listed).collect();
    assert_eq!(
        replayed.ids.len() + listed.len(),
        ids.len(),
        "an id is there twice"
    );
    assert_eq!(ids.len(), vectors::TEXT.lines().count());
}

#[test]
fn nothing_is_listed_that_the_file_does_not_hold() {
    let vectors = vectors::all().unwrap();
    for listed in NOT_REPLAYED {
        for id in listed.ids {
            let vector = vectors.iter().find(|vector| vector.id == *id);
            let vector = vector.unwrap_or_else(|| panic!("no line has the id `{id}`"));
            for field in listed.fields {
                let is_there = vector.others.contains_key(*field)
                    || vector
                        .steps
                        .iter()
                        .any(|step| step.answers.contains_key(*field));
                assert!(is_there, "`{id}` has no field `{field}`");
            }
        }
    }
}

#[test]
fn threads_that_charge_at_once_get_what_is_known() {
    let store = store();
    let races = vectors::all()
        .unwrap()
        .into_iter()
        .filter(|vector| vector.steps.iter().any(|step| step.concurrent));
    let mut replayed = 0;
    for vector in races {
        let played = block_on(vectors::replay(&store, &vector, from_threads));
        assert!(played.is_ok(), "{}", in_lines(played.as_ref().err()));
        replayed += 1;
    }
    assert_eq!(replayed, 4);
}

#[test]
fn a_wrong_answer_is_reported_by_line_step_and_field() {
    let mut vectors = vectors::all().unwrap();
    let vector = vectors
        .iter_mut()
        .find(|vector| vector.id == "gov-remaining")
        .unwrap();
    vector.steps[2].answers.insert("remaining".into(), 2.into());
    let mismatch = play(&store(), vector).unwrap_err();
    assert_eq!(
        mismatch.to_string(),
        "`gov-remaining` step 3, `remaining`: known is 2, found is Count(1)"
    );
}

#[test]
fn no_answer_could_be_another_without_being_noticed() {
    for vector in vectors::all().unwrap() {
        if NotReplayed::reason_for(&vector.id).is_some() {
            continue;
        }
        for (index, step) in vector.steps.iter().enumerate() {
            for (field, known) in &step.answers {
                // A property is prose.
                if field == "property" || NotReplayed::names(&vector.id, field) {
                    continue;
                }
                let mut wrong = vector.clone();
                let answers = &mut wrong.steps[index].answers;
                answers.insert(field.clone(), another(known));
                let replayed = play(&store(), &wrong);
                let step = replayed.err().map(|mismatch| mismatch.step);
                assert_eq!(step, Some(index + 1), "`{}`, `{field}`", vector.id);
            }
        }
    }
}

fn another(known: &Value) -> Value {
    match (known.as_bool(), known.as_f64()) {
        (Some(flag), _) => (!flag).into(),
        (None, Some(number)) if known.is_f64() => (number + 0.01).into(),
        (None, Some(_)) => (known.as_i64().unwrap_or_default() + 1).into(),
        (None, None) => "another".into(),
    }
}

fn play(store: &Store, vector: &Vector) -> Result<(), Mismatch> {
    block_on(vectors::replay(store, vector, vectors::in_flight_together))
}

/// A store for timelines of the past.
fn store() -> Store {
    MemoryStore::builder().max_keys(1_000).build().into()
}

/// Makes the request from so many threads that start together.
async fn from_threads(store: &Store, request: &Request<'_>, times: u64) -> Result<u64, StoreError> {
    let start = Barrier::new(usize::try_from(times).unwrap_or(usize::MAX));
    let allowed = AtomicU64::new(0);
    thread::scope(|threads| {
        for _ in 0..times {
            threads.spawn(|| {
                start.wait();
                let outcomes = block_on(store.charge(request)).unwrap_or_default();
                let is_allowed = outcomes.first().is_some_and(|outcome| outcome.allowed);
                allowed.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
            });
        }
    });
    Ok(allowed.into_inner())
}

fn in_lines<'a>(mismatches: impl IntoIterator<Item = &'a Mismatch>) -> String {
    let lines = mismatches
        .into_iter()
        .map(|mismatch| format!("\n{mismatch}"));
    lines.collect()
}
