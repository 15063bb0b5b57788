//! What a wall clock showed over a run: it drifts, and is set forward and back.

use crate::clocks::{Drift, WallClock};

/// The readings of one wall clock, by true time.
#[derive(Debug, Clone)]
pub(crate) struct ClockTimeline {
    drift: Drift,
    /// From when on it was ahead by how much, in order.
    steps: Vec<(u64, i64)>,
}

impl ClockTimeline {
    pub(crate) fn new(drift: Drift, ahead: i64) -> Self {
        Self {
            drift,
            steps: vec![(0, ahead)],
        }
    }

    /// It was set by so much at this true time.
    pub(crate) fn step(&mut self, at: u64, by: i64) {
        let ahead = self.steps.last().map_or(0, |(_, ahead)| *ahead);
        self.steps.push((at, ahead + by));
    }

    fn shown(&self, at: u64, ahead: i64) -> u64 {
        let clock = WallClock {
            drift: self.drift,
            ahead,
        };
        clock.at(at).as_micros()
    }

    /// What it shows at a true time.
    pub(crate) fn at(&self, at: u64) -> u64 {
        let before = self.steps.iter().rev().find(|(from, _)| *from <= at);
        self.shown(at, before.map_or(0, |(_, ahead)| *ahead))
    }

    /// The latest that it has shown by a true time.
    pub(crate) fn latest(&self, at: u64) -> u64 {
        let ends = self.steps.windows(2).filter(|pair| pair[1].0 <= at);
        let before = ends.map(|pair| self.shown(pair[1].0, pair[0].1));
        before.max().unwrap_or(0).max(self.at(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::BEGIN;

    #[test]
    fn a_clock_that_is_set_back_has_shown_a_later_time() {
        let begin = BEGIN.as_micros();
        let mut clock = ClockTimeline::new(Drift::NONE, 5);
        clock.step(100, -50);
        clock.step(200, 1_000);
        assert_eq!(clock.at(99), begin + 104);
        assert_eq!(
            (clock.at(100), clock.latest(100)),
            (begin + 55, begin + 105)
        );
        assert_eq!(clock.latest(190), begin + 145);
        assert_eq!(
            (clock.at(200), clock.latest(200)),
            (begin + 1_155, begin + 1_155)
        );
    }
}
