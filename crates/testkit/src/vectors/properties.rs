//! The lines that state a property instead of answers, each held for a range of limits.

use tidegate_core::{Micros, Timestamp};

use super::known::Count;
use super::mismatch::VectorProblem;
use super::player::{Player, wait};

impl Player<'_> {
    pub(super) async fn hold_property(&self) -> Result<(), VectorProblem> {
        match self.vector.id.as_str() {
            "gov-wait" => self.waiting_as_long_as_said_is_enough().await,
            "gov-prop-not-until" => self.waiting_less_is_not().await,
            _ => Err(VectorProblem::new(
                "property",
                "is neither checked nor listed",
            )),
        }
    }

    /// After each denial, waits exactly as long as the denial says: all of twenty charges conform.
    /// Held for every limit that denies some of them, the known one included.
    async fn waiting_as_long_as_said_is_enough(&self) -> Result<(), VectorProblem> {
        for count in 1..20 {
            let limit = self.limit(count, Some(count))?;
            let (key, mut now) = (count.to_string(), Timestamp::EPOCH);
            for number in 1..=20 {
                let charge = self.asking(&limit, &key, 1);
                let first = self.charge(charge, now).await?;
                if !first.allowed {
                    now = now + wait(first)?;
                    let outcome = self.charge(charge, now).await?;
                    hold(outcome.allowed, || {
                        format!("{limit}: charge {number} waited in vain")
                    })?;
                }
                hold(first.allowed == (number <= count), || {
                    format!("{limit}: charge {number} was allowed: {}", first.allowed)
                })?;
            }
        }
        Ok(())
    }

    /// Takes the burst, then one request whenever one has come back; each time the next is denied at
    /// every instant before its `retry_after`, and allowed at it.
    async fn waiting_less_is_not(&self) -> Result<(), VectorProblem> {
        for count in self.sample_counts()? {
            let limit = self.limit(count, None)?;
            let key = count.to_string();
            let one = self.asking(&limit, &key, 1);
            let burst = self.asking(&limit, &key, count);
            let taken = self.charge(burst, Timestamp::EPOCH).await?;
            hold(taken.allowed, || format!("{limit}: the burst was denied"))?;
            for number in 1..=10 {
                let now = Timestamp::from_micros((number * self.window.get()).div_ceil(count));
                let back = self.charge(one, now).await?;
                hold(back.allowed, || format!("{limit}: {number} had come back"))?;
                let wait_for = wait(self.charge(one, now).await?)?.get();
                let before = (0..8)
                    .map(|part| wait_for * part / 8)
                    .chain([wait_for.saturating_sub(1)]);
                for (waited, allowed) in before.map(|wait| (wait, false)).chain([(wait_for, true)])
                {
                    let asked = self.peek(one, now + Micros::new(waited)).await?;
                    hold(asked.allowed == allowed, || {
                        format!(
                            "{limit}: the wait is {wait_for} µs, and after {waited} µs allowed: {}",
                            asked.allowed
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Counts from the line's range, its ends among them.
    fn sample_counts(&self) -> Result<Vec<u64>, VectorProblem> {
        let range = match &self.vector.limit {
            Some(Count::AnyOf(range)) => range.split_once(".."),
            _ => None,
        };
        let ends = range.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        let (low, high): (u64, u64) =
            ends.ok_or_else(|| VectorProblem::new("limit", "is not a range"))?;
        let between = [2, 3, 7, 60, 999, 1_000, 3_001];
        let inside = between
            .into_iter()
            .filter(|count| (low..high).contains(count));
        Ok([low, high].into_iter().chain(inside).collect())
    }
}

fn hold(holds: bool, problem: impl FnOnce() -> String) -> Result<(), VectorProblem> {
    if holds {
        Ok(())
    } else {
        Err(VectorProblem::new("property", problem()))
    }
}
