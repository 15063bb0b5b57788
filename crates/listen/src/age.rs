//! The age of a connection: when it is asked to end, and when it is cut.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::{ConnectionAge, ListenSettings};

/// What an age requires of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgeAction {
    /// To end after its answers.
    Leave,
    /// To be cut.
    Cut,
}

/// The timer of one connection.
pub(crate) struct AgeTimer {
    timer: Pin<Box<Sleep>>,
    /// What is left after the age; `None` once the connection was asked to end.
    grace: Option<Duration>,
}

impl AgeTimer {
    /// The timer of a new connection, if ages are bounded.
    pub(crate) fn of(settings: &ListenSettings) -> Option<Self> {
        let ConnectionAge { age, grace } = settings.max_age?;
        Some(Self {
            timer: Box::pin(sleep(varied(age, RandomState::new().hash_one(0)))),
            grace: Some(grace),
        })
    }

    /// Ready with each action once.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AgeAction> {
        std::task::ready!(self.timer.as_mut().poll(cx));
        match self.grace.take() {
            Some(grace) => {
                self.timer.set(sleep(grace));
                Poll::Ready(AgeAction::Leave)
            }
            None => Poll::Ready(AgeAction::Cut),
        }
    }
}

/// A tenth more or less, so that connections that began together do not end together.
fn varied(age: Duration, random: u64) -> Duration {
    // From 900 to 1,100 thousandths.
    let thousandths = 900 + u32::try_from(random % 201).unwrap_or(100);
    (age / 1_000).saturating_mul(thousandths)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn an_age_varies_by_a_tenth() {
        let age = Duration::from_secs(1_000);
        assert_eq!(varied(age, 0), Duration::from_mins(15));
        assert_eq!(varied(age, 100), age);
        assert_eq!(varied(age, 200), Duration::from_secs(1_100));
        assert_eq!(varied(age, 201), Duration::from_mins(15));
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the time of a paused runtime")]
    async fn a_connection_is_asked_to_end_and_cut_after_the_grace() {
        let settings = ListenSettings {
            max_age: Some(ConnectionAge {
                age: Duration::from_secs(1_000),
                grace: Duration::from_secs(10),
            }),
            ..ListenSettings::default()
        };
        let mut timer = AgeTimer::of(&settings).unwrap();
        let begun = Instant::now();
        let left = std::future::poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(left, AgeAction::Leave);
        let age = begun.elapsed().as_secs();
        assert!((900..=1_100).contains(&age), "{age}");
        let asked = Instant::now();
        let cut = std::future::poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(cut, AgeAction::Cut);
        assert_eq!(asked.elapsed().as_secs(), 10);
        assert!(AgeTimer::of(&ListenSettings::default()).is_none());
    }
}
