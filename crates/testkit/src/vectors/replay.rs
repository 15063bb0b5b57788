//! Replays lines on a store: all that apply, or one up to its first mismatch.
//!
//! How a single step is played is left to [`Player`].

use std::future::poll_fn;
use std::task::Poll;

use tidegate_core::{Request, Store, StoreError};

use super::known::{Vector, all};
use super::mismatch::{Mismatch, VectorProblem};
use super::not_replayed::NotReplayed;
use super::player::Player;

/// What came of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The lines that were played, whether they agreed or not.
    pub ids: Vec<String>,
    /// Where the store differs: the first mismatch of each line.
    pub mismatches: Vec<Mismatch>,
}

/// Plays every line that applies. Each has a scope of its own, so one store serves for all of them.
///
/// The store has to keep states whose supplied time is long past.
pub async fn replay_all(store: &Store) -> Result<Replayed, serde_json::Error> {
    let mut replayed = Replayed::default();
    for vector in all()? {
        if NotReplayed::reason_for(&vector.id).is_none() {
            replayed
                .mismatches
                .extend(replay(store, &vector, in_flight_together).await.err());
            replayed.ids.push(vector.id);
        }
    }
    Ok(replayed)
}

/// Plays one line, up to the first mismatch.
///
/// `race` makes a request so many times at once, and returns how many of them were allowed.
pub async fn replay(
    store: &Store,
    vector: &Vector,
    race: impl AsyncFn(&Store, &Request<'_>, u64) -> Result<u64, StoreError>,
) -> Result<(), Mismatch> {
    let at = |step: usize| {
        move |problem: VectorProblem| Mismatch {
            id: vector.id.clone(),
            step,
            field: problem.field,
            problem: problem.text,
        }
    };
    let player = Player::new(store, vector).map_err(at(0))?;
    for (field, known) in &vector.others {
        player.compare(field, known, None).map_err(at(0))?;
    }
    player.use_before().await.map_err(at(0))?;
    for (index, step) in vector.steps.iter().enumerate() {
        let answered = player.play(step, &race).await;
        answered.map_err(at(index + 1))?;
    }
    Ok(())
}

/// Makes a request so many times without waiting for an answer in between, and returns how many were
/// allowed.
pub async fn in_flight_together(
    store: &Store,
    request: &Request<'_>,
    times: u64,
) -> Result<u64, StoreError> {
    let mut calls: Vec<_> = (0..times)
        .map(|_| Box::pin(store.charge(request)))
        .collect();
    let mut answers = Vec::new();
    poll_fn(|context| {
        calls.retain_mut(|call| match call.as_mut().poll(context) {
            Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            Poll::Pending => true,
        });
        if calls.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    let mut allowed = 0;
    for answer in answers {
        allowed += u64::from(answer?.iter().all(|outcome| outcome.allowed));
    }
    Ok(allowed)
}
